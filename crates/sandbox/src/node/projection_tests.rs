//! Tests of `projection`.
#![allow(
    clippy::needless_pass_by_value,
    reason = "literals read better by value"
)]

use super::*;
use serde_json::{Value, json};

fn pod(volumes: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "north", "labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}], "volumes": volumes}})).expect("a pod")
}

fn objects() -> Objects {
    Objects {
        secrets: [(
            "s".to_owned(),
            Some(
                serde_json::from_value(json!({"data": {"user": "bWU=", "word": "eHl6"}}))
                    .expect("a Secret"),
            ),
        )]
        .into(),
        config_maps: [(
            "c".to_owned(),
            Some(
                serde_json::from_value(
                    json!({"data": {"text": "t"}, "binaryData": {"raw": "/w=="}}),
                )
                .expect("a ConfigMap"),
            ),
        )]
        .into(),
    }
}

fn projected(volume: Value) -> Result<Vec<(String, u32, String)>, ProjectionError> {
    let pod = pod(json!([volume]));
    let plan = plan(&pod)?.remove(0);
    let VolumeSource::Files {
        parts,
        default_mode,
    } = plan.source
    else {
        panic!("files")
    };
    let files = files(&plan.name, &parts, default_mode, &pod, &objects(), &|_| {
        Some("token".to_owned())
    })?;
    Ok(files
        .into_iter()
        .map(|file| {
            (
                file.path.to_string_lossy().into_owned(),
                file.mode,
                String::from_utf8_lossy(&file.content).into_owned(),
            )
        })
        .collect())
}

fn file(path: &str, mode: u32, content: &str) -> (String, u32, String) {
    (path.to_owned(), mode, content.to_owned())
}

#[test]
fn a_secret_gives_all_keys_or_the_asked_ones() {
    assert_eq!(
        projected(json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 0o400}})),
        Ok(vec![file("user", 0o400, "me"), file("word", 0o400, "xyz")])
    );
    let items = json!({"name": "v", "secret": {"secretName": "s", "items": [{"key": "word", "path": "deep/w", "mode": 0o600}]}});
    assert_eq!(projected(items), Ok(vec![file("deep/w", 0o600, "xyz")]));
}

#[test]
fn a_projected_volume_mixes_its_sources_and_the_later_wins() {
    let volume = json!({"name": "v", "projected": {"sources": [{"configMap": {"name": "c"}}, {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        {"secret": {"name": "s", "items": [{"key": "user", "path": "text"}]}}]}});
    assert_eq!(
        projected(volume),
        Ok(vec![
            file("raw", 0o644, "\u{fffd}"),
            file("token", 0o644, "token"),
            file("labels", 0o644, "a=\"b\""),
            file("text", 0o644, "me")
        ])
    );
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let table = [
        (json!({"name": "v", "hostPath": {"path": "/"}}), "hostPath"),
        (
            json!({"name": "v", "nfs": {"server": "x", "path": "/"}}),
            "unknown",
        ),
        (
            json!({"name": "v", "secret": {"secretName": "gone"}}),
            "secret \"gone\" not found",
        ),
        (
            json!({"name": "v", "configMap": {"name": "c", "items": [{"key": "nope", "path": "x"}]}}),
            "non-existent configmap key: nope",
        ),
        (
            json!({"name": "v", "secret": {"secretName": "s", "items": [{"key": "user", "path": "../escape"}]}}),
            "not a relative path",
        ),
        (
            json!({"name": "v", "secret": {"secretName": "s", "items": [{"key": "user", "path": "/etc/x"}]}}),
            "not a relative path",
        ),
        (
            json!({"name": "v", "secret": {"secretName": "s", "items": [{"key": "user", "path": "..data"}]}}),
            "not a relative path",
        ),
        (
            json!({"name": "v", "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "status.podIP"}}]}}),
            "status.podIP",
        ),
    ];
    for (volume, expected) in table {
        let error = projected(volume).expect_err("refused").to_string();
        assert!(
            error.contains(expected),
            "{error} should contain {expected}"
        );
    }
    assert_eq!(
        projected(json!({"name": "v", "secret": {"secretName": "gone", "optional": true}})),
        Ok(Vec::new())
    );
}

#[test]
fn a_service_account_is_added_once_and_only_where_it_is_wanted() {
    let mut bare = pod(json!([]));
    assert!(add_service_account(&mut bare));
    assert!(!add_service_account(&mut bare), "it is there already");
    let names: Vec<_> = references(&plan(&bare).expect("a plan"))
        .config_maps
        .into_iter()
        .collect();
    assert_eq!(names, [ROOT_CA_CONFIG_MAP]);
    let mut without = pod(json!([]));
    without
        .spec
        .as_mut()
        .expect("a spec")
        .automount_service_account_token = Some(false);
    assert!(!add_service_account(&mut without));
}
