//! What claims and volumes need next. Pure: at most one step per object and pass, each safe to repeat.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::super::scheduler::SELECTED_NODE;
use super::super::{quantity, worker};

pub(crate) const PROVISIONER: &str = "geodb.imaginedata.com/directory";
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(crate) const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";

#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub classes: Vec<Arc<StorageClass>>,
    pub pods: Vec<Arc<Pod>>,
    /// What has been told already, as [`explanation_key`]s.
    pub explained: HashSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimPhase {
    Bound,
    Lost,
    Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VolumePhase {
    Available,
    Bound,
    Released,
}

/// Why a claim is not bound, as a person reads it in its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    NoClass,
    UnknownClass(String),
    ForeignProvisioner(String),
    FirstConsumer,
    BlockMode,
    VolumeMissing(String),
    VolumeTaken(String),
}

impl Waiting {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Waiting::NoClass | Waiting::VolumeMissing(_) | Waiting::VolumeTaken(_) => {
                "FailedBinding"
            }
            Waiting::UnknownClass(_) | Waiting::BlockMode => "ProvisioningFailed",
            Waiting::ForeignProvisioner(_) => "ExternalProvisioning",
            Waiting::FirstConsumer => "WaitForFirstConsumer",
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            Waiting::NoClass => {
                "no persistent volumes available for this claim and no storage class is set"
                    .to_owned()
            }
            Waiting::UnknownClass(class) => {
                format!("storageclass.storage.k8s.io \"{class}\" not found")
            }
            Waiting::ForeignProvisioner(provisioner) => {
                format!(
                    "the sandbox does not run the provisioner {provisioner}; use a class of {PROVISIONER}"
                )
            }
            Waiting::FirstConsumer => {
                "waiting for first consumer to be created before binding".to_owned()
            }
            Waiting::BlockMode => {
                "the sandbox keeps volumes as directories; volumeMode Block is not supported"
                    .to_owned()
            }
            Waiting::VolumeMissing(volume) => format!("volume \"{volume}\" not found"),
            Waiting::VolumeTaken(volume) => {
                format!("volume \"{volume}\" already bound to a different claim.")
            }
        }
    }
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Puts the finalizer on, and the default class if the claim names none.
    Prepare {
        claim: Arc<PersistentVolumeClaim>,
        class: Option<String>,
    },
    Provision {
        claim: Arc<PersistentVolumeClaim>,
        class: Arc<StorageClass>,
    },
    /// Writes the claim into a volume that the claim names and that is free.
    Take {
        claim: Arc<PersistentVolumeClaim>,
        volume: Arc<PersistentVolume>,
    },
    BindClaim {
        claim: Arc<PersistentVolumeClaim>,
        volume: String,
    },
    ClaimStatus {
        claim: Arc<PersistentVolumeClaim>,
        phase: ClaimPhase,
        volume: Option<Arc<PersistentVolume>>,
    },
    Grow {
        claim: Arc<PersistentVolumeClaim>,
        volume: Arc<PersistentVolume>,
        size: Quantity,
    },
    Explain {
        claim: Arc<PersistentVolumeClaim>,
        waiting: Waiting,
    },
    ReleaseClaim {
        claim: Arc<PersistentVolumeClaim>,
    },
    VolumeStatus {
        volume: Arc<PersistentVolume>,
        phase: VolumePhase,
    },
    /// Removes directory and object of a released volume.
    Reclaim {
        volume: Arc<PersistentVolume>,
    },
    ReleaseVolume {
        volume: Arc<PersistentVolume>,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::Prepare { claim, .. }
            | Action::Provision { claim, .. }
            | Action::Take { claim, .. }
            | Action::BindClaim { claim, .. }
            | Action::ClaimStatus { claim, .. }
            | Action::Grow { claim, .. }
            | Action::ReleaseClaim { claim } => format!("claim {:?}", claim.metadata.uid),
            Action::Explain { claim, waiting } => explanation_key(claim, waiting),
            Action::VolumeStatus { volume, .. }
            | Action::Reclaim { volume }
            | Action::ReleaseVolume { volume } => {
                format!("volume {:?}", volume.metadata.uid)
            }
        }
    }
}

pub(crate) fn explanation_key(claim: &PersistentVolumeClaim, waiting: &Waiting) -> String {
    format!(
        "{} {} {}",
        claim.metadata.uid.as_deref().unwrap_or_default(),
        waiting.reason(),
        waiting.message()
    )
}

pub(crate) fn decide(snapshot: &Snapshot) -> Vec<Action> {
    let claims = snapshot
        .claims
        .iter()
        .filter_map(|claim| decide_claim(claim, snapshot));
    let volumes = snapshot
        .volumes
        .iter()
        .filter_map(|volume| decide_volume(volume, snapshot));
    claims.chain(volumes).collect()
}

fn decide_claim(claim: &Arc<PersistentVolumeClaim>, snapshot: &Snapshot) -> Option<Action> {
    let protected = claim
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == CLAIM_PROTECTION);
    if claim.metadata.deletion_timestamp.is_some() {
        let release = protected && !snapshot.pods.iter().any(|pod| uses(pod, claim));
        return release.then(|| Action::ReleaseClaim {
            claim: claim.clone(),
        });
    }
    let spec = claim.spec.clone().unwrap_or_default();
    let class = match (&spec.storage_class_name, &spec.volume_name) {
        (None, None) => default_class(&snapshot.classes),
        _ => None,
    };
    if !protected || class.is_some() {
        return Some(Action::Prepare {
            claim: claim.clone(),
            class,
        });
    }
    match &spec.volume_name {
        Some(volume) if !volume.is_empty() => decide_named(claim, volume, snapshot),
        _ => decide_unbound(claim, snapshot),
    }
}

fn default_class(classes: &[Arc<StorageClass>]) -> Option<String> {
    let marked = classes.iter().filter(|class| {
        class
            .metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(DEFAULT_CLASS))
            .is_some_and(|value| value == "true")
    });
    let newest = marked.max_by_key(|class| {
        let created = class
            .metadata
            .creation_timestamp
            .as_ref()
            .map(|time| time.0);
        (created, std::cmp::Reverse(class.metadata.name.clone()))
    });
    newest.and_then(|class| class.metadata.name.clone())
}

fn decide_unbound(claim: &Arc<PersistentVolumeClaim>, snapshot: &Snapshot) -> Option<Action> {
    if let Some(volume) = snapshot
        .volumes
        .iter()
        .find(|volume| belongs(volume, claim) && volume.metadata.deletion_timestamp.is_none())
    {
        return Some(Action::BindClaim {
            claim: claim.clone(),
            volume: volume.metadata.name.clone()?,
        });
    }
    let spec = claim.spec.as_ref()?;
    let waiting = match spec.storage_class_name.as_deref() {
        None | Some("") => Waiting::NoClass,
        Some(name) => match snapshot
            .classes
            .iter()
            .find(|class| class.metadata.name.as_deref() == Some(name))
        {
            None => Waiting::UnknownClass(name.to_owned()),
            Some(class) if class.provisioner != PROVISIONER => {
                Waiting::ForeignProvisioner(class.provisioner.clone())
            }
            Some(_) if spec.volume_mode.as_deref() == Some("Block") => Waiting::BlockMode,
            Some(class) => {
                let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
                let selected = claim
                    .metadata
                    .annotations
                    .as_ref()
                    .is_some_and(|annotations| annotations.contains_key(SELECTED_NODE));
                // A pod that was put on a node without the scheduler is a consumer as well.
                let consumed = || snapshot.pods.iter().any(|pod| uses(pod, claim));
                if !waits || selected || consumed() {
                    return Some(Action::Provision {
                        claim: claim.clone(),
                        class: class.clone(),
                    });
                }
                Waiting::FirstConsumer
            }
        },
    };
    explain_once(claim, waiting, snapshot)
}

fn decide_named(
    claim: &Arc<PersistentVolumeClaim>,
    name: &str,
    snapshot: &Snapshot,
) -> Option<Action> {
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let Some(volume) = snapshot
        .volumes
        .iter()
        .find(|volume| volume.metadata.name.as_deref() == Some(name))
    else {
        return match phase {
            Some("Bound") => Some(Action::ClaimStatus {
                claim: claim.clone(),
                phase: ClaimPhase::Lost,
                volume: None,
            }),
            Some("Lost") => None,
            _ => explain_once(claim, Waiting::VolumeMissing(name.to_owned()), snapshot),
        };
    };
    if !belongs(volume, claim) {
        if is_free_for(volume, claim) {
            return Some(Action::Take {
                claim: claim.clone(),
                volume: volume.clone(),
            });
        }
        return explain_once(claim, Waiting::VolumeTaken(name.to_owned()), snapshot);
    }
    let bound_by_us = claim
        .metadata
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(BIND_COMPLETED));
    if !bound_by_us {
        return Some(Action::BindClaim {
            claim: claim.clone(),
            volume: name.to_owned(),
        });
    }
    if let Some(size) = growth(claim, volume, snapshot) {
        return Some(Action::Grow {
            claim: claim.clone(),
            volume: volume.clone(),
            size,
        });
    }
    let shown = claim
        .status
        .as_ref()
        .and_then(|status| status.capacity.as_ref()?.get("storage"));
    let real = capacity(volume);
    let up_to_date =
        phase == Some("Bound") && shown.and_then(quantity::bytes) == real.and_then(quantity::bytes);
    (!up_to_date).then(|| Action::ClaimStatus {
        claim: claim.clone(),
        phase: ClaimPhase::Bound,
        volume: Some(volume.clone()),
    })
}

pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

fn explain_once(
    claim: &Arc<PersistentVolumeClaim>,
    waiting: Waiting,
    snapshot: &Snapshot,
) -> Option<Action> {
    let phase = claim
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    if phase.is_none() {
        return Some(Action::ClaimStatus {
            claim: claim.clone(),
            phase: ClaimPhase::Pending,
            volume: None,
        });
    }
    let told = snapshot
        .explained
        .contains(&explanation_key(claim, &waiting));
    (!told).then(|| Action::Explain {
        claim: claim.clone(),
        waiting,
    })
}

fn capacity(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

/// The new size, if the claim asks for more than its volume has, the volume is ours and its class lets it grow.
fn growth(
    claim: &PersistentVolumeClaim,
    volume: &PersistentVolume,
    snapshot: &Snapshot,
) -> Option<Quantity> {
    let wanted = claim
        .spec
        .as_ref()?
        .resources
        .as_ref()?
        .requests
        .as_ref()?
        .get("storage")?;
    let class = volume.spec.as_ref()?.storage_class_name.as_deref();
    let growable = snapshot.classes.iter().any(|candidate| {
        candidate.metadata.name.as_deref() == class
            && candidate.allow_volume_expansion == Some(true)
    });
    let more = quantity::bytes(wanted)? > quantity::bytes(capacity(volume)?)?;
    (is_ours(volume) && growable && more).then(|| wanted.clone())
}

pub(crate) fn is_ours(volume: &PersistentVolume) -> bool {
    volume
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(PROVISIONED_BY))
        .is_some_and(|by| by == PROVISIONER)
}

fn belongs(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let Some(reference) = volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
    else {
        return false;
    };
    reference.uid.is_some() && reference.uid == claim.metadata.uid
}

/// Free: nobody has it, or it was set aside for a claim of this name without knowing its UID.
fn is_free_for(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    if volume.metadata.deletion_timestamp.is_some() {
        return false;
    }
    match volume
        .spec
        .as_ref()
        .and_then(|spec| spec.claim_ref.as_ref())
    {
        None => true,
        Some(reference) => {
            reference.uid.as_deref().unwrap_or_default().is_empty()
                && reference.namespace == claim.metadata.namespace
                && reference.name == claim.metadata.name
        }
    }
}

/// A scheduled pod that has not ended needs its claims, as in a cluster.
fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = pod.spec.as_ref() else {
        return false;
    };
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    pod.metadata.namespace == claim.metadata.namespace
        && spec.node_name.is_some()
        && !matches!(phase, Some("Succeeded" | "Failed"))
        && spec.volumes.iter().flatten().any(|volume| {
            volume
                .persistent_volume_claim
                .as_ref()
                .is_some_and(|source| Some(&source.claim_name) == claim.metadata.name.as_ref())
        })
}

fn decide_volume(volume: &Arc<PersistentVolume>, snapshot: &Snapshot) -> Option<Action> {
    let spec = volume.spec.as_ref()?;
    let phase = volume
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default();
    let reference = spec
        .claim_ref
        .as_ref()
        .filter(|reference| reference.uid.as_deref().is_some_and(|uid| !uid.is_empty()));
    let Some(reference) = reference else {
        return decide_unclaimed(volume, phase);
    };
    let claim = snapshot
        .claims
        .iter()
        .find(|claim| claim.metadata.uid == reference.uid);
    if claim.is_some() {
        return (phase != "Bound").then(|| Action::VolumeStatus {
            volume: volume.clone(),
            phase: VolumePhase::Bound,
        });
    }
    if phase != "Released" && phase != "Failed" {
        return Some(Action::VolumeStatus {
            volume: volume.clone(),
            phase: VolumePhase::Released,
        });
    }
    let delete = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    if delete && is_ours(volume) {
        return Some(Action::Reclaim {
            volume: volume.clone(),
        });
    }
    decide_unclaimed(volume, phase)
}

fn decide_unclaimed(volume: &Arc<PersistentVolume>, phase: &str) -> Option<Action> {
    let protected = volume
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == VOLUME_PROTECTION);
    if volume.metadata.deletion_timestamp.is_some() {
        return protected.then(|| Action::ReleaseVolume {
            volume: volume.clone(),
        });
    }
    let claimed = volume.spec.as_ref().is_some_and(|spec| {
        spec.claim_ref
            .as_ref()
            .is_some_and(|reference| reference.uid.is_some())
    });
    let settled = claimed || phase == "Available";
    (!settled).then(|| Action::VolumeStatus {
        volume: volume.clone(),
        phase: VolumePhase::Available,
    })
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
