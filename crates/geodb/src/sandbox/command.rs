//! `-- COMMAND`: a program of the user's with the sandbox around it. Its exit status becomes ours.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::connect::Connection;
use super::signals::{Signals, StopSignal};

/// What shells answer when a program is not there.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Runs the command to its end and returns the exit status to pass on.
pub async fn run(
    words: &[OsString],
    kubeconfig: &Path,
    database: Option<&Connection>,
    signals: &mut Signals,
) -> Result<u8> {
    let (program, arguments) = words
        .split_first()
        .ok_or_else(|| anyhow!("there is no command to run"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .kill_on_drop(true);
    if let Some(connection) = database {
        command.envs(connection.environment());
    }
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            eprintln!(
                "geodb: failed to run {}: {error}",
                program.to_string_lossy()
            );
            let not_found = error.kind() == std::io::ErrorKind::NotFound;
            return Ok(if not_found { NOT_FOUND } else { NOT_EXECUTABLE });
        }
    };
    wait(child, signals)
        .await
        .with_context(|| format!("failed to wait for {}", program.to_string_lossy()))
}

/// An interrupt from the keyboard reaches the command itself, and is its business (in psql it cancels a query); like a shell, we go on waiting.
/// Anything else was sent to us alone, so it is passed on.
async fn wait(mut child: Child, signals: &mut Signals) -> Result<u8> {
    loop {
        tokio::select! {
            status = child.wait() => return Ok(exit_status(status?)),
            signal = signals.next() => match signal {
                StopSignal::Interrupt => {}
                StopSignal::Terminate => pass_on(&child, Signal::TERM),
                StopSignal::HangUp => pass_on(&child, Signal::HUP),
            },
        }
    }
}

fn pass_on(child: &Child, signal: Signal) {
    let pid = child
        .id()
        .and_then(|id| i32::try_from(id).ok())
        .and_then(Pid::from_raw);
    // It may have ended just now; then there is nobody to tell.
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}

/// A program ended by a signal is reported as shells do.
fn exit_status(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run_shell(script: &str, connection: Option<&Connection>) -> u8 {
        let words: Vec<OsString> = ["sh", "-c", script].map(OsString::from).to_vec();
        let mut signals = Signals::listen().unwrap();
        run(
            &words,
            Path::new("/data/kubeconfig"),
            connection,
            &mut signals,
        )
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn the_exit_status_is_passed_through() {
        assert_eq!(run_shell("exit 0", None).await, 0);
        assert_eq!(run_shell("exit 42", None).await, 42);
        assert_eq!(run_shell("kill -9 $$", None).await, 137);
    }

    #[tokio::test]
    async fn a_missing_program_is_127() {
        let mut signals = Signals::listen().unwrap();
        let words = [OsString::from("/nowhere/program")];
        assert_eq!(
            run(&words, Path::new("/k"), None, &mut signals)
                .await
                .unwrap(),
            127
        );
    }

    #[tokio::test]
    async fn the_environment_says_how_to_connect() {
        let connection = Connection::for_tests();
        let script = r#"test "$KUBECONFIG:$PGHOST:$PGPORT:$PGUSER:$PGPASSWORD:$PGDATABASE" = "/data/kubeconfig:127.9.128.1:5432:keeper:s3cret:rivers""#;
        assert_eq!(run_shell(script, Some(&connection)).await, 0);
    }
}
