//! The sandbox's directory: the user's, which lasts, or a temporary one that goes with the sandbox.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

/// Everything in it (keys, passwords, tables) belongs to the user who started the sandbox.
const OWNER_ONLY: u32 = 0o700;

/// Where a sandbox keeps what it has.
pub enum DataDirectory {
    Lasting(PathBuf),
    Temporary(TempDir),
}

impl DataDirectory {
    /// Opens or makes the directory; without a path a temporary one.
    pub fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            let directory = tempfile::Builder::new().prefix("geodb-").tempdir();
            return Ok(Self::Temporary(
                directory.context("failed to make a temporary directory")?,
            ));
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(OWNER_ONLY)
            .create(path)
            .with_context(|| format!("failed to make the data directory {}", path.display()))?;
        // Absolute, because pods and printed lines are used from other places.
        let path = path
            .canonicalize()
            .with_context(|| format!("failed to resolve the data directory {}", path.display()))?;
        Ok(Self::Lasting(path))
    }

    pub fn path(&self) -> &Path {
        match self {
            Self::Lasting(path) => path,
            Self::Temporary(directory) => directory.path(),
        }
    }

    /// How to keep the logs, for someone whose sandbox failed.
    pub fn where_the_logs_are(&self) -> String {
        match self {
            Self::Lasting(path) => format!(
                "The logs are in {}/sandbox.log and {}/logs.",
                path.display(),
                path.display()
            ),
            Self::Temporary(_) => "Run it again with --data DIRECTORY to keep the logs.".to_owned(),
        }
    }

    /// Removes a temporary directory; a lasting one stays.
    pub fn close(self) -> Result<()> {
        match self {
            Self::Lasting(_) => Ok(()),
            Self::Temporary(directory) => {
                let path = directory.path().to_owned();
                directory
                    .close()
                    .with_context(|| format!("failed to remove {}", path.display()))
            }
        }
    }
}
