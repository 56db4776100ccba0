//! Volumes as directories below `DATA/volumes/NAMESPACE/CLAIM-UID`. Nothing outside of that is ever created or removed here.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Only the owner of the sandbox may look into volumes: they hold databases.
const MODE_PRIVATE: u32 = 0o700;

#[derive(Debug, thiserror::Error)]
pub(crate) enum DirectoryError {
    #[error("{0:?} cannot be a part of a volume's path")]
    BadName(String),
    #[error("{path:?} is not {expected:?}, the directory made for this volume; it is left alone")]
    Foreign { path: PathBuf, expected: PathBuf },
    #[error(
        "{0:?} is a symbolic link or no directory; the volume is left alone, remove it by hand"
    )]
    NotADirectory(PathBuf),
    #[error("failed to {what} {path:?}: {source}")]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

/// Where the volume of a claim lives. Names are checked although the API server has done so: they become a path that is removed.
pub(crate) fn path(
    volumes: &Path,
    namespace: &str,
    claim_uid: &str,
) -> Result<PathBuf, DirectoryError> {
    for part in [namespace, claim_uid] {
        let safe = !part.is_empty()
            && part
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || character == '-');
        if !safe {
            return Err(DirectoryError::BadName(part.to_owned()));
        }
    }
    Ok(volumes.join(namespace).join(claim_uid))
}

/// Makes the directory, private to its owner. It is no error if it is there already: a crash may have come between it and its object.
pub(crate) fn create(
    volumes: &Path,
    namespace: &str,
    claim_uid: &str,
) -> Result<PathBuf, DirectoryError> {
    let path = path(volumes, namespace, claim_uid)?;
    let made = DirBuilder::new()
        .recursive(true)
        .mode(MODE_PRIVATE)
        .create(&path);
    made.map_err(|source| DirectoryError::Io {
        what: "create",
        path: path.clone(),
        source,
    })?;
    refuse_links(volumes, namespace, claim_uid)?;
    Ok(path)
}

/// Removes the volume's directory with everything in it, never following a symbolic link. It is no error if it is gone already.
pub(crate) fn remove(
    volumes: &Path,
    recorded: &Path,
    namespace: &str,
    claim_uid: &str,
) -> Result<(), DirectoryError> {
    let expected = path(volumes, namespace, claim_uid)?;
    if recorded != expected {
        return Err(DirectoryError::Foreign {
            path: recorded.to_owned(),
            expected,
        });
    }
    refuse_links(volumes, namespace, claim_uid)?;
    match fs::remove_dir_all(&expected) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(source) => {
            return Err(DirectoryError::Io {
                what: "remove",
                path: expected,
                source,
            });
        }
    }
    // The namespace's directory goes with its last volume; it is not empty otherwise, and then it stays.
    let _ = fs::remove_dir(volumes.join(namespace));
    Ok(())
}

/// `remove_dir_all` does not follow links inside the volume; the way to it must not lead through one either.
fn refuse_links(volumes: &Path, namespace: &str, claim_uid: &str) -> Result<(), DirectoryError> {
    let steps = [
        volumes.to_owned(),
        volumes.join(namespace),
        volumes.join(namespace).join(claim_uid),
    ];
    for step in steps {
        match fs::symlink_metadata(&step) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(DirectoryError::NotADirectory(step)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(source) => {
                return Err(DirectoryError::Io {
                    what: "look at",
                    path: step,
                    source,
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    const UID: &str = "5f3a9c00-0000-4000-8000-000000000001";

    #[test]
    fn a_volume_is_private_and_goes_with_its_content() {
        let data = tempfile::tempdir().expect("a directory");
        let volumes = data.path().join("volumes");
        let made = create(&volumes, "grove", UID).expect("created");
        assert_eq!(made, volumes.join("grove").join(UID));
        assert_eq!(
            fs::metadata(&made).expect("there").permissions().mode() & 0o777,
            0o700
        );
        fs::write(made.join("PG_VERSION"), "15").expect("written");
        create(&volumes, "grove", UID).expect("creating twice is fine");
        assert!(made.join("PG_VERSION").exists(), "and loses nothing");
        remove(&volumes, &made, "grove", UID).expect("removed");
        assert!(!volumes.join("grove").exists());
        remove(&volumes, &made, "grove", UID).expect("removing twice is fine");
    }

    #[test]
    fn links_are_never_followed() {
        let data = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        fs::write(outside.path().join("precious"), "x").expect("written");
        let volumes = data.path().join("volumes");
        let made = create(&volumes, "grove", UID).expect("created");
        symlink(outside.path(), made.join("inside")).expect("linked");
        remove(&volumes, &made, "grove", UID).expect("removed");
        assert!(outside.path().join("precious").exists());

        fs::create_dir_all(volumes.join("grove")).expect("created");
        symlink(outside.path(), volumes.join("grove").join(UID)).expect("linked");
        let refused =
            remove(&volumes, &made, "grove", UID).expect_err("a link in the place of the volume");
        assert!(
            matches!(refused, DirectoryError::NotADirectory(_)),
            "{refused}"
        );
        assert!(outside.path().join("precious").exists());
    }

    #[test]
    fn only_the_directory_made_for_the_volume_is_removed() {
        let data = tempfile::tempdir().expect("a directory");
        let volumes = data.path().join("volumes");
        create(&volumes, "grove", UID).expect("created");
        for foreign in ["/etc", "/", "volumes/grove", ""] {
            let refused =
                remove(&volumes, Path::new(foreign), "grove", UID).expect_err("a foreign path");
            assert!(
                matches!(refused, DirectoryError::Foreign { .. }),
                "{refused}"
            );
        }
        for (namespace, uid) in [("..", UID), ("grove", ".."), ("grove", ""), ("a/b", UID)] {
            assert!(
                matches!(
                    path(&volumes, namespace, uid),
                    Err(DirectoryError::BadName(_))
                ),
                "{namespace} {uid}"
            );
        }
    }
}
