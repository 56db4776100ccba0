//! The core as its clients see it: requests in, responses and changes out. Expectations are what a real API server (1.36) answered.

#![allow(
    clippy::unwrap_used,
    clippy::needless_pass_by_value,
    clippy::new_without_default,
    reason = "a test's helpers panic as its report, and take what json! makes"
)]

mod builtin;
mod custom;
mod facts;
mod lifecycle;
mod patches;
mod property;
mod watches;

use std::net::Ipv4Addr;

use geodb_sandbox::core::{
    self, Change, Config, Event, EventType, Request, Response, State, User, Watch,
};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

/// A server with a clock that stands still until it is moved, and the same random numbers in each run.
pub struct Server {
    pub state: State,
    pub now: Timestamp,
    pub random: StdRng,
    pub changes: Vec<Change>,
}

pub struct Reply {
    pub status: u16,
    pub body: Value,
    pub warnings: Vec<String>,
}

impl Reply {
    pub fn reason(&self) -> &str {
        self.body["reason"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    pub fn version(&self) -> &str {
        self.body["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or_default()
    }
}

pub const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub const PODS: &str = "/api/v1/namespaces/default/pods";
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

impl Server {
    pub fn new() -> Server {
        let config = Config {
            service_first: Ipv4Addr::new(10, 0, 0, 1),
            service_last: Ipv4Addr::new(10, 0, 0, 6),
        };
        let mut server = Server {
            state: State::new(config),
            now: "2026-11-15T20:06:00Z".parse().unwrap(),
            random: StdRng::seed_from_u64(7),
            changes: Vec::new(),
        };
        server
            .post(
                "/api/v1/namespaces",
                json!({"metadata": {"name": "default"}}),
            )
            .created();
        server
            .post(
                "/api/v1/namespaces/default/serviceaccounts",
                json!({"metadata": {"name": "default"}}),
            )
            .created();
        server
    }

    pub fn advance(&mut self, seconds: i64) {
        self.now = self
            .now
            .checked_add(SignedDuration::from_secs(seconds))
            .unwrap();
    }

    pub fn handle(&mut self, request: &Request) -> Response {
        let (response, changes) =
            core::handle(&mut self.state, request, self.now, &mut self.random);
        self.changes.extend(changes);
        response
    }

    pub fn send(&mut self, request: &Request) -> Reply {
        match self.handle(request) {
            Response::Json {
                status,
                body,
                warnings,
            } => Reply {
                status,
                body,
                warnings,
            },
            Response::Text { status, body } => Reply {
                status,
                body: Value::String(body),
                warnings: Vec::new(),
            },
            other => panic!("expected a document, got {other:?}"),
        }
    }

    pub fn get(&mut self, path: &str) -> Reply {
        self.send(&request(Method::GET, path))
    }

    pub fn post(&mut self, path: &str, body: Value) -> Reply {
        self.send(&with_body(
            request(Method::POST, path),
            "application/json",
            &body,
        ))
    }

    pub fn put(&mut self, path: &str, body: Value) -> Reply {
        self.send(&with_body(
            request(Method::PUT, path),
            "application/json",
            &body,
        ))
    }

    pub fn delete(&mut self, path: &str, body: Value) -> Reply {
        let plain = request(Method::DELETE, path);
        self.send(&if body.is_null() {
            plain
        } else {
            with_body(plain, "application/json", &body)
        })
    }

    pub fn merge(&mut self, path: &str, body: Value) -> Reply {
        self.patch(path, "application/merge-patch+json", body)
    }

    pub fn patch(&mut self, path: &str, content_type: &str, body: Value) -> Reply {
        self.send(&with_body(
            request(Method::PATCH, path),
            content_type,
            &body,
        ))
    }

    pub fn apply(&mut self, path: &str, manager: &str, body: Value) -> Reply {
        let separator = if path.contains('?') { '&' } else { '?' };
        self.patch(
            &format!("{path}{separator}fieldManager={manager}"),
            "application/apply-patch+yaml",
            body,
        )
    }

    pub fn watch(&mut self, path: &str) -> Watch {
        match self.handle(&request(Method::GET, path)) {
            Response::Watch(watch) => *watch,
            other => panic!("expected a watch, got {other:?}"),
        }
    }

    /// What a watch sees of the changes since it was opened.
    pub fn seen(&self, watch: &Watch) -> Vec<Event> {
        let later = self
            .changes
            .iter()
            .filter(|change| change.revision > watch.since);
        later
            .filter_map(|change| watch.filter.event(change, self.now))
            .collect()
    }
}

impl Reply {
    pub fn created(self) -> Reply {
        assert_eq!(self.status, 201, "{}", self.body);
        self
    }

    pub fn ok(self) -> Reply {
        assert_eq!(self.status, 200, "{}", self.body);
        self
    }

    pub fn refused(self, status: u16, message: &str) -> Reply {
        assert_eq!(
            (self.status, self.message()),
            (status, message),
            "{}",
            self.body
        );
        self
    }
}

/// Kind, name and version of each event, as a line each.
pub fn lines(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| {
        let name = event.object["metadata"]["name"].as_str().unwrap_or("-");
        let version = event.object["metadata"]["resourceVersion"]
            .as_str()
            .unwrap_or("-");
        let kind = match event.kind {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        };
        format!("{kind} {name} {version}")
    };
    events.iter().map(line).collect()
}

pub fn request(method: Method, path_and_query: &str) -> Request {
    let (path, query) = path_and_query
        .split_once('?')
        .unwrap_or((path_and_query, ""));
    let query = query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (name.to_owned(), value.to_owned())
        });
    Request {
        method,
        path: path.to_owned(),
        query: query.collect(),
        content_type: String::new(),
        accept: String::new(),
        user_agent: "probe/1.0".to_owned(),
        body: bytes::Bytes::new(),
        user: User {
            name: "admin".to_owned(),
            groups: vec!["system:masters".to_owned()],
        },
    }
}

pub fn with_body(request: Request, content_type: &str, body: &Value) -> Request {
    Request {
        content_type: content_type.to_owned(),
        body: body.to_string().into(),
        ..request
    }
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

pub fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}
