//! The four patches.

use serde_json::json;

use crate::{CONFIG_MAPS, PODS, Server, config_map, pod};

const JSON_PATCH: &str = "application/json-patch+json";

#[test]
fn json_patches() {
    let mut server = Server::new();
    server.post(CONFIG_MAPS, config_map("w1")).created();
    let path = format!("{CONFIG_MAPS}/w1");
    let rejected = "the server rejected our request due to an error in our request";
    let refusals = [
        json!([{"op": "test", "path": "/data/a", "value": "zzz"}]),
        json!([{"op": "replace", "path": "/data/missing/deep", "value": "x"}]),
        json!([{"op": "zork", "path": "/data/a"}]),
    ];
    for patch in refusals {
        let reply = server
            .patch(&path, JSON_PATCH, patch)
            .refused(422, rejected);
        assert_eq!(
            (reply.reason(), &reply.body["details"]),
            ("Invalid", &json!({}))
        );
    }
    server.patch(&path, JSON_PATCH, json!({"op": "add"})).refused(400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp");
    let patched = server.patch(&path, JSON_PATCH, json!([{"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/b", "value": "2"}])).ok();
    assert_eq!(patched.body["data"], json!({"a": "1", "b": "2"}));
    server
        .patch(
            &path,
            JSON_PATCH,
            json!([{"op": "replace", "path": "/metadata/name", "value": "zz"}]),
        )
        .refused(
            400,
            "the name of the object (zz) does not match the name on the URL (w1)",
        );
    // A few hundred bytes that would become gigabytes.
    let mut bomb = vec![json!({"op": "add", "path": "/x", "value": ["0123456789"]})];
    bomb.extend((0..40).map(|_| json!({"op": "copy", "from": "/x", "path": "/x/-"})));
    assert_eq!(server.patch(&path, JSON_PATCH, json!(bomb)).status, 413);
    let deep = format!("/{}", vec!["a"; 200].join("/"));
    assert_eq!(
        server
            .patch(
                &path,
                JSON_PATCH,
                json!([{"op": "add", "path": deep, "value": 1}])
            )
            .status,
        400
    );
    server
        .patch(&path, "text/plain", json!({}))
        .refused(415, "415: Unsupported Media Type");
}

#[test]
fn merge_patches() {
    let mut server = Server::new();
    let first = server.post(CONFIG_MAPS, config_map("w1")).created();
    let path = format!("{CONFIG_MAPS}/w1");
    let patched = server
        .merge(
            &path,
            json!({"data": {"a": null, "b": "2"}, "metadata": {"labels": {"x": "y"}}}),
        )
        .ok();
    assert_eq!(
        (&patched.body["data"], &patched.body["metadata"]["labels"]),
        (&json!({"b": "2"}), &json!({"x": "y"}))
    );
    let stale = server.merge(
        &path,
        json!({"metadata": {"resourceVersion": first.version()}}),
    );
    assert_eq!((stale.status, stale.reason()), (409, "Conflict"));
    let noop = server.merge(&path, json!({"data": {"b": "2"}})).ok();
    assert_eq!(noop.version(), patched.version());
    server
        .merge(&format!("{CONFIG_MAPS}/nonesuch"), json!({}))
        .refused(404, "configmaps \"nonesuch\" not found");
    server.merge(&path, json!([1])).refused(400, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}");
    let warned = server.merge(&path, json!({"zork": 1})).ok();
    assert_eq!(warned.warnings, ["unknown field \"zork\""]);
    let strict = server.merge(
        &format!("{path}?fieldValidation=Strict"),
        json!({"zork": 1}),
    );
    assert_eq!(strict.status, 422);
    assert!(
        strict
            .message()
            .ends_with("strict decoding error: unknown field \"zork\""),
        "{}",
        strict.message()
    );
    server.merge(&format!("{path}?force=true"), json!({})).refused(422, "PatchOptions.meta.k8s.io \"\" is invalid: force: Forbidden: may not be specified for non-apply patch");
    assert_eq!(server.merge(&path, json!({"kind": "Secret"})).status, 400);
}

#[test]
fn strategic_merges_know_the_keys_of_lists() {
    let mut server = Server::new();
    let strategic = "application/strategic-merge-patch+json";
    server.post(PODS, pod("p")).created();
    let path = format!("{PODS}/p");
    let patched = server
        .patch(
            &path,
            strategic,
            json!({"spec": {"containers": [{"name": "c", "image": "new:1"}]}}),
        )
        .ok();
    assert_eq!(patched.body["spec"]["containers"][0]["image"], "new:1");
    assert_eq!(
        patched.body["spec"]["containers"][0]["terminationMessagePolicy"], "File",
        "the rest of the container stays"
    );
    assert_eq!(patched.body["metadata"]["generation"], 2);
}

#[test]
fn applies_share_and_defend_fields() {
    let mut server = Server::new();
    let path = format!("{CONFIG_MAPS}/s1");
    let body = |data: serde_json::Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s1"}, "data": data});
    server.patch(&path, "application/apply-patch+yaml", body(json!({}))).refused(422, "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch");
    server
        .apply(&path, "A", body(json!({"a": "1", "b": "2"})))
        .created();
    let conflict = server
        .apply(&path, "B", body(json!({"a": "x", "b": "y"})))
        .refused(
            409,
            "Apply failed with 2 conflicts: conflicts with \"A\":\n- .data.a\n- .data.b",
        );
    assert_eq!(
        conflict.body["details"]["causes"][0],
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"A\"", "field": ".data.a"})
    );
    let shared = server.apply(&path, "B", body(json!({"a": "1"}))).ok();
    server.advance(60);
    let noop = server.apply(&path, "B", body(json!({"a": "1"}))).ok();
    assert_eq!(
        (shared.version(), &shared.body),
        (noop.version(), &noop.body),
        "a no-op apply touches nothing, not even times"
    );
    let dropped = server.apply(&path, "A", body(json!({}))).ok();
    assert_eq!(
        dropped.body["data"],
        json!({"a": "1"}),
        "what another owns stays"
    );
    let forced = server
        .apply(&format!("{path}?force=true"), "C", body(json!({"a": "9"})))
        .ok();
    assert_eq!(forced.body["data"]["a"], "9");
    let mut with_owners = body(json!({}));
    with_owners["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    server
        .apply(&path, "A", with_owners)
        .refused(400, "metadata.managedFields must be nil");
    let mut with_uid = body(json!({}));
    with_uid["metadata"] = json!({"name": "s2", "uid": "11111111-1111-1111-1111-111111111111"});
    server.apply(&format!("{CONFIG_MAPS}/s2"), "A", with_uid).refused(409, "Operation cannot be fulfilled on configmaps \"s2\": uid mismatch: the provided object specified uid 11111111-1111-1111-1111-111111111111, and no existing object was found");
    let mut stale = body(json!({}));
    stale["metadata"]["resourceVersion"] = "1".into();
    assert_eq!(server.apply(&path, "A", stale).status, 409);
    let mut unknown = body(json!({}));
    unknown["zork"] = 1.into();
    server.apply(&path, "A", unknown).refused(500, "failed to create typed patch object (/s1; /v1, Kind=ConfigMap): .zork: field not declared in schema");
    server
        .apply(&path, "A", json!({"metadata": {"name": "s1"}}))
        .refused(400, "invalid object type: /, Kind=");
}

#[test]
fn an_apply_of_a_pod_twice_is_a_no_op() {
    let mut server = Server::new();
    let mut wanted = pod("p");
    wanted["spec"]["containers"][0]["ports"] = json!([{"containerPort": 5432, "name": "postgres"}]);
    let path = format!("{PODS}/p");
    let first = server.apply(&path, "geodb", wanted.clone()).created();
    server.advance(10);
    let second = server.apply(&path, "geodb", wanted).ok();
    assert_eq!(first.body, second.body);
    let status = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"phase": "Running", "podIP": "127.1.2.3"}});
    let running = server
        .apply(&format!("{path}/status"), "kubelet", status.clone())
        .ok();
    assert_eq!(
        (
            &running.body["status"]["phase"],
            &running.body["status"]["qosClass"]
        ),
        (&json!("Running"), &json!("BestEffort"))
    );
    let again = server
        .apply(&format!("{path}/status"), "kubelet", status)
        .ok();
    assert_eq!(running.version(), again.version());
    assert_eq!(again.body["metadata"]["generation"], 1);
}
