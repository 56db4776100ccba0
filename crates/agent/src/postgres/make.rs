//! Makes data directories, always in the staging directory: a new database, or a copy of the leader's.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use geodb_ha::environment::SUPERUSER;

use super::programs::Programs;
use crate::limits::{CLONE_DEADLINE, INITIALISE_DEADLINE, KILL_DEADLINE};
use crate::processes::{Exit, OrphansRemain, Processes};
use crate::volume::{AdoptError, Claim, Memory, VolumeError};

/// Locales for new databases, best first: the second is in every image.
const LOCALES: [&str; 2] = ["C.UTF-8", "C"];

/// Why there is no data directory now. What was half made is discarded before the next attempt.
#[derive(Debug, thiserror::Error)]
pub enum MakeError {
    #[error("failed to start {0}")]
    Start(&'static str, #[source] std::io::Error),
    #[error("{program} failed with {exit}; its own message is above")]
    Failed { program: &'static str, exit: Exit },
    #[error("{program} did not finish within {} s", deadline.as_secs())]
    Deadline {
        program: &'static str,
        deadline: Duration,
    },
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Orphans(#[from] OrphansRemain),
    #[error(transparent)]
    Adopt(#[from] AdoptError),
}

/// Makes a new, empty database and takes it as the instance's data.
pub async fn initialise(
    processes: &Processes,
    programs: &Programs,
    claim: &Claim,
    memory: &mut Memory,
) -> Result<(), MakeError> {
    processes.end_orphans(KILL_DEADLINE).await?;
    let mut result = Ok(());
    for locale in LOCALES {
        claim.discard_staging().await?;
        let mut command = programs.command("initdb");
        command.arg("--pgdata").arg(claim.staging()).args([
            "--data-checksums",
            "--encoding=UTF8",
            &format!("--locale={locale}"),
            &format!("--username={SUPERUSER}"),
            "--auth-local=trust",
            "--auth-host=reject",
            "--no-instructions",
        ]);
        result = complete(
            processes,
            claim,
            "initdb",
            &mut command,
            INITIALISE_DEADLINE,
        )
        .await;
        match &result {
            Ok(()) => break,
            Err(error) => tracing::warn!(locale, %error, "initdb failed"),
        }
    }
    result?;
    claim.adopt_staging(memory, None)?;
    Ok(())
}

/// Copies the leader's data and takes it as the instance's, as a standby.
pub async fn clone(
    processes: &Processes,
    programs: &Programs,
    claim: &Claim,
    memory: &mut Memory,
    connection: &[(&'static str, String)],
    system_identifier: &str,
) -> Result<(), MakeError> {
    // A cancelled base backup leaves the child that received the log for it.
    processes.end_orphans(KILL_DEADLINE).await?;
    claim.discard_staging().await?;
    let mut command = programs.command("pg_basebackup");
    command.arg("--pgdata").arg(claim.staging());
    command.args(["--wal-method=stream", "--checkpoint=fast", "--no-password"]);
    // By environment, not by argument: arguments are visible to everybody on the machine.
    for (name, value) in connection {
        if let Some(variable) = libpq_variable(name) {
            command.env(variable, value);
        }
    }
    complete(
        processes,
        claim,
        "pg_basebackup",
        &mut command,
        CLONE_DEADLINE,
    )
    .await?;
    let signal = claim.staging().join("standby.signal");
    write_empty(&signal)?;
    claim.adopt_staging(memory, Some(system_identifier))?;
    Ok(())
}

fn write_empty(path: &Path) -> Result<(), VolumeError> {
    crate::files::write_atomically(path, b"", 0o600).map_err(|source| VolumeError::Io {
        action: "write",
        path: path.to_owned(),
        source,
    })
}

/// The variable by which libpq takes a connection parameter; keep-alives have none and keep the system's values.
fn libpq_variable(parameter: &str) -> Option<&'static str> {
    Some(match parameter {
        "host" => "PGHOST",
        "port" => "PGPORT",
        "user" => "PGUSER",
        "application_name" => "PGAPPNAME",
        "sslmode" => "PGSSLMODE",
        "sslcert" => "PGSSLCERT",
        "sslkey" => "PGSSLKEY",
        "sslrootcert" => "PGSSLROOTCERT",
        "connect_timeout" => "PGCONNECT_TIMEOUT",
        _ => return None,
    })
}

/// Runs a program to its end. It keeps the volume's lock, and is killed if this is cancelled.
async fn complete(
    processes: &Processes,
    claim: &Claim,
    program: &'static str,
    command: &mut Command,
    deadline: Duration,
) -> Result<(), MakeError> {
    let lock = claim
        .inherited_lock()
        .map_err(|error| MakeError::Start(program, error))?;
    // Standard output is a progress report; what matters goes to standard error.
    command.stdin(Stdio::from(lock)).stdout(Stdio::null());
    let mut child = processes
        .spawn(command)
        .map_err(|error| MakeError::Start(program, error))?;
    match tokio::time::timeout(deadline, child.wait()).await {
        Ok(exit) if exit.success() => Ok(()),
        Ok(exit) => Err(MakeError::Failed { program, exit }),
        Err(_) => Err(MakeError::Deadline { program, deadline }),
    }
}
