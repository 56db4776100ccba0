//! Steps of a plan, as data: they can be printed, compared, run twice and stopped anywhere. Each is one API call.
//!
//! Printing a step, `{:?}` included, shows which object and never its contents: those may be secret.

use std::{fmt, sync::Arc};

use kube::{
    Resource,
    api::{ApiResource, DynamicObject},
};
use serde_json::Value;

use crate::key::Key;

/// Which object of which kind.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Shared, because every error carries one.
    pub resource: Arc<ApiResource>,
    pub key: Key,
}

impl Target {
    pub fn new(resource: ApiResource, key: Key) -> Self {
        Self {
            resource: Arc::new(resource),
            key,
        }
    }

    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self::new(ApiResource::erase::<K>(&()), Key::of(object))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.resource.kind, self.key)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// How an object shows that it is ours. Anything else is foreign and never touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ours {
    /// It has an owner reference to this UID.
    Owner { uid: String },
    /// It carries this label with this value, best a UID.
    Label { label: String, value: String },
}

impl Ours {
    pub fn owner(uid: impl Into<String>) -> Self {
        Self::Owner { uid: uid.into() }
    }

    pub fn label(label: impl Into<String>, value: impl Into<String>) -> Self {
        Self::Label {
            label: label.into(),
            value: value.into(),
        }
    }

    /// Is this object, as JSON, ours?
    pub fn is(&self, object: &Value) -> bool {
        match self {
            Self::Owner { uid } => object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == uid.as_str())),
            Self::Label { label, value } => object["metadata"]["labels"][label] == value.as_str(),
        }
    }
}

impl fmt::Display for Ours {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Owner { uid } => write!(formatter, "an owner reference to UID {uid}"),
            Self::Label { label, value } => write!(formatter, "the label {label}={value}"),
        }
    }
}

/// An object as we mean it: what we set and nothing else.
#[derive(Clone, PartialEq)]
pub struct Desired {
    pub target: Target,
    pub ours: Ours,
    /// The whole object as JSON, with apiVersion, kind and metadata.
    pub(crate) body: Value,
}

impl Desired {
    /// # Errors
    /// When the object does not serialize, or does not itself carry the mark that makes it ours (it would be foreign to
    /// us the moment it exists).
    pub fn new<K>(object: &K, ours: Ours) -> Result<Self, DesiredError>
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        let target = Target::of(object);
        let body = serde_json::to_value(object).map_err(|source| DesiredError::Serialize {
            target: target.clone(),
            source,
        })?;
        Self::from_json(target, body, ours)
    }

    /// # Errors
    /// See [`Desired::new`].
    pub fn from_json(target: Target, mut body: Value, ours: Ours) -> Result<Self, DesiredError> {
        let Some(fields) = body.as_object_mut() else {
            return Err(DesiredError::NoObject { target });
        };
        fields.insert(
            "apiVersion".into(),
            target.resource.api_version.clone().into(),
        );
        fields.insert("kind".into(), target.resource.kind.clone().into());
        // Status belongs to whoever observes; applying it here would make us its owner.
        fields.remove("status");
        if fields.contains_key("stringData") {
            return Err(DesiredError::StringData { target });
        }
        if target.key.name.is_empty() {
            return Err(DesiredError::NoName { target });
        }
        if !ours.is(&body) {
            return Err(DesiredError::NotMarked { target, ours });
        }
        Ok(Self { target, ours, body })
    }
}

impl fmt::Debug for Desired {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.target, formatter)
    }
}

/// A mistake in building a plan. The operator's author must act.
#[derive(Debug, thiserror::Error)]
pub enum DesiredError {
    #[error("failed to serialize {target}")]
    Serialize {
        target: Target,
        source: serde_json::Error,
    },
    #[error("{target} is not a JSON object")]
    NoObject { target: Target },
    #[error("a {} to be written has no name", target.resource.kind)]
    NoName { target: Target },
    #[error(
        "{target} uses stringData, which the server turns into data and so never equals what was meant; use data"
    )]
    StringData { target: Target },
    #[error("{target} does not carry {ours}; it would be foreign to its own operator")]
    NotMarked { target: Target, ours: Ours },
}

/// Which incarnation of an object, and which version of it. What a step needs so as not to act on another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub uid: String,
    pub resource_version: String,
}

impl Seen {
    /// Of an object that came from the server; `None` for one that did not.
    pub fn of<K: Resource>(object: &K) -> Option<Self> {
        let meta = object.meta();
        Some(Self {
            uid: meta.uid.clone()?,
            resource_version: meta.resource_version.clone()?,
        })
    }
}

/// One API call.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make it if there is none. One that is there already and ours is left as it is.
    Create(Desired),
    /// Make it, or change what we own of it, or nothing if that is as we mean it.
    Apply(Desired),
    /// Delete this incarnation in this version.
    Delete {
        target: Target,
        seen: Seen,
        /// `None` leaves the kind's default.
        grace_period_seconds: Option<u32>,
    },
    /// Merge this into this incarnation in this version.
    Patch {
        target: Target,
        seen: Seen,
        why: &'static str,
        patch: Value,
    },
    /// The same, through the status subresource. Made by [`crate::status::report`].
    PatchStatus {
        target: Target,
        seen: Seen,
        patch: Value,
    },
}

impl Step {
    pub fn delete<K: Resource<DynamicType = ()>>(object: &K) -> Option<Self> {
        Some(Self::Delete {
            target: Target::of(object),
            seen: Seen::of(object)?,
            grace_period_seconds: None,
        })
    }

    pub fn target(&self) -> &Target {
        match self {
            Self::Create(desired) | Self::Apply(desired) => &desired.target,
            Self::Delete { target, .. }
            | Self::Patch { target, .. }
            | Self::PatchStatus { target, .. } => target,
        }
    }

    /// One word for logs and metrics.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Apply(_) => "apply",
            Self::Delete { .. } => "delete",
            Self::Patch { .. } => "patch",
            Self::PatchStatus { .. } => "patchStatus",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.verb(), self.target())?;
        match self {
            Self::Delete { seen, .. } => write!(
                formatter,
                " (uid {}, version {})",
                seen.uid, seen.resource_version
            ),
            Self::Patch { why, .. } => write!(formatter, " ({why})"),
            _ => Ok(()),
        }
    }
}

/// What a step did.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    pub kind: EffectKind,
    /// The object after the step, if the step learned it.
    pub object: Option<DynamicObject>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EffectKind {
    Created,
    /// It was there and ours; a create leaves such a one alone.
    AlreadyThere,
    Changed,
    /// Nothing to change; nothing was written.
    Unchanged,
    /// Deletion is under way: a grace period or finalizers hold it.
    Deleting,
    Deleted,
    /// It was gone before.
    AlreadyGone,
}

impl EffectKind {
    /// Did the server's state change?
    pub fn wrote(self) -> bool {
        matches!(
            self,
            Self::Created | Self::Changed | Self::Deleting | Self::Deleted
        )
    }
}
