//! What the server answers, and what changed because of it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

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
    Json { status: u16, body: Value, warnings: Vec<String> },
    /// Plain text, e.g. `/healthz` or `404 page not found`.
    Text { status: u16, body: String },
    /// A watch that is open now; `serve` feeds it with every later [`Change`].
    Watch(Box<Watch>),
    /// Not ours to answer: `serve` must proxy the request to the node that runs the pod (log, exec, attach, portforward).
    Node { namespace: String, pod: String, subresource: String },
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
}
