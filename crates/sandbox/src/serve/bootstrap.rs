//! What a fresh cluster has before anybody asks for anything: its first namespaces.

use bytes::Bytes;
use http::Method;
use jiff::Timestamp;
use serde_json::json;

use super::auth::administrator;
use super::inner::Guarded;
use crate::core::{self, Change, Request, Response};

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
const FIELD_MANAGER: &str = "geodb-sandbox";

/// Makes what is missing; a restart finds everything there and changes nothing.
pub(super) fn run(guarded: &mut Guarded, now: Timestamp) -> Result<Vec<Change>, String> {
    let mut changes = Vec::new();
    for name in NAMESPACES {
        if guarded.state.get("namespaces", "", name).is_some() {
            continue;
        }
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let request = create("/api/v1/namespaces", &namespace);
        let (response, made) = core::handle(&mut guarded.state, &request, now, &mut guarded.random);
        match response {
            Response::Json { status: 201, .. } => changes.extend(made),
            other => return Err(format!("failed to make the namespace {name}: {other:?}")),
        }
    }
    Ok(changes)
}

fn create(path: &str, object: &serde_json::Value) -> Request {
    Request {
        method: Method::POST,
        path: path.to_owned(),
        query: vec![("fieldManager".to_owned(), FIELD_MANAGER.to_owned())],
        content_type: "application/json".to_owned(),
        accept: "application/json".to_owned(),
        user_agent: FIELD_MANAGER.to_owned(),
        body: Bytes::from(object.to_string()),
        user: administrator(),
    }
}
