//! Private copies of keys: PostgreSQL and libpq refuse keys that others may read, and a mounted Secret's modes are not ours to set.

use std::io;
use std::path::{Path, PathBuf};

use crate::files::{make_directory, read_bounded, write_atomically};
use crate::limits::SECRET_BYTES_MAX;

/// Certificate, key and authority, as files only this user can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPair {
    pub certificate: PathBuf,
    pub key: PathBuf,
    pub authority: PathBuf,
}

/// A Secret that is not usable yet.
#[derive(Debug, thiserror::Error)]
#[error(
    "failed to take the certificate from {secret}; the operator has to make this Secret with tls.crt, tls.key and ca.crt"
)]
pub struct KeyPairError {
    secret: PathBuf,
    source: io::Error,
}

impl KeyPair {
    /// Where the copies of `name` are, or will be, below the run directory.
    pub fn in_run_directory(run: &Path, name: &str) -> Self {
        let directory = run.join("tls").join(name);
        Self {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
            authority: directory.join("ca.crt"),
        }
    }

    /// Copies them from a mounted Secret. An incomplete Secret changes nothing.
    pub fn copy_from(&self, secret: &Path) -> Result<(), KeyPairError> {
        self.copy(secret).map_err(|source| KeyPairError {
            secret: secret.to_owned(),
            source,
        })
    }

    fn copy(&self, secret: &Path) -> io::Result<()> {
        let read = |name: &str| {
            let content = read_bounded(&secret.join(name), SECRET_BYTES_MAX)?;
            let empty = || io::Error::other(format!("{name} is empty"));
            if content.is_empty() {
                Err(empty())
            } else {
                Ok(content)
            }
        };
        let (certificate, key, authority) = (read("tls.crt")?, read("tls.key")?, read("ca.crt")?);
        for file in [&self.certificate, &self.key, &self.authority] {
            if let Some(directory) = file.parent() {
                make_directory(directory, 0o700)?;
            }
        }
        write_atomically(&self.certificate, &certificate, 0o600)?;
        write_atomically(&self.key, &key, 0o600)?;
        write_atomically(&self.authority, &authority, 0o600)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn keys_are_copied_privately_and_an_incomplete_secret_changes_nothing() {
        let (secret, run) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            fs::write(secret.path().join(name), name).unwrap();
        }
        let pair = KeyPair::in_run_directory(run.path(), "server");
        pair.copy_from(secret.path()).unwrap();
        assert_eq!(fs::read_to_string(&pair.key).unwrap(), "tls.key");
        assert_eq!(
            fs::metadata(&pair.key).unwrap().permissions().mode() & 0o777,
            0o600
        );

        fs::write(secret.path().join("tls.key"), "new").unwrap();
        fs::write(secret.path().join("ca.crt"), "").unwrap();
        let error = pair.copy_from(secret.path()).unwrap_err();
        assert!(error.to_string().contains("operator"), "{error}");
        assert_eq!(fs::read_to_string(&pair.key).unwrap(), "tls.key");
    }
}
