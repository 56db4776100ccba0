//! Namespaces on their way out: their content is deleted, pods first, and then they are let go.
//!
//! Pods go first so that what runs in them still has its secrets, claims and rights while it ends; the rest follows when they are gone.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::cache::Cache;
use super::garbage::{Graph, Kind, Object, Shared, api_for};
use super::worker::{self, Controller, Decision, Failure};

/// The finalizer in a namespace's spec that stands for its content.
const CONTENT: &str = "kubernetes";

pub(super) struct Namespaces {
    pub client: Client,
    pub namespaces: Cache<Namespace>,
    pub shared: Shared,
}

#[derive(Debug)]
pub(super) enum Action {
    Delete {
        object: Arc<Object>,
    },
    /// Lets the namespace go, once the server confirms that every kind is empty.
    Finalize {
        namespace: Arc<Namespace>,
        kinds: Vec<Arc<Kind>>,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::Delete { object } => format!("delete {}", object.uid),
            Action::Finalize { namespace, .. } => format!("finalize {:?}", namespace.metadata.name),
        }
    }
}

fn decide(namespaces: &[Arc<Namespace>], graph: &Graph) -> Vec<Action> {
    let going: BTreeMap<&str, &Arc<Namespace>> = namespaces
        .iter()
        .filter(|namespace| {
            namespace.metadata.deletion_timestamp.is_some() && holds_content(namespace)
        })
        .filter_map(|namespace| Some((namespace.metadata.name.as_deref()?, namespace)))
        .collect();
    if going.is_empty() {
        return Vec::new();
    }
    let mut content: BTreeMap<&str, Vec<&Arc<Object>>> =
        going.keys().map(|name| (*name, Vec::new())).collect();
    for object in graph.objects().filter(|object| object.kind.namespaced) {
        if let Some(objects) = content.get_mut(object.namespace.as_str()) {
            objects.push(object);
        }
    }
    let mut actions = Vec::new();
    for (name, objects) in content {
        if objects.is_empty() {
            let kinds = graph
                .kinds()
                .filter(|kind| kind.namespaced)
                .cloned()
                .collect();
            actions.push(Action::Finalize {
                namespace: going[name].clone(),
                kinds,
            });
            continue;
        }
        let pods_remain = objects.iter().any(|object| is_pod(object));
        let due = objects
            .into_iter()
            .filter(|object| !object.deleting && (!pods_remain || is_pod(object)));
        actions.extend(due.map(|object| Action::Delete {
            object: object.clone(),
        }));
    }
    actions
}

fn holds_content(namespace: &Namespace) -> bool {
    let finalizers = namespace
        .spec
        .as_ref()
        .and_then(|spec| spec.finalizers.as_deref())
        .unwrap_or_default();
    finalizers.iter().any(|finalizer| finalizer == CONTENT)
}

fn is_pod(object: &Object) -> bool {
    object.kind.resource.group.is_empty() && object.kind.resource.kind == "Pod"
}

impl Namespaces {
    async fn delete(&self, object: &Object) -> Result<(), Failure> {
        let preconditions = Preconditions {
            uid: Some(object.uid.clone()),
            resource_version: None,
        };
        let parameters = DeleteParams::background().preconditions(preconditions);
        api_for(&self.client, &object.kind, &object.namespace)
            .delete(&object.name, &parameters)
            .await?;
        Ok(())
    }

    async fn finalize(&self, namespace: &Namespace, kinds: &[Arc<Kind>]) -> Result<(), Failure> {
        let name = namespace.metadata.name.as_deref().unwrap_or_default();
        self.remove_events(name).await?;
        for kind in kinds {
            let left = api_for(&self.client, kind, name)
                .list(&ListParams::default().limit(1))
                .await?;
            if !left.items.is_empty() {
                return Err(Failure::Conflict(format!(
                    "there are {} in the namespace after all",
                    kind.resource.plural
                )));
            }
        }
        let api: Api<Namespace> = Api::all(self.client.clone());
        let mut changed = api.get(name).await?;
        if changed.metadata.uid != namespace.metadata.uid
            || changed.metadata.deletion_timestamp.is_none()
        {
            return Err(Failure::Gone(name.to_owned()));
        }
        if let Some(finalizers) = changed
            .spec
            .as_mut()
            .and_then(|spec| spec.finalizers.as_mut())
        {
            finalizers.retain(|finalizer| finalizer != CONTENT);
        }
        api.replace_subresource("finalize", name, &PostParams::default(), &changed)
            .await?;
        Ok(())
    }

    async fn remove_events(&self, namespace: &str) -> Result<(), Failure> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        for event in events.list(&ListParams::default()).await?.items {
            let name = event.metadata.name.unwrap_or_default();
            match events
                .delete(&name, &DeleteParams::default())
                .await
                .map_err(Failure::from)
            {
                Ok(_) | Err(Failure::Gone(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }
}

impl Controller for Namespaces {
    const NAME: &'static str = "namespaces";
    type Action = Action;

    fn synced(&self) -> bool {
        self.namespaces.synced() && self.shared.graph.read().synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        Decision::of(decide(&self.namespaces.all(), &self.shared.graph.read()))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Delete { object } => self.delete(object).await,
            Action::Finalize { namespace, kinds } => self.finalize(namespace, kinds).await,
        }
    }
}
