//! The instance's claim: what the agent remembers in it, whether there is data, whose it is, and who may use it.
//!
//! Data is made in a directory beside its final place and marked with the incarnation that made it; only a rename makes it *the* data, so
//! what an interrupted initialisation or clone left is never mistaken for a database. A directory without our mark is never written to.
//! It is not PostgreSQL: what happens inside the data directory is in [`crate::postgres`].

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use geodb_ha::instance::{Data, DataKind, Foreign, Volume};
use geodb_ha::register::INCARNATION_RANDOM_LENGTH;
use geodb_ha::{Epoch, Incarnation, RegisterError};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::environment::Paths;
use crate::files::{if_exists, make_directory, read_bounded, sync_directory, write_atomically};
use crate::limits::{VOLUME_LOCK_DEADLINE, VOLUME_LOCK_INTERVAL};

/// In the data directory: the incarnation it belongs to.
const MARK: &str = "geodb.incarnation";
/// In the state directory: what the agent remembers.
const MEMORY: &str = "instance.json";
/// In the state directory: held by the agent and by every process of its PostgreSQL.
const LOCK: &str = "lock";
/// Beside the data directory: data that is being made.
const STAGING: &str = "pgdata.making";
/// Bytes of our own small files.
const SMALL_FILE_BYTES_MAX: u64 = 4096;

/// What an instance remembers across restarts; on disk before it is acted on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Memory {
    pub incarnation: Incarnation,
    #[serde(default)]
    pub last_promoted_epoch: Epoch,
    /// Which database this incarnation has data of; none until its data was complete once.
    #[serde(default)]
    pub system_identifier: Option<String>,
}

/// Why a volume cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error("failed to {action} {path}; is the volume mounted and writable for this user?")]
    Io {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("another process has held the volume for {} s: an earlier pod of this instance is still running", VOLUME_LOCK_DEADLINE.as_secs())]
    InUse,
    #[error("the instance's name cannot be part of an identity")]
    Name(#[from] RegisterError),
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VolumeError {
    let path = path.to_owned();
    move |source| VolumeError::Io {
        action,
        path,
        source,
    }
}

/// The claim, locked by this agent.
pub struct Claim {
    data: PathBuf,
    staging: PathBuf,
    memory_path: PathBuf,
    lock: File,
}

impl Claim {
    /// Waits until no process of an earlier container uses the volume, and keeps it.
    ///
    /// PostgreSQL inherits the lock (see [`Claim::inherited_lock`]), so it is free only when every process of it is gone: PostgreSQL's own
    /// check goes by process numbers, which mean nothing in another container.
    pub async fn lock(paths: &Paths) -> Result<Self, VolumeError> {
        make_directory(&paths.state, 0o700).map_err(failed("make", &paths.state))?;
        sync_directory(&paths.volume).map_err(failed("sync", &paths.volume))?;
        let path = paths.state.join(LOCK);
        let open = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path);
        let lock = open.map_err(failed("open", &path))?;
        let deadline = Instant::now() + VOLUME_LOCK_DEADLINE;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(error) if error != rustix::io::Errno::WOULDBLOCK => {
                    return Err(failed("lock", &path)(error.into()));
                }
                Err(_) if Instant::now() >= deadline => return Err(VolumeError::InUse),
                Err(_) => tokio::time::sleep(VOLUME_LOCK_INTERVAL).await,
            }
        }
        Ok(Self {
            data: paths.data.clone(),
            staging: paths.volume.join(STAGING),
            memory_path: paths.state.join(MEMORY),
            lock,
        })
    }

    /// A descriptor of the lock for a child to keep: the lock lives as long as any of them.
    pub fn inherited_lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn staging(&self) -> &Path {
        &self.staging
    }

    /// What the instance remembers. On a volume with nothing in it, a new incarnation, remembered before any data is made.
    /// `Err(Foreign)` in the result if there is something that cannot be trusted.
    pub fn recall(&self, instance: &str) -> Result<Result<Memory, Foreign>, VolumeError> {
        let content = if_exists(read_bounded(&self.memory_path, SMALL_FILE_BYTES_MAX));
        match content.map_err(failed("read", &self.memory_path))? {
            Some(content) => Ok(match serde_json::from_slice::<Memory>(&content) {
                Ok(memory) if memory.incarnation.instance() == instance => Ok(memory),
                Ok(memory) => Err(Foreign::OtherInstance(memory.incarnation.to_string())),
                Err(error) => Err(Foreign::Memory(format!(
                    "{}: {error}",
                    self.memory_path.display()
                ))),
            }),
            None if self.is_vacant()? => {
                let memory = new_memory(instance)?;
                self.remember(&memory)?;
                Ok(Ok(memory))
            }
            None => Ok(Err(self
                .mark()?
                .map_or(Foreign::Unmarked, Foreign::OtherInstance))),
        }
    }

    /// Makes a memory durable.
    pub fn remember(&self, memory: &Memory) -> Result<(), VolumeError> {
        let content = serde_json::to_vec(memory).map_err(io::Error::other);
        content
            .and_then(|content| write_atomically(&self.memory_path, &content, 0o600))
            .map_err(failed("write", &self.memory_path))
    }

    /// Begins another life of this instance; its data is gone.
    pub fn renew(&self, instance: &str) -> Result<Memory, VolumeError> {
        let memory = new_memory(instance)?;
        self.remember(&memory)?;
        Ok(memory)
    }

    /// Major version of the data that is there, whoever made it: the programs are chosen by it.
    pub fn data_version(&self) -> Option<String> {
        let content = read_bounded(&self.data.join("PG_VERSION"), SMALL_FILE_BYTES_MAX).ok()?;
        Some(String::from_utf8_lossy(&content).trim().to_owned())
    }

    /// What is on the volume. `programs` is the major version that the image can run.
    pub fn look(&self, memory: &mut Memory, programs: &str) -> Result<Volume, VolumeError> {
        if self.is_vacant()? {
            return Ok(match () {
                () if memory.system_identifier.is_some() => Volume::Lost,
                () if self.staging.exists() => Volume::HalfMade,
                () => Volume::Empty,
            });
        }
        match self.mark()? {
            None => return Ok(Volume::Foreign(Foreign::Unmarked)),
            Some(mark) if mark != memory.incarnation.as_str() => {
                return Ok(Volume::Foreign(Foreign::OtherInstance(mark)));
            }
            Some(_) => {}
        }
        let (system_identifier, version) =
            match examine(&self.data).map_err(failed("read", &self.data))? {
                Ok(found) => found,
                Err(foreign) => return Ok(Volume::Foreign(foreign)),
            };
        if version != programs {
            return Ok(Volume::Foreign(Foreign::OtherVersion {
                data: version,
                programs: programs.to_owned(),
            }));
        }
        match &memory.system_identifier {
            // The agent ended between the rename and its note of it.
            None => {
                memory.system_identifier = Some(system_identifier.clone());
                self.remember(memory)?;
            }
            Some(known) if *known != system_identifier => {
                let what = format!(
                    "its system identifier is {system_identifier}, and this instance had {known}"
                );
                return Ok(Volume::Foreign(Foreign::Incomplete(what)));
            }
            Some(_) => {}
        }
        let standby = self.data.join("standby.signal").exists();
        let kind = if standby {
            DataKind::Standby
        } else {
            DataKind::Primary
        };
        Ok(Volume::Data(Data {
            system_identifier,
            kind,
        }))
    }

    /// Removes what an interrupted initialisation or clone left. Never touches the data directory.
    pub async fn discard_staging(&self) -> Result<(), VolumeError> {
        if_exists(tokio::fs::remove_dir_all(&self.staging).await)
            .map_err(failed("remove", &self.staging))?;
        Ok(())
    }

    /// Turns finished data into *the* data: marks it, and renames it into its place, which must be vacant.
    pub fn adopt_staging(
        &self,
        memory: &mut Memory,
        expected: Option<&str>,
    ) -> Result<(), AdoptError> {
        let (system_identifier, _) = examine(&self.staging)
            .map_err(failed("read", &self.staging))?
            .map_err(AdoptError::Incomplete)?;
        if let Some(expected) = expected.filter(|expected| *expected != system_identifier) {
            return Err(AdoptError::OtherDatabase {
                got: system_identifier,
                expected: expected.to_owned(),
            });
        }
        let mark = self.staging.join(MARK);
        write_atomically(&mark, memory.incarnation.as_str().as_bytes(), 0o600)
            .map_err(failed("write", &mark))?;
        make_directory(&self.staging, 0o700).map_err(failed("change", &self.staging))?;
        // The system refuses to rename over a directory with anything in it.
        fs::rename(&self.staging, &self.data).map_err(failed("put the new data at", &self.data))?;
        if let Some(volume) = self.data.parent() {
            sync_directory(volume).map_err(failed("sync", volume))?;
        }
        memory.system_identifier = Some(system_identifier);
        self.remember(memory)?;
        Ok(())
    }

    fn is_vacant(&self) -> Result<bool, VolumeError> {
        let entries = if_exists(fs::read_dir(&self.data)).map_err(failed("read", &self.data))?;
        Ok(entries.is_none_or(|mut entries| entries.next().is_none()))
    }

    fn mark(&self) -> Result<Option<String>, VolumeError> {
        let path = self.data.join(MARK);
        let content =
            if_exists(read_bounded(&path, SMALL_FILE_BYTES_MAX)).map_err(failed("read", &path))?;
        Ok(content.map(|content| String::from_utf8_lossy(&content).trim().to_owned()))
    }
}

/// Why finished data was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error("the data that was just made is unusable: {0}")]
    Incomplete(Foreign),
    #[error(
        "the leader gave data of another database: system identifier {got}, the register says {expected}"
    )]
    OtherDatabase { got: String, expected: String },
}

fn new_memory(instance: &str) -> Result<Memory, RegisterError> {
    let digits: String = (0..INCARNATION_RANDOM_LENGTH)
        .map(|_| char::from(b"0123456789abcdef"[rand::random_range(0..16)]))
        .collect();
    Ok(Memory {
        incarnation: Incarnation::new(instance, &digits)?,
        last_promoted_epoch: Epoch::NONE,
        system_identifier: None,
    })
}

/// System identifier and major version of a data directory.
fn examine(directory: &Path) -> io::Result<Result<(String, String), Foreign>> {
    let incomplete = |file: &str| {
        Ok(Err(Foreign::Incomplete(format!(
            "{file} is missing or damaged"
        ))))
    };
    let Some(version) = if_exists(read_bounded(
        &directory.join("PG_VERSION"),
        SMALL_FILE_BYTES_MAX,
    ))?
    else {
        return incomplete("PG_VERSION");
    };
    // The control file is 8 KiB, and begins with the system identifier in the machine's byte order in every version of PostgreSQL.
    let Some(control) = if_exists(read_bounded(
        &directory.join("global/pg_control"),
        64 * 1024,
    ))?
    else {
        return incomplete("global/pg_control");
    };
    let Some(identifier) = control
        .first_chunk::<8>()
        .map(|bytes| u64::from_ne_bytes(*bytes))
        .filter(|identifier| *identifier != 0)
    else {
        return incomplete("global/pg_control");
    };
    Ok(Ok((
        identifier.to_string(),
        String::from_utf8_lossy(&version).trim().to_owned(),
    )))
}

#[cfg(test)]
#[path = "volume_tests.rs"]
mod tests;
