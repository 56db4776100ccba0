//! One address and port of a Service: a listener that forwards to its endpoints in turn.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::table::Route;

/// How long one endpoint may take to accept. Everything is on this machine; a full backlog is the only way to wait.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After a failed `accept` (no file descriptors, most likely): long enough for some to be given back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a frontend and its connections share.
struct Shared {
    route: Mutex<Route>,
    turn: AtomicUsize,
    /// One token per endpoint: cancelled, it closes every connection to it.
    endpoints: Mutex<HashMap<SocketAddr, CancellationToken>>,
    cancel: CancellationToken,
}

impl Shared {
    /// The ready endpoints, each once, starting with the one whose turn it is.
    fn candidates(&self) -> Vec<SocketAddr> {
        let mut ready = self.route.lock().ready.clone();
        if !ready.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % ready.len();
            ready.rotate_left(turn);
        }
        ready
    }

    /// `None` if the endpoint has gone since it was chosen.
    fn token(&self, endpoint: SocketAddr) -> Option<CancellationToken> {
        let route = self.route.lock();
        if !route.known.contains(&endpoint) {
            return None;
        }
        Some(
            self.endpoints
                .lock()
                .entry(endpoint)
                .or_insert_with(|| self.cancel.child_token())
                .clone(),
        )
    }
}

/// What a Service's address and port are backed by. Dropping it closes the listener and every connection through it.
pub(crate) struct Frontend {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    connections: Arc<Semaphore>,
    /// Present while somebody is ready; without it the operating system refuses connections for us.
    listener: tokio::sync::Mutex<Option<Listening>>,
}

struct Listening {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Frontend {
    fn drop(&mut self) {
        self.shared.cancel.cancel();
    }
}

impl Frontend {
    pub(crate) fn new(
        address: SocketAddr,
        cancel: &CancellationToken,
        tasks: &TaskTracker,
        connections: Arc<Semaphore>,
    ) -> Frontend {
        let shared = Arc::new(Shared {
            route: Mutex::default(),
            turn: AtomicUsize::new(0),
            endpoints: Mutex::default(),
            cancel: cancel.child_token(),
        });
        Frontend {
            address,
            shared,
            tasks: tasks.clone(),
            connections,
            listener: tokio::sync::Mutex::new(None),
        }
    }

    /// Follows a change: new connections use the new endpoints, connections to endpoints that are gone are closed, and with nobody
    /// ready the listener closes while connections to endpoints that are merely not ready go on.
    pub(crate) async fn follow(&self, route: Route) -> io::Result<()> {
        let serves = !route.ready.is_empty();
        let known: BTreeSet<SocketAddr> = route.known.clone();
        *self.shared.route.lock() = route;
        self.shared.endpoints.lock().retain(|endpoint, token| {
            let stays = known.contains(endpoint);
            if !stays {
                token.cancel();
            }
            stays
        });
        let mut listener = self.listener.lock().await;
        match listener.take() {
            Some(listening) if serves => *listener = Some(listening),
            Some(listening) => {
                listening.cancel.cancel();
                // Once the task has ended its socket is closed, and the address is free to be listened on again.
                let _ = listening.task.await;
            }
            None if serves => {
                let socket = TcpListener::bind(self.address).await?;
                let cancel = self.shared.cancel.child_token();
                let accepting = accept(
                    socket,
                    self.shared.clone(),
                    cancel.clone(),
                    self.tasks.clone(),
                    self.connections.clone(),
                );
                *listener = Some(Listening {
                    cancel,
                    task: self.tasks.spawn(accepting),
                });
            }
            None => {}
        }
        Ok(())
    }
}

async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    cancel: CancellationToken,
    tasks: TaskTracker,
    connections: Arc<Semaphore>,
) {
    loop {
        let permit = tokio::select! {
            () = cancel.cancelled() => return,
            permit = connections.clone().acquire_owned() => match permit {
                Ok(permit) => permit,
                Err(_closed) => return,
            },
        };
        let accepted = tokio::select! {
            () = cancel.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => {
                let shared = shared.clone();
                tasks.spawn(async move {
                    let cancel = shared.cancel.clone();
                    // Whoever asked is told by the closed connection; there is nobody else to tell.
                    cancel.run_until_cancelled(forward(client, &shared)).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection to a Service");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn forward(mut client: TcpStream, shared: &Shared) {
    for endpoint in shared.candidates() {
        let Some(token) = shared.token(endpoint) else {
            continue;
        };
        let Ok(Ok(mut server)) =
            tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(endpoint)).await
        else {
            continue;
        };
        // Small packets are a database's daily bread; waiting to fill larger ones only adds delay.
        let _ = client.set_nodelay(true);
        let _ = server.set_nodelay(true);
        token
            .run_until_cancelled(tokio::io::copy_bidirectional(&mut client, &mut server))
            .await;
        return;
    }
}

#[cfg(test)]
#[path = "frontend_tests.rs"]
mod tests;
