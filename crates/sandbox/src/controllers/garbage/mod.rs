//! The garbage collector: what has owners goes when the last of them is gone.
//!
//! Background, foreground and orphaning, over every kind the server serves, also those that appear later. It works on metadata only.
//! An owner counts as gone only after the server itself said so, by UID, and every deletion carries the UID it was decided for.
//! Owners that form a ring and are deleted in the foreground wait for each other; a cluster breaks that up, this does not.

mod decide;
mod graph;
mod kinds;

use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::core::{DynamicObject, PartialObjectMeta};
use kube::{Api, Client};
use serde_json::json;

use super::worker::{Controller, Decision, Failure};
use decide::{Action, Missing, Propagation};
pub(crate) use graph::{Graph, Kind, Object};
pub(crate) use kinds::{Kinds, Shared};

type Metadata = PartialObjectMeta<DynamicObject>;

pub(crate) struct Garbage {
    pub client: Client,
    pub shared: Shared,
}

/// The API for objects of a kind in a namespace, or of the cluster.
pub(crate) fn api_for(client: &Client, kind: &Kind, namespace: &str) -> Api<Metadata> {
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}

impl Garbage {
    fn api(&self, object: &Object) -> Api<Metadata> {
        api_for(&self.client, &object.kind, &object.namespace)
    }

    /// The object as it is now, if it is still the one that was decided about.
    async fn fresh(&self, object: &Object) -> Result<Metadata, Failure> {
        match self.api(object).get_opt(&object.name).await? {
            Some(found) if found.metadata.uid.as_deref() == Some(object.uid.as_str()) => Ok(found),
            _ => Err(Failure::Gone(object.name.clone())),
        }
    }

    async fn assert_gone(&self, object: &Object, missing: &[Missing]) -> Result<(), Failure> {
        for question in missing {
            let Missing::Ask { owner, kind } = question else {
                continue;
            };
            let found = api_for(&self.client, kind, &object.namespace)
                .get_opt(&owner.name)
                .await?;
            if found.is_some_and(|found| found.metadata.uid.as_ref() == Some(&owner.uid)) {
                return Err(Failure::Conflict(format!(
                    "the owner {} {} is there after all",
                    owner.kind, owner.name
                )));
            }
        }
        Ok(())
    }

    async fn collect(
        &self,
        object: &Object,
        missing: &[Missing],
        propagation: Propagation,
    ) -> Result<(), Failure> {
        let fresh = self.fresh(object).await?;
        // Read after the decision: another owner may have been added since.
        if fresh.metadata.owner_references.as_ref() != Some(&object.owners) {
            return Err(Failure::Conflict("its owners changed".to_owned()));
        }
        self.assert_gone(object, missing).await?;
        let policy = match propagation {
            Propagation::Background => PropagationPolicy::Background,
            Propagation::Foreground => PropagationPolicy::Foreground,
            Propagation::Orphan => PropagationPolicy::Orphan,
        };
        let parameters = DeleteParams {
            propagation_policy: Some(policy),
            preconditions: Some(Preconditions {
                uid: Some(object.uid.clone()),
                resource_version: fresh.metadata.resource_version,
            }),
            ..DeleteParams::default()
        };
        self.api(object).delete(&object.name, &parameters).await?;
        Ok(())
    }

    async fn detach(
        &self,
        object: &Object,
        missing: &[Missing],
        owners: &[String],
    ) -> Result<(), Failure> {
        self.assert_gone(object, missing).await?;
        let fresh = self.fresh(object).await?;
        let kept: Vec<_> = fresh
            .metadata
            .owner_references
            .iter()
            .flatten()
            .filter(|owner| !owners.contains(&owner.uid))
            .collect();
        let patch = json!({"metadata": {"resourceVersion": fresh.metadata.resource_version, "ownerReferences": kept}});
        self.api(object)
            .patch(&object.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    async fn remove_finalizer(&self, object: &Object, finalizer: &str) -> Result<(), Failure> {
        let fresh = self.fresh(object).await?;
        let kept: Vec<_> = fresh
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|present| *present != finalizer)
            .collect();
        let patch = json!({"metadata": {"resourceVersion": fresh.metadata.resource_version, "finalizers": kept}});
        self.api(object)
            .patch(&object.name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}

impl Controller for Garbage {
    const NAME: &'static str = "garbage";
    type Action = Action;

    fn synced(&self) -> bool {
        self.shared.graph.read().synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        Decision::of(decide::decide(&self.shared.graph.read()))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Collect {
                object,
                missing,
                propagation,
            } => self.collect(object, missing, *propagation).await,
            Action::Detach {
                object,
                missing,
                owners,
            } => self.detach(object, missing, owners).await,
            Action::RemoveFinalizer { object, finalizer } => {
                self.remove_finalizer(object, finalizer).await
            }
        }
    }
}
