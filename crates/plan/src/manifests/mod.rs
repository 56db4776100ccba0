//! The objects of a database, as they are sent to the API. Deterministic: the same World gives the same bytes, so golden files hold them.

mod network;
mod pod;
mod rights;
mod volume;

use geodb_api::{GROUP, labels};
use geodb_ha::register::{BOOTSTRAP_ALLOWED, BOOTSTRAP_ANNOTATION};
use serde_json::{Value, json};

pub use self::network::{connection, service};
pub use self::pod::{pod, pod_role};
pub use self::rights::identity;
pub use self::volume::{claim, claim_removal, claim_size};
use crate::world::World;

pub const ROLE_PRIMARY: &str = "primary";
pub const ROLE_REPLICA: &str = "replica";

/// Metadata of an object that goes with its Database.
pub fn owned(world: &World, name: &str) -> Value {
    json!({
        "name": name,
        "namespace": world.namespace(),
        "labels": common_labels(world),
        "ownerReferences": [{
            "apiVersion": format!("{GROUP}/v2"),
            "kind": "Database",
            "name": world.name(),
            "uid": world.uid(),
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

fn common_labels(world: &World) -> Value {
    json!({
        labels::MANAGED_BY: labels::MANAGED_BY_VALUE,
        labels::APP_NAME: labels::APP_NAME_VALUE,
        labels::DATABASE: world.name(),
        labels::DATABASE_UID: world.uid(),
    })
}

/// The register, empty. Only the permission to make a new database is ours to give.
pub fn register(world: &World, bootstrap_allowed: bool) -> Value {
    let mut metadata = owned(world, &geodb_api::names::register(world.name()));
    if bootstrap_allowed {
        metadata["annotations"] = json!({ BOOTSTRAP_ANNOTATION: BOOTSTRAP_ALLOWED });
    }
    json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {} })
}
