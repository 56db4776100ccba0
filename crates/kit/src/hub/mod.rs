//! The hub: one watch per kind, shared by everybody who reads that kind.
//!
//! A watch fills a [`Store`]. Answers to our own writes are laid over it at once (see [`crate::barrier`]), so a reader
//! never sees an object older than what we wrote ourselves. The hub does not know what the objects are for.

mod index;
mod scope;
mod state;
#[cfg(test)]
mod state_tests;
mod store;
mod watch;

use std::{fmt::Debug, sync::Arc};

use kube::{Client, Resource, api::ApiResource};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use scope::Scope;
pub use state::{Change, Source};
pub use store::{Store, Subscription};
pub use watch::{WatchHealth, WatchPhase};

use crate::barrier::Barrier;
use state::State;
use watch::HealthCell;

/// What a kind must be able to do to be watched.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
}
impl<K> Kind for K where
    K: Resource<DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static
{
}

pub struct Hub {
    client: Client,
    cancel: CancellationToken,
    tasks: TaskTracker,
    barrier: Arc<Barrier>,
    watches: Mutex<Vec<Arc<HealthCell>>>,
}

impl Hub {
    /// Watches end when `cancel` is cancelled; their stores then stay as they are.
    pub fn new(client: Client, cancel: CancellationToken) -> Self {
        Self {
            client,
            cancel,
            tasks: TaskTracker::new(),
            barrier: Arc::new(Barrier::default()),
            watches: Mutex::new(Vec::new()),
        }
    }

    /// Starts to watch a kind. Call it once per kind and clone the store.
    pub fn watch<K: Kind>(&self, scope: Scope<K>) -> Store<K> {
        let api = (scope.api)(self.client.clone(), scope.bounds.namespace.as_deref());
        let store = Store::new(State::new(scope.indexes), scope.bounds, scope.project);
        self.barrier
            .register(&ApiResource::erase::<K>(&()), Arc::new(store.clone()));
        let health = Arc::new(HealthCell::new(
            K::kind(&()).into_owned(),
            store.inner.bounds.describe(),
        ));
        self.watches.lock().push(health.clone());
        self.tasks
            .spawn(watch::run(api, store.clone(), health, self.cancel.clone()));
        store
    }

    /// Waits until every watch so far has had its first list.
    pub async fn synced(&self) {
        let watches = self.watches.lock().clone();
        for health in watches {
            health.synced().await;
        }
    }

    /// Where the executor tells of its writes.
    pub fn barrier(&self) -> Arc<Barrier> {
        self.barrier.clone()
    }

    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// How each watch is doing, for readiness and debugging.
    pub fn health(&self) -> Vec<WatchHealth> {
        self.watches
            .lock()
            .iter()
            .map(|health| health.read())
            .collect()
    }

    /// Waits for the watches to end after `cancel`.
    pub async fn stopped(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}
