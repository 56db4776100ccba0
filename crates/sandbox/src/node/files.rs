//! Writing a volume's files so that a reader sees all of the old ones or all of the new ones: a directory per version, one link that names the
//! current one, and a link per file through it. The layout is the one programs in a cluster already watch for (`..data`).

use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path};

use super::projection::ProjectedFile;

const CURRENT: &str = "..data";
const NEXT: &str = "..data_next";

/// Makes `directory` hold exactly `files`. Does nothing when it already does.
pub fn write(directory: &Path, files: &[ProjectedFile], version: &str) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    if holds(directory, files) {
        return Ok(());
    }
    let new = format!("..{version}");
    let target = directory.join(&new);
    std::fs::create_dir_all(&target)?;
    for file in files {
        let path = target.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&path, &file.content)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(file.mode))?;
    }
    let _ = std::fs::remove_file(directory.join(NEXT));
    symlink(&new, directory.join(NEXT))?;
    std::fs::rename(directory.join(NEXT), directory.join(CURRENT))?;
    link_and_tidy(directory, files, &new)
}

fn link_and_tidy(directory: &Path, files: &[ProjectedFile], new: &str) -> io::Result<()> {
    let tops: Vec<&Path> = files.iter().filter_map(|file| top(&file.path)).collect();
    for name in &tops {
        let link = directory.join(name);
        if link.symlink_metadata().is_err() {
            symlink(Path::new(CURRENT).join(name), &link)?;
        }
    }
    for entry in std::fs::read_dir(directory)?.flatten() {
        let name = entry.file_name();
        let text = name.to_string_lossy();
        let stale = if text.starts_with("..") {
            text != CURRENT && text != new
        } else {
            !tops.contains(&Path::new(&name))
        };
        if stale && entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else if stale {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn top(path: &Path) -> Option<&Path> {
    path.components().find_map(|part| match part {
        Component::Normal(name) => Some(Path::new(name)),
        _ => None,
    })
}

/// Whether the current version has these contents and nothing else at the top.
fn holds(directory: &Path, files: &[ProjectedFile]) -> bool {
    let current = directory.join(CURRENT);
    if !current.is_dir() {
        return false;
    }
    let same = |file: &ProjectedFile| {
        let path = current.join(&file.path);
        let mode = path
            .metadata()
            .map(|metadata| metadata.permissions().mode() & 0o777);
        mode.is_ok_and(|mode| mode == file.mode)
            && std::fs::read(path).is_ok_and(|content| content == file.content)
    };
    let tops: std::collections::BTreeSet<_> =
        files.iter().filter_map(|file| top(&file.path)).collect();
    let links = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with(".."))
        .count();
    links == tops.len() && files.iter().all(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, mode: u32, content: &str) -> ProjectedFile {
        ProjectedFile {
            path: path.into(),
            mode,
            content: content.as_bytes().to_vec(),
        }
    }

    #[test]
    fn a_new_version_replaces_the_old_one_whole() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        write(
            path,
            &[file("a", 0o644, "1"), file("sub/b", 0o600, "2")],
            "one",
        )
        .expect("written");
        assert_eq!(std::fs::read_to_string(path.join("a")).expect("read"), "1");
        assert_eq!(
            path.join("sub/b")
                .metadata()
                .expect("there")
                .permissions()
                .mode()
                & 0o777,
            0o600
        );
        write(path, &[file("a", 0o400, "3")], "two").expect("written");
        assert_eq!(std::fs::read_to_string(path.join("a")).expect("read"), "3");
        let mut names: Vec<_> = std::fs::read_dir(path)
            .expect("read")
            .map(|entry| {
                entry
                    .expect("entry")
                    .file_name()
                    .into_string()
                    .expect("text")
            })
            .collect();
        names.sort();
        assert_eq!(names, ["..data", "..two", "a"]);
    }

    #[test]
    fn the_same_files_are_not_written_again() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for version in ["one", "two"] {
            write(directory.path(), &[file("a", 0o644, "1")], version).expect("written");
        }
        assert_eq!(
            std::fs::read_link(directory.path().join("..data")).expect("a link"),
            Path::new("..one")
        );
    }
}
