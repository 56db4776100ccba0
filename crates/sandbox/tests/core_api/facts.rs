//! Answers recorded from a real server (`probe_basic`, `probe_expiry`), one by one.

use http::Method;
use serde_json::{Value, json};

use crate::{CONFIG_MAPS, Server, config_map, request, with_body};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

fn with_metadata(metadata: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

#[test]
fn creating() {
    let mut server = Server::new();
    let created = server.post(CONFIG_MAPS, config_map("w1")).created();
    assert_eq!(created.body["metadata"]["namespace"], "default");
    assert_eq!(
        created.body["metadata"]["creationTimestamp"],
        "2026-11-15T20:06:00Z"
    );
    assert_eq!(created.body["metadata"]["uid"].as_str().unwrap().len(), 36);
    let owners = &created.body["metadata"]["managedFields"];
    assert_eq!(
        owners,
        &json!([{"manager": "probe", "operation": "Update", "apiVersion": "v1", "time": "2026-11-15T20:06:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:a": {}}}}])
    );
    let again = server
        .post(CONFIG_MAPS, config_map("w1"))
        .refused(409, "configmaps \"w1\" already exists");
    assert_eq!(
        (again.reason(), &again.body["details"]),
        (
            "AlreadyExists",
            &json!({"name": "w1", "kind": "configmaps"})
        )
    );
    let generated = server
        .post(CONFIG_MAPS, with_metadata(json!({"generateName": "gen-"})))
        .created();
    let name = generated.body["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("gen-") && name.len() == 9, "{name}");
    let nameless = server.post(CONFIG_MAPS, with_metadata(json!({}))).refused(422, "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required");
    assert_eq!(
        nameless.body["details"],
        json!({"kind": "ConfigMap", "causes": [{"reason": "FieldValueRequired", "message": "Required value: name or generateName is required", "field": "metadata.name"}]})
    );
    server.post(CONFIG_MAPS, config_map("Bad_Name")).refused(422, &format!("ConfigMap \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": {SUBDOMAIN}"));
    let versioned = server
        .post(
            CONFIG_MAPS,
            with_metadata(json!({"name": "v", "resourceVersion": "5"})),
        )
        .refused(
            500,
            "resourceVersion should not be set on objects to be created",
        );
    assert_eq!(
        (versioned.body.get("reason"), versioned.body.get("details")),
        (None, None)
    );
    let lost = server
        .post("/api/v1/namespaces/nope/configmaps", config_map("a"))
        .refused(404, "namespaces \"nope\" not found");
    assert_eq!(
        lost.body["details"],
        json!({"name": "nope", "kind": "namespaces"})
    );
    server
        .post(
            CONFIG_MAPS,
            with_metadata(json!({"name": "x", "namespace": "other"})),
        )
        .refused(
            400,
            "the namespace of the provided object does not match the namespace sent on the request",
        );
}

#[test]
fn paths_that_lead_nowhere() {
    let mut server = Server::new();
    let missing = server
        .get(&format!("{CONFIG_MAPS}/nope"))
        .refused(404, "configmaps \"nope\" not found");
    assert_eq!(
        missing.body["details"],
        json!({"name": "nope", "kind": "configmaps"})
    );
    let unknown = server
        .get("/api/v1/namespaces/default/zorks")
        .refused(404, "the server could not find the requested resource");
    assert_eq!(unknown.body["details"], json!({}));
    let group = server.get("/apis/zork.io/v1/zorks");
    assert_eq!(
        (group.status, group.body),
        (404, json!("404 page not found\n"))
    );
    let not_found = [
        "/api/v1/namespaces/default/nodes",
        "/api/v1/configmaps/a",
        "/api/v1/namespaces/default/configmaps/a/status",
    ];
    for path in not_found {
        server
            .get(path)
            .refused(404, "the server could not find the requested resource");
    }
    let not_allowed = [
        (Method::POST, "/api/v1/configmaps"),
        (Method::POST, "/api/v1/namespaces/default/configmaps/a"),
        (Method::DELETE, "/api/v1/namespaces"),
        (Method::PUT, CONFIG_MAPS),
    ];
    for (method, path) in not_allowed {
        let reply = server.send(&with_body(
            request(method, path),
            "application/json",
            &config_map("a"),
        ));
        assert_eq!(
            (reply.status, reply.reason(), &reply.body["details"]),
            (405, "MethodNotAllowed", &json!({})),
            "{path}"
        );
    }
    let deployment = server.put("/apis/apps/v1/namespaces/default/deployments/zz", json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
    let deployment = deployment.refused(404, "deployments.apps \"zz\" not found");
    assert_eq!(
        deployment.body["details"],
        json!({"name": "zz", "group": "apps", "kind": "deployments"})
    );
}

#[test]
fn replacing() {
    let mut server = Server::new();
    let first = server.post(CONFIG_MAPS, config_map("w1")).created();
    let path = format!("{CONFIG_MAPS}/w1");
    let mut changed = config_map("w1");
    changed["data"]["a"] = "2".into();
    let second = server.put(&path, changed.clone()).ok();
    assert_ne!(first.version(), second.version());
    let third = server.put(&path, changed.clone()).ok();
    assert_eq!(
        second.version(),
        third.version(),
        "a no-op keeps the version"
    );
    assert_eq!(second.body, third.body);
    changed["metadata"]["resourceVersion"] = first.version().into();
    let stale = "Operation cannot be fulfilled on configmaps \"w1\": the object has been modified; please apply your changes to the latest version and try again";
    server.put(&path, changed).refused(409, stale);
    server.put(&path, config_map("other")).refused(
        400,
        "the name of the object (other) does not match the name on the URL (w1)",
    );
    let uid = first.body["metadata"]["uid"].as_str().unwrap();
    let foreign =
        with_metadata(json!({"name": "w1", "uid": "11111111-1111-1111-1111-111111111111"}));
    server.put(&path, foreign).refused(409, &format!("Operation cannot be fulfilled on configmaps \"w1\": StorageError: invalid object, Code: 4, Key: /registry/configmaps/default/w1, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 11111111-1111-1111-1111-111111111111, UID in object meta: {uid}"));
    server
        .put(&format!("{CONFIG_MAPS}/newone"), config_map("newone"))
        .refused(404, "configmaps \"newone\" not found");
    let lease = "/apis/coordination.k8s.io/v1/namespaces/default/leases/x";
    let made = server
        .put(lease, json!({"metadata": {"name": "x"}}))
        .created();
    assert_eq!(made.body["spec"], json!({}));
    server.put(lease, json!({"metadata": {"name": "x"}})).refused(422, "leases.coordination.k8s.io \"x\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update");
}

#[test]
fn decoding() {
    let mut server = Server::new();
    let mut unknown = config_map("a");
    unknown["datta"] = json!({});
    let strict = format!("{CONFIG_MAPS}?fieldValidation=Strict");
    server.post(&strict, unknown.clone()).refused(400, "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"datta\"");
    let warned = server.post(CONFIG_MAPS, unknown).created();
    assert_eq!(warned.warnings, ["unknown field \"datta\""]);
    assert_eq!(warned.body.get("datta"), None);
    let twice = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"dup"},"data":{"a":"1","a":"2"},"zz":1}"#;
    let mut raw = request(Method::POST, CONFIG_MAPS);
    raw.body = twice.into();
    let warned = server.send(&raw);
    assert_eq!(
        warned.warnings,
        ["duplicate field \"data.a\"", "unknown field \"zz\""]
    );
    let cases: [(&str, &str, u16, &str); 6] = [
        (
            "application/json",
            "{\"a\"",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input ({\"a\")",
        ),
        (
            "application/json",
            "",
            400,
            "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            "application/vnd.kubernetes.protobuf",
            "k8s",
            415,
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
        ),
        (
            "application/json",
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#,
            400,
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion",
        ),
        (
            "application/yaml",
            "metadata: {name: from-yaml}\ndata: {a: b}\n",
            201,
            "",
        ),
        ("", r#"{"metadata":{"name":"no-kind"}}"#, 201, ""),
    ];
    for (content_type, body, status, message) in cases {
        let mut raw = request(Method::POST, CONFIG_MAPS);
        raw.content_type = content_type.to_owned();
        raw.body = body.to_owned().into();
        let reply = server.send(&raw);
        assert_eq!((reply.status, reply.message()), (status, message), "{body}");
    }
}

#[test]
fn bodies_that_do_not_fit() {
    let mut server = Server::new();
    let mistyped = server.post(
        CONFIG_MAPS,
        json!({"metadata": {"name": "t"}, "data": {"a": 5}}),
    );
    assert_eq!((mistyped.status, mistyped.reason()), (400, "BadRequest"));
    assert!(
        mistyped
            .message()
            .starts_with("ConfigMap in version \"v1\" cannot be handled as a ConfigMap: json: "),
        "{}",
        mistyped.message()
    );
    let large = Value::String("x".repeat(3 * 1024 * 1024));
    let large = server
        .post(CONFIG_MAPS, large)
        .refused(413, "Request entity too large: limit is 3145728");
    assert_eq!(large.reason(), "RequestEntityTooLarge");
    let mut unacceptable = request(Method::GET, CONFIG_MAPS);
    unacceptable.accept = "text/plain".to_owned();
    assert_eq!(server.send(&unacceptable).status, 406);
}

#[test]
fn options_of_writes() {
    let mut server = Server::new();
    let dry = server
        .post(&format!("{CONFIG_MAPS}?dryRun=All"), config_map("dry"))
        .created();
    assert_eq!(dry.version(), "");
    server
        .get(&format!("{CONFIG_MAPS}/dry"))
        .refused(404, "configmaps \"dry\" not found");
    let cases = [
        ("dryRun=Nope", "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"Nope\"]: supported values: \"All\"".to_owned()),
        ("fieldValidation=Nope", "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"Nope\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"".to_owned()),
        (&format!("fieldManager={}", "x".repeat(129)), "CreateOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes".to_owned()),
    ];
    for (query, message) in cases {
        server
            .post(&format!("{CONFIG_MAPS}?{query}"), config_map("o"))
            .refused(422, &message);
    }
}

#[test]
fn metadata_is_checked() {
    let mut server = Server::new();
    let cases = [
        (json!({"name": "a", "labels": {"x": "a b"}}), "metadata.labels: Invalid value: \"a b\": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')".to_owned()),
        (json!({"name": "a", "labels": {"x": "a".repeat(64)}}), format!("metadata.labels: Invalid value: \"{}\": must be no more than 63 bytes", "a".repeat(64))),
        (json!({"name": "a", "labels": {"X_/y": "a"}}), format!("metadata.labels: Invalid value: \"X_/y\": prefix part {SUBDOMAIN}")),
        (json!({"name": "a", "annotations": {"x": "a".repeat(262145)}}), "metadata.annotations: Too long: may not be more than 262144 bytes".to_owned()),
        (json!({"name": "a", "finalizers": ["noslash"]}), "metadata.finalizers[0]: Invalid value: \"noslash\": name is neither a standard finalizer name nor is it fully qualified".to_owned()),
        (
            json!({"name": "a", "ownerReferences": [{"apiVersion": "", "kind": "", "name": "", "uid": ""}]}),
            "[metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty, metadata.ownerReferences.kind: Invalid value: \"\": must not be empty, metadata.ownerReferences.name: Invalid value: \"\": must not be empty, metadata.ownerReferences.uid: Invalid value: \"\": must not be empty]".to_owned(),
        ),
    ];
    for (metadata, message) in cases {
        server
            .post(CONFIG_MAPS, with_metadata(metadata))
            .refused(422, &format!("ConfigMap \"a\" is invalid: {message}"));
    }
    let given = with_metadata(
        json!({"name": "given", "uid": "abc", "generation": 5, "creationTimestamp": "2020-01-01T00:00:00Z", "deletionTimestamp": "2020-01-01T00:00:00Z", "selfLink": "x"}),
    );
    let stored = server.post(CONFIG_MAPS, given).created();
    let metadata = stored.body["metadata"].as_object().unwrap();
    assert_eq!(metadata["creationTimestamp"], "2026-11-15T20:06:00Z");
    assert_ne!(metadata["uid"], "abc");
    for key in ["generation", "deletionTimestamp", "selfLink"] {
        assert_eq!(metadata.get(key), None, "{key} is the server's");
    }
}

/// Five ConfigMaps, even and odd.
fn server_with_five() -> Server {
    let mut server = Server::new();
    for number in 0..5 {
        let mut map = config_map(&format!("m{number}"));
        map["metadata"]["labels"] = json!({"parity": if number % 2 == 0 { "even" } else { "odd" }});
        server.post(CONFIG_MAPS, map).created();
    }
    server
}

fn names(body: &Value) -> Vec<&str> {
    let items = body["items"].as_array().unwrap().iter();
    items
        .map(|item| item["metadata"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn pages_are_of_one_moment() {
    let mut server = server_with_five();
    let current = server.state.revision();
    let page = server.get(&format!("{CONFIG_MAPS}?limit=2")).ok();
    assert_eq!(
        (page.body["kind"].as_str(), names(&page.body)),
        (Some("ConfigMapList"), vec!["m0", "m1"])
    );
    assert_eq!(page.body["metadata"]["remainingItemCount"], 3);
    let token = page.body["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    // What happens in between is not part of the list.
    server
        .delete(&format!("{CONFIG_MAPS}/m3"), Value::Null)
        .ok();
    server.post(CONFIG_MAPS, config_map("m2a")).created();
    let rest = server
        .get(&format!("{CONFIG_MAPS}?limit=10&continue={token}"))
        .ok();
    assert_eq!(names(&rest.body), ["m2", "m3", "m4"]);
    assert_eq!(
        (rest.version(), rest.body["metadata"].get("continue")),
        (current.to_string().as_str(), None)
    );
    let exact = server
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={current}&resourceVersionMatch=Exact"
        ))
        .ok();
    assert_eq!(names(&exact.body), ["m0", "m1", "m2", "m3", "m4"]);
    server.state.compact(server.state.revision());
    let expired = server.get(&format!("{CONFIG_MAPS}?continue={token}"));
    assert_eq!((expired.status, expired.reason()), (410, "Expired"));
    let fresh = expired.body["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    let rest = server.get(&format!("{CONFIG_MAPS}?continue={fresh}")).ok();
    assert_eq!(
        names(&rest.body),
        ["m2", "m2a", "m4"],
        "inconsistent, but it goes on"
    );
    server
        .get(&format!(
            "{CONFIG_MAPS}?resourceVersion={current}&resourceVersionMatch=Exact"
        ))
        .refused(410, "The resourceVersion for the provided list is too old.");
}

#[test]
fn lists_are_selected() {
    let mut server = server_with_five();
    let odd = server
        .get(&format!("{CONFIG_MAPS}?labelSelector=parity=odd&limit=1"))
        .ok();
    assert_eq!(
        (
            names(&odd.body),
            odd.body["metadata"].get("remainingItemCount")
        ),
        (vec!["m1"], None)
    );
    let named = server
        .get(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name=m4"))
        .ok();
    assert_eq!(names(&named.body), ["m4"]);
}

#[test]
fn list_options_are_checked() {
    let mut server = Server::new();
    let current = server.state.revision();
    let list = |detail: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {detail}");
    let cases = [
        ("resourceVersion=99999999", 504, format!("Timeout: Too large resource version: 99999999, current: {current}")),
        ("resourceVersionMatch=Exact", 422, list("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided")),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422, list("resourceVersionMatch: Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")),
        ("resourceVersion=5&resourceVersionMatch=Foo", 422, list("resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"")),
        ("sendInitialEvents=true", 422, list("sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list")),
        ("resourceVersion=abc", 400, "invalid resource version: resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".to_owned()),
        ("limit=x", 400, "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
        ("fieldSelector=data.a=x", 400, "\"data.a\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"".to_owned()),
        ("fieldSelector=a", 400, "invalid selector: 'a'; can't understand 'a'".to_owned()),
        ("labelSelector=a b", 400, "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt".to_owned()),
    ];
    for (query, status, message) in cases {
        server
            .get(&format!("{CONFIG_MAPS}?{query}"))
            .refused(status, &message);
    }
    let late = server.get(&format!("{CONFIG_MAPS}?resourceVersion=99999999"));
    assert_eq!(
        late.body["details"],
        json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}], "retryAfterSeconds": 1})
    );
    server
        .get(&format!("{CONFIG_MAPS}/a?resourceVersion=99999999"))
        .refused(
            504,
            &format!("Timeout: Too large resource version: 99999999, current: {current}"),
        );
    let kinds = [
        ("pods", "field label not supported: foo"),
        ("secrets", "field label not supported: foo"),
    ];
    for (plural, message) in kinds {
        server
            .get(&format!("/api/v1/{plural}?fieldSelector=foo=x"))
            .refused(400, message);
    }
    server
        .get("/apis/batch/v1/jobs?fieldSelector=zz=x")
        .refused(400, "field label \"zz\" not supported for Job");
    assert_eq!(
        server.get(&format!("{CONFIG_MAPS}?continue=abc")).status,
        400
    );
}
