//! What users see: the `Database` resource, its defaults and limits, and the names of everything made for it.
//!
//! Pure: no client, no clock, no IO. `v2` is stored and served; `v1` and the classes of change come with the API's own work.

pub mod labels;
pub mod names;
pub mod quantity;
pub mod v2;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt;

/// Our API group; the name comes from the source document and never changes.
pub const GROUP: &str = "stable.imaginedata.com";

/// Every CustomResourceDefinition that an installation needs, in the order to apply them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![without_foreign_formats(&v2::Database::crd())]
}

/// API servers know no unsigned formats and warn about them; the bounds say the same.
fn without_foreign_formats(crd: &CustomResourceDefinition) -> CustomResourceDefinition {
    fn walk(value: &mut serde_json::Value) {
        if let Some(object) = value.as_object_mut() {
            if object
                .get("format")
                .and_then(serde_json::Value::as_str)
                .is_some_and(|format| format.starts_with("uint"))
            {
                object.remove("format");
            }
            object.values_mut().for_each(walk);
        } else if let Some(array) = value.as_array_mut() {
            array.iter_mut().for_each(walk);
        }
    }
    let mut value = serde_json::to_value(crd).expect("a CRD is plain data and always serialises");
    walk(&mut value);
    serde_json::from_value(value).expect("removing formats leaves a CRD")
}

#[cfg(test)]
mod tests;
