//! Small files that must be private, complete or absent: keys, the kubeconfig, the number of the address range.
//!
//! Not a storage layer: objects live in `storage`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Readable and writable by their owner only: everything here is a secret or decides who may connect.
pub(super) const PRIVATE_FILE_MODE: u32 = 0o600;
/// A directory of such files.
pub(super) const PRIVATE_DIRECTORY_MODE: u32 = 0o700;

/// Writes `contents` so that a reader, or a crash, sees the old file or the whole new one, never a part.
pub(super) fn write_private(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = Path::new(&unfinished);
    // An unfinished file of a crash may have been made with other permissions; ours must be private from its first byte.
    match fs::remove_file(unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(PRIVATE_FILE_MODE)
        .open(unfinished)?;
    file.write_all(contents)?;
    file.sync_all()?;
    fs::rename(unfinished, path)?;
    sync_parent(path)
}

/// Makes the directory and its parents if they are missing. One that exists keeps its permissions: it may be somebody's home.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_DIRECTORY_MODE)
        .create(path)
}

/// A directory that only ever holds secrets: made private, or made private again.
pub(super) fn private_directory(path: &Path) -> io::Result<()> {
    make_directory(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(PRIVATE_DIRECTORY_MODE))
}

/// A rename is durable only once the directory is.
pub(super) fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => fs::File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}
