//! A cache of one kind, as its readers see it. Cheap to clone; reading never waits for the network.

use std::{
    collections::{HashSet, VecDeque},
    fmt,
    sync::{Arc, Weak},
};

use kube::Resource;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use super::{
    index::IndexEntry,
    scope::Bounds,
    state::{Change, Hidden, Source, State, uid},
};
use crate::{key::Key, version::Version};

type Tell<K> = Box<dyn Fn(&Change<K>) + Send + Sync>;

struct Listener<K> {
    tell: Tell<K>,
    /// `None` listens as long as the store lives.
    alive: Option<Weak<Pending>>,
}

pub struct Store<K> {
    pub(super) inner: Arc<Inner<K>>,
}

pub(super) struct Inner<K> {
    pub(super) state: RwLock<State<K>>,
    pub(super) bounds: Bounds,
    pub(super) synced: watch::Sender<bool>,
    pub(super) project: Option<fn(&mut K)>,
    listeners: RwLock<Vec<Listener<K>>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
        }
    }
}

impl<K> fmt::Debug for Store<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Store<{}>", std::any::type_name::<K>())
    }
}

impl<K: Resource + Send + Sync + 'static> Store<K> {
    pub(super) fn new(state: State<K>, bounds: Bounds, project: Option<fn(&mut K)>) -> Self {
        Self {
            inner: Arc::new(Inner {
                state: RwLock::new(state),
                bounds,
                synced: watch::Sender::new(false),
                project,
                listeners: RwLock::new(Vec::new()),
            }),
        }
    }

    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.inner.state.read().get(key)
    }

    /// Every object, in order of its key.
    pub fn all(&self) -> Vec<Arc<K>> {
        self.sorted(|_| true)
    }

    /// The objects whose label has this value, in one namespace or (with `None`) in all. Fast if the scope has an index of
    /// the label, else a look at every object.
    pub fn by_label(&self, namespace: Option<&str>, label: &str, value: &str) -> Vec<Arc<K>> {
        let entry = IndexEntry::Label {
            label: label.to_owned(),
            value: value.to_owned(),
        };
        let mut found = self.lookup(&entry);
        found.retain(|object| {
            namespace.is_none_or(|wanted| object.meta().namespace.as_deref() == Some(wanted))
        });
        found
    }

    /// The objects with an owner reference to this UID.
    pub fn by_owner(&self, uid: &str) -> Vec<Arc<K>> {
        self.lookup(&IndexEntry::Owner {
            uid: uid.to_owned(),
        })
    }

    pub fn len(&self) -> usize {
        self.inner.state.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything up to this version has been seen, from objects and bookmarks. `None` before the first list.
    pub fn high_water(&self) -> Option<Version> {
        self.inner.state.read().high_water()
    }

    /// Has the first list been received? Until then "not found" means nothing.
    pub fn is_synced(&self) -> bool {
        *self.inner.synced.borrow()
    }

    /// Waits for the first list.
    pub async fn synced(&self) {
        let mut synced = self.inner.synced.subscribe();
        // The sender lives in `inner`, which `self` holds, so this cannot fail while we wait.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Calls `listener` for each object there is (as a change from nothing) and then for each change, deletes included.
    /// It is called by whoever brings the news and must return at once; it must neither write to this store nor listen to
    /// it, which would wait for itself.
    pub fn listen(&self, listener: impl Fn(&Change<K>) + Send + Sync + 'static) {
        self.add_listener(Box::new(listener), None);
    }

    /// The keys of objects that changed, each at most once at a time however often it changed.
    pub fn subscribe(&self) -> Subscription {
        let pending = Arc::new(Pending::default());
        let alive = Arc::downgrade(&pending);
        let told = alive.clone();
        let tell = move |change: &Change<K>| {
            if let Some(pending) = told.upgrade() {
                pending.push(&change.key);
            }
        };
        self.add_listener(Box::new(tell), Some(alive));
        Subscription { pending }
    }

    fn add_listener(&self, tell: Tell<K>, alive: Option<Weak<Pending>>) {
        // The lock keeps news away until the snapshot is told, so that each change is told once and in order.
        let mut listeners = self.inner.listeners.write();
        let snapshot: Vec<_> = {
            let state = self.inner.state.read();
            state
                .iter()
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect()
        };
        for (key, object) in snapshot {
            tell(&Change {
                key,
                before: None,
                after: Some(object),
                source: Source::List,
            });
        }
        listeners.retain(|listener| {
            listener
                .alive
                .as_ref()
                .is_none_or(|alive| alive.strong_count() > 0)
        });
        listeners.push(Listener { tell, alive });
    }

    /// Changes the state and tells the listeners, the latter without holding the state.
    pub(super) fn update<C: IntoIterator<Item = Change<K>>>(
        &self,
        news: impl FnOnce(&mut State<K>) -> C,
    ) {
        // The listeners' lock spans both, so that a new listener sees each change in its snapshot or afterwards.
        let listeners = self.inner.listeners.read();
        let changes: Vec<Change<K>> = news(&mut self.inner.state.write()).into_iter().collect();
        for change in &changes {
            for listener in listeners.iter() {
                (listener.tell)(change);
            }
        }
    }

    fn lookup(&self, entry: &IndexEntry) -> Vec<Arc<K>> {
        if let Some(found) = self.inner.state.read().lookup(entry) {
            return found;
        }
        self.sorted(|object| entry.matches(object))
    }

    fn sorted(&self, wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let state = self.inner.state.read();
        let mut found: Vec<_> = state.iter().filter(|(_, object)| wanted(object)).collect();
        found.sort_by(|left, right| left.0.cmp(right.0));
        found
            .into_iter()
            .map(|(_, object)| object.clone())
            .collect()
    }
}

/// Keys that changed and were not looked at yet. Holds each key once, so it is bounded by the number of objects.
#[derive(Debug, Default)]
struct Pending {
    keys: Mutex<PendingKeys>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct PendingKeys {
    order: VecDeque<Key>,
    /// The same keys, to find one without walking the line.
    known: HashSet<Key>,
}

impl Pending {
    fn push(&self, key: &Key) {
        let mut keys = self.keys.lock();
        if keys.known.insert(key.clone()) {
            keys.order.push_back(key.clone());
        }
        drop(keys);
        self.changed.notify_one();
    }

    fn pop(&self) -> Option<Key> {
        let mut keys = self.keys.lock();
        let key = keys.order.pop_front()?;
        keys.known.remove(&key);
        Some(key)
    }
}

/// See [`Store::subscribe`]. Dropping it ends the subscription.
#[derive(Debug)]
pub struct Subscription {
    pending: Arc<Pending>,
}

impl Subscription {
    /// Waits for the next changed key. Safe to drop while waiting.
    pub async fn next(&mut self) -> Key {
        loop {
            if let Some(key) = self.pending.pop() {
                return key;
            }
            self.pending.changed.notified().await;
        }
    }

    pub fn into_stream(self) -> impl futures::Stream<Item = Key> + Send {
        futures::stream::unfold(self, |mut subscription| async {
            let key = subscription.next().await;
            Some((key, subscription))
        })
    }
}

/// How the barrier lays own writes over the cache.
impl<K: Resource + Send + Sync + 'static> Store<K> {
    pub(crate) fn slimmed(&self, mut object: K) -> K {
        object.meta_mut().managed_fields = None;
        if let Some(project) = self.inner.project {
            project(&mut object);
        }
        object
    }

    pub(crate) fn is_partial(&self) -> bool {
        self.inner.project.is_some()
    }

    pub(crate) fn contains_in_scope(&self, object: &K) -> Option<bool> {
        self.inner.bounds.contain(object)
    }

    pub(crate) fn lay_over(&self, object: K) {
        self.update(|state| state.wrote(object));
    }

    pub(crate) fn left_scope(&self, object: &K) {
        if let (Some(uid), Some(version)) = (uid(object), Version::of(object)) {
            self.update(|state| state.gone(&Key::of(object), uid, Hidden::UpTo(version)));
        }
    }

    pub(crate) fn ended(&self, key: &Key, uid: &str) {
        self.update(|state| state.gone(key, uid, Hidden::ForGood));
    }
}
