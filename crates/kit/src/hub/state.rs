//! What a store holds and how each piece of news changes it. Pure: no lock, no task, no clock.
//!
//! Three sources tell a store about objects: a list, the watch that follows it, and the answers to our own writes.
//! They overlap and arrive out of step. The rules that keep the view from ever going back in time:
//! - an object is replaced only by a newer version of itself, or by a newer object of the same name;
//! - an object that we deleted stays hidden (by UID) until the watch has told of its deletion or a list lacks it;
//! - a list removes what it lacks only if that is not newer than the list itself.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use kube::Resource;

use super::index::{Index, IndexEntry};
use crate::{key::Key, version::Version};

/// One difference between the store before and after some news. Never both `None`.
#[derive(Debug)]
pub struct Change<K> {
    pub key: Key,
    pub before: Option<Arc<K>>,
    pub after: Option<Arc<K>>,
    pub source: Source,
}

/// Clones share the objects; `K` itself need not be `Clone`.
impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            key: self.key.clone(),
            before: self.before.clone(),
            after: self.after.clone(),
            source: self.source,
        }
    }
}

/// Who told us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    List,
    Watch,
    OwnWrite,
}

/// What of an object is not to be seen any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hidden {
    /// It was deleted: nothing, ever.
    ForGood,
    /// It left the scope with this version: nothing up to then. It may come back.
    UpTo(Version),
}

#[derive(Debug)]
pub(super) struct State<K> {
    objects: HashMap<Key, Arc<K>>,
    indexes: Vec<Index<K>>,
    indexed: HashMap<IndexEntry, BTreeSet<Key>>,
    /// UIDs of objects that are gone by our own write though the watch has not said so yet.
    hidden: HashMap<String, Hidden>,
    high_water: Option<Version>,
    /// The list that is being received, if one is.
    listing: Option<BTreeMap<Key, Arc<K>>>,
}

impl<K: Resource> State<K> {
    pub(super) fn new(indexes: Vec<Index<K>>) -> Self {
        Self {
            objects: HashMap::new(),
            indexes,
            indexed: HashMap::new(),
            hidden: HashMap::new(),
            high_water: None,
            listing: None,
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.objects.get(key).cloned()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Key, &Arc<K>)> {
        self.objects.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn high_water(&self) -> Option<Version> {
        self.high_water
    }

    /// The keys under this index entry, or `None` if the store does not keep that index.
    pub(super) fn lookup(&self, entry: &IndexEntry) -> Option<Vec<Arc<K>>> {
        if !self.indexes.iter().any(|index| index.keeps(entry)) {
            return None;
        }
        let keys = self.indexed.get(entry);
        Some(
            keys.into_iter()
                .flatten()
                .filter_map(|key| self.get(key))
                .collect(),
        )
    }

    pub(super) fn list_begins(&mut self) {
        self.listing = Some(BTreeMap::new());
    }

    pub(super) fn list_item(&mut self, object: K) {
        if let Some(listing) = &mut self.listing {
            listing.insert(Key::of(&object), Arc::new(object));
        }
    }

    /// All pages are here. `at` is the version of the whole list; without one, what the list lacks is taken as gone.
    pub(super) fn list_ends(&mut self, at: Option<Version>) -> Vec<Change<K>> {
        let Some(listing) = self.listing.take() else {
            return Vec::new();
        };
        let listed_uids: HashSet<&str> = listing
            .values()
            .filter_map(|object| uid(object.as_ref()))
            .collect();
        self.hidden
            .retain(|uid, _| listed_uids.contains(uid.as_str()));
        if at.is_some() && at < self.high_water {
            // The server was put back to an earlier state. What we know is of a future that did not happen.
            tracing::warn!(?at, high_water = ?self.high_water, "a list is older than what was seen before; starting over from it");
            return self.start_over(listing, at);
        }
        let newer_than_list =
            |object: &K| matches!((Version::of(object), at), (Some(own), Some(at)) if own > at);
        let gone: Vec<Key> = self
            .objects
            .iter()
            .filter(|(key, object)| !listing.contains_key(*key) && !newer_than_list(object))
            .map(|(key, _)| key.clone())
            .collect();
        let mut changes = Vec::new();
        for key in gone {
            changes.extend(self.replace(key, None, Source::List));
        }
        for (key, object) in listing {
            changes.extend(self.offer(key, object, Source::List));
        }
        self.saw(at);
        changes
    }

    fn start_over(
        &mut self,
        listing: BTreeMap<Key, Arc<K>>,
        at: Option<Version>,
    ) -> Vec<Change<K>> {
        self.hidden.clear();
        self.high_water = at;
        let known: Vec<Key> = self.objects.keys().cloned().collect();
        let gone = known.into_iter().filter(|key| !listing.contains_key(key));
        let gone: Vec<(Key, Option<Arc<K>>)> = gone.map(|key| (key, None)).collect();
        let listed = listing.into_iter().map(|(key, object)| (key, Some(object)));
        gone.into_iter()
            .chain(listed)
            .filter_map(|(key, after)| self.replace(key, after, Source::List))
            .collect()
    }

    pub(super) fn list_failed(&mut self) {
        self.listing = None;
    }

    pub(super) fn watch_applied(&mut self, object: K) -> Option<Change<K>> {
        self.saw(Version::of(&object));
        let key = Key::of(&object);
        self.offer(key, Arc::new(object), Source::Watch)
    }

    pub(super) fn watch_deleted(&mut self, object: &K) -> Option<Change<K>> {
        self.saw(Version::of(object));
        if let Some(uid) = uid(object) {
            self.hidden.remove(uid);
        }
        let key = Key::of(object);
        let current = self.objects.get(&key)?;
        if uid(current.as_ref()) != uid(object) {
            // Made anew under the same name, and we know it already: this is late news of the one before.
            return None;
        }
        if matches!((Version::of(current.as_ref()), Version::of(object)), (Some(known), Some(told)) if known > told)
        {
            // It left the watch's scope and came back by our own write.
            return None;
        }
        self.replace(key, None, Source::Watch)
    }

    pub(super) fn bookmark(&mut self, version: Option<Version>) {
        self.saw(version);
    }

    /// The answer to one of our writes. Versions that cannot be compared are left to the watch.
    pub(super) fn wrote(&mut self, object: K) -> Option<Change<K>> {
        Version::of(&object)?;
        let key = Key::of(&object);
        self.offer(key, Arc::new(object), Source::OwnWrite)
    }

    /// One of our writes ended this object or took it out of scope.
    pub(super) fn gone(&mut self, key: &Key, uid_gone: &str, hidden: Hidden) -> Option<Change<K>> {
        let current = self.objects.get(key)?;
        if uid(current.as_ref()) != Some(uid_gone) {
            return None;
        }
        self.hidden.insert(uid_gone.to_owned(), hidden);
        self.replace(key.clone(), None, Source::OwnWrite)
    }

    fn saw(&mut self, version: Option<Version>) {
        self.high_water = self.high_water.max(version);
    }

    fn offer(&mut self, key: Key, object: Arc<K>, source: Source) -> Option<Change<K>> {
        if let Some(uid) = uid(object.as_ref())
            && let Some(hidden) = self.hidden.get(uid)
        {
            match hidden {
                Hidden::ForGood => return None,
                Hidden::UpTo(version) if Version::of(object.as_ref()) <= Some(*version) => {
                    return None;
                }
                Hidden::UpTo(_) => {
                    self.hidden.remove(uid);
                }
            }
        }
        if let Some(current) = self.objects.get(&key)
            && let (Some(known), Some(offered)) =
                (Version::of(current.as_ref()), Version::of(object.as_ref()))
            && known >= offered
        {
            return None;
        }
        self.replace(key, Some(object), source)
    }

    fn replace(&mut self, key: Key, after: Option<Arc<K>>, source: Source) -> Option<Change<K>> {
        let before = match &after {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(&key),
        };
        if before.is_none() && after.is_none() {
            return None;
        }
        for entry in self.entries_of(before.as_deref()) {
            if let Some(keys) = self.indexed.get_mut(&entry) {
                keys.remove(&key);
                if keys.is_empty() {
                    self.indexed.remove(&entry);
                }
            }
        }
        for entry in self.entries_of(after.as_deref()) {
            self.indexed.entry(entry).or_default().insert(key.clone());
        }
        Some(Change {
            key,
            before,
            after,
            source,
        })
    }

    fn entries_of(&self, object: Option<&K>) -> Vec<IndexEntry> {
        let Some(object) = object else {
            return Vec::new();
        };
        self.indexes
            .iter()
            .flat_map(|index| index.entries(object))
            .collect()
    }
}

pub(super) fn uid<K: Resource>(object: &K) -> Option<&str> {
    object.meta().uid.as_deref()
}
