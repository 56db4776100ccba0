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
    vec![v2::Database::crd()]
}

#[cfg(test)]
mod tests;
