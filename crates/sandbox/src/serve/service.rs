//! The API server as a tower service: authenticate, ask `core`, make durable, answer.
//!
//! The same service answers in process (`kube::Client::new`) and behind TLS. It holds no logic about objects.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT, VARY, WARNING,
};
use http::request::Parts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use percent_encoding::percent_decode_str;
use rand::Rng;
use serde_json::Value;

use super::auth::Known;
use super::body::{self, Body, BoxError};
use super::hub::Feed;
use super::inner::{Guarded, Inner};
use super::metrics::classify;
use super::status::{Reason, Refusal};
use super::{accounts, node, watch};
use crate::core::{self, Request, Response, limits};

const JSON: &str = "application/json";
const AGGREGATED_DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
const METRICS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// A watch without a time limit ends after this much, and up to twice this much: a real API server's habit, so that clients can move on.
const WATCH_TIMEOUT_SECONDS: u64 = 30 * 60;

/// Whose requests a service takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trust {
    /// In process: the caller is the administrator.
    Administrator,
    /// Behind TLS: the request has to prove who it is from.
    Token,
}

/// The API server for `kube::Client::new` and for hyper. Clones are cheap and are all the same server.
#[derive(Clone)]
pub struct ApiService {
    inner: Arc<Inner>,
    trust: Trust,
}

impl ApiService {
    pub(super) fn new(inner: Arc<Inner>, trust: Trust) -> Self {
        Self { inner, trust }
    }

    /// Answers one request; never fails, because every failure is an answer too.
    pub(super) async fn answer<B>(self, request: http::Request<B>) -> http::Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let query = query(parts.uri.query().unwrap_or_default());
        let watching = query
            .iter()
            .any(|(name, value)| name == "watch" && matches!(value.as_str(), "true" | "1"));
        let content_type = content_type(&parts);
        let mut labels = classify(&parts.method, parts.uri.path(), watching, &content_type);
        let answer = match self.read(&parts, query, content_type, body).await {
            Ok((known, request)) => self
                .respond(&known, request)
                .await
                .unwrap_or_else(|refusal| refused(&refusal)),
            Err(refusal) => refused(&refusal),
        };
        labels.code = answer.status().as_u16();
        self.inner.metrics.count(labels);
        answer
    }

    async fn read<B>(
        &self,
        parts: &Parts,
        query: Vec<(String, String)>,
        content_type: String,
        body: B,
    ) -> Result<(Known, Request), Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<BoxError>,
    {
        let path = parts.uri.path();
        let known = match self.trust {
            Trust::Administrator => Known::Administrator,
            Trust::Token => self.inner.authenticator.authenticate(
                path,
                &parts.headers,
                self.inner.clock.now(),
            )?,
        };
        // One byte more than allowed, so that `core` sees that it is too much and says so in a cluster's words.
        let bytes = match Limited::new(body, limits::BODY_BYTES + 1).collect().await {
            Ok(collected) => collected.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                let message = format!("Request entity too large: limit is {}", limits::BODY_BYTES);
                return Err(Refusal::new(Reason::RequestEntityTooLarge, message));
            }
            Err(error) => {
                return Err(Refusal::new(
                    Reason::BadRequest,
                    format!("failed to read the request's body: {error}"),
                ));
            }
        };
        let header = |name| {
            parts
                .headers
                .get(name)
                .and_then(|value: &HeaderValue| value.to_str().ok())
                .unwrap_or_default()
        };
        let request = Request {
            method: parts.method.clone(),
            path: path.to_owned(),
            query,
            content_type,
            accept: header(ACCEPT).to_owned(),
            user_agent: header(USER_AGENT).to_owned(),
            body: bytes,
            // Replaced once the state says that the account behind the token is still there.
            user: super::auth::administrator(),
        };
        Ok((known, request))
    }

    async fn respond(
        &self,
        known: &Known,
        request: Request,
    ) -> Result<http::Response<Body>, Refusal> {
        let inner = &self.inner;
        // Bounds what can queue up for storage. Closed when the server stops.
        let _permit = inner.in_flight.acquire().await.map_err(|_| stopped())?;
        if let Some(reason) = inner.journal.failure() {
            return Err(broken(&reason));
        }
        let (answer, revision) =
            inner.with_state(|guarded| self.handle(guarded, known, request))?;
        // What this answer shows must be there after a crash.
        inner
            .journal
            .durable(revision)
            .await
            .map_err(|reason| broken(&reason))?;
        match answer? {
            Answer::Document(response) => Ok(document(response)),
            Answer::Metrics(text) => Ok(plain(200, METRICS_TEXT, text)),
            Answer::Watch(watch, feed) => {
                let timeout = Duration::from_secs(
                    rand::rng().random_range(WATCH_TIMEOUT_SECONDS..2 * WATCH_TIMEOUT_SECONDS),
                );
                let (hub, metrics, clock) = (
                    Arc::clone(&inner.hub),
                    Arc::clone(&inner.metrics),
                    inner.clock.clone(),
                );
                let open = watch::Open::new(*watch, feed, hub, metrics, clock, timeout);
                Ok(respond_with(200, JSON, body::stream(open.into_stream())))
            }
            Answer::Node(call) => {
                // A pod without a node has no log, which a real server says with 204.
                let log = node::get(call, Arc::clone(&inner.node_tls)).await?;
                Ok(log.map_or_else(
                    || respond_with(204, PLAIN_TEXT, body::empty()),
                    |log| respond_with(200, PLAIN_TEXT, log),
                ))
            }
        }
    }

    /// Everything that needs the state, in one turn. The revision is the one the answer was made at.
    fn handle(
        &self,
        guarded: &mut Guarded,
        known: &Known,
        mut request: Request,
    ) -> (Result<Answer, Refusal>, u64) {
        let now = self.inner.clock.now();
        let mut answer = || {
            request.user = known.user(&guarded.state)?;
            if request.path == "/metrics" {
                return Ok(Answer::Metrics(
                    self.inner.metrics.text(guarded.state.revision()),
                ));
            }
            if let Some((namespace, name)) =
                subresource_of(&request, &http::Method::POST, "serviceaccounts", "token")
            {
                let Guarded { state, random } = guarded;
                let key = self.inner.pki.token_key();
                let body = token_body(&request)?;
                let token = accounts::token(state, &key, &namespace, &name, body, now, random)?;
                return Ok(Answer::Document(Response::Json {
                    status: 201,
                    body: token,
                    warnings: Vec::new(),
                }));
            }
            // Not core's to answer, because a pod without a node has a log too: an empty one.
            if let Some((namespace, pod)) =
                subresource_of(&request, &http::Method::GET, "pods", "log")
            {
                return Ok(Answer::Node(node::decide(
                    &guarded.state,
                    &namespace,
                    &pod,
                    "log",
                    &request,
                )?));
            }
            let (response, changes) =
                core::handle(&mut guarded.state, &request, now, &mut guarded.random);
            self.inner.journal.append(changes);
            match response {
                Response::Watch(watch) => {
                    let filter = &watch.filter;
                    let feed = self.inner.hub.subscribe(
                        &filter.resource,
                        filter.namespace.as_ref(),
                        watch.since,
                    );
                    Ok(Answer::Watch(watch, feed))
                }
                Response::Node {
                    namespace,
                    pod,
                    subresource,
                } => Ok(Answer::Node(node::decide(
                    &guarded.state,
                    &namespace,
                    &pod,
                    &subresource,
                    &request,
                )?)),
                other => Ok(Answer::Document(other)),
            }
        };
        let answer = answer();
        (answer, guarded.state.revision())
    }
}

enum Answer {
    Document(Response),
    Metrics(String),
    Watch(Box<core::Watch>, Feed),
    Node(node::Call),
}

impl<B> tower::Service<http::Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.answer(request).await) })
    }
}

fn stopped() -> Refusal {
    Refusal::new(
        Reason::ServiceUnavailable,
        "the API server is shutting down",
    )
}

fn broken(reason: &str) -> Refusal {
    Refusal::new(
        Reason::InternalError,
        format!("the API server takes no more requests, restart it: {reason}"),
    )
}

/// Namespace and name, if this asks for that subresource of a namespaced object of the core group.
fn subresource_of(
    request: &Request,
    method: &http::Method,
    plural: &str,
    subresource: &str,
) -> Option<(String, String)> {
    let rest = request.path.strip_prefix("/api/v1/namespaces/")?;
    let parts = rest.split('/').collect::<Vec<_>>();
    let [namespace, found, name, last] = parts.as_slice() else {
        return None;
    };
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    (request.method == method && *found == plural && *last == subresource)
        .then(|| (decode(namespace), decode(name)))
}

fn token_body(request: &Request) -> Result<&[u8], Refusal> {
    match request.content_type.as_str() {
        "" | JSON => Ok(&request.body),
        _ => Err(Refusal::new(
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: application/json",
        )),
    }
}

fn content_type(parts: &Parts) -> String {
    let header = parts
        .headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    header
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
}

/// Query parameters, decoded.
fn query(text: &str) -> Vec<(String, String)> {
    let decode = |part: &str| {
        percent_decode_str(&part.replace('+', " "))
            .decode_utf8_lossy()
            .into_owned()
    };
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(name), decode(value))
    };
    text.split('&')
        .filter(|part| !part.is_empty())
        .map(pair)
        .collect()
}

fn refused(refusal: &Refusal) -> http::Response<Body> {
    respond_with(refusal.code, JSON, body::full(json_text(&refusal.body)))
}

fn document(response: Response) -> http::Response<Body> {
    match response {
        Response::Json {
            status,
            body,
            warnings,
        } => {
            let aggregated =
                body.get("kind").and_then(Value::as_str) == Some("APIGroupDiscoveryList");
            let content_type = if aggregated {
                AGGREGATED_DISCOVERY
            } else {
                JSON
            };
            let mut response = respond_with(status, content_type, body::full(json_text(&body)));
            let headers = response.headers_mut();
            if aggregated {
                headers.insert(VARY, HeaderValue::from_static("Accept"));
            }
            for warning in warnings {
                // The form RFC 9110's predecessor gives a warning; what cannot stand in a header is left out of it.
                let text = warning
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace(['\r', '\n'], " ");
                if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\"")) {
                    headers.append(WARNING, value);
                }
            }
            response
        }
        Response::Text { status, body } => plain(status, PLAIN_TEXT, body),
        // `handle` turned these two into answers of their own.
        Response::Watch(_) | Response::Node { .. } => refused(&Refusal::new(
            Reason::InternalError,
            "a stream came where a document was expected; this is a bug of the server",
        )),
    }
}

/// Documents end with a newline, so that they look right in a terminal.
fn json_text(value: &Value) -> String {
    let mut text = value.to_string();
    text.push('\n');
    text
}

fn plain(status: u16, content_type: &'static str, text: String) -> http::Response<Body> {
    respond_with(status, content_type, body::full(text))
}

fn respond_with(status: u16, content_type: &'static str, body: Body) -> http::Response<Body> {
    let mut response = http::Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    if let Ok(identifier) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string()) {
        headers.insert(AUDIT_ID, identifier);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            query("labelSelector=app%3Dx%2Cy+in+%28a%29&watch=true&pretty"),
            [
                pair("labelSelector", "app=x,y in (a)"),
                pair("watch", "true"),
                pair("pretty", "")
            ],
        );
        assert!(query("").is_empty());
    }
}
