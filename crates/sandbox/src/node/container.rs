//! One run of one container: a bubblewrap process, its log, its signals, its end.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::bwrap::{Bubble, HostDirectory, steers_the_loader};
use super::environment::Variables;
use super::limits::{PROBE_OUTPUT_BYTES, SIGNAL_READY_DEADLINE, SIGNAL_READY_POLL};
use super::logs::{LogWriter, pump};
use super::{preflight, spawner};

/// Old top-level directories that a system may keep as links into `/usr` or as directories of their own.
const HOST_DIRECTORIES: [&str; 6] = ["/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin"];
/// What a shell reports for a process that a signal ended: this plus the signal's number.
const EXIT_BY_SIGNAL: i32 = 128;
/// What bubblewrap writes when it cannot execute the program at all.
const EXECUTION_FAILED: &str = "bwrap: execvp ";
/// Exit code of a container whose program could not be executed: as container runtimes report it.
const EXIT_NOT_EXECUTED: i32 = 128;

/// How this machine lays out its old top-level directories.
pub fn host_directories() -> Vec<HostDirectory> {
    HOST_DIRECTORIES
        .iter()
        .filter_map(|path| {
            let path = PathBuf::from(path);
            match std::fs::read_link(&path) {
                Ok(target) => Some(HostDirectory::Link { path, target }),
                Err(_) if path.is_dir() => Some(HostDirectory::Directory { path }),
                Err(_) => None,
            }
        })
        .collect()
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    /// The program never ran; the reason.
    pub not_executed: Option<String>,
}

/// A running container. Dropping it kills everything in it.
#[derive(Debug)]
pub struct RunningContainer {
    child: Child,
    process: ContainerProcess,
    log: tokio::task::JoinHandle<Option<String>>,
}

/// Starts a container; its output goes to `log`.
pub async fn start(
    bubble: &Bubble,
    variables: &Variables,
    log: LogWriter,
) -> io::Result<RunningContainer> {
    let mut command = Command::new(preflight::program("bwrap")?);
    command.args(bubble.arguments()).env_clear().envs(
        variables
            .iter()
            .filter(|(name, _)| !steers_the_loader(name)),
    );
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    // A group of its own: Ctrl-C in the terminal is for the sandbox, which then stops its pods in order.
    command.process_group(0).current_dir("/");
    let mut child = spawner::spawn(command).await?;
    let monitor = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    let process = ContainerProcess {
        monitor: monitor
            .ok_or_else(|| io::Error::other("bubblewrap ended before it had a process id"))?,
    };
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other(
            "bubblewrap was started without pipes for its output",
        ));
    };
    let log = tokio::spawn(pump(stdout, stderr, log));
    // Started means that the program runs: until then it takes no signal, and a probe would find nobody.
    let deadline = Instant::now() + SIGNAL_READY_DEADLINE;
    while process.first().is_none() && child.try_wait()?.is_none() && Instant::now() < deadline {
        tokio::time::sleep(SIGNAL_READY_POLL).await;
    }
    Ok(RunningContainer {
        child,
        process,
        log,
    })
}

impl RunningContainer {
    pub fn process(&self) -> ContainerProcess {
        self.process
    }

    /// Waits for the end of the container and of its log.
    pub async fn wait(mut self) -> io::Result<Exit> {
        let status = self.child.wait().await?;
        let first_complaint = self.log.await.unwrap_or(None);
        let not_executed = first_complaint.and_then(|line| {
            line.strip_prefix(EXECUTION_FAILED)
                .map(|rest| format!("failed to execute {rest}"))
        });
        match not_executed {
            Some(reason) if status.code() == Some(1) => Ok(Exit {
                code: EXIT_NOT_EXECUTED,
                not_executed: Some(reason),
            }),
            _ => Ok(Exit {
                code: exit_code(status),
                not_executed: None,
            }),
        }
    }
}

fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status
        .code()
        .or_else(|| status.signal().map(|signal| EXIT_BY_SIGNAL + signal))
        .unwrap_or(EXIT_BY_SIGNAL)
}

/// Where a container's processes are found: bubblewrap's monitor, whose only child is the container's PID 1. Valid while the monitor has not been waited
/// for; afterwards every method finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerProcess {
    monitor: Pid,
}

impl ContainerProcess {
    /// A process that does not exist, for tests that start none.
    #[cfg(test)]
    pub(super) fn nobody() -> Self {
        Self {
            monitor: Pid::from_raw(i32::MAX).expect("not zero"),
        }
    }

    /// The container's PID 1 as the host numbers it, once the program has been executed.
    fn first(self) -> Option<Pid> {
        let monitor = self.monitor.as_raw_nonzero();
        let children =
            std::fs::read_to_string(format!("/proc/{monitor}/task/{monitor}/children")).ok()?;
        let child: i32 = children.split_whitespace().next()?.parse().ok()?;
        // Until it has executed the program it is still bubblewrap, would take a signal for itself, and as PID 1 would ignore it.
        let executed = std::fs::read_link(format!("/proc/{child}/exe")).ok()?
            != std::fs::read_link(format!("/proc/{monitor}/exe")).ok()?;
        executed.then(|| Pid::from_raw(child)).flatten()
    }

    /// A handle to PID 1 that cannot become another process: opened, then seen to be still the same child.
    fn open_first(self) -> Option<OwnedFd> {
        let first = self.first()?;
        let handle = pidfd_open(first, PidfdFlags::empty()).ok()?;
        (self.first() == Some(first)).then_some(handle)
    }

    /// Asks PID 1 to stop. Returns whether it was told.
    pub async fn terminate(self) -> bool {
        let deadline = Instant::now() + SIGNAL_READY_DEADLINE;
        while Instant::now() < deadline {
            if let Some(handle) = self.open_first() {
                return pidfd_send_signal(handle, Signal::TERM).is_ok();
            }
            if !Path::new(&format!("/proc/{}", self.monitor.as_raw_nonzero())).exists() {
                return false;
            }
            tokio::time::sleep(SIGNAL_READY_POLL).await;
        }
        false
    }

    /// Ends everything in the container: the kernel kills the whole PID namespace with its PID 1, which dies with the monitor.
    pub fn kill(self) {
        if let Some(handle) = self.open_first() {
            let _ = pidfd_send_signal(handle, Signal::KILL);
        } else {
            // Not yet executed, or just ended: the monitor is our child and has not been waited for, so its number is still its own.
            let _ = rustix::process::kill_process(self.monitor, Signal::KILL);
        }
    }

    /// Runs a command inside the container, as its user, and returns whether it succeeded and what it said. Cancelling kills it.
    pub async fn execute(
        self,
        words: &[String],
        variables: &Variables,
        directory: &Path,
    ) -> io::Result<(bool, String)> {
        let Some(first) = self.first() else {
            return Err(io::Error::other("the container is not running"));
        };
        let mut command = Command::new(preflight::program("nsenter")?);
        command.args([
            "-t",
            &first.as_raw_nonzero().to_string(),
            "-U",
            "-m",
            "-p",
            "-i",
            "-u",
            "--preserve-credentials",
            "--",
        ]);
        command.args(["/usr/bin/env", "-C"]).arg(directory);
        command.args(
            variables
                .iter()
                .filter(|(name, _)| steers_the_loader(name))
                .map(|(name, value)| format!("{name}={value}")),
        );
        command.args(words).env_clear().envs(
            variables
                .iter()
                .filter(|(name, _)| !steers_the_loader(name)),
        );
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0);
        let output = spawner::spawn(command).await?.wait_with_output().await?;
        let mut text = output.stdout;
        text.extend_from_slice(&output.stderr);
        text.truncate(PROBE_OUTPUT_BYTES);
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&text).trim_end().to_owned(),
        ))
    }
}
