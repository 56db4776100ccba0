//! Finds PostgreSQL's programs in the image: on `PATH`, or where Debian and the stock images keep them.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::limits::{VERSION_BYTES_MAX, VERSION_DEADLINE};
use crate::processes::Processes;

/// Debian keeps one directory per major version here.
const VERSIONED_DIRECTORIES: &str = "/usr/lib/postgresql";
/// What the agent needs, all from one directory so that the versions fit.
const NEEDED: [&str; 3] = ["postgres", "initdb", "pg_basebackup"];

/// A set of programs of one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    directory: PathBuf,
    /// Major version, as `PG_VERSION` in a data directory says it.
    pub major: String,
}

/// Why there is no PostgreSQL to run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramsError {
    #[error("this image has no PostgreSQL: {} were found together neither on PATH nor in {VERSIONED_DIRECTORIES}/*/bin; use an image such as postgis/postgis", NEEDED.join(", "))]
    Missing,
    #[error("failed to ask {0} for its version")]
    Version(PathBuf, #[source] std::io::Error),
}

impl Programs {
    /// The programs for data of version `wanted`, or else the newest.
    pub async fn find(processes: &Processes, wanted: Option<&str>) -> Result<Self, ProgramsError> {
        let mut found: Option<Programs> = None;
        for directory in candidates() {
            let major = major_version(processes, &directory.join("postgres")).await?;
            let programs = Programs { directory, major };
            if wanted == Some(programs.major.as_str()) {
                return Ok(programs);
            }
            found = found.or(Some(programs));
        }
        found.ok_or(ProgramsError::Missing)
    }

    /// A command for one of the programs, with an environment that holds nothing but what PostgreSQL needs.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.directory.join(program));
        command.env_clear();
        command.env(
            "PATH",
            std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()),
        );
        command
            .env("LC_ALL", "C")
            .env("TZ", "UTC")
            .env("PGTZ", "UTC");
        command.stdin(Stdio::null());
        command
    }
}

fn candidates() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versioned: Vec<(u32, PathBuf)> = std::fs::read_dir(VERSIONED_DIRECTORIES)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((
                entry.file_name().to_str()?.parse().ok()?,
                entry.path().join("bin"),
            ))
        })
        .collect();
    versioned.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let on_path = std::env::split_paths(&path).filter(|directory| directory.is_absolute());
    on_path
        .chain(versioned.into_iter().map(|(_, directory)| directory))
        .filter(|directory| is_complete(directory))
        .collect()
}

fn is_complete(directory: &Path) -> bool {
    NEEDED
        .iter()
        .all(|program| directory.join(program).is_file())
}

async fn major_version(processes: &Processes, postgres: &Path) -> Result<String, ProgramsError> {
    let failed = |error| ProgramsError::Version(postgres.to_owned(), error);
    let mut command = Command::new(postgres);
    command
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = processes.spawn(&mut command).map_err(failed)?;
    let exit = tokio::time::timeout(VERSION_DEADLINE, child.wait()).await;
    let mut answer = String::new();
    // The child has ended and its answer fits a pipe's buffer, so this does not block.
    if let (Ok(exit), Some(stdout)) = (exit, child.stdout.take())
        && exit.success()
    {
        stdout
            .take(VERSION_BYTES_MAX)
            .read_to_string(&mut answer)
            .map_err(failed)?;
    }
    parse_major(&answer).ok_or_else(|| {
        failed(std::io::Error::other(format!(
            "unexpected answer {answer:?}"
        )))
    })
}

/// The major version in `postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)`.
fn parse_major(answer: &str) -> Option<String> {
    let version = answer.split_whitespace().nth(2)?;
    let major: String = version.chars().take_while(char::is_ascii_digit).collect();
    (!major.is_empty()).then_some(major)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_releases_and_previews() {
        let cases = [
            (
                "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n",
                Some("15"),
            ),
            ("postgres (PostgreSQL) 17.0\n", Some("17")),
            ("postgres (PostgreSQL) 19beta1\n", Some("19")),
            ("postgres (PostgreSQL) devel\n", None),
            ("", None),
        ];
        for (answer, major) in cases {
            assert_eq!(parse_major(answer).as_deref(), major, "{answer}");
        }
    }
}
