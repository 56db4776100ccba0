//! Manifests as files: a change of what we send to a cluster is a change somebody reads. `UPDATE_GOLDEN=1 cargo test -p geodb-plan` rewrites them.

use std::path::PathBuf;

use geodb_api::names::Endpoint;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{harbours, running};
use crate::manifests;

fn check(file: &str, manifest: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("src/golden")
        .join(file);
    let text = serde_json::to_string_pretty(manifest).expect("JSON") + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("writing a golden file");
    }
    let golden = std::fs::read_to_string(&path).expect("a golden file; UPDATE_GOLDEN=1 makes it");
    assert_eq!(
        text, golden,
        "{file} changed; if you meant it, run with UPDATE_GOLDEN=1 and read the difference"
    );
}

/// A field that the API does not know would be dropped in silence by a real server: reading it as the real type must lose nothing.
fn nothing_is_unknown<T: DeserializeOwned + Serialize>(manifest: &Value) {
    let typed: T = serde_json::from_value(manifest.clone()).expect("the kind it says it is");
    let mut again = serde_json::to_value(&typed).expect("JSON");
    prune_empty(&mut again);
    let mut expected = manifest.clone();
    prune_empty(&mut expected);
    assert_eq!(sorted(&again), sorted(&expected));
}

fn prune_empty(value: &mut Value) {
    if let Some(object) = value.as_object_mut() {
        object.values_mut().for_each(prune_empty);
        object.retain(|_, value| !matches!(value, Value::Object(map) if map.is_empty()));
    } else if let Some(array) = value.as_array_mut() {
        array.iter_mut().for_each(prune_empty);
    }
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| (*key).clone());
            entries
                .into_iter()
                .map(|(key, value)| (key.clone(), sorted(value)))
                .collect()
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

#[test]
fn what_we_send_to_a_cluster() {
    let fresh = harbours(3);
    let live = running(3);
    let size = "2Gi".parse().expect("a size");
    let first = manifests::pod(&fresh, 1);
    nothing_is_unknown::<Pod>(&first);
    check("pod-first.json", &first);
    check("pod-replica.json", &manifests::pod(&live, 4));
    check("pod-role.json", &manifests::pod_role("replica"));
    let claim = manifests::claim(&fresh, 1, &size);
    nothing_is_unknown::<PersistentVolumeClaim>(&claim);
    check("claim.json", &claim);
    check(
        "claim-size.json",
        &manifests::claim_size(&"3Gi".parse().expect("a size")),
    );
    check("claim-removal.json", &manifests::claim_removal());
    let register = manifests::register(&fresh, true);
    nothing_is_unknown::<Lease>(&register);
    check("register.json", &register);
    check(
        "register-without-bootstrap.json",
        &manifests::register(&live, false),
    );
    for endpoint in Endpoint::ALL {
        let service = manifests::service(&fresh, endpoint);
        nothing_is_unknown::<Service>(&service);
        check(
            &format!(
                "service-{}.json",
                endpoint.service("x").trim_start_matches("x-")
            ),
            &service,
        );
    }
    let connection = manifests::connection(&fresh, "PEM");
    nothing_is_unknown::<ConfigMap>(&connection);
    check("connection.json", &connection);
    let identity = manifests::identity(&fresh);
    nothing_is_unknown::<ServiceAccount>(&identity[0]);
    nothing_is_unknown::<Role>(&identity[1]);
    nothing_is_unknown::<RoleBinding>(&identity[2]);
    check("identity.json", &Value::Array(identity));
}
