//! A running postmaster: start, reload, stop. It is told what to be; why is decided elsewhere.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use geodb_ha::Incarnation;
use geodb_ha::instance::{Doors, Role, Upstream};
use rustix::process::Signal;
use tokio::time::Instant;

use super::programs::Programs;
use super::settings::{
    FIXED, Settings, client_authentication, connection_parameters, connection_string,
};
use super::tls::{KeyPair, KeyPairError};
use crate::environment::Environment;
use crate::files::{if_exists, make_directory, read_bounded, write_atomically};
use crate::limits::{FAST_SHUTDOWN_DEADLINE, IMMEDIATE_SHUTDOWN_DEADLINE, KILL_DEADLINE};
use crate::processes::{Child, Exit, OrphansRemain, Processes};
use crate::volume::Claim;

/// Why PostgreSQL did not start or take a change.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("failed to {action} {path}")]
    File {
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error(transparent)]
    Keys(#[from] KeyPairError),
    #[error("failed to start postgres")]
    Start(#[source] io::Error),
    #[error(transparent)]
    Orphans(#[from] OrphansRemain),
}

/// The files a server is configured by.
pub struct Configuration {
    here: Upstream,
    run: PathBuf,
    server_secret: PathBuf,
    replication_secret: PathBuf,
    server_keys: KeyPair,
    replication_keys: KeyPair,
}

impl Configuration {
    pub fn new(environment: &Environment) -> Self {
        let run = environment.paths.run.clone();
        Self {
            here: environment.here(),
            server_secret: environment.paths.server_secret.clone(),
            replication_secret: environment.paths.replication_secret.clone(),
            server_keys: KeyPair::in_run_directory(&run, "server"),
            replication_keys: KeyPair::in_run_directory(&run, "replication"),
            run,
        }
    }

    /// Parameters to reach the leader with, and fresh copies of the keys they name.
    pub fn upstream(
        &self,
        leader: &Upstream,
        me: &Incarnation,
    ) -> Result<Vec<(&'static str, String)>, ServerError> {
        self.replication_keys.copy_from(&self.replication_secret)?;
        Ok(connection_parameters(leader, &self.replication_keys, me))
    }

    /// Writes all files for a server in this role.
    pub fn write(&self, role: &Role, doors: Doors, me: &Incarnation) -> Result<(), ServerError> {
        make_directory(&self.run.join("tls"), 0o700).map_err(file_error("make", &self.run))?;
        self.server_keys.copy_from(&self.server_secret)?;
        let primary_conninfo = match role {
            Role::Primary => None,
            Role::Replica { following } => Some(connection_string(&self.upstream(following, me)?)),
        };
        let settings = Settings {
            listen: &self.here,
            run: &self.run,
            server_keys: &self.server_keys,
            primary_conninfo,
        };
        self.write_file("postgresql.conf", &settings.render())?;
        self.write_file("pg_ident.conf", "")?;
        self.write_file("pg_hba.conf", &client_authentication(doors))
    }

    fn write_file(&self, name: &str, content: &str) -> Result<(), ServerError> {
        let path = self.run.join(name);
        write_atomically(&path, content.as_bytes(), 0o600).map_err(file_error("write", &path))
    }
}

fn file_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ServerError {
    let path = path.to_owned();
    move |source| ServerError::File {
        action,
        path,
        source,
    }
}

/// How a server is asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Sessions are ended, a checkpoint is written.
    Fast,
    /// Everything ends at once; the next start recovers.
    Immediate,
}

/// A postmaster that was started and whose end has not been seen.
pub struct Server {
    child: Child,
    pub role: Role,
    pub doors: Doors,
    pub started: Instant,
    pid_file: PathBuf,
}

impl Server {
    /// Starts PostgreSQL on the instance's data. Only with the claim's lock, and after every process of an earlier server is gone.
    pub async fn start(
        processes: &Processes,
        programs: &Programs,
        claim: &Claim,
        run: &Path,
        port: u16,
        (role, doors): (Role, Doors),
    ) -> Result<Self, ServerError> {
        processes.end_orphans(KILL_DEADLINE).await?;
        let pid_file = claim.data().join("postmaster.pid");
        // Left by a server that was killed, maybe in another container: the number in it may be any process of this one by now, and
        // PostgreSQL would refuse to start. That no server runs is certain: the lock is ours, and orphans are gone.
        let socket = format!(".s.PGSQL.{port}");
        for stale in [
            pid_file.clone(),
            run.join(&socket),
            run.join(format!("{socket}.lock")),
        ] {
            if_exists(fs::remove_file(&stale)).map_err(file_error("remove", &stale))?;
        }
        let mut command = programs.command("postgres");
        command.arg("-D").arg(claim.data());
        command.arg("-c").arg(format!(
            "config_file={}",
            run.join("postgresql.conf").display()
        ));
        for (name, value) in FIXED {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        command.stdin(Stdio::from(
            claim.inherited_lock().map_err(ServerError::Start)?,
        ));
        let child = processes.spawn(&mut command).map_err(ServerError::Start)?;
        tracing::info!(pid = child.id(), ?role, ?doors, "PostgreSQL started");
        Ok(Self {
            child,
            role,
            doors,
            started: Instant::now(),
            pid_file,
        })
    }

    /// Whether the server says that it accepts connections. Read from its own file, so that a look leaves no line in its log.
    pub fn accepts_connections(&self) -> bool {
        let content = read_bounded(&self.pid_file, 4096).unwrap_or_default();
        let content = String::from_utf8_lossy(&content).into_owned();
        let mut lines = content.lines();
        let ours = lines
            .next()
            .is_some_and(|line| line.trim() == self.child.id().to_string());
        ours && lines.nth(6).is_some_and(|status| status.trim() == "ready")
    }

    /// Waits for the postmaster's end; may be cancelled and called again.
    pub async fn wait(&mut self) -> Exit {
        self.child.wait().await
    }

    /// Makes the server read its files again.
    pub fn reload(&self) {
        self.child.signal(Signal::HUP);
    }

    /// Ends the server and everything it left, by ever stronger means.
    pub async fn stop(mut self, processes: &Processes, how: Stop) -> Result<(), OrphansRemain> {
        let ladder: &[(Signal, Duration)] = &[
            (Signal::INT, FAST_SHUTDOWN_DEADLINE),
            (Signal::QUIT, IMMEDIATE_SHUTDOWN_DEADLINE),
            (Signal::KILL, KILL_DEADLINE),
        ];
        let rungs = match how {
            Stop::Fast => ladder,
            Stop::Immediate => &ladder[1..],
        };
        for (signal, deadline) in rungs {
            self.child.signal(*signal);
            if let Ok(exit) = tokio::time::timeout(*deadline, self.child.wait()).await {
                tracing::info!(?how, %exit, "PostgreSQL stopped");
                break;
            }
            tracing::warn!(
                ?signal,
                deadline_s = deadline.as_secs(),
                "PostgreSQL did not stop in time"
            );
        }
        processes.end_orphans(KILL_DEADLINE).await
    }
}
