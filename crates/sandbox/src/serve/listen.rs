//! The server on the network: TLS, HTTP/1.1 and HTTP/2, loopback only.

use std::io;
use std::net::{SocketAddr, TcpListener as StandardListener};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::pki::{ClientCertificates, PkiError};
use super::service::{ApiService, Trust};
use super::{Server, range};

/// A client on this machine that has not finished its handshake by then is no client.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at once. A sandbox's agents, node and people need dozens; the rest would only eat file descriptors.
const CONNECTIONS_LIMIT: usize = 1024;
/// How long open requests may take to finish once the server stops; watches end at once.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(3);
/// After an error of accept (usually too many open files), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "refused to listen on {address}: this server runs programs for whoever holds its token, so it listens only on its own loopback address {expected}"
    )]
    Address {
        address: SocketAddr,
        expected: SocketAddr,
    },
    #[error("failed to listen; check that nothing else uses the address")]
    Listen(#[from] io::Error),
    #[error("failed to make the server's certificate")]
    Certificate(#[from] PkiError),
}

/// A listener at work; dropping it does not stop it, [`Server::shutdown`] does.
#[derive(Debug)]
pub struct Listening {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Listening {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when the listener has ended, after [`Server::shutdown`] was called.
    pub async fn ended(self) {
        // It fails only if the task panicked or the runtime stops: it has ended either way.
        let _ = self.task.await;
    }
}

/// Serves on the listener that [`range::claim`] gave.
pub fn listen(server: &Server, listener: StandardListener) -> Result<Listening, ListenError> {
    let address = listener.local_addr()?;
    let expected = range::api_address(server.range());
    if address != expected {
        return Err(ListenError::Address { address, expected });
    }
    let names = [
        &address.ip().to_string(),
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    let names = names.map(str::to_owned);
    let mut tls = server
        .pki()
        .server_config(&names, ClientCertificates::NotAsked)?;
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let service = ApiService::new(server.inner(), Trust::Token);
    let stopping = server.inner().stopping.clone();
    let task = tokio::spawn(accept(
        listener,
        TlsAcceptor::from(Arc::new(tls)),
        service,
        stopping,
    ));
    Ok(Listening { address, task })
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    service: ApiService,
    stopping: CancellationToken,
) {
    let graceful = GracefulShutdown::new();
    let connections = Arc::new(Semaphore::new(CONNECTIONS_LIMIT));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else {
            break;
        };
        let stream = tokio::select! {
            () = stopping.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let (acceptor, service, watcher) = (acceptor.clone(), service.clone(), graceful.watcher());
        tokio::spawn(async move {
            serve(stream, acceptor, service, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown())
        .await
        .is_err()
    {
        tracing::warn!("some clients did not finish their requests before the API server stopped");
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    service: ApiService,
    watcher: hyper_util::server::graceful::Watcher,
) {
    // Small answers must not wait for an acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
        Err(_) => return,
    };
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    let connection = builder
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        .into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%error, "a connection ended early");
    }
}
