//! Which `127.N.0.0/16` a sandbox lives in. The listener on `127.N.0.1:6443` is the lock on the range.
//!
//! N is drawn when a data directory is new and kept in it, because addresses end up in what runs there. It only claims loopback
//! addresses: nothing here can be reached from another machine.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use rand::Rng;
use rand::seq::SliceRandom;

use super::files;

/// Below 64 live what distributions put on loopback (127.0.0.1, 127.0.1.1, 127.0.0.53); 255 is left for broadcasts.
const FIRST_RANGE: u8 = 64;
const LAST_RANGE: u8 = 254;
/// Where the API server listens in its range: what a cluster's own does.
pub const API_PORT: u16 = 6443;
const RANGE_FILE: &str = "range";

#[derive(Debug, thiserror::Error)]
pub enum RangeError {
    #[error(
        "127.{range}.0.1:{API_PORT} is taken, and {path} says that this sandbox lives there: another sandbox runs on this data directory \
         or on a copy of it; stop that one first, or use another --data directory"
    )]
    Taken { range: u8, path: PathBuf },
    #[error(
        "every address range from 127.{FIRST_RANGE}.0.1 to 127.{LAST_RANGE}.0.1 has something on port {API_PORT}; stop a sandbox first"
    )]
    NoneFree,
    #[error(
        "{path} should hold one number from {FIRST_RANGE} to {LAST_RANGE}, but holds {found:?}; put back the number this sandbox had"
    )]
    Damaged { path: PathBuf, found: String },
    #[error("failed to read or write {path}; check its permissions and the free space")]
    File { path: PathBuf, source: io::Error },
    #[error("failed to listen on 127.{range}.0.1:{API_PORT}")]
    Listen { range: u8, source: io::Error },
}

/// The address the API server has in a range.
pub fn api_address(range: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, range, 0, 1), API_PORT))
}

/// Takes the range kept in `data`, or draws a free one and keeps it there; without a directory any free one.
pub fn claim(data: Option<&Path>) -> Result<(u8, TcpListener), RangeError> {
    let Some(data) = data else {
        return draw(&mut rand::rng());
    };
    let path = data.join(RANGE_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let range = match text.trim().parse::<u8>() {
                Ok(range) if (FIRST_RANGE..=LAST_RANGE).contains(&range) => range,
                _ => return Err(RangeError::Damaged { path, found: text }),
            };
            let listener =
                TcpListener::bind(api_address(range)).map_err(|source| match source.kind() {
                    io::ErrorKind::AddrInUse => RangeError::Taken { range, path },
                    _ => RangeError::Listen { range, source },
                })?;
            Ok((range, listener))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            files::make_directory(data).map_err(|source| RangeError::File {
                path: data.to_owned(),
                source,
            })?;
            let (range, listener) = draw(&mut rand::rng())?;
            files::write_private(&path, format!("{range}\n").as_bytes())
                .map_err(|source| RangeError::File { path, source })?;
            Ok((range, listener))
        }
        Err(source) => Err(RangeError::File { path, source }),
    }
}

fn draw(random: &mut impl Rng) -> Result<(u8, TcpListener), RangeError> {
    let mut ranges = (FIRST_RANGE..=LAST_RANGE).collect::<Vec<_>>();
    ranges.shuffle(random);
    for range in ranges {
        match TcpListener::bind(api_address(range)) {
            Ok(listener) => return Ok((range, listener)),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(source) => return Err(RangeError::Listen { range, source }),
        }
    }
    Err(RangeError::NoneFree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_kept_and_cannot_be_taken_twice() {
        let directory = tempfile::tempdir().unwrap();
        let (range, listener) = claim(Some(directory.path())).unwrap();
        assert_eq!(listener.local_addr().unwrap(), api_address(range));
        let error = claim(Some(directory.path())).unwrap_err();
        assert!(
            matches!(error, RangeError::Taken { range: taken, .. } if taken == range),
            "{error}"
        );
        drop(listener);
        assert_eq!(claim(Some(directory.path())).unwrap().0, range);
    }

    #[test]
    fn a_damaged_file_is_reported_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "seven", "3", "255", "300"] {
            fs::write(directory.path().join(RANGE_FILE), text).unwrap();
            assert!(
                matches!(
                    claim(Some(directory.path())),
                    Err(RangeError::Damaged { .. })
                ),
                "{text:?}"
            );
            assert_eq!(
                fs::read_to_string(directory.path().join(RANGE_FILE)).unwrap(),
                text
            );
        }
    }
}
