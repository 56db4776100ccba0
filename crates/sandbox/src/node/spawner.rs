//! The one thread that starts processes.
//!
//! A parent-death signal is tied to the thread that forked, not to the process: a container started from a thread of a pool would be killed when
//! the pool retires that thread, and not before. So one thread, which lives as long as the process, starts them all; when the process ends, however
//! it ends, the kernel ends every container.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::limits::SPAWN_QUEUE;

struct Request {
    command: Command,
    /// The runtime that will await the child.
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: OnceLock<Result<SyncSender<Request>, String>> = OnceLock::new();

/// Starts `command` from the spawner's thread.
pub async fn spawn(command: Command) -> io::Result<Child> {
    let sender = SPAWNER.get_or_init(start).as_ref().map_err(|reason| {
        io::Error::other(format!(
            "failed to start the thread that starts processes: {reason}"
        ))
    })?;
    let (reply, answer) = oneshot::channel();
    let request = Request {
        command,
        runtime: Handle::current(),
        reply,
    };
    sender
        .try_send(request)
        .map_err(|_| io::Error::other("too many processes are being started at once; try again"))?;
    answer
        .await
        .map_err(|_| io::Error::other("the thread that starts processes did not answer"))?
}

fn start() -> Result<SyncSender<Request>, String> {
    let (sender, requests) = sync_channel(SPAWN_QUEUE);
    // The sender lives in a static and is never dropped, so the thread ends with the process.
    std::thread::Builder::new()
        .name("spawner".to_owned())
        .spawn(move || serve(&requests))
        .map_err(|error| error.to_string())?;
    Ok(sender)
}

fn serve(requests: &Receiver<Request>) {
    while let Ok(Request {
        mut command,
        runtime,
        reply,
    }) = requests.recv()
    {
        let _entered = runtime.enter();
        // If nobody waits any more the child is dropped, and with it killed.
        let _ = reply.send(command.spawn());
    }
}
