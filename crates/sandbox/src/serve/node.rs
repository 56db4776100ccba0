//! `pods/NAME/log` and its siblings: the API server passes them to the node that runs the pod, over mutual TLS.
//!
//! Logs are served. Exec, attach and port-forward need a protocol upgrade that is not built yet; they are refused in words.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::body::{self, Body};
use super::status::{Reason, Refusal};
use crate::core::{Request, State};

/// A node is in this process or on this machine: if it takes longer to connect, it is not coming.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How much of a node's refusal is shown to the client.
const REFUSAL_LIMIT_BYTES: usize = 8 * 1024;
/// Everything but what a path segment may hold unescaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// What to ask which node; decided under the state's lock, done without it.
#[derive(Debug)]
pub(super) enum Call {
    /// The pod has no node yet: there is nothing to show, and that is no error.
    Nothing,
    Get {
        address: SocketAddr,
        server_name: String,
        uri: String,
    },
}

/// Decides what a request to a pod's subresource means.
pub(super) fn decide(
    state: &State,
    namespace: &str,
    pod: &str,
    subresource: &str,
    request: &Request,
) -> Result<Call, Refusal> {
    if subresource != "log" {
        return Err(Refusal::new(
            Reason::NotImplemented,
            format!(
                "pods/{subresource} is not built into this server yet; the pod's processes run on this machine, reach them there"
            ),
        ));
    }
    let object = state
        .get("pods", namespace, pod)
        .ok_or_else(|| Refusal::not_found("pods", pod))?;
    let container = container(
        object,
        pod,
        request.parameter("container").unwrap_or_default(),
    )?;
    let query = query(request, pod)?;
    let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Ok(Call::Nothing);
    }
    let (address, server_name) = address(state, node)?;
    let encode = |segment: &str| utf8_percent_encode(segment, SEGMENT).to_string();
    let uri = format!(
        "/containerLogs/{}/{}/{}{query}",
        encode(namespace),
        encode(pod),
        encode(container)
    );
    Ok(Call::Get {
        address,
        server_name,
        uri,
    })
}

fn container<'a>(object: &'a Value, pod: &str, asked: &'a str) -> Result<&'a str, Refusal> {
    let names = |field: &str| {
        let containers = object["spec"][field]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        containers
            .iter()
            .filter_map(|container| container["name"].as_str())
            .collect::<Vec<_>>()
    };
    let (regular, init, ephemeral) = (
        names("containers"),
        names("initContainers"),
        names("ephemeralContainers"),
    );
    if !asked.is_empty() {
        let known = [&regular, &init, &ephemeral]
            .iter()
            .any(|names| names.contains(&asked));
        return if known {
            Ok(asked)
        } else {
            Err(Refusal::new(
                Reason::BadRequest,
                format!("container {asked} is not valid for pod {pod}"),
            ))
        };
    }
    // A cluster takes the only container whatever init containers there are, so does this.
    if let [only] = regular.as_slice() {
        return Ok(only);
    }
    let mut message = format!("a container name must be specified for pod {pod}");
    if !regular.is_empty() {
        let names = [init, regular, ephemeral].concat().join(" ");
        message.push_str(&format!(", choose one of: [{names}]"));
    }
    Err(Refusal::new(Reason::BadRequest, message))
}

/// The log options that go on to the node, checked.
fn query(request: &Request, pod: &str) -> Result<String, Refusal> {
    let mut pairs = Vec::new();
    for name in ["follow", "previous", "timestamps"] {
        // As a real server reads booleans in a query: whatever is not false is true.
        if request
            .parameter(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
        {
            pairs.push(format!("{name}=true"));
        }
    }
    for (name, least, rule) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
        ("limitBytes", 1, "must be greater than 0"),
    ] {
        let Some(text) = request.parameter(name) else {
            continue;
        };
        let number = text.parse::<i64>().map_err(|_| {
            Refusal::new(
                Reason::BadRequest,
                format!("strconv.ParseInt: parsing {text:?}: invalid syntax"),
            )
        })?;
        if number < least {
            return Err(invalid(
                pod,
                name,
                "FieldValueInvalid",
                &format!("Invalid value: {number}: {rule}"),
            ));
        }
        pairs.push(format!("{name}={number}"));
    }
    if let Some(time) = request.parameter("sinceTime") {
        if request.parameter("sinceSeconds").is_some() {
            let rule = "Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified";
            return Err(invalid(pod, "[]", "FieldValueForbidden", rule));
        }
        let time: jiff::Timestamp = time.parse().map_err(|_| {
            Refusal::new(
                Reason::BadRequest,
                format!("sinceTime should be an RFC 3339 time, but is {time:?}"),
            )
        })?;
        pairs.push(format!(
            "sinceTime={}",
            utf8_percent_encode(&time.to_string(), SEGMENT)
        ));
    }
    if request
        .parameter("stream")
        .is_some_and(|stream| stream != "All")
    {
        return Err(Refusal::new(
            Reason::NotImplemented,
            "logs of one stream only are not built into this server; ask without `stream`",
        ));
    }
    Ok(if pairs.is_empty() {
        String::new()
    } else {
        format!("?{}", pairs.join("&"))
    })
}

fn invalid(pod: &str, field: &str, reason: &str, message: &str) -> Refusal {
    let mut refusal = Refusal::new(
        Reason::Invalid,
        format!("PodLogOptions {pod:?} is invalid: {field}: {message}"),
    );
    let causes = serde_json::json!([{"reason": reason, "message": message, "field": field}]);
    refusal.body["details"] =
        serde_json::json!({"name": pod, "kind": "PodLogOptions", "causes": causes});
    refusal
}

/// Where a node's server is, from what the node says of itself.
fn address(state: &State, node: &str) -> Result<(SocketAddr, String), Refusal> {
    let unknown = |detail: String| Refusal::new(Reason::InternalError, detail);
    let object = state
        .get("nodes", "", node)
        .ok_or_else(|| unknown(format!("the pod's node {node:?} is gone")))?;
    let addresses = object["status"]["addresses"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let text = ["InternalIP", "ExternalIP"]
        .iter()
        .find_map(|wanted| {
            addresses.iter().find(|entry| entry["type"] == *wanted)?["address"].as_str()
        })
        .ok_or_else(|| unknown(format!("the node {node:?} has no address in its status")))?;
    let port = object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok());
    match (text.parse(), port) {
        (Ok(address), Some(port)) if port > 0 => {
            Ok((SocketAddr::new(address, port), text.to_owned()))
        }
        _ => Err(unknown(format!(
            "the node {node:?} has no usable address and port in its status"
        ))),
    }
}

/// Asks the node and passes its answer on as it comes. `None` if there is nobody to ask.
pub(super) async fn get(call: Call, tls: Arc<ClientConfig>) -> Result<Option<Body>, Refusal> {
    let Call::Get {
        address,
        server_name,
        uri,
    } = call
    else {
        return Ok(None);
    };
    let failed = |detail: &dyn std::fmt::Display| {
        Refusal::new(
            Reason::InternalError,
            format!("failed to get the log from the node at {address}: {detail}"),
        )
    };
    let connected = tokio::time::timeout(CONNECT_TIMEOUT, async {
        let stream = TcpStream::connect(address).await?;
        let name = ServerName::try_from(server_name.clone()).map_err(std::io::Error::other)?;
        TlsConnector::from(tls).connect(name, stream).await
    });
    let stream = connected
        .await
        .map_err(|_| failed(&"no answer in time"))?
        .map_err(|error| failed(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(&error))?;
    // It ends with the response's body: when the node is done, or when the client is gone and the body is dropped.
    tokio::spawn(connection);
    let request = http::Request::get(uri)
        .header(http::header::HOST, server_name)
        .body(Empty::<bytes::Bytes>::new())
        .map_err(|error| failed(&error))?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|error| failed(&error))?;
    let status = response.status();
    if status.is_success() {
        return Ok(Some(body::stream_body(response.into_body())));
    }
    let text = http_body_util::Limited::new(response.into_body(), REFUSAL_LIMIT_BYTES)
        .collect()
        .await;
    let text = text
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    Err(match status.as_u16() {
        400 => Refusal::new(Reason::BadRequest, text),
        404 => Refusal::new(Reason::NotFound, text),
        code => failed(&format_args!("it answered {code}: {text}")),
    })
}
