//! Feeds open watches with what was committed.
//!
//! Each watch has its own bounded buffer; one that does not keep up is dropped, as a real API server does, and its client starts again
//! from the last version it saw. The hub never waits for anybody.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::core::Change;

/// Changes one watch may be behind. Far above any burst of a sandbox's; at this length the client is stuck or gone.
const BUFFER_CHANGES: usize = 4096;

/// What one watch reads its changes from. Ends when the watch was dropped for being slow, or the server stops.
pub(super) type Feed = mpsc::Receiver<Change>;

struct Subscriber {
    namespace: Option<Arc<str>>,
    since: u64,
    sender: mpsc::Sender<Change>,
}

#[derive(Default)]
pub(super) struct Hub {
    subscribers: Mutex<HashMap<Arc<str>, Vec<Subscriber>>>,
    published: AtomicU64,
}

impl Hub {
    pub(super) fn new(revision: u64) -> Self {
        Self {
            subscribers: Mutex::default(),
            published: AtomicU64::new(revision),
        }
    }

    /// The caller holds the state's lock, so no change is committed between the watch's beginning and this.
    pub(super) fn subscribe(
        &self,
        resource: &Arc<str>,
        namespace: Option<&Arc<str>>,
        since: u64,
    ) -> Feed {
        let (sender, feed) = mpsc::channel(BUFFER_CHANGES);
        let subscriber = Subscriber {
            namespace: namespace.cloned(),
            since,
            sender,
        };
        let mut subscribers = self.subscribers.lock();
        let entry = subscribers.entry(Arc::clone(resource)).or_default();
        // Watches that ended while nothing of their kind changed are only noticed here.
        entry.retain(|subscriber| !subscriber.sender.is_closed());
        entry.push(subscriber);
        feed
    }

    /// Hands on what is durable now, in order of revision.
    pub(super) fn publish(&self, changes: &[Change]) {
        let mut subscribers = self.subscribers.lock();
        for change in changes {
            if let Some(interested) = subscribers.get_mut(&change.resource) {
                interested.retain(|subscriber| subscriber.offer(change));
            }
        }
        if let Some(last) = changes.last() {
            self.published.store(last.revision, Ordering::Release);
        }
    }

    /// Every change up to this revision is in the buffers of those who want it.
    pub(super) fn published(&self) -> u64 {
        self.published.load(Ordering::Acquire)
    }

    /// Ends every watch.
    pub(super) fn close(&self) {
        self.subscribers.lock().clear();
    }
}

impl Subscriber {
    /// False if this watch is over.
    fn offer(&self, change: &Change) -> bool {
        let elsewhere = self
            .namespace
            .as_ref()
            .is_some_and(|namespace| *namespace != change.namespace);
        if elsewhere || change.revision <= self.since {
            return !self.sender.is_closed();
        }
        self.sender.try_send(change.clone()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(revision: u64, namespace: &str) -> Change {
        Change {
            revision,
            resource: "configmaps".into(),
            namespace: namespace.into(),
            name: "buoy".into(),
            old: None,
            new: Some(Arc::new(json!({}))),
        }
    }

    #[tokio::test]
    async fn a_watch_sees_its_namespace_after_its_beginning() {
        let hub = Hub::new(1);
        let mut feed = hub.subscribe(&"configmaps".into(), Some(&"harbour".into()), 5);
        hub.publish(&[
            change(5, "harbour"),
            change(6, "elsewhere"),
            change(7, "harbour"),
        ]);
        assert_eq!(feed.recv().await.unwrap().revision, 7);
        assert_eq!(hub.published(), 7);
        hub.close();
        assert!(feed.recv().await.is_none());
    }

    #[tokio::test]
    async fn a_slow_watch_is_dropped_and_others_go_on() {
        let hub = Hub::new(0);
        let mut slow = hub.subscribe(&"configmaps".into(), None, 0);
        for revision in 1..=BUFFER_CHANGES as u64 {
            hub.publish(&[change(revision, "harbour")]);
        }
        let mut fresh = hub.subscribe(&"configmaps".into(), None, BUFFER_CHANGES as u64);
        hub.publish(&[change(BUFFER_CHANGES as u64 + 1, "harbour")]);
        assert_eq!(
            fresh.recv().await.unwrap().revision,
            BUFFER_CHANGES as u64 + 1
        );
        let mut seen = 0;
        while let Some(change) = slow.recv().await {
            seen = change.revision;
        }
        assert_eq!(
            seen, BUFFER_CHANGES as u64,
            "what was buffered arrives, in order, then the end"
        );
    }
}
