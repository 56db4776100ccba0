//! What the operator reports. Every reason is an enum: the same word is the condition's reason, the Event's and the log's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the operator sees and does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default)]
    pub observed_generation: i64,

    /// Where the database is in its life; derived from the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Ready instances of those asked for, for example 2/3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,

    /// The instance that accepts writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<String>,

    /// The primary's PostgreSQL version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,

    /// Counts the primaries this database has had. Above zero means: there is data, and no new database may be made in its place.
    #[serde(default)]
    pub epoch: u64,

    /// The largest instance number ever given out; numbers are never used again.
    #[serde(default)]
    pub latest_instance: u32,

    /// Instances that exist; the scale subresource reads it.
    #[serde(default)]
    pub replicas: u32,

    /// Selects the pods; the scale subresource reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Service names to connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Endpoints>,

    /// Each instance: its role, and what it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<InstanceStatus>,

    /// Ready, Progressing, Degraded, NeedsHuman; each with its reason and what it means.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Endpoints {
    /// Reads and writes: the primary.
    pub read_write: String,
    /// Reads from replicas.
    pub read_only: String,
    /// Reads from any instance.
    pub read: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InstanceStatus {
    pub name: String,
    pub role: InstanceRole,
    pub ready: bool,
    /// What is awaited, while it is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum InstanceRole {
    Primary,
    Replica,
    /// Scaled away: its pod and then its volume go.
    Leaving,
}

/// Where a database is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// No primary has accepted a write yet.
    Creating,
    /// Everything asked for is there.
    Ready,
    /// Instances are being added or removed.
    Scaling,
    /// It works, with fewer instances than asked for; or the primary is away.
    Degraded,
    /// Somebody has to act; the condition NeedsHuman says what.
    NeedsHuman,
    Deleting,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: ConditionType,
    pub status: ConditionStatus,
    pub reason: ConditionReason,
    pub message: String,
    #[serde(default)]
    pub observed_generation: i64,
    /// RFC 3339, when the status last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
}

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum ConditionType {
    /// The primary accepts writes and every instance asked for is ready.
    Ready,
    /// The operator is on its way to what was asked for.
    Progressing,
    /// Something that was there is away.
    Degraded,
    /// Only a person can go on from here.
    NeedsHuman,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ConditionReason {
    /// Everything asked for is there.
    AllInstancesReady,
    /// No primary has published itself yet.
    AwaitingFirstPrimary,
    /// The primary is known but not ready.
    PrimaryNotReady,
    /// Replicas are missing or do not stream yet.
    ReplicasNotReady,
    /// Fewer instances than asked for: more are being made.
    AddingInstances,
    /// More instances than asked for: some are leaving.
    RemovingInstances,
    /// Deletion is under way.
    Deleting,
    /// Nothing is missing.
    AsAsked,
    /// Volumes cannot shrink; the size asked for is below what is there.
    StorageCannotShrink,
    /// The name is too long for the objects derived from it.
    NameTooLong,
    /// An object with a name that we need belongs to somebody else.
    ForeignObject,
    /// The recorded primary's volume is gone or empty.
    PrimaryVolumeLost,
}

impl ConditionReason {
    /// The word as it stands in conditions, Events and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AllInstancesReady => "AllInstancesReady",
            Self::AwaitingFirstPrimary => "AwaitingFirstPrimary",
            Self::PrimaryNotReady => "PrimaryNotReady",
            Self::ReplicasNotReady => "ReplicasNotReady",
            Self::AddingInstances => "AddingInstances",
            Self::RemovingInstances => "RemovingInstances",
            Self::Deleting => "Deleting",
            Self::AsAsked => "AsAsked",
            Self::StorageCannotShrink => "StorageCannotShrink",
            Self::NameTooLong => "NameTooLong",
            Self::ForeignObject => "ForeignObject",
            Self::PrimaryVolumeLost => "PrimaryVolumeLost",
        }
    }
}
