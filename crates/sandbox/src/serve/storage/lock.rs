//! One sandbox per data directory: an advisory lock that the kernel drops with the process, however it ends.

use std::fs::File;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::StorageError;
use crate::serve::files;

const LOCK_FILE: &str = "lock";

/// Held as long as the value lives. The file stays: removing it would let two processes lock two files of the same name.
#[derive(Debug)]
pub struct DirectoryLock {
    _file: File,
}

impl DirectoryLock {
    pub fn take(directory: &Path) -> Result<Self, StorageError> {
        let path = directory.join(LOCK_FILE);
        let fail = |source| StorageError::File {
            path: path.clone(),
            source,
        };
        files::make_directory(directory).map_err(fail)?;
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(fail)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(StorageError::Locked {
                path: directory.to_owned(),
            }),
            Err(error) => Err(fail(error.into())),
        }
    }
}
