//! What comes out of a decision: steps as data, one API call each, plus what to report.

use geodb_api::names::Credential;
use geodb_api::v2::DatabaseStatus;
use serde_json::Value;

use crate::world::{Claim, Pod};

#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// In order. A step that fails does not stop the others: each is safe on its own.
    pub steps: Vec<Step>,
    pub status: DatabaseStatus,
    pub events: Vec<Event>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    AddFinalizer,
    /// The last step of a deletion: the owned objects follow by garbage collection.
    RemoveFinalizer,
    /// Make the secret values (the executor's randomness) and create the Secret if there is none.
    MakeCredential(Credential),
    /// Create if absent; an object of ours that is there already is success, anybody else's is an error.
    Create(Value),
    /// Server-side apply, skipped when nothing we own would change.
    Apply(Value),
    /// Merge into exactly the object that was looked at.
    Patch {
        target: Target,
        why: PatchReason,
        patch: Value,
    },
    Delete {
        target: Target,
        why: DeleteReason,
    },
}

/// Exactly what was looked at: another object of the same name, or a newer state of it, is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: TargetKind,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
}

impl Target {
    pub fn pod(pod: &Pod) -> Self {
        Self {
            kind: TargetKind::Pod,
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        }
    }

    pub fn claim(claim: &Claim) -> Self {
        Self {
            kind: TargetKind::Claim,
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            resource_version: claim.resource_version.clone(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    Pod,
    Claim,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchReason {
    /// The volume is to grow.
    Grow,
    /// The pod's role label follows the register.
    Role,
    /// The instance leaves; the mark comes before everything else.
    Removal,
}

impl PatchReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Grow => "Grow",
            Self::Role => "Role",
            Self::Removal => "Removal",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// It ended and a pod's name is needed again.
    Ended,
    /// Scaled away.
    Surplus,
    /// Its volume is being deleted or is gone.
    VolumeGone,
    /// The Database is being deleted.
    DatabaseDeleted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Normal,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub kind: EventKind,
    pub reason: EventReason,
    pub note: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventReason {
    InstanceCreated,
    InstanceRestarted,
    InstanceLeaving,
    PrimaryPublished,
    Ready,
    Degraded,
    NeedsHuman,
    VolumesKept,
    VolumesDeleted,
}

impl EventReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InstanceCreated => "InstanceCreated",
            Self::InstanceRestarted => "InstanceRestarted",
            Self::InstanceLeaving => "InstanceLeaving",
            Self::PrimaryPublished => "PrimaryPublished",
            Self::Ready => "Ready",
            Self::Degraded => "Degraded",
            Self::NeedsHuman => "NeedsHuman",
            Self::VolumesKept => "VolumesKept",
            Self::VolumesDeleted => "VolumesDeleted",
        }
    }
}

impl Event {
    pub fn normal(reason: EventReason, note: String) -> Self {
        Self {
            kind: EventKind::Normal,
            reason,
            note,
        }
    }

    pub fn warning(reason: EventReason, note: String) -> Self {
        Self {
            kind: EventKind::Warning,
            reason,
            note,
        }
    }
}
