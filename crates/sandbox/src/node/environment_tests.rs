//! Tests of `environment`.
#![allow(
    clippy::needless_pass_by_value,
    reason = "literals read better by value"
)]

use super::*;
use serde_json::{Value, json};

fn pod(container: Value) -> (Pod, Container) {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "villages-1", "namespace": "north", "uid": "u-1", "labels": {"a/b": "c", "x": "y"}, "annotations": {"note": "hi"}},
        "spec": {"nodeName": "alpha", "serviceAccountName": "clerk", "containers": [container]},
    }))
    .expect("a pod");
    let container = pod.spec.as_ref().expect("a spec").containers[0].clone();
    (pod, container)
}

fn image() -> Image {
    Image {
        id: "sandbox://test".to_owned(),
        entrypoint: vec!["/entry".to_owned()],
        arguments: vec!["default".to_owned()],
        environment: vec![("PATH".to_owned(), "/image".to_owned())],
        binds: Vec::new(),
        user: 0,
    }
}

fn objects() -> Objects {
    Objects {
        secrets: [
            (
                "s".to_owned(),
                Some(
                    serde_json::from_value(json!({"data": {"key": "c2VjcmV0", "raw": "/w=="}}))
                        .expect("a Secret"),
                ),
            ),
            ("gone".to_owned(), None),
        ]
        .into(),
        config_maps: [
            (
                "c".to_owned(),
                Some(
                    serde_json::from_value(json!({"data": {"one": "1", "two": "2"}}))
                        .expect("a ConfigMap"),
                ),
            ),
            ("gone".to_owned(), None),
        ]
        .into(),
    }
}

fn place() -> Place {
    Place {
        pod_ip: Ipv4Addr::new(127, 9, 2, 7),
        host_ip: Ipv4Addr::new(127, 9, 1, 1),
    }
}

fn resolved(container: Value) -> Result<Variables, EnvironmentError> {
    let (pod, container) = pod(container);
    resolve(
        &pod,
        &container,
        &image(),
        &[("BASE".to_owned(), "node".to_owned())],
        place(),
        &objects(),
    )
}

#[test]
fn every_source_of_a_variable_is_honoured_and_later_ones_win() {
    let variables = resolved(json!({"name": "main", "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "gone", "optional": true}}],
        "env": [
            {"name": "PLAIN", "value": "v"}, {"name": "P_one", "value": "replaced"}, {"name": "EXPANDED", "value": "$(PLAIN)-$(BASE)-$(P_two)-$(NOPE)-$$(PLAIN)-$x"},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "CONFIG", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "two"}}},
            {"name": "OPTIONAL", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "three", "optional": true}}},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}))
    .expect("resolves");
    let expected = [
        ("BASE", "node"),
        ("PATH", "/image"),
        ("P_one", "replaced"),
        ("P_two", "2"),
        ("PLAIN", "v"),
        ("EXPANDED", "v-node-2-$(NOPE)-$(PLAIN)-$x"),
        ("SECRET", "secret"),
        ("CONFIG", "2"),
        ("IP", "127.9.2.7"),
        ("LABEL", "c"),
        ("NODE", "alpha"),
    ];
    assert_eq!(variables.iter().collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_missing_is_named() {
    let table = [
        (
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k"}}}]),
            "secret \"gone\" not found",
        ),
        (
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            "couldn't find key k in Secret north/s",
        ),
        (
            json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]),
            "couldn't find key k in ConfigMap north/c",
        ),
        (
            json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}]),
            "configmap \"gone\" not found",
        ),
        (
            json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "raw"}}}]),
            "not text",
        ),
        (
            json!([{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.hostname"}}}]),
            "spec.hostname",
        ),
        (
            json!([{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]),
            "resourceFieldRef",
        ),
        (json!([{"name": "A=B", "value": "x"}]), "A=B"),
    ];
    for (env, expected) in table {
        let error = resolved(json!({"name": "main", "env": env}))
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains(expected),
            "{error} should contain {expected}"
        );
    }
}

#[test]
fn references_are_what_has_to_be_read_first() {
    let (_, container) = pod(
        json!({"name": "main", "envFrom": [{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "c1"}}],
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}}, {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}}]}),
    );
    let references = references(&container);
    assert_eq!(
        references.secrets,
        BTreeSet::from(["s1".to_owned(), "s2".to_owned()])
    );
    assert_eq!(
        references.config_maps,
        BTreeSet::from(["c1".to_owned(), "c2".to_owned()])
    );
}

#[test]
fn a_command_replaces_the_images_and_arguments_follow_the_entry_point() {
    let mut variables = Variables::default();
    variables.set("WHO", "world".to_owned());
    let line = |container: Value, image: &Image| command(&pod(container).1, image, &variables);
    let words = |words: &[&str]| {
        Ok(words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>())
    };
    assert_eq!(
        line(json!({"name": "m"}), &image()),
        words(&["/entry", "default"])
    );
    assert_eq!(
        line(json!({"name": "m", "args": ["hello $(WHO)"]}), &image()),
        words(&["/entry", "hello world"])
    );
    assert_eq!(
        line(json!({"name": "m", "command": ["run"]}), &image()),
        words(&["run"])
    );
    assert_eq!(
        line(
            json!({"name": "m", "command": ["run"], "args": ["x"]}),
            &image()
        ),
        words(&["run", "x"])
    );
    let bare = Image {
        entrypoint: Vec::new(),
        arguments: Vec::new(),
        ..image()
    };
    assert_eq!(
        line(json!({"name": "m"}), &bare),
        Err(EnvironmentError::NoCommand)
    );
}

#[test]
fn whole_maps_of_the_downward_api_are_lines() {
    let (pod, _) = pod(json!({"name": "main"}));
    assert_eq!(
        field(&pod, None, "metadata.labels").as_deref(),
        Some("a/b=\"c\"\nx=\"y\"")
    );
    assert_eq!(
        field(&pod, None, "metadata.annotations['note']").as_deref(),
        Some("hi")
    );
    assert_eq!(
        field(&pod, None, "metadata.labels['absent']").as_deref(),
        Some("")
    );
    assert_eq!(field(&pod, None, "status.podIP"), None);
}

#[test]
fn unclosed_references_stay_as_they_are() {
    let variables = Variables::default();
    for text in ["$(", "$", "a$", "$(x", "$()"] {
        assert_eq!(expand(text, &variables), text);
    }
}
