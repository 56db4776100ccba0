//! What kube-apiserver 1.36 answered when it was asked (`shared/facts`), told again.

use geodb_merge::apply::{Applied, ApplyError, ApplyRequest, UpdateRequest, apply, update};
use geodb_merge::builtin;
use serde_json::{Value, json};

fn apply_config_map(
    live: Option<&Value>,
    manager: &str,
    data: &Value,
    force: bool,
    now: &str,
) -> Result<Applied, ApplyError> {
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s1", "namespace": "default"}, "data": data});
    apply(ApplyRequest {
        live,
        applied: &applied,
        manager,
        subresource: "",
        api_version: "v1",
        force,
        now,
        schema: builtin::schema("v1", "ConfigMap").expect("a built-in kind"),
    })
}

const NOON: &str = "2026-11-15T12:00:00Z";
const LATER: &str = "2026-11-15T12:00:05Z";

#[test]
fn the_story_of_two_appliers() {
    let created =
        apply_config_map(None, "A", &json!({"a": "1", "b": "2"}), false, NOON).expect("created");
    assert!(created.changed);
    assert_eq!(
        created.object["metadata"]["managedFields"],
        json!([{"manager": "A", "operation": "Apply", "apiVersion": "v1", "time": NOON, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}}]),
    );

    let error = apply_config_map(
        Some(&created.object),
        "B",
        &json!({"a": "x", "b": "y"}),
        false,
        LATER,
    )
    .expect_err("a conflict");
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"A\":\n- .data.a\n- .data.b"
    );
    assert_eq!(error.status_code(), 409);
    let ApplyError::Conflicts(conflicts) = error else {
        panic!("{error}")
    };
    assert_eq!(
        conflicts.causes(),
        [
            json!({"reason": "FieldManagerConflict", "message": "conflict with \"A\"", "field": ".data.a"}),
            json!({"reason": "FieldManagerConflict", "message": "conflict with \"A\"", "field": ".data.b"}),
        ],
    );

    let shared = apply_config_map(Some(&created.object), "B", &json!({"a": "1"}), false, LATER)
        .expect("shared");
    assert!(shared.changed);
    assert_eq!(
        shared.object["metadata"]["managedFields"],
        json!([
            {"manager": "B", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}},
            {"manager": "A", "operation": "Apply", "apiVersion": "v1", "time": NOON, "fieldsType": "FieldsV1",
             "fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}},
        ]),
    );

    let again = apply_config_map(Some(&shared.object), "B", &json!({"a": "1"}), false, LATER)
        .expect("no-op");
    assert!(!again.changed);
    assert_eq!(again.object, shared.object);

    let dropped = apply_config_map(Some(&shared.object), "A", &json!({"b": "2"}), false, LATER)
        .expect("dropped by A");
    assert_eq!(
        dropped.object["data"],
        json!({"a": "1", "b": "2"}),
        "B still owns a"
    );
    let gone = apply_config_map(Some(&dropped.object), "B", &json!({}), false, LATER)
        .expect("dropped by B");
    assert_eq!(gone.object["data"], json!({"b": "2"}));
}

#[test]
fn force_takes_fields_away() {
    let created =
        apply_config_map(None, "A", &json!({"a": "1", "b": "2"}), false, NOON).expect("created");
    let forced = apply_config_map(Some(&created.object), "B", &json!({"a": "x"}), true, LATER)
        .expect("forced");
    assert_eq!(forced.object["data"], json!({"a": "x", "b": "2"}));
    assert_eq!(
        forced.object["metadata"]["managedFields"],
        json!([
            {"manager": "A", "operation": "Apply", "apiVersion": "v1", "time": NOON, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:b": {}}}},
            {"manager": "B", "operation": "Apply", "apiVersion": "v1", "time": LATER, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}},
        ]),
    );
}

#[test]
fn an_apply_may_not_bring_managed_fields() {
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s1", "managedFields": []}});
    let schema = builtin::schema("v1", "ConfigMap").expect("a built-in kind");
    let error = apply(ApplyRequest {
        live: None,
        applied: &applied,
        manager: "A",
        subresource: "",
        api_version: "v1",
        force: false,
        now: NOON,
        schema,
    })
    .expect_err("refused");
    assert_eq!(
        (error.status_code(), error.to_string().as_str()),
        (400, "metadata.managedFields must be nil")
    );
}

#[test]
fn a_created_object_is_owned_by_its_creator_without_the_fields_nobody_owns() {
    let schema = builtin::schema("v1", "ConfigMap").expect("a built-in kind");
    let new = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "w1", "namespace": "default", "uid": "u", "labels": {"l": "1"}}, "data": {"a": "1"}});
    let request = UpdateRequest {
        live: None,
        new: &new,
        manager: "Python-urllib",
        subresource: "",
        api_version: "v1",
        now: NOON,
        schema,
    };
    let created = update(request);
    assert_eq!(
        created.object["metadata"]["managedFields"],
        json!([{"manager": "Python-urllib", "operation": "Update", "apiVersion": "v1", "time": NOON, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}}}}]),
    );
    let noop = update(UpdateRequest {
        live: Some(&created.object),
        new: &new,
        now: LATER,
        ..request
    });
    assert!(!noop.changed);
    assert_eq!(noop.object, created.object);
}

/// A sandbox whose Databases had no status endpoint: `subresources.status: {}` was taken for an empty map and left out.
#[test]
fn a_struct_without_fields_says_that_it_is_there() {
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.ex.com", "labels": {}},
        "spec": {"group": "ex.com", "scope": "Namespaced", "names": {"kind": "Foo", "plural": "foos"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}},
        ]},
    });
    let schema = builtin::schema("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        .expect("a built-in kind");
    let mut normalised = definition.clone();
    schema.normalise(&mut normalised);
    assert_eq!(
        normalised["spec"]["versions"][0]["subresources"],
        json!({"status": {}})
    );
    assert_eq!(normalised["metadata"].get("labels"), None);
    let applied = apply(ApplyRequest {
        live: None,
        applied: &definition,
        manager: "A",
        subresource: "",
        api_version: "apiextensions.k8s.io/v1",
        force: false,
        now: NOON,
        schema,
    })
    .expect("created");
    assert_eq!(
        applied.object["spec"]["versions"][0]["subresources"],
        json!({"status": {}})
    );
}
