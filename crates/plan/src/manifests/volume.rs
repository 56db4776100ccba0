//! The claims that hold the data. They have no owner reference: whether data goes with its Database is decided, never collected.

use geodb_api::quantity::StorageSize;
use geodb_api::{labels, names};
use serde_json::{Value, json};

use super::common_labels;
use crate::world::World;

pub fn claim(world: &World, serial: u32, size: &StorageSize) -> Value {
    let name = names::instance(world.name(), serial);
    let mut labels = common_labels(world);
    labels[labels::INSTANCE] = json!(name);
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": { "requests": { "storage": size.to_string() } },
    });
    if let Some(class) = &world.database.spec.storage.class_name {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": world.namespace(), "labels": labels },
        "spec": spec,
    })
}

/// Merged into a claim to make it grow.
pub fn claim_size(size: &StorageSize) -> Value {
    json!({ "spec": { "resources": { "requests": { "storage": size.to_string() } } } })
}

/// Merged into a claim to mark that its instance leaves.
pub fn claim_removal() -> Value {
    json!({ "metadata": { "annotations": { labels::REMOVAL: labels::REMOVAL_REQUESTED } } })
}
