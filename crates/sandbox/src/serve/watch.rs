//! A watch as the body of a response: one JSON line per event, until its time is over, the client leaves, or it is dropped.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body::Frame;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until};

use super::hub::{Feed, Hub};
use super::metrics::Metrics;
use crate::core::{Event, EventType, View, Watch};

/// How often those who asked are told how far the server has come: a real API server's rhythm.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// One open watch.
pub(super) struct Open {
    watch: Watch,
    feed: Feed,
    hub: Arc<Hub>,
    now: super::Clock,
    waiting: VecDeque<Event>,
    columns_sent: bool,
    end: Instant,
    bookmark: Option<Instant>,
    over: bool,
    _counted: Counted,
}

/// Keeps the gauge right however the stream ends.
struct Counted(Arc<Metrics>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.watch_closed();
    }
}

impl Open {
    pub(super) fn new(
        mut watch: Watch,
        feed: Feed,
        hub: Arc<Hub>,
        metrics: Arc<Metrics>,
        now: super::Clock,
        default_timeout: Duration,
    ) -> Self {
        metrics.watch_opened();
        let started = Instant::now();
        Self {
            waiting: std::mem::take(&mut watch.initial).into(),
            end: started + watch.timeout.unwrap_or(default_timeout),
            bookmark: watch.bookmarks.then(|| started + BOOKMARK_INTERVAL),
            over: false,
            columns_sent: false,
            watch,
            feed,
            hub,
            now,
            _counted: Counted(metrics),
        }
    }

    /// The response's body.
    pub(super) fn into_stream(
        self,
    ) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static {
        futures::stream::unfold(self, |mut open| async move {
            let event = open.next().await?;
            let line = open.line(event);
            Some((Ok(Frame::data(line)), open))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.over || self.watch.ends {
                return None;
            }
            tokio::select! {
                change = self.feed.recv() => match change {
                    Some(change) => self.waiting.extend(self.watch.filter.event(&change, self.now.now())),
                    None => return None,
                },
                () = sleep_until(self.end) => {
                    self.over = true;
                    if self.watch.bookmarks {
                        self.bookmark();
                    }
                }
                () = sleep_until(self.bookmark.unwrap_or(self.end)), if self.bookmark.is_some() => {
                    self.bookmark = Some(Instant::now() + BOOKMARK_INTERVAL);
                    self.bookmark();
                }
            }
        }
    }

    /// Everything up to a bookmark's version must be sent before it. The hub fills buffers before it says how far it is, so what is in
    /// ours after asking covers the answer.
    fn bookmark(&mut self) {
        let revision = self.hub.published().max(self.watch.since);
        while let Ok(change) = self.feed.try_recv() {
            self.waiting
                .extend(self.watch.filter.event(&change, self.now.now()));
        }
        self.waiting.push_back(self.watch.filter.bookmark(revision));
    }

    fn line(&mut self, event: Event) -> Bytes {
        let Event { kind, mut object } = event;
        // Clients remember a table's columns, and a real server sends them once.
        if self.watch.filter.view == View::Table && object.get("columnDefinitions").is_some() {
            if self.columns_sent {
                object["columnDefinitions"] = Value::Null;
            }
            self.columns_sent = true;
        }
        let kind = match kind {
            EventType::Added => "ADDED",
            EventType::Modified => "MODIFIED",
            EventType::Deleted => "DELETED",
            EventType::Bookmark => "BOOKMARK",
            EventType::Error => "ERROR",
        };
        let mut line = json!({"type": kind, "object": object})
            .to_string()
            .into_bytes();
        line.push(b'\n');
        line.into()
    }
}
