//! Where pods go, told as small stories.

#![allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.

use super::*;
use serde_json::{Value, json};

fn node(name: &str) -> Arc<Node> {
    node_with(json!({"metadata": {"name": name}}))
}

fn node_with(mut value: Value) -> Arc<Node> {
    let name = value["metadata"]["name"].clone();
    value["metadata"]["labels"]["kubernetes.io/hostname"] = name;
    if value["status"].is_null() {
        value["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    }
    Arc::new(serde_json::from_value(value).expect("a node"))
}

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let value = json!({
        "metadata": {"name": name, "namespace": "grove", "uid": format!("uid-{name}"), "labels": {"app": "oak"}},
        "spec": spec,
    });
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

fn apart() -> Value {
    json!({"containers": [], "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "oak"}}}
    ]}}})
}

fn told(actions: &[Action]) -> Vec<String> {
    actions
        .iter()
        .map(|action| match action {
            Action::Bind { pod, node } => format!(
                "{} -> {node}",
                pod.metadata.name.as_deref().unwrap_or_default()
            ),
            Action::SelectNode { claim, node } => format!(
                "claim {} -> {node}",
                claim.metadata.name.as_deref().unwrap_or_default()
            ),
            Action::Report { pod, message } => format!(
                "{}: {message}",
                pod.metadata.name.as_deref().unwrap_or_default()
            ),
        })
        .collect()
}

fn outcome(nodes: Vec<Arc<Node>>, pods: Vec<Arc<Pod>>) -> Vec<String> {
    told(&decide(&Snapshot {
        nodes,
        pods,
        ..Snapshot::default()
    }))
}

#[test]
fn pods_go_to_the_least_loaded_node() {
    let pods = (1..=4)
        .map(|number| pod(&format!("p{number}"), json!({"containers": []})))
        .collect();
    assert_eq!(
        outcome(vec![node("a"), node("b")], pods),
        ["p1 -> a", "p2 -> b", "p3 -> a", "p4 -> b"]
    );
}

#[test]
fn required_anti_affinity_is_strict_even_within_one_pass() {
    let pods = vec![pod("p1", apart()), pod("p2", apart()), pod("p3", apart())];
    assert_eq!(
        outcome(vec![node("a"), node("b")], pods),
        [
            "p1 -> a",
            "p2 -> b",
            "p3: 0/2 nodes are available: 2 node(s) didn't match pod anti-affinity rules."
        ]
    );
}

#[test]
fn a_newcomer_respects_the_anti_affinity_of_those_already_there() {
    let mut resident = Arc::unwrap_or_clone(pod("resident", apart()));
    resident.spec.as_mut().expect("a spec").node_name = Some("a".into());
    let pods = vec![
        Arc::new(resident),
        pod("newcomer", json!({"containers": []})),
    ];
    assert_eq!(
        outcome(vec![node("a")], pods),
        [
            "newcomer: 0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules."
        ]
    );
}

#[test]
fn preferred_anti_affinity_spreads_but_does_not_block() {
    let spec = json!({"containers": [], "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "oak"}}}}
    ]}}});
    let mut stranger =
        Arc::unwrap_or_clone(pod("stranger", json!({"containers": [], "nodeName": "b"})));
    stranger.metadata.labels = None;
    let pods = vec![
        Arc::new(stranger.clone()),
        pod("p1", spec.clone()),
        pod("p2", spec.clone()),
        pod("p3", spec),
    ];
    assert_eq!(
        outcome(vec![node("a"), node("b")], pods),
        ["p1 -> a", "p2 -> b", "p3 -> a"]
    );
}

#[test]
fn a_promise_not_yet_visible_counts() {
    let snapshot = Snapshot {
        nodes: vec![node("a")],
        pods: vec![pod("p1", apart()), pod("p2", apart())],
        assumed: [("uid-p1".to_owned(), "a".to_owned())].into(),
        ..Snapshot::default()
    };
    assert_eq!(
        told(&decide(&snapshot)),
        ["p2: 0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules."]
    );
}

#[test]
fn nodes_refuse_for_different_reasons_and_all_are_told() {
    let nodes = vec![
        node_with(json!({"metadata": {"name": "cordoned"}, "spec": {"unschedulable": true}})),
        node_with(
            json!({"metadata": {"name": "down"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        ),
        node_with(
            json!({"metadata": {"name": "tainted"}, "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
        ),
        node("plain"),
    ];
    let pods = vec![pod(
        "p",
        json!({"containers": [], "nodeSelector": {"disk": "fast"}}),
    )];
    assert_eq!(
        outcome(nodes, pods),
        [
            "p: 0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s)."
        ]
    );
}

#[test]
fn tolerations_open_tainted_nodes() {
    let tainted = || {
        node_with(
            json!({"metadata": {"name": "t"}, "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}}),
        )
    };
    let table = [
        (
            json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]),
            true,
        ),
        (json!([{"key": "k", "operator": "Exists"}]), true),
        (json!([{"operator": "Exists"}]), true),
        (json!([{"key": "k", "value": "other"}]), false),
        (
            json!([{"key": "k", "operator": "Exists", "effect": "NoExecute"}]),
            false,
        ),
    ];
    for (tolerations, expected) in table {
        let told = outcome(
            vec![tainted()],
            vec![pod(
                "p",
                json!({"containers": [], "tolerations": tolerations}),
            )],
        );
        assert_eq!(told == ["p -> t"], expected, "{tolerations} {told:?}");
    }
}

#[test]
fn spread_constraints_hold_the_skew() {
    let spec = json!({"containers": [], "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "oak"}}}]});
    let mut resident = Arc::unwrap_or_clone(pod("resident", spec.clone()));
    resident.spec.as_mut().expect("a spec").node_name = Some("a".into());
    let cordoned = node_with(json!({"metadata": {"name": "b"}, "spec": {"unschedulable": true}}));
    assert_eq!(
        outcome(
            vec![node("a"), cordoned],
            vec![Arc::new(resident), pod("p", spec)]
        ),
        [
            "p: 0/2 nodes are available: 1 node(s) didn't match pod topology spread constraints, 1 node(s) were unschedulable."
        ]
    );
}

#[test]
fn no_node_at_all_says_so_once() {
    let told = outcome(vec![], vec![pod("p", json!({"containers": []}))]);
    assert_eq!(told, ["p: no nodes available to schedule pods"]);
    let mut reported = Arc::unwrap_or_clone(pod("p", json!({"containers": []})));
    reported.status = serde_json::from_value(
        json!({"conditions": [{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": "no nodes available to schedule pods"}]}),
    )
    .expect("a status");
    assert!(
        outcome(vec![], vec![Arc::new(reported)]).is_empty(),
        "nothing new, nothing written"
    );
}

#[test]
fn pods_that_are_not_ours_to_place_are_left_alone() {
    let mut deleting = Arc::unwrap_or_clone(pod("deleting", json!({"containers": []})));
    deleting.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    let pods = vec![
        pod("placed", json!({"containers": [], "nodeName": "a"})),
        pod(
            "other",
            json!({"containers": [], "schedulerName": "theirs"}),
        ),
        pod(
            "gated",
            json!({"containers": [], "schedulingGates": [{"name": "wait"}]}),
        ),
        Arc::new(deleting),
    ];
    assert!(outcome(vec![node("a")], pods).is_empty());
}

fn with_claim(claims: Value, volumes: Value) -> Snapshot {
    let list = |value: Value| value.as_array().cloned().unwrap_or_default();
    Snapshot {
        nodes: vec![node("a"), node("b")],
        pods: vec![pod("p", json!({"containers": [], "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}))],
        claims: list(claims).into_iter().map(|value| Arc::new(serde_json::from_value(value).expect("a claim"))).collect(),
        volumes: list(volumes).into_iter().map(|value| Arc::new(serde_json::from_value(value).expect("a volume"))).collect(),
        classes: vec![Arc::new(
            serde_json::from_value(json!({"metadata": {"name": "local"}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}))
                .expect("a class"),
        )],
        ..Snapshot::default()
    }
}

#[test]
fn an_unbound_claim_is_told_the_node_first_and_the_pod_waits_for_it() {
    let claim = json!([{"metadata": {"name": "data", "namespace": "grove"}, "spec": {"storageClassName": "local"}}]);
    assert_eq!(
        told(&decide(&with_claim(claim, json!([])))),
        ["claim data -> a"]
    );
    let told_already = json!([{"metadata": {"name": "data", "namespace": "grove", "annotations": {SELECTED_NODE: "b"}},
        "spec": {"storageClassName": "local"}}]);
    assert!(
        decide(&with_claim(told_already, json!([]))).is_empty(),
        "storage is at work, nothing to do"
    );
}

#[test]
fn a_bound_volume_ties_the_pod_to_its_node() {
    let claim = json!([{"metadata": {"name": "data", "namespace": "grove"}, "spec": {"storageClassName": "local", "volumeName": "v"},
        "status": {"phase": "Bound"}}]);
    let volume = json!([{"metadata": {"name": "v"}, "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["b"]}]}]}}}}]);
    assert_eq!(
        told(&decide(&with_claim(claim.clone(), volume))),
        ["p -> b"]
    );
    assert_eq!(
        told(&decide(&with_claim(claim, json!([])))),
        [
            "p: 0/2 nodes are available: persistentvolumeclaim \"data\" bound to non-existent persistentvolume \"v\"."
        ]
    );
}

#[test]
fn a_missing_or_immediate_claim_is_named() {
    assert_eq!(
        told(&decide(&with_claim(json!([]), json!([])))),
        ["p: 0/2 nodes are available: persistentvolumeclaim \"data\" not found."]
    );
    let immediate = json!([{"metadata": {"name": "data", "namespace": "grove"}, "spec": {"storageClassName": "other"}}]);
    assert_eq!(
        told(&decide(&with_claim(immediate, json!([])))),
        ["p: 0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims."]
    );
}
