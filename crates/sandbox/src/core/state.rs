//! Everything the server remembers: objects, one global revision, a window of history, and the kinds that follow from the definitions.
//!
//! Every write goes through [`State::commit`] or [`State::remove`]; they keep revision, history and what is derived in step.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::Value;

use super::crd;
use super::error::{Failure, Outcome, Reason};
use super::kind::KindInfo;
use super::registry::{DEFINITIONS, Registry, SERVICES};
use super::response::Change;
use super::{limits, meta};

/// A list may not have resourceVersion 0, which means "any"; so nothing is older than this.
const FIRST_REVISION: u64 = 1;

#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses that Services get, both ends included.
    pub service_first: Ipv4Addr,
    pub service_last: Ipv4Addr,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            service_first: Ipv4Addr::new(10, 96, 0, 1),
            service_last: Ipv4Addr::new(10, 96, 255, 254),
        }
    }
}

/// Storage holds what this server cannot have written.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "failed to load an object of {resource}: it has no name; the storage was not written by this server, use a new data directory"
    )]
    Nameless { resource: String },
    #[error(
        "failed to load {resource} {name}: its resourceVersion {version:?} is not a number up to the storage's revision {revision}; restore the storage from a copy or use a new data directory"
    )]
    Version {
        resource: String,
        name: String,
        version: String,
        revision: u64,
    },
    #[error(
        "failed to load the definition {name}: {reason}; it was accepted by another version of this server, delete it with that version or use a new data directory"
    )]
    Definition { name: String, reason: String },
}

/// Namespace (empty if cluster-scoped) and name.
pub(crate) type Key = (Arc<str>, Arc<str>);
pub(crate) type Objects = BTreeMap<Key, Arc<Value>>;

#[derive(Debug)]
pub struct State {
    pub(crate) config: Config,
    revision: u64,
    registry: Registry,
    objects: HashMap<Arc<str>, Objects>,
    history: VecDeque<Change>,
    /// The revision up to which history is gone: a watch may resume from here or later.
    history_start: u64,
    history_limit: usize,
    /// Derived from the Services: who has which address.
    service_addresses: BTreeMap<Ipv4Addr, Key>,
}

impl State {
    pub fn new(config: Config) -> State {
        State {
            config,
            revision: FIRST_REVISION,
            registry: Registry::builtin(),
            objects: HashMap::new(),
            history: VecDeque::new(),
            history_start: FIRST_REVISION,
            history_limit: limits::HISTORY_CHANGES,
            service_addresses: BTreeMap::new(),
        }
    }

    /// A restart: the objects as storage has them (resource and object), and the revision it had reached. History is empty, so a watch from
    /// before is told that its version expired, as after a real server's restart with a compacted store.
    pub fn load(
        config: Config,
        objects: impl IntoIterator<Item = (String, Value)>,
        revision: u64,
    ) -> Result<State, LoadError> {
        let mut state = State::new(config);
        state.revision = revision.max(FIRST_REVISION);
        state.history_start = state.revision;
        for (resource, object) in objects {
            let name = meta::name(&object).to_owned();
            if name.is_empty() {
                return Err(LoadError::Nameless { resource });
            }
            let version = meta::resource_version(&object).to_owned();
            if !version
                .parse::<u64>()
                .is_ok_and(|version| version <= state.revision)
            {
                return Err(LoadError::Version {
                    resource,
                    name,
                    version,
                    revision: state.revision,
                });
            }
            let key: Key = (meta::namespace(&object).into(), name.as_str().into());
            let object = Arc::new(object);
            let resource: Arc<str> = resource.into();
            if &*resource == DEFINITIONS {
                let kinds = crd::kinds(&object).map_err(|reason| LoadError::Definition {
                    name: name.clone(),
                    reason,
                })?;
                state.registry.replace_custom(&name, kinds);
            }
            state.derive(&resource, &key, None, Some(&object));
            state
                .objects
                .entry(resource)
                .or_default()
                .insert(key, object);
        }
        Ok(state)
    }

    /// The revision of the last change: what a list at this moment carries.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    pub fn kinds(&self) -> impl Iterator<Item = &Arc<KindInfo>> {
        self.registry.kinds()
    }

    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<KindInfo>> {
        self.registry.find(group, version, plural)
    }

    /// Whether any kind is served in this group and version.
    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.registry.serves(group, version)
    }

    /// One object as stored. `namespace` is empty for cluster-scoped kinds.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects
            .get(resource)?
            .get(&(namespace.into(), name.into()))
    }

    /// All objects of a resource, in order of namespace and name.
    pub fn objects(&self, resource: &str) -> impl Iterator<Item = &Arc<Value>> {
        self.objects
            .get(resource)
            .into_iter()
            .flat_map(|objects| objects.values())
    }

    /// Every resource that has objects, for storage and metrics.
    pub fn counts(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.objects
            .iter()
            .map(|(resource, objects)| (resource, objects.len()))
    }

    /// Forgets history up to and including a revision.
    pub fn compact(&mut self, through: u64) {
        let through = through.min(self.revision);
        while self
            .history
            .front()
            .is_some_and(|change| change.revision <= through)
        {
            self.history.pop_front();
        }
        self.history_start = self.history_start.max(through);
    }

    /// How many changes are kept from now on. The default is right but for tests and for a simulator that wants expiry often.
    pub fn set_history_limit(&mut self, changes: usize) {
        self.history_limit = changes;
        self.trim_history();
    }

    pub(crate) fn history_start(&self) -> u64 {
        self.history_start
    }

    /// Changes after a revision, in order. The caller has checked that history reaches back that far.
    pub(crate) fn changes_since(&self, revision: u64) -> impl Iterator<Item = &Change> {
        let begin = self
            .history
            .partition_point(|change| change.revision <= revision);
        self.history.range(begin..)
    }

    /// The objects of a resource as they were at a revision: the present, with the later changes taken back.
    pub(crate) fn snapshot(
        &self,
        resource: &str,
        namespace: Option<&str>,
        revision: u64,
    ) -> Outcome<Objects> {
        if revision < self.history_start {
            return Err(Failure::new(
                410,
                Reason::Expired,
                "The resourceVersion for the provided list is too old.",
            ));
        }
        let mut snapshot = Objects::new();
        if let Some(objects) = self.objects.get(resource) {
            match namespace {
                None => snapshot.clone_from(objects),
                Some(namespace) => {
                    let first: Key = (namespace.into(), "".into());
                    let within = objects
                        .range(first..)
                        .take_while(|((found, _), _)| &**found == namespace);
                    snapshot.extend(within.map(|(key, object)| (key.clone(), Arc::clone(object))));
                }
            }
        }
        let begin = self
            .history
            .partition_point(|change| change.revision <= revision);
        for change in self.history.range(begin..).rev() {
            if &*change.resource != resource
                || namespace.is_some_and(|namespace| namespace != &*change.namespace)
            {
                continue;
            }
            let key = (Arc::clone(&change.namespace), Arc::clone(&change.name));
            match &change.old {
                Some(old) => snapshot.insert(key, Arc::clone(old)),
                None => snapshot.remove(&key),
            };
        }
        Ok(snapshot)
    }

    pub(crate) fn count(&self, resource: &str) -> usize {
        self.objects.get(resource).map_or(0, BTreeMap::len)
    }

    pub(crate) fn service_at(&self, address: Ipv4Addr) -> Option<&Key> {
        self.service_addresses.get(&address)
    }

    /// Stores an object under the next revision, which becomes its resourceVersion.
    pub(crate) fn commit(
        &mut self,
        resource: &Arc<str>,
        mut object: Value,
    ) -> (Arc<Value>, Change) {
        self.revision += 1;
        meta::set_metadata(
            &mut object,
            "resourceVersion",
            Some(self.revision.to_string().into()),
        );
        let key: Key = (meta::namespace(&object).into(), meta::name(&object).into());
        debug_assert!(!key.1.is_empty(), "only named objects are committed");
        let object = Arc::new(object);
        let old = self
            .objects
            .entry(Arc::clone(resource))
            .or_default()
            .insert(key.clone(), Arc::clone(&object));
        self.derive(resource, &key, old.as_deref(), Some(&object));
        let change = self.record(resource, key, old, Some(Arc::clone(&object)));
        (object, change)
    }

    /// Removes an object under the next revision. `None` if it is not there.
    pub(crate) fn remove(
        &mut self,
        resource: &Arc<str>,
        namespace: &str,
        name: &str,
    ) -> Option<Change> {
        let key: Key = (namespace.into(), name.into());
        let old = self.objects.get_mut(resource)?.remove(&key)?;
        self.revision += 1;
        self.derive(resource, &key, Some(&old), None);
        if &**resource == DEFINITIONS {
            self.registry.replace_custom(name, Vec::new());
        }
        Some(self.record(resource, key, Some(old), None))
    }

    /// Serves what a definition says from now on.
    pub(crate) fn serve_definition(&mut self, name: &str, kinds: Vec<Arc<KindInfo>>) {
        self.registry.replace_custom(name, kinds);
    }

    fn record(
        &mut self,
        resource: &Arc<str>,
        key: Key,
        old: Option<Arc<Value>>,
        new: Option<Arc<Value>>,
    ) -> Change {
        let (namespace, name) = key;
        let change = Change {
            revision: self.revision,
            resource: Arc::clone(resource),
            namespace,
            name,
            old,
            new,
        };
        self.history.push_back(change.clone());
        self.trim_history();
        change
    }

    fn trim_history(&mut self) {
        while self.history.len() > self.history_limit {
            if let Some(dropped) = self.history.pop_front() {
                self.history_start = dropped.revision;
            }
        }
    }

    fn derive(&mut self, resource: &str, key: &Key, old: Option<&Value>, new: Option<&Arc<Value>>) {
        if resource != SERVICES {
            return;
        }
        let address = |service: &Value| {
            meta::text(service, &["spec", "clusterIP"])
                .parse::<Ipv4Addr>()
                .ok()
        };
        if let Some(address) = old.and_then(address) {
            self.service_addresses.remove(&address);
        }
        if let Some(address) = new.and_then(|service| address(service)) {
            self.service_addresses.insert(address, key.clone());
        }
    }
}
