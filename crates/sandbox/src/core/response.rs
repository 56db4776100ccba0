//! What the server answers, and what changed because of it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::KindInfo;
use super::selector::Selector;
use super::{convert, meta};
use crate::present;

/// How a client wants objects shown, from its `Accept` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    Object,
    /// `as=Table`: what `kubectl get` prints.
    Table,
    /// `as=PartialObjectMetadata(List)`: metadata-only clients.
    Metadata,
}

#[derive(Debug)]
pub enum Response {
    /// A JSON document (an object, a list, a table or a `Status`) with its HTTP status and `Warning` headers.
    Json {
        status: u16,
        body: Value,
        warnings: Vec<String>,
    },
    /// Plain text, e.g. `/healthz` or `404 page not found`.
    Text { status: u16, body: String },
    /// A watch that is open now; `serve` feeds it with every later [`Change`].
    Watch(Box<Watch>),
    /// Not ours to answer: `serve` must proxy the request to the node that runs the pod (log, exec, attach, portforward).
    Node {
        namespace: String,
        pod: String,
        subresource: String,
    },
}

/// One committed transition of one object. `old` and `new` are never both absent.
#[derive(Clone, Debug)]
pub struct Change {
    pub revision: u64,
    /// `configmaps`, `databases.stable.imaginedata.com`: plural and group, the identity of a kind in storage.
    pub resource: Arc<str>,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub old: Option<Arc<Value>>,
    pub new: Option<Arc<Value>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

impl EventType {
    /// As it is written in a watch's stream.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        }
    }
}

/// One line of a watch stream, rendered for its client.
#[derive(Clone, Debug)]
pub struct Event {
    pub kind: EventType,
    pub object: Value,
}

/// An open watch: what to send at once, and the rule for what to send later.
#[derive(Debug)]
pub struct Watch {
    /// Sent first: synthetic ADDED events, the initial-events-end bookmark, or the one ERROR event of an expired version.
    pub initial: Vec<Event>,
    /// True if the stream ends after `initial` (an expired version).
    pub ends: bool,
    /// Only changes with a larger revision are of interest.
    pub since: u64,
    /// Whether the client asked for bookmarks.
    pub bookmarks: bool,
    pub timeout: Option<Duration>,
    /// Selector, kind, view: everything needed to turn a change into an event for this client.
    pub filter: WatchFilter,
}

/// Which changes a watch sees, and in what shape. Opaque to `serve`.
#[derive(Clone, Debug)]
pub struct WatchFilter {
    pub resource: Arc<str>,
    pub namespace: Option<Arc<str>>,
    pub view: View,
    pub(crate) kind: Arc<KindInfo>,
    pub(crate) selector: Selector,
}

impl WatchFilter {
    /// What this client is told about a change; `None` if it is none of its business. An object that begins to match the selector is
    /// ADDED for this client, one that ceases to is DELETED, and what is deleted carries the revision of its deletion.
    pub fn event(&self, change: &Change, now: Timestamp) -> Option<Event> {
        if change.resource != self.resource
            || self
                .namespace
                .as_ref()
                .is_some_and(|namespace| *namespace != change.namespace)
        {
            return None;
        }
        let matching = |object: &Option<Arc<Value>>| {
            object
                .as_ref()
                .filter(|object| self.selector.matches(object))
                .cloned()
        };
        match (matching(&change.old), matching(&change.new)) {
            (None, None) => None,
            (None, Some(new)) => Some(self.show(EventType::Added, &new, now)),
            (Some(_), Some(new)) => Some(self.show(EventType::Modified, &new, now)),
            (Some(old), None) => {
                let mut last = Value::clone(&old);
                meta::set_metadata(
                    &mut last,
                    "resourceVersion",
                    Some(change.revision.to_string().into()),
                );
                Some(self.show(EventType::Deleted, &Arc::new(last), now))
            }
        }
    }

    pub(crate) fn show(&self, kind: EventType, object: &Arc<Value>, now: Timestamp) -> Event {
        let served = convert::from_stored(&self.kind, object);
        Event {
            kind,
            object: present::object(self.view, &self.kind, &served, now),
        }
    }

    pub fn view(&self) -> View {
        self.view
    }

    /// A bookmark: nothing but the revision up to which this client has seen everything. In a table it is one without rows.
    pub fn bookmark(&self, revision: u64) -> Event {
        let metadata = json!({"resourceVersion": revision.to_string()});
        let object = match self.view {
            View::Object => {
                json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
            View::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            View::Table => {
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": []})
            }
        };
        Event {
            kind: EventType::Bookmark,
            object,
        }
    }
}
