//! Keeps the graph fed: discovers what the server serves, again whenever a CustomResourceDefinition changes, and watches the metadata of it all.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::discovery::{Scope, verbs};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Discovery};
use parking_lot::{Mutex, RwLock};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::cache::{Cache, WatchBackoff};
use super::graph::{Graph, Kind, KindId};

/// Between two attempts to discover, when the last failed or did not yet show a definition that is established.
const DISCOVERY_RETRY: Duration = Duration::from_millis(250);
/// Attempts after which a definition that never shows up is no longer waited for; the next change of a definition tries again.
const DISCOVERY_ATTEMPTS: u32 = 40;

/// The graph, and who wants to know when it changes.
#[derive(Clone, Default)]
pub(crate) struct Shared {
    pub graph: Arc<RwLock<Graph>>,
    subscribers: Arc<Mutex<Vec<Arc<Notify>>>>,
}

impl Shared {
    pub(crate) fn subscribe(&self, subscriber: &Arc<Notify>) {
        self.subscribers.lock().push(subscriber.clone());
    }

    fn notify(&self) {
        for subscriber in self.subscribers.lock().iter() {
            subscriber.notify_one();
        }
    }
}

pub(crate) struct Kinds {
    pub client: Client,
    pub shared: Shared,
    pub definitions: Cache<CustomResourceDefinition>,
    pub cancel: CancellationToken,
    pub tasks: TaskTracker,
}

impl Kinds {
    /// Runs until cancelled.
    pub(crate) async fn run(self) {
        let nudge = Arc::new(Notify::new());
        self.definitions.subscribe(&nudge);
        let mut watches: HashMap<KindId, CancellationToken> = HashMap::new();
        let mut last = None;
        loop {
            let established = established(&self.definitions.all());
            // A definition's other changes (its own status, mostly) serve nothing new.
            if self.definitions.synced() && last.as_ref() != Some(&established) {
                if self
                    .cancel
                    .run_until_cancelled(self.discover(&established, &mut watches))
                    .await
                    .is_none()
                {
                    return;
                }
                last = Some(established);
            }
            tokio::select! {
                () = self.cancel.cancelled() => return,
                () = nudge.notified() => {}
            }
        }
    }

    async fn discover(
        &self,
        established: &[KindId],
        watches: &mut HashMap<KindId, CancellationToken>,
    ) {
        for _ in 0..DISCOVERY_ATTEMPTS {
            match served(&self.client).await {
                Ok(kinds) => {
                    self.follow(&kinds, watches);
                    if established
                        .iter()
                        .all(|id| self.shared.graph.read().is_served(id))
                    {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to discover what the API server serves, will retry");
                }
            }
            tokio::time::sleep(DISCOVERY_RETRY).await;
        }
        tracing::warn!(
            ?established,
            "discovery does not show every established definition; their objects are not collected"
        );
    }

    fn follow(&self, kinds: &[Arc<Kind>], watches: &mut HashMap<KindId, CancellationToken>) {
        let added = self.shared.graph.write().set_kinds(kinds);
        watches.retain(|id, cancel| {
            let served = self.shared.graph.read().is_served(id);
            if !served {
                cancel.cancel();
            }
            served
        });
        for kind in added {
            let cancel = self.cancel.child_token();
            watches.insert(kind.id(), cancel.clone());
            self.tasks.spawn(watch(
                self.client.clone(),
                kind,
                self.shared.clone(),
                cancel,
            ));
        }
        self.shared.notify();
    }
}

/// Group and plural of the definitions that are served.
fn established(definitions: &[Arc<CustomResourceDefinition>]) -> Vec<KindId> {
    let is_established = |definition: &&Arc<CustomResourceDefinition>| {
        let conditions = definition
            .status
            .as_ref()
            .and_then(|status| status.conditions.as_deref())
            .unwrap_or_default();
        definition.metadata.deletion_timestamp.is_none()
            && conditions
                .iter()
                .any(|condition| condition.type_ == "Established" && condition.status == "True")
    };
    let id = |definition: &Arc<CustomResourceDefinition>| {
        (
            definition.spec.group.clone(),
            definition.spec.names.plural.clone(),
        )
    };
    definitions.iter().filter(is_established).map(id).collect()
}

/// Every kind that can be listed, watched and deleted, once. Events own nothing and are owned by nobody.
async fn served(client: &Client) -> Result<Vec<Arc<Kind>>, kube::Error> {
    let discovery = match Discovery::new(client.clone()).run_aggregated().await {
        Ok(discovery) => discovery,
        Err(_not_aggregated) => Discovery::new(client.clone()).run().await?,
    };
    let mut kinds = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.resources_by_stability() {
            let usable = [verbs::LIST, verbs::WATCH, verbs::DELETE]
                .iter()
                .all(|verb| capabilities.supports_operation(verb));
            if usable && resource.kind != "Event" {
                kinds.push(Arc::new(Kind {
                    resource,
                    namespaced: capabilities.scope == Scope::Namespaced,
                }));
            }
        }
    }
    Ok(kinds)
}

async fn watch(client: Client, kind: Arc<Kind>, shared: Shared, cancel: CancellationToken) {
    let id = kind.id();
    let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client, &kind.resource);
    let stream = watcher::watcher(api, watcher::Config::default()).backoff(WatchBackoff::default());
    let mut stream = std::pin::pin!(stream.take_until(cancel.cancelled()));
    while let Some(event) = stream.next().await {
        let mut graph = shared.graph.write();
        let changed = match event {
            Ok(Event::Init) => {
                graph.list_begins(&id);
                false
            }
            Ok(Event::InitDone) => graph.list_ends(&id),
            Ok(Event::InitApply(object) | Event::Apply(object)) => graph.seen(&id, object.metadata),
            Ok(Event::Delete(object)) => graph.gone(&id, object.metadata),
            Err(error) => {
                tracing::debug!(group = id.0, plural = id.1, %error, "failed to watch metadata, will retry");
                graph.failed(&id)
            }
        };
        drop(graph);
        if changed {
            shared.notify();
        }
    }
}
