//! The built-in kinds of Kubernetes, from a table made out of the project's own OpenAPI documents (`data/README.md`).

use std::collections::HashMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::schema::{Definitions, Endpoints, Schema, SchemaError};

const SCHEMAS: &str = include_str!("../data/schemas.json");
const DEFINITIONS: &str = include_str!("../data/definitions.json");

/// The Kubernetes release the tables come from, as `v1.36.3`.
pub const RELEASE: &str = include_str!("../data/RELEASE").trim_ascii_end();

/// Paths of fields.
type Fields = &'static [&'static [&'static str]];

const SPEC: Fields = &[&["spec"]];

/// Built-in kinds with a `/status` endpoint, whose main endpoint therefore ignores `status`, and what `/status` ignores.
const KINDS_WITH_STATUS: &[(&str, &str, Fields)] = &[
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition", SPEC),
    (
        "apiregistration.k8s.io/v1",
        "APIService",
        &[&["spec"], &["metadata"]],
    ),
    ("apps/v1", "DaemonSet", SPEC),
    (
        "apps/v1",
        "Deployment",
        &[&["spec"], &["metadata", "labels"]],
    ),
    ("apps/v1", "ReplicaSet", SPEC),
    ("apps/v1", "StatefulSet", SPEC),
    ("autoscaling/v2", "HorizontalPodAutoscaler", SPEC),
    ("batch/v1", "CronJob", SPEC),
    ("batch/v1", "Job", SPEC),
    ("policy/v1", "PodDisruptionBudget", SPEC),
    ("v1", "Namespace", SPEC),
    ("v1", "Node", SPEC),
    ("v1", "PersistentVolume", SPEC),
    ("v1", "PersistentVolumeClaim", SPEC),
    (
        "v1",
        "Pod",
        &[
            &["spec"],
            &["metadata", "deletionTimestamp"],
            &["metadata", "ownerReferences"],
        ],
    ),
    ("v1", "Service", SPEC),
];

/// The type of a built-in kind, or none if it is not one of ours.
#[must_use]
pub fn schema(api_version: &str, kind: &str) -> Option<&'static Schema> {
    static SCHEMAS_BY_KIND: OnceLock<HashMap<(String, String), Schema>> = OnceLock::new();
    SCHEMAS_BY_KIND
        .get_or_init(load)
        .get(&(api_version.to_owned(), kind.to_owned()))
}

/// OpenAPI v3 `components.schemas` for all built-in kinds, with short descriptions: what a server shows to its clients.
#[must_use]
pub fn definitions() -> &'static Value {
    static PARSED: OnceLock<Value> = OnceLock::new();
    PARSED.get_or_init(|| parse(DEFINITIONS))
}

fn parse(table: &str) -> Value {
    serde_json::from_str(table).expect("the tables are compiled in and a test reads them")
}

fn table() -> &'static serde_json::Map<String, Value> {
    static PARSED: OnceLock<Value> = OnceLock::new();
    PARSED
        .get_or_init(|| parse(SCHEMAS))
        .as_object()
        .expect("the tables are compiled in and a test reads them")
}

fn load() -> HashMap<(String, String), Schema> {
    let kinds: Vec<_> = table()
        .iter()
        .flat_map(|(name, definition)| kinds(definition).map(move |kind| (name.as_str(), kind)))
        .collect();
    let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
    let schemas = Definitions(table())
        .schemas(&names)
        .expect("the tables are compiled in and a test reads them");
    let with_endpoints = |((_, kind), mut schema): ((_, (String, String)), Schema)| {
        schema.endpoints = endpoints(&kind.0, &kind.1);
        (kind, schema)
    };
    kinds.into_iter().zip(schemas).map(with_endpoints).collect()
}

/// The API versions and kinds a definition is for.
fn kinds(definition: &Value) -> impl Iterator<Item = (String, String)> {
    let entries = definition
        .get("x-kubernetes-group-version-kind")
        .and_then(Value::as_array);
    entries.into_iter().flatten().map(|entry| {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = (text("group"), text("version"));
        let api_version = if group.is_empty() {
            version.to_owned()
        } else {
            format!("{group}/{version}")
        };
        (api_version, text("kind").to_owned())
    })
}

fn endpoints(api_version: &str, kind: &str) -> Endpoints {
    let found = KINDS_WITH_STATUS
        .iter()
        .find(|(version, name, _)| *version == api_version && *name == kind);
    Endpoints {
        has_status: found.is_some(),
        status_ignores: found.map_or(&[], |(_, _, ignored)| ignored),
    }
}

impl Schema {
    /// The type of a custom resource, from the structural schema of one version of its definition (`openAPIV3Schema`). The fields every
    /// object has (`apiVersion`, `kind`, `metadata`) are added, here and in embedded resources.
    ///
    /// # Errors
    /// When the schema is malformed; says where and what to write instead.
    pub fn from_openapi(structural: &Value) -> Result<Self, SchemaError> {
        Definitions(table()).custom_resource(structural)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_the_sandbox_serves_has_a_schema() {
        let kinds = "v1/Namespace v1/Pod v1/Service v1/Endpoints v1/ConfigMap v1/Secret v1/ServiceAccount v1/PersistentVolumeClaim \
            v1/PersistentVolume v1/Node v1/Event discovery.k8s.io/v1/EndpointSlice storage.k8s.io/v1/StorageClass \
            events.k8s.io/v1/Event coordination.k8s.io/v1/Lease batch/v1/Job batch/v1/CronJob policy/v1/PodDisruptionBudget \
            networking.k8s.io/v1/NetworkPolicy apiextensions.k8s.io/v1/CustomResourceDefinition \
            apiregistration.k8s.io/v1/APIService admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration \
            admissionregistration.k8s.io/v1/MutatingWebhookConfiguration rbac.authorization.k8s.io/v1/Role \
            rbac.authorization.k8s.io/v1/ClusterRole rbac.authorization.k8s.io/v1/RoleBinding \
            rbac.authorization.k8s.io/v1/ClusterRoleBinding apps/v1/StatefulSet apps/v1/Deployment apps/v1/ReplicaSet \
            apps/v1/DaemonSet scheduling.k8s.io/v1/PriorityClass autoscaling/v2/HorizontalPodAutoscaler";
        for kind in kinds.split_whitespace() {
            let (api_version, kind) = kind.rsplit_once('/').expect("has a slash");
            assert!(schema(api_version, kind).is_some(), "{api_version} {kind}");
        }
        assert!(schema("v1", "Nonsense").is_none());
    }

    #[test]
    fn definitions_have_no_dangling_references() {
        fn check(value: &Value, definitions: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(reference) = fields.get("$ref").and_then(Value::as_str) {
                        let name = reference
                            .strip_prefix("#/components/schemas/")
                            .expect("an OpenAPI v3 reference");
                        assert!(definitions.get(name).is_some(), "{reference}");
                    }
                    fields.values().for_each(|field| check(field, definitions));
                }
                Value::Array(items) => items.iter().for_each(|item| check(item, definitions)),
                _ => {}
            }
        }
        check(definitions(), definitions());
    }
}
