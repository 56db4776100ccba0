//! Storage: claims of our class become directories, grow, and go.
//!
//! Follows what a cluster's volume controllers do: default class, binding at the first consumer, protection while in use, release and
//! reclaim. Sizes are recorded and reported, not enforced: a directory has no quota.

mod decide;
mod directory;

use std::collections::HashSet;
use std::path::PathBuf;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    HostPathVolumeSource, ObjectReference, PersistentVolume, PersistentVolumeClaim,
    PersistentVolumeSpec, Pod,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::cache::Cache;
use super::record::{Recorder, Severity};
use super::worker::{Controller, Decision, Failure};
use decide::{Action, ClaimPhase, Snapshot, VolumePhase, Waiting};

/// The class a claim gets that names none.
pub const DEFAULT_CLASS_NAME: &str = "local";

pub(crate) struct Storage {
    pub client: Client,
    pub recorder: Recorder,
    /// `DATA/volumes`.
    pub volumes_root: PathBuf,
    pub claims: Cache<PersistentVolumeClaim>,
    pub volumes: Cache<PersistentVolume>,
    pub classes: Cache<StorageClass>,
    pub pods: Cache<Pod>,
    pub explained: Mutex<HashSet<String>>,
}

/// Makes the default class, once per start: a person who changes it is not overruled while the sandbox runs.
pub(crate) async fn ensure_default_class(client: &Client) -> Result<StorageClass, Failure> {
    let api: Api<StorageClass> = Api::all(client.clone());
    if let Some(present) = api.get_opt(DEFAULT_CLASS_NAME).await? {
        return Ok(present);
    }
    let class = StorageClass {
        metadata: ObjectMeta {
            name: Some(DEFAULT_CLASS_NAME.to_owned()),
            annotations: Some([(decide::DEFAULT_CLASS.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        provisioner: decide::PROVISIONER.to_owned(),
        volume_binding_mode: Some("WaitForFirstConsumer".to_owned()),
        allow_volume_expansion: Some(true),
        reclaim_policy: Some("Delete".to_owned()),
        ..StorageClass::default()
    };
    Ok(api.create(&PostParams::default(), &class).await?)
}

impl Storage {
    fn claim_api(&self, claim: &PersistentVolumeClaim) -> Api<PersistentVolumeClaim> {
        Api::namespaced(
            self.client.clone(),
            claim.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    fn volume_api(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    async fn patch_claim(
        &self,
        claim: &PersistentVolumeClaim,
        patch: &Value,
    ) -> Result<(), Failure> {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .claim_api(claim)
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.claims.overlay(answer);
        Ok(())
    }

    async fn patch_volume(&self, volume: &PersistentVolume, patch: &Value) -> Result<(), Failure> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .volume_api()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        self.volumes.overlay(answer);
        Ok(())
    }

    async fn prepare(
        &self,
        claim: &PersistentVolumeClaim,
        class: Option<&str>,
    ) -> Result<(), Failure> {
        let mut finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers
            .iter()
            .any(|finalizer| finalizer == decide::CLAIM_PROTECTION)
        {
            finalizers.push(decide::CLAIM_PROTECTION.to_owned());
        }
        let mut patch = json!({"metadata": {"resourceVersion": claim.metadata.resource_version, "finalizers": finalizers}});
        if let Some(class) = class {
            patch["spec"] = json!({"storageClassName": class});
        }
        self.patch_claim(claim, &patch).await
    }

    async fn provision(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<(), Failure> {
        let namespace = claim.metadata.namespace.clone().unwrap_or_default();
        let uid = claim.metadata.uid.clone().unwrap_or_default();
        let root = self.volumes_root.clone();
        let path = blocking(move || directory::create(&root, &namespace, &uid)).await?;
        let volume = volume_for(claim, class, &path.to_string_lossy());
        let name = volume.metadata.name.clone().unwrap_or_default();
        match self
            .volume_api()
            .create(&PostParams::default(), &volume)
            .await
        {
            Ok(created) => self.volumes.overlay(created),
            // Made before a crash: the watch knows it, or will.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        let message = format!("Successfully provisioned volume {name}");
        self.recorder
            .record(claim, Severity::Normal, "ProvisioningSucceeded", &message)
            .await;
        Ok(())
    }

    async fn take(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
    ) -> Result<(), Failure> {
        let reference = reference_to(claim);
        let patch = json!({"metadata": {"resourceVersion": volume.metadata.resource_version}, "spec": {"claimRef": reference}});
        self.patch_volume(volume, &patch).await
    }

    async fn bind_claim(&self, claim: &PersistentVolumeClaim, volume: &str) -> Result<(), Failure> {
        let patch = json!({
            "metadata": {"uid": claim.metadata.uid, "annotations": {
                decide::BIND_COMPLETED: "yes",
                "pv.kubernetes.io/bound-by-controller": "yes",
            }},
            "spec": {"volumeName": volume},
        });
        self.patch_claim(claim, &patch).await
    }

    async fn claim_status(
        &self,
        claim: &PersistentVolumeClaim,
        phase: ClaimPhase,
        volume: Option<&PersistentVolume>,
    ) -> Result<(), Failure> {
        let status = match (phase, volume.and_then(|volume| volume.spec.as_ref())) {
            (ClaimPhase::Bound, Some(spec)) => {
                json!({"phase": "Bound", "capacity": spec.capacity, "accessModes": spec.access_modes})
            }
            (ClaimPhase::Lost, _) => {
                json!({"phase": "Lost", "capacity": null, "accessModes": null})
            }
            _ => json!({"phase": "Pending"}),
        };
        let patch = json!({"metadata": {"uid": claim.metadata.uid}, "status": status});
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .claim_api(claim)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.claims.overlay(answer);
        if phase == ClaimPhase::Lost {
            let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
            self.recorder
                .record(claim, Severity::Warning, "ClaimLost", message)
                .await;
        }
        Ok(())
    }

    async fn grow(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        size: &str,
    ) -> Result<(), Failure> {
        let patch = json!({"metadata": {"uid": volume.metadata.uid}, "spec": {"capacity": {"storage": size}}});
        self.patch_volume(volume, &patch).await?;
        let message =
            format!("The volume is a directory without a quota; its recorded size is now {size}");
        self.recorder
            .record(claim, Severity::Normal, "VolumeResizeSuccessful", &message)
            .await;
        Ok(())
    }

    async fn explain(&self, claim: &PersistentVolumeClaim, waiting: &Waiting) {
        let severity = if matches!(waiting, Waiting::FirstConsumer) {
            Severity::Normal
        } else {
            Severity::Warning
        };
        self.recorder
            .record(claim, severity, waiting.reason(), &waiting.message())
            .await;
        self.explained
            .lock()
            .insert(decide::explanation_key(claim, waiting));
    }

    /// Lets a deleted claim go, after a fresh look at the pods: a cache may lag behind the scheduler.
    async fn release_claim(&self, claim: &PersistentVolumeClaim) -> Result<(), Failure> {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let fresh = Snapshot {
            claims: vec![std::sync::Arc::new(claim.clone())],
            pods: pods
                .list(&ListParams::default())
                .await?
                .items
                .into_iter()
                .map(Into::into)
                .collect(),
            ..Snapshot::default()
        };
        if decide::decide(&fresh).is_empty() {
            return Err(Failure::Conflict(
                "a pod uses the claim after all".to_owned(),
            ));
        }
        let finalizers = without(claim.metadata.finalizers.as_ref(), decide::CLAIM_PROTECTION);
        let patch = json!({"metadata": {"resourceVersion": claim.metadata.resource_version, "finalizers": finalizers}});
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        self.claim_api(claim)
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }

    async fn volume_status(
        &self,
        volume: &PersistentVolume,
        phase: VolumePhase,
    ) -> Result<(), Failure> {
        if phase == VolumePhase::Released {
            self.assert_claim_gone(volume).await?;
        }
        let phase = match phase {
            VolumePhase::Available => "Available",
            VolumePhase::Bound => "Bound",
            VolumePhase::Released => "Released",
        };
        self.patch_volume_status(
            volume,
            &json!({"phase": phase, "message": null, "reason": null}),
        )
        .await
    }

    async fn patch_volume_status(
        &self,
        volume: &PersistentVolume,
        status: &Value,
    ) -> Result<(), Failure> {
        let patch = json!({"metadata": {"uid": volume.metadata.uid}, "status": status});
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .volume_api()
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.volumes.overlay(answer);
        Ok(())
    }

    /// Data is about to go: the claim must be gone in the server's eyes, not only in ours.
    async fn assert_claim_gone(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        let reference = claim_reference(volume);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(
            self.client.clone(),
            reference.namespace.as_deref().unwrap_or_default(),
        );
        match claims
            .get_opt(reference.name.as_deref().unwrap_or_default())
            .await?
        {
            Some(claim) if claim.metadata.uid == reference.uid => {
                Err(Failure::Conflict("the claim is still there".to_owned()))
            }
            _ => Ok(()),
        }
    }

    async fn reclaim(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        self.assert_claim_gone(volume).await?;
        let reference = claim_reference(volume);
        let recorded = volume
            .spec
            .as_ref()
            .and_then(|spec| spec.host_path.as_ref())
            .map(|path| PathBuf::from(&path.path))
            .unwrap_or_default();
        let root = self.volumes_root.clone();
        let (namespace, uid) = (
            reference.namespace.unwrap_or_default(),
            reference.uid.unwrap_or_default(),
        );
        let removed = blocking(move || directory::remove(&root, &recorded, &namespace, &uid)).await;
        if let Err(failure) = removed {
            let known = volume
                .status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Failed"));
            if !known {
                self.recorder
                    .record(
                        volume,
                        Severity::Warning,
                        "VolumeFailedDelete",
                        &failure.to_string(),
                    )
                    .await;
                self.patch_volume_status(
                    volume,
                    &json!({"phase": "Failed", "message": failure.to_string()}),
                )
                .await?;
            }
            return Err(failure);
        }
        self.delete_volume(volume).await
    }

    async fn delete_volume(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions {
            uid: volume.metadata.uid.clone(),
            resource_version: None,
        };
        let answer = self
            .volume_api()
            .delete(name, &DeleteParams::default().preconditions(preconditions))
            .await?;
        match answer.left() {
            Some(deleting)
                if deleting
                    .metadata
                    .finalizers
                    .as_ref()
                    .is_some_and(|finalizers| !finalizers.is_empty()) =>
            {
                self.release_volume(&deleting).await
            }
            _ => Ok(()),
        }
    }

    async fn release_volume(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        let finalizers = without(
            volume.metadata.finalizers.as_ref(),
            decide::VOLUME_PROTECTION,
        );
        let patch = json!({"metadata": {"resourceVersion": volume.metadata.resource_version, "finalizers": finalizers}});
        let name = volume.metadata.name.as_deref().unwrap_or_default();
        self.volume_api()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        Ok(())
    }
}

fn without(finalizers: Option<&Vec<String>>, gone: &str) -> Vec<String> {
    finalizers
        .into_iter()
        .flatten()
        .filter(|finalizer| *finalizer != gone)
        .cloned()
        .collect()
}

fn claim_reference(volume: &PersistentVolume) -> ObjectReference {
    volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.clone())
        .unwrap_or_default()
}

fn reference_to(claim: &PersistentVolumeClaim) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("PersistentVolumeClaim".to_owned()),
        name: claim.metadata.name.clone(),
        namespace: claim.metadata.namespace.clone(),
        uid: claim.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

fn volume_for(claim: &PersistentVolumeClaim, class: &StorageClass, path: &str) -> PersistentVolume {
    let wanted = claim.spec.clone().unwrap_or_default();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(format!(
                "pvc-{}",
                claim.metadata.uid.as_deref().unwrap_or_default()
            )),
            annotations: Some(
                [(
                    decide::PROVISIONED_BY.to_owned(),
                    decide::PROVISIONER.to_owned(),
                )]
                .into(),
            ),
            finalizers: Some(vec![decide::VOLUME_PROTECTION.to_owned()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: wanted.access_modes,
            capacity: wanted.resources.and_then(|resources| resources.requests),
            claim_ref: Some(reference_to(claim)),
            host_path: Some(HostPathVolumeSource {
                path: path.to_owned(),
                type_: Some("Directory".to_owned()),
            }),
            persistent_volume_reclaim_policy: Some(
                class
                    .reclaim_policy
                    .clone()
                    .unwrap_or_else(|| "Delete".to_owned()),
            ),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: Some("Filesystem".to_owned()),
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}

/// Runs file work where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, directory::DirectoryError> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result.map_err(|error| Failure::Unsafe(error.to_string())),
        Err(error) => Err(Failure::Unsafe(format!(
            "the file work was interrupted: {error}"
        ))),
    }
}

impl Controller for Storage {
    const NAME: &'static str = "storage";
    type Action = Action;

    fn synced(&self) -> bool {
        self.claims.synced() && self.volumes.synced() && self.classes.synced() && self.pods.synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        let claims = self.claims.all();
        let mut explained = self.explained.lock();
        explained.retain(|key| {
            claims.iter().any(|claim| {
                claim
                    .metadata
                    .uid
                    .as_ref()
                    .is_some_and(|uid| key.starts_with(uid.as_str()))
            })
        });
        Decision::of(decide::decide(&Snapshot {
            claims,
            volumes: self.volumes.all(),
            classes: self.classes.all(),
            pods: self.pods.all(),
            explained: explained.clone(),
        }))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::Prepare { claim, class } => self.prepare(claim, class.as_deref()).await,
            Action::Provision { claim, class } => self.provision(claim, class).await,
            Action::Take { claim, volume } => self.take(claim, volume).await,
            Action::BindClaim { claim, volume } => self.bind_claim(claim, volume).await,
            Action::ClaimStatus {
                claim,
                phase,
                volume,
            } => self.claim_status(claim, *phase, volume.as_deref()).await,
            Action::Grow {
                claim,
                volume,
                size,
            } => self.grow(claim, volume, &size.0).await,
            Action::Explain { claim, waiting } => {
                self.explain(claim, waiting).await;
                Ok(())
            }
            Action::ReleaseClaim { claim } => self.release_claim(claim).await,
            Action::VolumeStatus { volume, phase } => self.volume_status(volume, *phase).await,
            Action::Reclaim { volume } => self.reclaim(volume).await,
            Action::ReleaseVolume { volume } => self.release_volume(volume).await,
        }
    }
}
