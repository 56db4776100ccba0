//! The life of a claim and its volume, step by step.

#![allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.

use super::*;
use serde_json::{Value, json};

fn class() -> Arc<StorageClass> {
    let value = json!({"metadata": {"name": "local", "annotations": {DEFAULT_CLASS: "true"}}, "provisioner": PROVISIONER,
        "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true, "reclaimPolicy": "Delete"});
    Arc::new(serde_json::from_value(value).expect("a class"))
}

fn claim(change: Value) -> Arc<PersistentVolumeClaim> {
    let mut value = json!({
        "metadata": {"name": "data", "namespace": "grove", "uid": "u1", "finalizers": [CLAIM_PROTECTION]},
        "spec": {"storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut value, &change);
    Arc::new(serde_json::from_value(value).expect("a claim"))
}

fn bound(change: Value) -> Arc<PersistentVolumeClaim> {
    let mut value = json!({"metadata": {"annotations": {BIND_COMPLETED: "yes"}}, "spec": {"volumeName": "pvc-u1"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    json_patch::merge(&mut value, &change);
    claim(value)
}

fn volume(change: Value) -> Arc<PersistentVolume> {
    let mut value = json!({
        "metadata": {"name": "pvc-u1", "annotations": {PROVISIONED_BY: PROVISIONER}, "finalizers": [VOLUME_PROTECTION]},
        "spec": {"capacity": {"storage": "1Gi"}, "storageClassName": "local", "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"name": "data", "namespace": "grove", "uid": "u1"}},
        "status": {"phase": "Bound"},
    });
    json_patch::merge(&mut value, &change);
    Arc::new(serde_json::from_value(value).expect("a volume"))
}

fn told(
    claims: Vec<Arc<PersistentVolumeClaim>>,
    volumes: Vec<Arc<PersistentVolume>>,
    pods: Vec<Value>,
) -> Vec<String> {
    let snapshot = Snapshot {
        claims,
        volumes,
        classes: vec![class()],
        pods: pods
            .into_iter()
            .map(|pod| Arc::new(serde_json::from_value(pod).expect("a pod")))
            .collect(),
        explained: HashSet::new(),
    };
    decide(&snapshot).iter().map(short).collect()
}

fn short(action: &Action) -> String {
    match action {
        Action::Prepare { class, .. } => format!("prepare {class:?}"),
        Action::Provision { .. } => "provision".into(),
        Action::Take { .. } => "take".into(),
        Action::BindClaim { volume, .. } => format!("bind {volume}"),
        Action::ClaimStatus { phase, .. } => format!("claim {phase:?}"),
        Action::Grow { size, .. } => format!("grow {}", size.0),
        Action::Explain { waiting, .. } => format!("explain {waiting:?}"),
        Action::ReleaseClaim { .. } => "release claim".into(),
        Action::VolumeStatus { phase, .. } => format!("volume {phase:?}"),
        Action::Reclaim { .. } => "reclaim".into(),
        Action::ReleaseVolume { .. } => "release volume".into(),
    }
}

fn user(phase: &str) -> Value {
    json!({"metadata": {"name": "p", "namespace": "grove"}, "status": {"phase": phase},
        "spec": {"nodeName": "n", "containers": [], "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}})
}

#[test]
fn a_claim_lives_step_by_step() {
    let fresh = claim(
        json!({"metadata": {"finalizers": null}, "spec": {"storageClassName": null}, "status": null}),
    );
    assert_eq!(
        told(vec![fresh], vec![], vec![]),
        [r#"prepare Some("local")"#]
    );
    assert_eq!(
        told(vec![claim(json!({"status": null}))], vec![], vec![]),
        ["claim Pending"]
    );
    assert_eq!(
        told(vec![claim(json!({}))], vec![], vec![]),
        ["explain FirstConsumer"]
    );
    let wanted = claim(json!({"metadata": {"annotations": {SELECTED_NODE: "n"}}}));
    assert_eq!(told(vec![wanted.clone()], vec![], vec![]), ["provision"]);
    assert_eq!(
        told(vec![claim(json!({}))], vec![], vec![user("Pending")]),
        ["provision"],
        "a pod placed by hand consumes, too"
    );
    assert_eq!(
        told(vec![wanted], vec![volume(json!({"status": null}))], vec![]),
        ["bind pvc-u1", "volume Bound"]
    );
    assert_eq!(
        told(
            vec![bound(json!({"status": {"phase": "Pending"}}))],
            vec![volume(json!({}))],
            vec![]
        ),
        ["claim Bound"]
    );
    assert!(
        told(
            vec![bound(json!({}))],
            vec![volume(json!({}))],
            vec![user("Running")]
        )
        .is_empty(),
        "at rest"
    );
}

#[test]
fn growth_is_followed_and_shrinking_is_not() {
    let larger = bound(json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}}));
    assert_eq!(
        told(vec![larger.clone()], vec![volume(json!({}))], vec![]),
        ["grow 3Gi"]
    );
    assert_eq!(
        told(
            vec![larger],
            vec![volume(json!({"spec": {"capacity": {"storage": "3Gi"}}}))],
            vec![]
        ),
        ["claim Bound"]
    );
    let same = bound(json!({"spec": {"resources": {"requests": {"storage": "1024Mi"}}}}));
    assert!(
        told(vec![same], vec![volume(json!({}))], vec![]).is_empty(),
        "the same size in other words"
    );
    let smaller = bound(json!({"spec": {"resources": {"requests": {"storage": "1Mi"}}}}));
    assert!(told(vec![smaller], vec![volume(json!({}))], vec![]).is_empty());
}

#[test]
fn a_deleted_claim_waits_for_its_pods() {
    let deleted = bound(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    assert!(
        told(
            vec![deleted.clone()],
            vec![volume(json!({}))],
            vec![user("Running")]
        )
        .is_empty()
    );
    assert_eq!(
        told(
            vec![deleted.clone()],
            vec![volume(json!({}))],
            vec![user("Succeeded")]
        ),
        ["release claim"]
    );
    assert_eq!(
        told(vec![deleted], vec![volume(json!({}))], vec![]),
        ["release claim"]
    );
}

#[test]
fn a_volume_without_its_claim_is_released_and_then_goes_or_stays() {
    assert_eq!(
        told(vec![], vec![volume(json!({}))], vec![]),
        ["volume Released"]
    );
    let released = json!({"status": {"phase": "Released"}});
    assert_eq!(
        told(vec![], vec![volume(released.clone())], vec![]),
        ["reclaim"]
    );
    let successor = claim(json!({"metadata": {"uid": "u2"}}));
    assert_eq!(
        told(vec![successor], vec![volume(released.clone())], vec![]),
        ["explain FirstConsumer", "reclaim"]
    );
    let kept = volume(
        json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}, "status": {"phase": "Released"}}),
    );
    assert!(
        told(vec![], vec![kept], vec![]).is_empty(),
        "Retain keeps the data"
    );
    let foreign =
        volume(json!({"metadata": {"annotations": null}, "status": {"phase": "Released"}}));
    assert!(
        told(vec![], vec![foreign], vec![]).is_empty(),
        "not made by us, not removed by us"
    );
}

#[test]
fn a_bound_volume_is_protected_from_deletion() {
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert!(told(vec![bound(json!({}))], vec![volume(deleting)], vec![]).is_empty());
    let free = volume(
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"claimRef": null}}),
    );
    assert_eq!(told(vec![], vec![free], vec![]), ["release volume"]);
}

#[test]
fn a_named_volume_is_taken_if_free() {
    let named = claim(json!({"spec": {"volumeName": "pvc-u1"}}));
    assert_eq!(
        told(
            vec![named.clone()],
            vec![volume(
                json!({"spec": {"claimRef": null}, "status": {"phase": "Available"}})
            )],
            vec![]
        ),
        ["take"]
    );
    let set_aside =
        volume(json!({"spec": {"claimRef": {"uid": null}}, "status": {"phase": "Available"}}));
    assert_eq!(told(vec![named.clone()], vec![set_aside], vec![]), ["take"]);
    let taken = volume(
        json!({"spec": {"persistentVolumeReclaimPolicy": "Retain", "claimRef": {"uid": "u9"}}, "status": {"phase": "Released"}}),
    );
    assert_eq!(
        told(vec![named.clone()], vec![taken], vec![]),
        [r#"explain VolumeTaken("pvc-u1")"#]
    );
    assert_eq!(
        told(vec![named], vec![], vec![]),
        [r#"explain VolumeMissing("pvc-u1")"#]
    );
    assert_eq!(told(vec![bound(json!({}))], vec![], vec![]), ["claim Lost"]);
}

#[test]
fn what_cannot_be_is_explained_once() {
    let table = [
        (
            claim(json!({"spec": {"storageClassName": ""}})),
            Waiting::NoClass,
        ),
        (
            claim(json!({"spec": {"storageClassName": "fast"}})),
            Waiting::UnknownClass("fast".into()),
        ),
        (
            claim(json!({"spec": {"volumeMode": "Block"}})),
            Waiting::BlockMode,
        ),
    ];
    for (claim, waiting) in table {
        assert_eq!(
            told(vec![claim.clone()], vec![], vec![]),
            [format!("explain {waiting:?}")]
        );
        let explained = [explanation_key(&claim, &waiting)].into();
        let snapshot = Snapshot {
            claims: vec![claim],
            classes: vec![class()],
            explained,
            ..Snapshot::default()
        };
        assert!(decide(&snapshot).is_empty());
    }
}
