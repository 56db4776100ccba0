//! Owners and dependents, in small families.

#![allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use serde_json::{Value, json};

fn kind(group: &str, name: &str, plural: &str, namespaced: bool) -> Arc<Kind> {
    let api_version = if group.is_empty() {
        "v1".to_owned()
    } else {
        format!("{group}/v1")
    };
    let resource = ApiResource {
        group: group.into(),
        version: "v1".into(),
        api_version,
        kind: name.into(),
        plural: plural.into(),
    };
    Arc::new(Kind {
        resource,
        namespaced,
    })
}

fn graph(objects: Vec<(&str, Value)>) -> Graph {
    let mut graph = Graph::default();
    let kinds = [
        kind("", "Pod", "pods", true),
        kind("", "Node", "nodes", false),
        kind("trees.example", "Tree", "trees", true),
    ];
    graph.set_kinds(&kinds);
    for kind in &kinds {
        graph.list_begins(&kind.id());
    }
    for (plural, metadata) in objects {
        let id = kinds
            .iter()
            .find(|kind| kind.resource.plural == plural)
            .expect("a kind")
            .id();
        graph.seen(&id, self::metadata(metadata));
    }
    for kind in &kinds {
        graph.list_ends(&kind.id());
    }
    graph
}

fn metadata(mut value: Value) -> ObjectMeta {
    if value["uid"].is_null() {
        value["uid"] = json!(format!("uid-{}", value["name"].as_str().expect("a name")));
    }
    serde_json::from_value(value).expect("metadata")
}

fn owner(name: &str) -> Value {
    json!({"apiVersion": "trees.example/v1", "kind": "Tree", "name": name, "uid": format!("uid-{name}"), "blockOwnerDeletion": true})
}

fn going(name: &str, finalizer: &str) -> Value {
    json!({"name": name, "namespace": "grove", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]})
}

fn leaf(owners: Vec<Value>) -> Value {
    json!({"name": "leaf", "namespace": "grove", "ownerReferences": owners})
}

fn told(graph: &Graph) -> Vec<String> {
    let short = |action: &Action| match action {
        Action::Collect {
            object,
            missing,
            propagation,
        } => {
            let asked = missing
                .iter()
                .filter(|missing| matches!(missing, Missing::Ask { .. }))
                .count();
            format!("collect {} asking {asked} {propagation:?}", object.name)
        }
        Action::Detach {
            object,
            missing,
            owners,
        } => format!(
            "detach {} from {owners:?} asking {}",
            object.name,
            missing.len()
        ),
        Action::RemoveFinalizer { object, finalizer } => {
            format!("free {} of {finalizer}", object.name)
        }
    };
    let mut told: Vec<String> = decide(graph).iter().map(short).collect();
    told.sort();
    told
}

#[test]
fn with_its_owner_there_nothing_happens() {
    let oak = json!({"name": "oak", "namespace": "grove"});
    assert!(
        told(&graph(vec![
            ("trees", oak),
            ("pods", leaf(vec![owner("oak")]))
        ]))
        .is_empty()
    );
}

#[test]
fn without_its_owner_an_object_is_collected_after_asking() {
    assert_eq!(
        told(&graph(vec![("pods", leaf(vec![owner("oak")]))])),
        ["collect leaf asking 1 Background"]
    );
}

#[test]
fn an_owner_of_the_same_name_with_another_uid_is_not_the_owner() {
    let reborn = json!({"name": "oak", "namespace": "grove", "uid": "another"});
    assert_eq!(
        told(&graph(vec![
            ("trees", reborn),
            ("pods", leaf(vec![owner("oak")]))
        ])),
        ["collect leaf asking 1 Background"]
    );
}

#[test]
fn an_owner_in_another_namespace_is_not_the_owner() {
    let elsewhere = json!({"name": "oak", "namespace": "ash"});
    assert_eq!(
        told(&graph(vec![
            ("trees", elsewhere),
            ("pods", leaf(vec![owner("oak")]))
        ])),
        ["collect leaf asking 1 Background"]
    );
}

#[test]
fn one_owner_that_stays_is_enough() {
    let oak = json!({"name": "oak", "namespace": "grove"});
    assert_eq!(
        told(&graph(vec![
            ("trees", oak),
            ("pods", leaf(vec![owner("oak"), owner("elm")]))
        ])),
        [r#"detach leaf from ["uid-elm"] asking 1"#]
    );
}

#[test]
fn foreground_waits_for_those_that_block() {
    let family = |block: bool| {
        let mut reference = owner("oak");
        reference["blockOwnerDeletion"] = json!(block);
        graph(vec![
            ("trees", going("oak", FOREGROUND)),
            ("pods", leaf(vec![reference])),
        ])
    };
    assert_eq!(told(&family(true)), ["collect leaf asking 0 Background"]);
    assert_eq!(
        told(&family(false)),
        [
            "collect leaf asking 0 Background",
            "free oak of foregroundDeletion"
        ]
    );
    assert_eq!(
        told(&graph(vec![("trees", going("oak", FOREGROUND))])),
        ["free oak of foregroundDeletion"]
    );
}

#[test]
fn foreground_goes_down_the_generations() {
    let branch = json!({"name": "branch", "namespace": "grove", "ownerReferences": [owner("oak")]});
    let family = graph(vec![
        ("trees", going("oak", FOREGROUND)),
        ("trees", branch),
        ("pods", leaf(vec![owner("branch")])),
    ]);
    assert_eq!(told(&family), ["collect branch asking 0 Foreground"]);
}

#[test]
fn orphans_lose_the_reference_and_then_the_owner_goes() {
    assert_eq!(
        told(&graph(vec![
            ("trees", going("oak", ORPHAN)),
            ("pods", leaf(vec![owner("oak")]))
        ])),
        [r#"detach leaf from ["uid-oak"] asking 0"#]
    );
    assert_eq!(
        told(&graph(vec![("trees", going("oak", ORPHAN))])),
        ["free oak of orphan"]
    );
}

#[test]
fn an_owner_of_an_unknown_kind_protects_unless_it_was_seen_deleted() {
    let unknown =
        json!({"apiVersion": "gone.example/v1", "kind": "Fern", "name": "f", "uid": "uid-f"});
    let mut family = graph(vec![("pods", leaf(vec![unknown]))]);
    assert!(told(&family).is_empty(), "nobody can say that it is gone");
    let id = kind("trees.example", "Tree", "trees", true).id();
    family.gone(&id, metadata(json!({"name": "f", "namespace": "grove"})));
    assert_eq!(told(&family), ["collect leaf asking 0 Background"]);
}

#[test]
fn an_object_of_the_cluster_with_a_namespaced_owner_is_left_alone() {
    let node = json!({"name": "n", "ownerReferences": [owner("oak")]});
    assert!(told(&graph(vec![("nodes", node)])).is_empty());
}

#[test]
fn a_new_status_is_no_news_and_a_relist_forgets() {
    let mut family = graph(vec![("pods", leaf(vec![owner("oak")]))]);
    let id = kind("", "Pod", "pods", true).id();
    let mut same = leaf(vec![owner("oak")]);
    same["resourceVersion"] = json!("99");
    assert!(!family.seen(&id, metadata(same)));
    family.list_begins(&id);
    assert!(family.list_ends(&id));
    assert!(told(&family).is_empty());
}
