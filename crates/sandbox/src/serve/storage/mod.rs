//! Where objects are when the process is not: nowhere (tests), or one `state.redb` file (the command).
//!
//! It stores what `core` committed and gives it back at start. It knows nothing of kinds, and it never decides a revision.

pub mod file;
mod lock;

use std::path::PathBuf;

use serde_json::Value;

use crate::core::Change;

pub use lock::DirectoryLock;

/// Everything there was, as of `revision`.
#[derive(Debug, Default)]
pub struct Loaded {
    pub revision: u64,
    pub objects: Vec<StoredObject>,
}

#[derive(Debug, PartialEq)]
pub struct StoredObject {
    /// Plural and group, as in [`Change::resource`].
    pub resource: String,
    pub namespace: String,
    pub name: String,
    pub value: Value,
}

/// Makes changes durable. One call is one transaction: all of it, or nothing.
pub trait Storage: Send {
    fn commit(&mut self, changes: &[Change]) -> Result<(), StorageError>;
}

#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    #[error("failed to read or write {path}; check its permissions and the free space")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "another sandbox uses the data directory {path}; stop it first, or use another --data directory"
    )]
    Locked { path: PathBuf },
    #[error(
        "{path} is not a sandbox's state ({detail}), and it was left as it is; move it away to start with an empty cluster, or use another \
         --data directory"
    )]
    Foreign { path: PathBuf, detail: String },
    #[error(
        "{path} has format {found}, and this program knows only up to {known}; run the newer geodb that wrote it"
    )]
    Newer {
        path: PathBuf,
        found: u64,
        known: u64,
    },
    #[error(
        "{path} is damaged ({detail}), and it was left as it is; restore it from a copy, or move it away to start with an empty cluster"
    )]
    Damaged { path: PathBuf, detail: String },
    #[error(
        "failed to write to {path}: {detail}; check the free space, then start again: nothing that was acknowledged is lost"
    )]
    Write { path: PathBuf, detail: String },
}
