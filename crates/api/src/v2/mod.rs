//! Version v2 of the API: what a user asks for.

mod status;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::status::{
    Condition, ConditionReason, ConditionStatus, ConditionType, DatabaseStatus, Endpoints,
    InstanceRole, InstanceStatus, Phase,
};
use crate::quantity::StorageSize;

/// More instances than this in one database help nobody: every commit is sent to each of them.
pub const REPLICAS_MAX: u32 = 15;

/// A PostgreSQL database with PostGIS: a primary, its replicas, their volumes, services and credentials.
#[allow(
    clippy::duplicated_attributes,
    reason = "each printer column has a type of its own"
)]
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "stable.imaginedata.com",
    version = "v2",
    kind = "Database",
    plural = "databases",
    shortname = "db",
    category = "all",
    namespaced,
    status = "DatabaseStatus",
    derive = "PartialEq",
    doc = "A PostgreSQL database with PostGIS: a primary, its replicas, their volumes, services and credentials.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.ready",
        description = "Instances that are ready, of those asked for."
    ),
    printcolumn(
        name = "Primary",
        type_ = "string",
        json_path = ".status.primary",
        description = "The instance that accepts writes."
    ),
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".status.version",
        description = "PostgreSQL's version."
    ),
    printcolumn(
        name = "Storage",
        type_ = "string",
        json_path = ".spec.storage.size",
        description = "Size of each instance's volume."
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".status.phase",
        description = "Where the database is in its life."
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        description = "Time since it was created."
    ),
    crates(kube_core = "::kube_core", kube = "::kube_core")
)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseSpec {
    /// How many PostgreSQL instances run, one of them the primary. `kubectl scale db NAME --replicas N` changes it.
    #[serde(default = "defaults::replicas")]
    #[schemars(range(min = 1, max = 15))]
    pub replicas: u32,

    /// The volume of each instance.
    pub storage: Storage,

    /// The database that is made for you, with PostGIS in it.
    #[serde(default = "defaults::database")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z_][a-z0-9_]*$"))]
    pub database: String,

    /// The role that owns the database; its password is in the Secret NAME-app.
    #[serde(default = "defaults::owner")]
    #[schemars(length(min = 1, max = 63), regex(pattern = r"^[a-z_][a-z0-9_]*$"))]
    pub owner: String,

    /// The container image with PostgreSQL and PostGIS. Without it the operator's default image is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 500))]
    pub image: Option<String>,

    /// What happens to the data when the Database is deleted.
    #[serde(default)]
    pub on_delete: OnDelete,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each instance's volume, for example 50Gi. It can grow, never shrink.
    pub size: StorageSize,

    /// The StorageClass; without it the cluster's default class is taken. It cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub class_name: Option<String>,
}

/// What happens to the data when the Database is deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDelete {
    /// A final backup, then everything goes. Until backups exist the volumes are kept, and an Event says so.
    #[default]
    Snapshot,
    /// The volumes are kept.
    Retain,
    /// Everything goes, the data too.
    Discard,
}

mod defaults {
    pub fn replicas() -> u32 {
        3
    }

    pub fn database() -> String {
        "app".to_owned()
    }

    pub fn owner() -> String {
        "app".to_owned()
    }
}
