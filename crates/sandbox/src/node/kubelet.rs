//! The part of the kubelet's endpoint that an API server needs: `GET /containerLogs/NAMESPACE/POD/CONTAINER`, over mutual TLS.
//!
//! Not here: exec, attach, port-forward and metrics; they answer 501 and say so.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::logread::{LogBook, LogError, LogQuery};

/// Pieces of a log waiting for a slow reader.
const PIECES: usize = 8;
/// A client has this long for its handshake.
const HANDSHAKE: std::time::Duration = std::time::Duration::from_secs(10);
/// Connections at once: the API server makes one per reader of a log.
const CONNECTIONS: usize = 256;

type Body = BoxBody<Bytes, io::Error>;

pub struct Endpoint {
    pub address: SocketAddr,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    logs: LogBook,
}

impl Endpoint {
    pub async fn bind(
        address: Ipv4Addr,
        port: u16,
        tls: Arc<ServerConfig>,
        logs: LogBook,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((address, port)).await?;
        Ok(Self {
            address: listener.local_addr()?,
            listener,
            acceptor: TlsAcceptor::from(tls),
            logs,
        })
    }

    /// Serves until cancelled.
    pub async fn serve(self, cancel: CancellationToken) {
        let tracker = TaskTracker::new();
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => stream,
                    Err(error) => {
                        tracing::warn!(%error, "failed to accept a connection to the node");
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                        continue;
                    }
                },
                () = cancel.cancelled() => break,
            };
            if tracker.len() >= CONNECTIONS {
                tracing::warn!("refused a connection to the node: {CONNECTIONS} are open");
                continue;
            }
            let (acceptor, logs, cancel) =
                (self.acceptor.clone(), self.logs.clone(), cancel.clone());
            tracker.spawn(async move {
                tokio::select! {
                    () = connection(stream, acceptor, logs) => {}
                    () = cancel.cancelled() => {}
                }
            });
        }
        tracker.close();
        tracker.wait().await;
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, logs: LogBook) {
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            return tracing::debug!(%error, "a client of the node failed its handshake");
        }
        Err(_) => return tracing::debug!("a client of the node did not finish its handshake"),
    };
    let service = hyper::service::service_fn(move |request| {
        let logs = logs.clone();
        async move { Ok::<_, std::convert::Infallible>(answer(&request, &logs)) }
    });
    let served = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(error, "a connection to the node ended badly");
    }
}

fn answer(request: &Request<Incoming>, logs: &LogBook) -> Response<Body> {
    let parts: Vec<&str> = request
        .uri()
        .path()
        .trim_start_matches('/')
        .split('/')
        .collect();
    match (request.method(), parts.as_slice()) {
        (&Method::GET, ["healthz"]) => text(StatusCode::OK, "ok"),
        (&Method::GET, ["containerLogs", namespace, pod, container]) => container_logs(
            logs,
            [namespace, pod, container],
            request.uri().query().unwrap_or_default(),
        ),
        (
            _,
            [
                "exec" | "attach" | "portForward" | "run" | "stats" | "metrics",
                ..,
            ],
        ) => text(
            StatusCode::NOT_IMPLEMENTED,
            "the sandbox's node serves containerLogs only",
        ),
        _ => text(StatusCode::NOT_FOUND, "404 page not found"),
    }
}

fn container_logs(
    logs: &LogBook,
    [namespace, pod, container]: [&str; 3],
    query: &str,
) -> Response<Body> {
    let query = match LogQuery::parse(query) {
        Ok(query) => query,
        Err(message) => return text(StatusCode::BAD_REQUEST, &message),
    };
    let path = match logs.find(namespace, pod, container, query.previous) {
        Ok(path) => path,
        Err(error @ LogError::Read(_)) => {
            return text(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string());
        }
        Err(error) => return text(StatusCode::BAD_REQUEST, &error.to_string()),
    };
    let (sender, receiver) = mpsc::channel(PIECES);
    let logs = logs.clone();
    tokio::spawn(async move { logs.read(path, query, sender).await });
    let pieces = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece, receiver))
    });
    let body = StreamBody::new(pieces.map(|piece| piece.map(Frame::data)));
    respond(StatusCode::OK, BodyExt::boxed(body))
}

fn text(status: StatusCode, message: &str) -> Response<Body> {
    let body = Full::new(Bytes::from(format!("{message}\n"))).map_err(|never| match never {});
    respond(status, body.boxed())
}

fn respond(status: StatusCode, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("text/plain"),
    );
    response
}
