//! Opening a watch: what its client is told at once, and from where it goes on.

use std::sync::Arc;
use std::time::Duration;

use super::options::invalid;
use super::read::version_problem;
use super::{Call, Place};
use crate::core::error::{Cause, CauseReason, Failure, Named, Outcome, Reason};
use crate::core::meta;
use crate::core::request::Request;
use crate::core::response::{Event, EventType, Response, Watch, WatchFilter};
use crate::core::selector::Selector;

const OPTIONS: &str = "ListOptions";
/// Ends the initial events of a streaming list.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

impl Call<'_> {
    pub(super) fn watch(&mut self, place: &Place) -> Outcome<Response> {
        let request = self.request;
        let mut selector = Selector::of(request, &place.kind)?;
        if let Some(name) = &place.name {
            selector.fields = selector.fields.with_name(name);
        }
        let streaming = check_watch_options(request)?;
        let timeout = timeout(request)?;
        let since = since(request)?;
        let namespace = place
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty())
            .map(Arc::from);
        let filter = WatchFilter {
            resource: Arc::clone(&place.kind.resource),
            namespace,
            view: self.view,
            kind: Arc::clone(&place.kind),
            selector,
        };
        let current = self.state.revision();
        let bookmarks = boolean(request, "allowWatchBookmarks");
        let mut watch = Watch {
            initial: Vec::new(),
            ends: false,
            since: current,
            bookmarks,
            timeout,
            filter,
        };
        match (streaming, since) {
            (Some(true), version) if version > current => {
                return Err(Failure::too_large_version(version, current));
            }
            (Some(true), _) => {
                watch.initial = self.all(&watch.filter)?;
                watch
                    .initial
                    .push(initial_events_end(&watch.filter, current));
            }
            (None, 0) => watch.initial = self.all(&watch.filter)?,
            (_, 0) => {}
            (_, version) if version > current => watch.since = version,
            (_, version) if version < self.state.history_start() => {
                watch.initial = vec![self.expired(version)];
                watch.ends = true;
            }
            (_, version) => {
                let changes = self.state.changes_since(version);
                watch.initial = changes
                    .filter_map(|change| watch.filter.event(change, self.now))
                    .collect();
            }
        }
        Ok(Response::Watch(Box::new(watch)))
    }

    /// Everything there is, as if it had just been made.
    fn all(&self, filter: &WatchFilter) -> Outcome<Vec<Event>> {
        let objects = self.state.snapshot(
            &filter.resource,
            filter.namespace.as_deref(),
            self.state.revision(),
        )?;
        let matching = objects
            .values()
            .filter(|object| filter.selector.matches(object));
        Ok(matching
            .map(|object| filter.show(EventType::Added, object, self.now))
            .collect())
    }

    fn expired(&self, version: u64) -> Event {
        let message = format!(
            "too old resource version: {version} ({})",
            self.state.history_start()
        );
        Event {
            kind: EventType::Error,
            object: Failure::new(410, Reason::Expired, message).status(),
        }
    }
}

/// The bookmark after the last initial event.
fn initial_events_end(filter: &WatchFilter, revision: u64) -> Event {
    let mut event = filter.bookmark(revision);
    meta::set_metadata(
        &mut event.object,
        "annotations",
        Some(serde_json::json!({INITIAL_EVENTS_END: "true"})),
    );
    event
}

fn boolean(request: &Request, name: &str) -> bool {
    request
        .parameter(name)
        .is_some_and(|value| !matches!(value, "false" | "0"))
}

/// Whether the client asks for initial events: unset, no, yes.
fn check_watch_options(request: &Request) -> Outcome<Option<bool>> {
    let streaming = request
        .parameter("sendInitialEvents")
        .filter(|value| !value.is_empty())
        .map(|_| boolean(request, "sendInitialEvents"));
    let matching = request
        .parameter("resourceVersionMatch")
        .unwrap_or_default();
    let mut causes = Vec::new();
    match (streaming, matching) {
        (None, "") | (Some(_), "NotOlderThan") => {}
        (None, _) => {
            let detail =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden("resourceVersionMatch", detail));
        }
        (Some(_), other) => {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            causes.push(Cause::forbidden("resourceVersionMatch", detail));
            if !other.is_empty() {
                causes.push(Cause::not_supported(
                    "resourceVersionMatch",
                    &other.into(),
                    &["NotOlderThan"],
                ));
            }
        }
    }
    if request
        .parameter("continue")
        .is_some_and(|token| !token.is_empty())
    {
        causes.push(Cause::new(
            CauseReason::Forbidden,
            "continue",
            "Forbidden: continue is forbidden for watch",
        ));
    }
    match causes.len() {
        0 => Ok(streaming),
        1 => Err(invalid(OPTIONS, causes.remove(0))),
        _ => Err(Failure::invalid(
            &Named {
                group: "meta.k8s.io",
                kind: OPTIONS,
                name: "",
            },
            causes,
        )),
    }
}

fn timeout(request: &Request) -> Outcome<Option<Duration>> {
    let text = request.parameter("timeoutSeconds").unwrap_or_default();
    if text.is_empty() {
        return Ok(None);
    }
    let seconds: i64 = text.parse().map_err(|_| {
        Failure::bad_request(format!(
            "strconv.ParseInt: parsing {text:?}: invalid syntax"
        ))
    })?;
    Ok(u64::try_from(seconds)
        .ok()
        .filter(|seconds| *seconds > 0)
        .map(Duration::from_secs))
}

/// Zero if unset. A version that is no number is a 500 here and a 400 in a list: a real server's oddity.
fn since(request: &Request) -> Outcome<u64> {
    let text = request.parameter("resourceVersion").unwrap_or_default();
    if text.is_empty() {
        return Ok(0);
    }
    text.parse()
        .map_err(|_| Failure::internal(version_problem(text)))
}
