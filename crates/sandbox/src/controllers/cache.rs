//! What the controllers know of one kind: a watch kept open, its objects by name, and a nudge to whoever depends on them.
//!
//! One watch per kind serves all controllers. A write's answer is laid over the cache with [`Cache::overlay`], so that the next
//! decision never repeats what was just done because the watch lags. It is not a source of truth: what destroys reads afresh.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use parking_lot::{Mutex, RwLock};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The first wait after a watch failed. Short: the server is usually in this process, and is back at once.
const WATCH_RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two attempts to watch: a server that is down is asked a few times a minute, not more.
const WATCH_RETRY_LONGEST: Duration = Duration::from_secs(5);

/// Namespace (empty for cluster-scoped objects) and name.
pub(super) type Key = (String, String);

/// The objects of one kind as far as its watch, and our own writes, have told.
#[derive(Debug)]
struct State<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// Objects of a list that is still coming in; they replace `objects` once it is complete.
    incoming: Option<BTreeMap<Key, Arc<K>>>,
    /// The newest version the watch has shown. An overlay at or below it is old news, perhaps of an object deleted since.
    seen: u64,
    synced: bool,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        State {
            objects: BTreeMap::new(),
            incoming: None,
            seen: 0,
            synced: false,
        }
    }
}

impl<K: Resource<DynamicType: Default>> State<K> {
    /// Returns whether what a reader sees has changed.
    fn event(&mut self, event: Event<K>) -> bool {
        match event {
            Event::Init => {
                self.incoming = Some(BTreeMap::new());
                false
            }
            Event::InitApply(object) => {
                self.seen = self.seen.max(version(&object));
                match &mut self.incoming {
                    Some(incoming) => insert_newer(incoming, object),
                    None => insert_newer(&mut self.objects, object),
                };
                false
            }
            Event::InitDone => {
                if let Some(incoming) = self.incoming.take() {
                    self.objects = incoming;
                }
                self.synced = true;
                true
            }
            Event::Apply(object) => {
                self.seen = self.seen.max(version(&object));
                insert_newer(&mut self.objects, object)
            }
            Event::Delete(object) => {
                let deleted_at = version(&object);
                self.seen = self.seen.max(deleted_at);
                let key = key(&object);
                // A newer object of the same name was created by us and laid over already: it stays.
                match self.objects.get(&key) {
                    Some(present) if version(present.as_ref()) > deleted_at => false,
                    Some(_) => self.objects.remove(&key).is_some(),
                    None => false,
                }
            }
        }
    }

    fn overlay(&mut self, object: K) -> bool
    where
        K: Clone,
    {
        if version(&object) <= self.seen {
            return false;
        }
        if let Some(incoming) = &mut self.incoming {
            insert_newer(incoming, object.clone());
        }
        insert_newer(&mut self.objects, object)
    }
}

fn insert_newer<K: Resource<DynamicType: Default>>(
    objects: &mut BTreeMap<Key, Arc<K>>,
    object: K,
) -> bool {
    let key = key(&object);
    if objects.get(&key).is_some_and(|present| {
        version(present.as_ref()) >= version(&object) && version(&object) > 0
    }) {
        return false;
    }
    objects.insert(key, Arc::new(object));
    true
}

pub(super) fn key<K: Resource<DynamicType: Default>>(object: &K) -> Key {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

/// Resource versions are one growing decimal number, in our server and in every etcd-backed one.
fn version<K: Resource<DynamicType: Default>>(object: &K) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .unwrap_or(0)
}

/// A shared view of all objects of one kind.
#[derive(Debug)]
pub(super) struct Cache<K> {
    state: Arc<RwLock<State<K>>>,
    subscribers: Arc<Mutex<Vec<Arc<Notify>>>>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Cache {
            state: self.state.clone(),
            subscribers: self.subscribers.clone(),
        }
    }
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Cache {
            state: Arc::default(),
            subscribers: Arc::default(),
        }
    }
}

impl<K> Cache<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// Keeps the cache fed until cancelled. The returned future is the watch itself; somebody has to run it.
    pub(super) async fn follow(
        self,
        api: Api<K>,
        config: watcher::Config,
        cancel: CancellationToken,
    ) {
        let stream = watcher::watcher(api, config).backoff(WatchBackoff::default());
        let mut stream = std::pin::pin!(stream.take_until(cancel.cancelled()));
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    let event = event.modify(|object| object.meta_mut().managed_fields = None);
                    if self.state.write().event(event) {
                        self.notify();
                    }
                }
                Err(error) => {
                    tracing::warn!(kind = %K::kind(&()), %error, "failed to watch, will retry");
                }
            }
        }
    }

    /// Takes a write's answer into account before the watch tells of it.
    pub(super) fn overlay(&self, mut object: K) {
        object.meta_mut().managed_fields = None;
        if self.state.write().overlay(object) {
            self.notify();
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<K>> {
        self.state.read().objects.values().cloned().collect()
    }

    pub(super) fn synced(&self) -> bool {
        self.state.read().synced
    }

    pub(super) fn subscribe(&self, subscriber: &Arc<Notify>) {
        self.subscribers.lock().push(subscriber.clone());
    }

    fn notify(&self) {
        for subscriber in self.subscribers.lock().iter() {
            subscriber.notify_one();
        }
    }
}

/// Doubling waits between attempts to watch, reset by the first success.
#[derive(Debug)]
pub(super) struct WatchBackoff {
    next: Duration,
}

impl Default for WatchBackoff {
    fn default() -> Self {
        WatchBackoff {
            next: WATCH_RETRY_FIRST,
        }
    }
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.next;
        self.next = (wait * 2).min(WATCH_RETRY_LONGEST);
        Some(wait)
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.next = WATCH_RETRY_FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    fn object(name: &str, version: u64) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.name = Some(name.to_owned());
        object.metadata.namespace = Some("grove".to_owned());
        object.metadata.resource_version = Some(version.to_string());
        object
    }

    fn listed(objects: Vec<ConfigMap>) -> State<ConfigMap> {
        let mut state = State::default();
        state.event(Event::Init);
        for object in objects {
            state.event(Event::InitApply(object));
        }
        state.event(Event::InitDone);
        state
    }

    fn names(state: &State<ConfigMap>) -> Vec<&str> {
        state
            .objects
            .keys()
            .map(|(_, name)| name.as_str())
            .collect()
    }

    #[test]
    fn a_list_is_visible_only_when_it_is_complete() {
        let mut state = State::default();
        state.event(Event::Init);
        assert!(!state.event(Event::InitApply(object("a", 3))));
        assert!(!state.synced);
        assert!(names(&state).is_empty());
        assert!(state.event(Event::InitDone));
        assert!(state.synced);
        assert_eq!(names(&state), ["a"]);
    }

    #[test]
    fn an_overlay_wins_over_the_lagging_watch() {
        let mut state = listed(vec![object("a", 3)]);
        assert!(state.overlay(object("a", 7)));
        assert!(
            !state.event(Event::Apply(object("a", 5))),
            "an older event does not undo what we wrote"
        );
        assert_eq!(
            version(state.objects[&("grove".into(), "a".into())].as_ref()),
            7
        );
    }

    #[test]
    fn an_overlay_of_an_object_deleted_since_is_ignored() {
        let mut state = listed(vec![]);
        state.event(Event::Apply(object("a", 5)));
        state.event(Event::Delete(object("a", 6)));
        assert!(!state.overlay(object("a", 5)));
        assert!(names(&state).is_empty());
    }

    #[test]
    fn a_late_delete_does_not_remove_the_successor() {
        let mut state = listed(vec![object("a", 3)]);
        state.overlay(object("a", 9));
        assert!(!state.event(Event::Delete(object("a", 8))));
        assert_eq!(names(&state), ["a"]);
    }

    #[test]
    fn a_relist_forgets_what_is_gone_and_keeps_what_was_written_meanwhile() {
        let mut state = listed(vec![object("a", 3), object("b", 4)]);
        state.event(Event::Init);
        state.event(Event::InitApply(object("b", 4)));
        state.overlay(object("c", 12));
        state.event(Event::InitDone);
        assert_eq!(names(&state), ["b", "c"]);
    }
}
