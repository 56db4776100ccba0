//! Metadata of every object of every kind: who owns whom, what is on its way out, what holds it. Pure.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::core::ApiResource;

use super::super::cache::Key;

/// UIDs of deleted objects that are remembered, so that owners of a kind that is gone as well can be known to be gone.
const DELETED_LIMIT: usize = 4096;

/// A kind the API server serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub resource: ApiResource,
    pub namespaced: bool,
}

impl Kind {
    /// Group and plural: a kind's identity whatever its version.
    pub(crate) fn id(&self) -> KindId {
        (self.resource.group.clone(), self.resource.plural.clone())
    }
}

pub(crate) type KindId = (String, String);

/// What matters of one object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub kind: Arc<Kind>,
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub owners: Vec<OwnerReference>,
    pub finalizers: Vec<String>,
    pub deleting: bool,
}

impl Object {
    pub(crate) fn new(kind: Arc<Kind>, metadata: ObjectMeta) -> Object {
        Object {
            kind,
            namespace: metadata.namespace.unwrap_or_default(),
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            owners: metadata.owner_references.unwrap_or_default(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            deleting: metadata.deletion_timestamp.is_some(),
        }
    }

    pub(crate) fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }

    pub(crate) fn has_finalizer(&self, wanted: &str) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == wanted)
    }
}

/// One kind's objects, and whether they have been listed.
#[derive(Debug)]
struct Watched {
    kind: Arc<Kind>,
    objects: HashMap<Key, Arc<Object>>,
    incoming: Option<HashMap<Key, Arc<Object>>>,
    /// Listed at least once, or failed to be: neither is waited for any longer.
    answered: bool,
}

/// All objects by kind.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    kinds: BTreeMap<KindId, Watched>,
    deleted: HashSet<String>,
    deleted_in_order: VecDeque<String>,
    discovered: bool,
}

impl Graph {
    /// Takes the kinds the server serves now. Returns those that are new; what is no longer served is forgotten.
    pub(crate) fn set_kinds(&mut self, kinds: &[Arc<Kind>]) -> Vec<Arc<Kind>> {
        self.discovered = true;
        let wanted: HashSet<KindId> = kinds.iter().map(|kind| kind.id()).collect();
        self.kinds.retain(|id, _| wanted.contains(id));
        let mut added = Vec::new();
        for kind in kinds {
            self.kinds.entry(kind.id()).or_insert_with(|| {
                added.push(kind.clone());
                Watched {
                    kind: kind.clone(),
                    objects: HashMap::new(),
                    incoming: None,
                    answered: false,
                }
            });
        }
        added
    }

    pub(crate) fn is_served(&self, id: &KindId) -> bool {
        self.kinds.contains_key(id)
    }

    /// Whether every kind has been listed, so that absence means something.
    pub(crate) fn synced(&self) -> bool {
        self.discovered && self.kinds.values().all(|watched| watched.answered)
    }

    pub(crate) fn list_begins(&mut self, id: &KindId) {
        if let Some(watched) = self.kinds.get_mut(id) {
            watched.incoming = Some(HashMap::new());
        }
    }

    pub(crate) fn list_ends(&mut self, id: &KindId) -> bool {
        let Some(watched) = self.kinds.get_mut(id) else {
            return false;
        };
        watched.answered = true;
        if let Some(incoming) = watched.incoming.take() {
            watched.objects = incoming;
        }
        true
    }

    pub(crate) fn failed(&mut self, id: &KindId) -> bool {
        self.kinds
            .get_mut(id)
            .is_some_and(|watched| !std::mem::replace(&mut watched.answered, true))
    }

    /// Returns whether anything that matters here has changed; a new status does not.
    pub(crate) fn seen(&mut self, id: &KindId, metadata: ObjectMeta) -> bool {
        let Some(watched) = self.kinds.get_mut(id) else {
            return false;
        };
        let object = Arc::new(Object::new(watched.kind.clone(), metadata));
        match &mut watched.incoming {
            Some(incoming) => {
                incoming.insert(object.key(), object);
                false
            }
            None => {
                watched
                    .objects
                    .insert(object.key(), object.clone())
                    .as_ref()
                    != Some(&object)
            }
        }
    }

    pub(crate) fn gone(&mut self, id: &KindId, metadata: ObjectMeta) -> bool {
        let Some(watched) = self.kinds.get_mut(id) else {
            return false;
        };
        let object = Object::new(watched.kind.clone(), metadata);
        let removed = watched.objects.remove(&object.key()).is_some();
        if self.deleted.insert(object.uid.clone()) {
            self.deleted_in_order.push_back(object.uid);
        }
        while self.deleted_in_order.len() > DELETED_LIMIT {
            if let Some(oldest) = self.deleted_in_order.pop_front() {
                self.deleted.remove(&oldest);
            }
        }
        removed
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.kinds
            .values()
            .flat_map(|watched| watched.objects.values())
    }

    pub(crate) fn kinds(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values().map(|watched| &watched.kind)
    }

    pub(crate) fn was_deleted(&self, uid: &str) -> bool {
        self.deleted.contains(uid)
    }

    /// The kind an owner reference speaks of, in whatever version it is served.
    pub(crate) fn resolve(&self, owner: &OwnerReference) -> Option<&Arc<Kind>> {
        let group = owner
            .api_version
            .rsplit_once('/')
            .map_or("", |(group, _)| group);
        self.kinds()
            .find(|kind| kind.resource.group == group && kind.resource.kind == owner.kind)
    }
}
