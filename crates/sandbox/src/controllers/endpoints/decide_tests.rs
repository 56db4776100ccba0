//! Slices from selectors and pods.

#![allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.

use super::*;
use serde_json::{Value, json};

fn service(spec: Value) -> Arc<Service> {
    let value = json!({"metadata": {"name": "web", "namespace": "grove", "uid": "uid-web", "labels": {"team": "trees"}}, "spec": spec});
    Arc::new(serde_json::from_value(value).expect("a service"))
}

fn plain() -> Arc<Service> {
    service(json!({"selector": {"app": "oak"}, "ports": [{"port": 80, "targetPort": 8080}]}))
}

fn pod(name: &str, address: &str, ready: bool) -> Pod {
    let value = json!({
        "metadata": {"name": name, "namespace": "grove", "uid": format!("uid-{name}"), "labels": {"app": "oak"}},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "ports": [{"name": "sql", "containerPort": 5432}]}]},
        "status": {"phase": "Running", "podIP": address, "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    });
    serde_json::from_value(value).expect("a pod")
}

fn created(actions: Vec<Action>) -> Vec<EndpointSlice> {
    let only_creations = |action| match action {
        Action::Create { slice, .. } => *slice,
        other => panic!("expected a creation, got {other:?}"),
    };
    actions.into_iter().map(only_creations).collect()
}

fn first_slices(service: Arc<Service>, pods: Vec<Pod>) -> Vec<EndpointSlice> {
    created(decide(&Snapshot {
        services: vec![service],
        pods: pods.into_iter().map(Arc::new).collect(),
        slices: vec![],
    }))
}

#[test]
fn one_slice_tells_who_is_ready() {
    let mut leaving = pod("leaving", "127.71.2.3", true);
    leaving.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).expect("a time");
    let slices = first_slices(
        plain(),
        vec![
            pod("up", "127.71.2.1", true),
            pod("down", "127.71.2.2", false),
            leaving,
        ],
    );
    let [slice] = slices.as_slice() else {
        panic!("one slice, got {slices:?}")
    };
    let told: Vec<_> = slice
        .endpoints
        .iter()
        .map(|endpoint| {
            let conditions = endpoint.conditions.clone().expect("conditions");
            (
                endpoint.addresses[0].as_str(),
                conditions.ready,
                conditions.serving,
                conditions.terminating,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("127.71.2.1", Some(true), Some(true), Some(false)),
            ("127.71.2.2", Some(false), Some(false), Some(false)),
            ("127.71.2.3", Some(false), Some(true), Some(true)),
        ]
    );
    let ports = slice.ports.as_ref().expect("ports");
    assert_eq!(
        (ports[0].port, ports[0].name.as_deref()),
        (Some(8080), Some(""))
    );
    let labels = slice.metadata.labels.as_ref().expect("labels");
    assert_eq!(labels[SERVICE_NAME], "web");
    assert_eq!(labels["team"], "trees");
    assert_eq!(slice.metadata.generate_name.as_deref(), Some("web-"));
    assert_eq!(
        slice.metadata.owner_references.as_ref().expect("an owner")[0].uid,
        "uid-web"
    );
}

#[test]
fn pods_that_ended_or_have_no_address_or_are_elsewhere_do_not_count() {
    let mut ended = pod("ended", "127.71.2.1", true);
    ended.status.as_mut().expect("a status").phase = Some("Succeeded".into());
    let mut elsewhere = pod("elsewhere", "127.71.2.2", true);
    elsewhere.metadata.namespace = Some("ash".into());
    let mut other = pod("other", "127.71.2.3", true);
    other.metadata.labels = None;
    let mut starting = pod("starting", "", false);
    starting.status.as_mut().expect("a status").pod_ip = None;
    let slices = first_slices(plain(), vec![ended, elsewhere, other, starting]);
    assert_eq!(slices.len(), 1, "an empty slice says that nobody is there");
    assert!(slices[0].endpoints.is_empty());
}

#[test]
fn named_target_ports_are_looked_up_in_the_pod() {
    let service = service(
        json!({"selector": {"app": "oak"}, "ports": [{"name": "db", "port": 5432, "targetPort": "sql"}]}),
    );
    let mut odd = pod("odd", "127.71.2.2", true);
    odd.spec.as_mut().expect("a spec").containers[0]
        .ports
        .as_mut()
        .expect("ports")[0]
        .container_port = 6543;
    let mut slices = first_slices(service, vec![pod("even", "127.71.2.1", true), odd]);
    slices.sort_by_key(|slice| slice.ports.as_ref().and_then(|ports| ports[0].port));
    let told: Vec<_> = slices
        .iter()
        .map(|slice| {
            (
                slice.ports.as_ref().expect("ports")[0].port,
                slice.endpoints.len(),
            )
        })
        .collect();
    assert_eq!(told, [(Some(5432), 1), (Some(6543), 1)]);
}

#[test]
fn services_without_a_selector_are_left_alone() {
    assert!(
        decide(&Snapshot {
            services: vec![service(json!({"ports": [{"port": 80}]}))],
            ..Snapshot::default()
        })
        .is_empty()
    );
    let foreign = json!({"metadata": {"name": "web-rw", "namespace": "grove", "labels": {SERVICE_NAME: "web"}}, "addressType": "IPv4", "endpoints": []});
    let snapshot = Snapshot {
        services: vec![service(json!({"ports": [{"port": 80}]}))],
        slices: vec![Arc::new(serde_json::from_value(foreign).expect("a slice"))],
        ..Snapshot::default()
    };
    assert!(
        decide(&snapshot).is_empty(),
        "an agent's slice is not ours to touch"
    );
}

#[test]
fn nothing_is_written_when_nothing_changed_and_only_the_change_otherwise() {
    let pods = vec![Arc::new(pod("up", "127.71.2.1", true))];
    let mut slice = created(decide(&Snapshot {
        services: vec![plain()],
        pods: pods.clone(),
        slices: vec![],
    }))
    .remove(0);
    slice.metadata.name = Some("web-abcde".into());
    slice.metadata.uid = Some("uid-slice".into());
    let slices = vec![Arc::new(slice)];
    let settled = Snapshot {
        services: vec![plain()],
        pods,
        slices: slices.clone(),
    };
    assert!(decide(&settled).is_empty());
    let changed = Snapshot {
        services: vec![plain()],
        pods: vec![Arc::new(pod("up", "127.71.2.1", false))],
        slices: slices.clone(),
    };
    assert!(matches!(
        decide(&changed).as_slice(),
        [Action::Update { .. }]
    ));
    let gone = Snapshot {
        services: vec![],
        pods: vec![],
        slices,
    };
    assert!(matches!(decide(&gone).as_slice(), [Action::Delete { .. }]));
}

#[test]
fn a_service_may_publish_those_that_are_not_ready() {
    let service = service(
        json!({"selector": {"app": "oak"}, "publishNotReadyAddresses": true, "ports": [{"port": 80}]}),
    );
    let slices = first_slices(service, vec![pod("down", "127.71.2.2", false)]);
    let conditions = slices[0].endpoints[0]
        .conditions
        .clone()
        .expect("conditions");
    assert_eq!(
        (conditions.ready, conditions.serving),
        (Some(true), Some(false))
    );
}
