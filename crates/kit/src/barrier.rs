//! The barrier between writing and deciding: what we wrote is visible in the caches before the next pass looks.
//!
//! The operator lives in the past: a watch tells of our own write some time after the write's answer came back. A
//! pass in between would decide on a view older than its own acts and, say, create a second replica. So the executor hands each answer
//! to the barrier, which lays it over the store of its kind, unless the store already has something newer. What we deleted is hidden
//! by UID until the watch confirms it. Nothing here is kept across a restart: a fresh list is newer than any write of ours.
//!
//! A write whose answer was lost leaves the cache behind. That is safe because of what the executor does, not of
//! this: creates meet "already exists", deletes and patches carry a UID and a resourceVersion.

use std::{collections::HashMap, sync::Arc};

use kube::api::{ApiResource, DynamicObject};
use parking_lot::RwLock;
use serde_json::Value;

use crate::{
    hub::{Kind, Store},
    key::Key,
};

/// What the caches know about an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Cached {
    /// No complete cache of that kind: nobody watches it, it has no first list yet, or parts are dropped.
    Unknown,
    /// A synced cache lacks it. It may still exist outside the cache's scope.
    Absent,
    Present(Value),
}

/// A cache that takes own writes. Implemented by every `Store`.
pub(crate) trait Overlay: Send + Sync {
    fn wrote(&self, object: &DynamicObject);
    fn gone(&self, key: &Key, uid: &str);
    fn cached(&self, key: &Key) -> Cached;
}

/// Group and kind.
type Slot = (String, String);

#[derive(Default)]
pub struct Barrier {
    /// More than one if a kind is watched in several scopes.
    overlays: RwLock<HashMap<Slot, Vec<Arc<dyn Overlay>>>>,
}

impl Barrier {
    pub(crate) fn register(&self, resource: &ApiResource, overlay: Arc<dyn Overlay>) {
        self.overlays
            .write()
            .entry(slot(resource))
            .or_default()
            .push(overlay);
    }

    /// A write was answered with this object. If the write was the object's end (its last finalizer went), it is gone.
    pub fn wrote(&self, resource: &ApiResource, object: &DynamicObject) {
        let ended = has_ended(object);
        for overlay in self.overlays(resource) {
            match (&object.metadata.uid, ended) {
                (Some(uid), true) => overlay.gone(&Key::of(object), uid),
                _ => overlay.wrote(object),
            }
        }
    }

    /// A delete was answered with success and the object is not there any more.
    pub fn gone(&self, resource: &ApiResource, key: &Key, uid: &str) {
        for overlay in self.overlays(resource) {
            overlay.gone(key, uid);
        }
    }

    pub fn cached(&self, resource: &ApiResource, key: &Key) -> Cached {
        let mut answer = Cached::Unknown;
        for overlay in self.overlays(resource) {
            match overlay.cached(key) {
                Cached::Present(value) => return Cached::Present(value),
                Cached::Absent => answer = Cached::Absent,
                Cached::Unknown => {}
            }
        }
        answer
    }

    fn overlays(&self, resource: &ApiResource) -> Vec<Arc<dyn Overlay>> {
        self.overlays
            .read()
            .get(&slot(resource))
            .cloned()
            .unwrap_or_default()
    }
}

fn slot(resource: &ApiResource) -> Slot {
    (resource.group.clone(), resource.kind.clone())
}

/// Deletion asked for, nobody holds it and no grace period runs: a server that returns such an object has removed it.
pub(crate) fn has_ended(object: &DynamicObject) -> bool {
    let meta = &object.metadata;
    meta.deletion_timestamp.is_some()
        && meta.finalizers.as_ref().is_none_or(Vec::is_empty)
        && meta.deletion_grace_period_seconds.unwrap_or(0) == 0
}

impl<K: Kind> Overlay for Store<K> {
    fn wrote(&self, object: &DynamicObject) {
        let typed = match object.clone().try_parse::<K>() {
            Ok(typed) => self.slimmed(typed),
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), %error, "the answer to a write does not parse; the cache waits for the watch");
                return;
            }
        };
        let key = Key::of(&typed);
        match self.contains_in_scope(&typed) {
            Some(true) => self.lay_over(typed),
            Some(false) => self.left_scope(&typed),
            // A field selector: only the server knows. What is here already was in scope a moment ago.
            None if self.get(&key).is_some() => self.lay_over(typed),
            None => {}
        }
    }

    fn gone(&self, key: &Key, uid: &str) {
        self.ended(key, uid);
    }

    fn cached(&self, key: &Key) -> Cached {
        if !self.is_synced() || self.is_partial() {
            return Cached::Unknown;
        }
        match self.get(key) {
            None => Cached::Absent,
            Some(object) => {
                serde_json::to_value(object.as_ref()).map_or(Cached::Unknown, Cached::Present)
            }
        }
    }
}
