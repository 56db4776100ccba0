//! Events: short notes about other objects. Checked in their stored shape, the core group's.

use serde_json::Value;

use super::{PLAIN, Strategy};
use crate::core::error::Cause;
use crate::core::meta;

pub static EVENT: Strategy = Strategy { validate, ..PLAIN };

fn validate(event: &Value) -> Vec<Cause> {
    let about = meta::text(event, &["involvedObject", "namespace"]);
    let namespace = meta::namespace(event);
    // What is about the cluster lives in `default`.
    if about == namespace || (about.is_empty() && namespace == "default") {
        return Vec::new();
    }
    vec![Cause::invalid(
        "involvedObject.namespace",
        &about.into(),
        "does not match event.namespace",
    )]
}
