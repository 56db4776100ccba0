//! EndpointSlices of Services with a selector. Services without one are left alone: their slices are somebody else's to write.

mod decide;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};

use super::cache::Cache;
use super::worker::{Controller, Decision, Failure};
use decide::{Action, Snapshot};
pub(crate) use decide::{SERVICE_NAME, is_headless};

pub(crate) struct Endpoints {
    pub client: Client,
    pub services: Cache<Service>,
    pub pods: Cache<Pod>,
    pub slices: Cache<EndpointSlice>,
}

impl Endpoints {
    fn api(&self, slice: &EndpointSlice) -> Api<EndpointSlice> {
        Api::namespaced(
            self.client.clone(),
            slice.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    async fn update(&self, current: &EndpointSlice, wanted: &EndpointSlice) -> Result<(), Failure> {
        let mut slice = current.clone();
        slice.endpoints.clone_from(&wanted.endpoints);
        slice.ports.clone_from(&wanted.ports);
        slice
            .metadata
            .labels
            .get_or_insert_default()
            .extend(wanted.metadata.labels.clone().unwrap_or_default());
        // Carries the version it was read at: somebody else's change in between is a conflict.
        let name = current.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .api(current)
            .replace(name, &PostParams::default(), &slice)
            .await?;
        self.slices.overlay(answer);
        Ok(())
    }
}

impl Controller for Endpoints {
    const NAME: &'static str = "endpointslices";
    type Action = Action;

    fn synced(&self) -> bool {
        self.services.synced() && self.pods.synced() && self.slices.synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        let snapshot = Snapshot {
            services: self.services.all(),
            pods: self.pods.all(),
            slices: self.slices.all(),
        };
        Decision::of(decide::decide(&snapshot))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Create { slice, .. } => {
                let answer = self
                    .api(slice)
                    .create(&PostParams::default(), slice)
                    .await?;
                self.slices.overlay(answer);
                Ok(())
            }
            Action::Update { current, slice } => self.update(current, slice).await,
            Action::Delete { slice } => {
                let preconditions = Preconditions {
                    uid: slice.metadata.uid.clone(),
                    resource_version: None,
                };
                let name = slice.metadata.name.as_deref().unwrap_or_default();
                self.api(slice)
                    .delete(name, &DeleteParams::default().preconditions(preconditions))
                    .await?;
                Ok(())
            }
        }
    }
}
