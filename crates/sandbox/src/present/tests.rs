//! What a client finds when it looks around: documents that hold together, and tables with the columns people know.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::*;
use crate::core::{Config, User};

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn state() -> State {
    State::new(Config::default())
}

fn request(method: Method, path: &str, accept: &str) -> Request {
    Request {
        method,
        path: path.to_owned(),
        query: Vec::new(),
        content_type: String::new(),
        accept: accept.to_owned(),
        user_agent: String::new(),
        body: Bytes::new(),
        user: User {
            name: "somebody".to_owned(),
            groups: Vec::new(),
        },
    }
}

fn get(state: &State, path: &str, accept: &str) -> Option<Value> {
    match document(state, &request(Method::GET, path, accept))? {
        Response::Json {
            status: 200, body, ..
        } => Some(body),
        other => panic!("{path}: {other:?}"),
    }
}

fn now() -> Timestamp {
    "2030-01-01T00:10:00Z".parse().unwrap()
}

fn columns(table: &Value) -> Vec<String> {
    let shown = |column: &Value| {
        let wide = if column["priority"] == 0 { "" } else { "*" };
        format!("{}{wide}", column["name"].as_str().unwrap())
    };
    table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(shown)
        .collect()
}

/// Recorded from a kube-apiserver 1.36.3; a star marks what only `-o wide` shows.
const COLUMNS: &[(&str, &str, &str)] = &[
    (
        "",
        "Pod",
        "Name Ready Status Restarts Age IP* Node* Nominated-Node* Readiness-Gates*",
    ),
    (
        "",
        "Service",
        "Name Type Cluster-IP External-IP Port(s) Age Selector*",
    ),
    ("", "Endpoints", "Name Endpoints Age"),
    ("", "ConfigMap", "Name Data Age"),
    ("", "Secret", "Name Type Data Age"),
    ("", "ServiceAccount", "Name Age"),
    (
        "",
        "PersistentVolumeClaim",
        "Name Status Volume Capacity Access-Modes StorageClass VolumeAttributesClass Age VolumeMode*",
    ),
    (
        "",
        "PersistentVolume",
        "Name Capacity Access-Modes Reclaim-Policy Status Claim StorageClass VolumeAttributesClass Reason Age VolumeMode*",
    ),
    (
        "",
        "Node",
        "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*",
    ),
    (
        "",
        "Event",
        "Last-Seen Type Reason Object Subobject* Source* Message First-Seen* Count* Name*",
    ),
    ("", "Namespace", "Name Status Age"),
    (
        "apps",
        "Deployment",
        "Name Ready Up-to-date Available Age Containers* Images* Selector*",
    ),
    (
        "apps",
        "ReplicaSet",
        "Name Desired Current Ready Age Containers* Images* Selector*",
    ),
    ("apps", "StatefulSet", "Name Ready Age Containers* Images*"),
    (
        "batch",
        "Job",
        "Name Status Completions Duration Age Containers* Images* Selector*",
    ),
    (
        "batch",
        "CronJob",
        "Name Schedule Timezone Suspend Active Last-Schedule Age Containers* Images* Selector*",
    ),
    ("coordination.k8s.io", "Lease", "Name Holder Age"),
    (
        "discovery.k8s.io",
        "EndpointSlice",
        "Name AddressType Ports Endpoints Age",
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        "Name Provisioner ReclaimPolicy VolumeBindingMode AllowVolumeExpansion Age",
    ),
    (
        "policy",
        "PodDisruptionBudget",
        "Name Min-Available Max-Unavailable Allowed-Disruptions Age",
    ),
    (
        "networking.k8s.io",
        "NetworkPolicy",
        "Name Pod-Selector Age",
    ),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        "Name Value Global-Default Age PreemptionPolicy",
    ),
    ("rbac.authorization.k8s.io", "Role", "Name Created-At"),
    (
        "rbac.authorization.k8s.io",
        "RoleBinding",
        "Name Role Age Users* Groups* ServiceAccounts*",
    ),
    (
        "apiregistration.k8s.io",
        "APIService",
        "Name Service Available Age",
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        "Name Webhooks Age",
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "Name Created-At",
    ),
];

#[test]
fn built_in_tables_have_the_columns_people_know() {
    let state = state();
    for (group, name, expected) in COLUMNS {
        let kind = state
            .kinds()
            .find(|kind| kind.group == *group && kind.kind == *name)
            .unwrap_or_else(|| panic!("{name}"));
        let table = object(
            View::Table,
            kind,
            &json!({"kind": name, "metadata": {"name": "a"}}),
            now(),
        );
        let found = columns(&table)
            .iter()
            .map(|column| column.replace(' ', "-"))
            .collect::<Vec<_>>()
            .join(" ");
        assert_eq!(found, *expected, "{group} {name}");
    }
}

#[test]
fn every_kind_prints_any_object_with_a_cell_per_column() {
    let state = state();
    let strange = [
        json!({}),
        json!({"metadata": {"name": "a"}, "spec": null, "status": []}),
        json!({"metadata": [], "spec": {"containers": {"a": 1}, "ports": [1, null]}, "status": {"conditions": [[], "x"]}}),
        json!({"metadata": {"creationTimestamp": "not a time", "labels": 3}, "subsets": [{}], "endpoints": [{"addresses": [1]}]}),
    ];
    for kind in state.kinds() {
        for object in &strange {
            let items = [Arc::new(object.clone())];
            let table = list(
                View::Table,
                kind,
                &items,
                json!({"resourceVersion": "1"}),
                now(),
            );
            let width = table["columnDefinitions"].as_array().unwrap().len();
            assert_eq!(
                table["rows"][0]["cells"].as_array().unwrap().len(),
                width,
                "{} {object}",
                kind.kind
            );
        }
    }
}

#[test]
fn all_discovery_documents_tell_the_same() {
    let state = state();
    let mut one_by_one = Vec::new();
    let mut lists = vec!["/api/v1".to_owned()];
    for group in get(&state, "/apis", "").unwrap()["groups"]
        .as_array()
        .unwrap()
    {
        assert_eq!(
            get(
                &state,
                &format!("/apis/{}", group["name"].as_str().unwrap()),
                ""
            )
            .unwrap()["kind"],
            "APIGroup"
        );
        let versions = group["versions"].as_array().unwrap().iter();
        lists.extend(
            versions.map(|version| format!("/apis/{}", version["groupVersion"].as_str().unwrap())),
        );
    }
    for path in lists {
        let document = get(&state, &path, "application/json").unwrap();
        let names = document["resources"]
            .as_array()
            .unwrap()
            .iter()
            .map(|resource| resource["name"].as_str().unwrap().to_owned());
        one_by_one.extend(
            names.map(|name| format!("{} {name}", document["groupVersion"].as_str().unwrap())),
        );
    }
    let mut aggregated = Vec::new();
    for root in ["/api", "/apis"] {
        let accept = format!("{AGGREGATED},application/json");
        for group in get(&state, root, &accept).unwrap()["items"]
            .as_array()
            .unwrap()
        {
            for version in group["versions"].as_array().unwrap() {
                let (group, version_name) = (
                    group["metadata"]["name"].as_str().unwrap(),
                    version["version"].as_str().unwrap(),
                );
                let place = if group.is_empty() {
                    version_name.to_owned()
                } else {
                    format!("{group}/{version_name}")
                };
                for resource in version["resources"].as_array().unwrap() {
                    let name = resource["resource"].as_str().unwrap();
                    aggregated.push(format!("{place} {name}"));
                    for part in resource["subresources"]
                        .as_array()
                        .map_or(&[][..], Vec::as_slice)
                    {
                        aggregated.push(format!(
                            "{place} {name}/{}",
                            part["subresource"].as_str().unwrap()
                        ));
                    }
                }
            }
        }
    }
    one_by_one.sort();
    aggregated.sort();
    assert!(one_by_one.contains(&"v1 pods/log".to_owned()));
    assert_eq!(one_by_one, aggregated);
    assert!(get(&state, "/apis/nobody.example.com", "").is_none());
    assert!(get(&state, "/apis/apps/v9", "").is_none());
}

fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(
                fields
                    .get("$ref")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
            );
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn every_openapi_document_is_whole_and_says_that_patches_are_validated() {
    let state = state();
    let index = get(&state, "/openapi/v3", "").unwrap();
    assert_eq!(
        index,
        get(&state, "/openapi/v3", "").unwrap(),
        "the hashes are stable"
    );
    for (path, entry) in index["paths"].as_object().unwrap() {
        assert!(
            entry["serverRelativeURL"]
                .as_str()
                .unwrap()
                .starts_with(&format!("/openapi/v3/{path}?hash="))
        );
        let document = get(&state, &format!("/openapi/v3/{path}"), "").unwrap();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in found {
            let name = reference.strip_prefix("#/components/schemas/").unwrap();
            assert!(
                document["components"]["schemas"].get(name).is_some(),
                "{path} refers to {name}"
            );
        }
        for (path, item) in document["paths"].as_object().unwrap() {
            let Some(patch) = item.get("patch") else {
                continue;
            };
            let parameters = patch["parameters"].as_array().unwrap();
            for wanted in ["dryRun", "fieldManager", "fieldValidation", "force"] {
                assert!(
                    parameters
                        .iter()
                        .any(|parameter| parameter["name"] == wanted),
                    "{path} {wanted}"
                );
            }
        }
    }
    let core = get(&state, "/openapi/v3/api/v1", "").unwrap();
    let ports =
        &core["components"]["schemas"]["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"];
    assert_eq!(
        ports["x-kubernetes-patch-merge-key"], "port",
        "client-side apply finds its merge keys here"
    );
}

#[test]
fn documents_are_only_read() {
    for path in ["/version", "/api", "/apis", "/openapi/v3", "/healthz"] {
        let answer = document(&state(), &request(Method::POST, path, ""));
        assert!(
            matches!(answer, Some(Response::Json { status: 405, .. })),
            "{path}"
        );
    }
    assert!(document(&state(), &request(Method::GET, "/nonsense", "")).is_none());
}
