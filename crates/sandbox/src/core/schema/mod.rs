//! The schema of a custom resource at work: which schemas are accepted, and pruning, defaulting and validating by them.
//!
//! Walks over `openAPIV3Schema` as JSON. What it cannot do right it refuses when the definition is made, never later.

pub mod default;
pub mod prune;
pub mod structural;
pub mod validate;

use serde_json::Value;

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key) == Some(&Value::Bool(true))
}

fn preserves_unknown(schema: &Value) -> bool {
    flag(schema, "x-kubernetes-preserve-unknown-fields")
}

/// `spec.a`, `spec.l[0]`: paths as messages write them.
fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}
