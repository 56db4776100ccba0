//! What clients see of the server's state: objects, tables, metadata, discovery, OpenAPI.
//!
//! Pure: values in, values out. Ages are computed from the `now` of the request; there is no clock here.

mod age;
mod discovery;
mod openapi;
mod paths;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::core::kind::KindInfo;
use crate::core::{Request, Response, State, View};

/// The version this server claims to be: what it was checked against, and a suffix that says it is not that.
pub const SERVER_VERSION: &str = "v1.36.3-geodb";

/// Answers what is no resource: `/api`, `/apis`, `/openapi/v3`, `/version`, health. `None` if the path is not one of these.
pub fn document(state: &State, request: &Request) -> Option<Response> {
    let path = request.path.trim_end_matches('/');
    let found = match path {
        "/version" => Response::Json {
            status: 200,
            body: version(),
            warnings: Vec::new(),
        },
        "/healthz" | "/livez" | "/readyz" => Response::Text {
            status: 200,
            body: "ok".to_owned(),
        },
        "/openapi/v2" => refused(
            "this server publishes OpenAPI v3 at /openapi/v3; the v2 document is not served, and no kubectl since 1.27 asks for it",
        ),
        _ => match path.strip_prefix("/openapi/v3") {
            Some(rest) => openapi::document(state, rest)?,
            None => discovery::document(state, path, &request.accept)?,
        },
    };
    Some(if request.method == http::Method::GET {
        found
    } else {
        method_not_allowed()
    })
}

/// One object as its client wants it.
pub fn object(view: View, kind: &KindInfo, object: &Value, now: Timestamp) -> Value {
    match view {
        View::Object => object.clone(),
        View::Metadata => partial(object),
        View::Table => {
            let version = object
                .pointer("/metadata/resourceVersion")
                .cloned()
                .unwrap_or_default();
            table::table(
                kind,
                std::iter::once(object),
                json!({"resourceVersion": version}),
                now,
            )
        }
    }
}

/// A list of objects as its client wants it; `list_metadata` is the list's own (`resourceVersion`, `continue`, `remainingItemCount`).
pub fn list(
    view: View,
    kind: &KindInfo,
    items: &[Arc<Value>],
    list_metadata: Value,
    now: Timestamp,
) -> Value {
    let document = |list_kind: &str, api_version: &str, items: Vec<Value>| {
        let mut document = json!({"kind": list_kind, "apiVersion": api_version});
        document["metadata"] = list_metadata.clone();
        document["items"] = Value::Array(items);
        document
    };
    match view {
        View::Object => {
            let items = items.iter().map(|item| item.as_ref().clone()).collect();
            document(&kind.list_kind, &kind.api_version(), items)
        }
        View::Metadata => {
            let items = items.iter().map(|item| partial(item)).collect();
            document("PartialObjectMetadataList", "meta.k8s.io/v1", items)
        }
        View::Table => table::table(kind, items.iter().map(AsRef::as_ref), list_metadata, now),
    }
}

/// `PartialObjectMetadata`: an object's metadata and nothing else.
fn partial(object: &Value) -> Value {
    let metadata = object
        .get("metadata")
        .cloned()
        .unwrap_or_else(|| Value::Object(Map::new()));
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
}

fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "emulationMajor": "1",
        "emulationMinor": "36",
        "minCompatibilityMajor": "1",
        "minCompatibilityMinor": "35",
        "gitVersion": SERVER_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn status(code: u16, reason: &str, message: &str) -> Response {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code,
    });
    Response::Json {
        status: code,
        body,
        warnings: Vec::new(),
    }
}

fn refused(message: &str) -> Response {
    status(501, "NotImplemented", message)
}

fn method_not_allowed() -> Response {
    status(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
    )
}
