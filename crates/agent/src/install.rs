//! Copies the running program where the database's container finds it: the init container's whole job.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::Context;

use crate::files::sync_directory;

/// Copies this program to `directory/geodb`, mode 0755, so that it is there completely or not at all.
pub fn install(directory: &Path) -> anyhow::Result<()> {
    // Not `current_exe`: its path may name another file by now, this one is the program that runs.
    copy_program(Path::new("/proc/self/exe"), directory)
        .with_context(|| format!("failed to install the agent into {}", directory.display()))
}

fn copy_program(program: &Path, directory: &Path) -> io::Result<()> {
    let beside = directory.join("geodb.new");
    let mut source = File::open(program)?;
    let mut target = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o755)
        .open(&beside)?;
    io::copy(&mut source, &mut target)?;
    target.set_permissions(Permissions::from_mode(0o755))?;
    target.sync_all()?;
    drop(target);
    fs::rename(&beside, directory.join("geodb"))?;
    sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_program_is_this_one_and_installing_again_replaces_it() {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            install(directory.path()).unwrap();
            let installed = directory.path().join("geodb");
            let own = fs::metadata(std::env::current_exe().unwrap())
                .unwrap()
                .len();
            let metadata = fs::metadata(&installed).unwrap();
            assert_eq!(
                (metadata.len(), metadata.permissions().mode() & 0o777),
                (own, 0o755)
            );
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_missing_directory_is_named_in_the_error() {
        let error = install(Path::new("/nonexistent/place")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/place"), "{error}");
    }
}
