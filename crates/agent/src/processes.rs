//! The children of PID 1: those the agent started, and the orphans that the kernel hands to it.
//!
//! There is one place that waits for children, here, and it waits for all of them: an orphan must be reaped by somebody, and two
//! waiters would steal each other's news. So children are spawned through [`Processes::spawn`] and nothing else in this program may wait for
//! a process (no `tokio::process`, no `std::process::Child::wait`). Spawning holds the same lock as reaping, so that a child which ends at
//! once is known before its end is collected.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

impl Exit {
    pub fn success(self) -> bool {
        self == Exit::Code(0)
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Exit::Code(code) => write!(formatter, "exit code {code}"),
            Exit::Signal(signal) => write!(formatter, "signal {signal}"),
        }
    }
}

type Listeners = HashMap<i32, oneshot::Sender<Exit>>;

struct Shared {
    listeners: Mutex<Listeners>,
    /// Told after every round of reaping.
    reaped: Notify,
}

impl Shared {
    fn listeners(&self) -> MutexGuard<'_, Listeners> {
        // A panic elsewhere leaves the map whole: every change of it is one insert or one remove.
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn reap(&self) {
        let mut listeners = self.listeners();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(exit) = ended(status) else { continue };
            match listeners.remove(&pid.as_raw_nonzero().get()) {
                // The receiver may be gone: then nobody wants to know.
                Some(listener) => drop(listener.send(exit)),
                None => tracing::debug!(pid = pid.as_raw_nonzero(), %exit, "reaped an orphan"),
            }
        }
        drop(listeners);
        self.reaped.notify_waiters();
    }
}

fn ended(status: WaitStatus) -> Option<Exit> {
    status
        .exit_status()
        .map(Exit::Code)
        .or(status.terminating_signal().map(Exit::Signal))
}

/// The children of this process. One per program.
#[derive(Clone)]
pub struct Processes(Arc<Shared>);

impl Processes {
    /// Takes responsibility for all children from now on. Call once, inside the runtime, before the first child.
    pub fn take_over() -> io::Result<Self> {
        // PID 1 inherits orphans anyway; elsewhere they would go past us, and we must see PostgreSQL's backends end.
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let shared = Arc::new(Shared {
            listeners: Mutex::default(),
            reaped: Notify::new(),
        });
        let mut child_ended = signal(SignalKind::child())?;
        let reaper = Arc::clone(&shared);
        tokio::spawn(async move {
            while child_ended.recv().await.is_some() {
                reaper.reap();
            }
        });
        Ok(Self(shared))
    }

    /// Starts a child in a process group of its own, so that a terminal's Ctrl-C reaches only the agent.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        use std::os::unix::process::CommandExt;
        let (sender, exit) = oneshot::channel();
        let mut listeners = self.0.listeners();
        let mut child = command.process_group(0).spawn()?;
        let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
        listeners.insert(pid, sender);
        drop(listeners);
        let pid = Pid::from_raw(pid)
            .ok_or_else(|| io::Error::other("the system gave a child the number 0"))?;
        Ok(Child {
            pid,
            exit,
            ended: None,
            stdout: child.stdout.take(),
            shared: Arc::clone(&self.0),
        })
    }

    /// Kills every child that nobody here started (what a dead parent left behind), and waits until none is left.
    pub async fn end_orphans(&self, deadline: Duration) -> Result<(), OrphansRemain> {
        let ended = async {
            loop {
                let reaped = self.0.reaped.notified();
                let mut reaped = std::pin::pin!(reaped);
                reaped.as_mut().enable();
                let orphans = self.orphans();
                if orphans.is_empty() {
                    return;
                }
                for orphan in orphans {
                    // It may have ended in the meantime; the next round sees it.
                    rustix::process::kill_process(orphan, Signal::KILL).ok();
                }
                reaped.await;
            }
        };
        tokio::time::timeout(deadline, ended)
            .await
            .map_err(|_| OrphansRemain(self.orphans().len()))
    }

    fn orphans(&self) -> Vec<Pid> {
        let listeners = self.0.listeners();
        let known = |pid: &i32| !listeners.contains_key(pid);
        children_of(rustix::process::getpid())
            .into_iter()
            .filter(known)
            .filter_map(Pid::from_raw)
            .collect()
    }
}

/// Processes that do not die when killed: their disk does not answer.
#[derive(Debug, thiserror::Error)]
#[error("{0} processes left behind by PostgreSQL do not end; the container has to be restarted")]
pub struct OrphansRemain(usize);

/// A child that the agent started. Dropped while it runs, it is killed.
pub struct Child {
    pid: Pid,
    exit: oneshot::Receiver<Exit>,
    ended: Option<Exit>,
    pub stdout: Option<std::process::ChildStdout>,
    shared: Arc<Shared>,
}

impl Child {
    pub fn id(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Waits for the end; may be cancelled and called again.
    pub async fn wait(&mut self) -> Exit {
        if let Some(exit) = self.ended {
            return exit;
        }
        // The sender is dropped unused only if the table of children is gone, and this child holds it.
        let exit = (&mut self.exit)
            .await
            .unwrap_or(Exit::Signal(Signal::KILL.as_raw()));
        self.ended = Some(exit);
        exit
    }

    /// Sends a signal, unless the child is already reaped: its number may be somebody else's by then.
    pub fn signal(&self, signal: Signal) {
        let listeners = self.shared.listeners();
        if listeners.contains_key(&self.id()) {
            // It may be a zombie, which is as good as gone.
            rustix::process::kill_process(self.pid, signal).ok();
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Living children of `parent`, zombies left out.
fn children_of(parent: Pid) -> Vec<i32> {
    let parent = parent.as_raw_nonzero().get();
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            parse_stat(&stat).is_some_and(|(state, its_parent)| {
                its_parent == parent && state != 'Z' && state != 'X'
            })
        })
        .collect()
}

/// State and parent in a line of `/proc/PID/stat`. The name before them is in parentheses and may contain anything.
fn parse_stat(line: &str) -> Option<(char, i32)> {
    let mut fields = line.rsplit_once(')')?.1.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_past_any_program_name() {
        assert_eq!(parse_stat("7 (postgres) S 1 7 7 0"), Some(('S', 1)));
        assert_eq!(parse_stat("7 (a) Z 9) (b) Z 12 7"), Some(('Z', 12)));
        assert_eq!(parse_stat(""), None);
        assert_eq!(parse_stat("7 (x)"), None);
    }
}
