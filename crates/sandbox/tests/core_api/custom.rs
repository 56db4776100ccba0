//! Custom resources: definitions, schemas, subresources.

use serde_json::{Value, json};

use crate::{DEFINITIONS, Server};

const FOOS: &str = "/apis/ex.com/v1/namespaces/default/foos";

/// The definition of the recorded facts, without its CEL rules.
pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "foos.ex.com"},
        "spec": {
            "group": "ex.com", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo", "shortNames": ["fo"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "selectableFields": [{"jsonPath": ".spec.name"}],
                "additionalPrinterColumns": [{"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"}],
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 5},
            "replicas": {"type": "integer", "minimum": 0, "default": 1},
            "storage": {"x-kubernetes-int-or-string": true},
            "mode": {"type": "string", "enum": ["fast", "safe"]},
            "pattern": {"type": "string", "pattern": "^[a-z]+$"},
            "l": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"], "items": {"type": "object", "required": ["n"], "properties": {"n": {"type": "string"}, "v": {"type": "integer"}}}},
        }},
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }})
}

fn foo(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ex.com/v1", "kind": "Foo", "metadata": {"name": name}, "spec": spec})
}

fn server() -> Server {
    let mut server = Server::new();
    server.post(DEFINITIONS, definition()).created();
    server
}

#[test]
fn a_definition_serves_its_kind() {
    let mut server = Server::new();
    let made = server.post(DEFINITIONS, definition()).created();
    let conditions = made.body["status"]["conditions"].as_array().unwrap();
    let shown: Vec<(&str, &str)> = conditions
        .iter()
        .map(|condition| {
            (
                condition["type"].as_str().unwrap(),
                condition["status"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(shown, [("NamesAccepted", "True"), ("Established", "True")]);
    assert_eq!(made.body["status"]["storedVersions"], json!(["v1"]));
    assert_eq!(
        made.body["spec"]["names"],
        json!({"plural": "foos", "kind": "Foo", "shortNames": ["fo"], "singular": "foo", "listKind": "FooList"})
    );
    let kind = server.state.kind("ex.com", "v1", "foos").unwrap();
    assert_eq!(
        (
            kind.singular.as_str(),
            kind.list_kind.as_str(),
            kind.columns.len(),
            kind.subresources.len()
        ),
        ("foo", "FooList", 1, 2)
    );
    let list = server.get(FOOS).ok();
    assert_eq!(list.body["kind"], "FooList");
    let other = {
        let mut other = definition();
        other["metadata"]["name"] = "bars.ex.com".into();
        other["spec"]["names"] = json!({"plural": "bars", "kind": "Bar", "shortNames": ["fo"]});
        server.post(DEFINITIONS, other).created()
    };
    assert_eq!(
        other.body["status"]["conditions"][0]["reason"],
        "ShortNamesConflict"
    );
    assert!(
        server.state.kind("ex.com", "v1", "bars").is_none(),
        "names that are taken are not served"
    );
}

#[test]
fn objects_are_pruned_defaulted_and_checked() {
    let mut server = server();
    let mut given = foo("a", json!({"name": "n", "storage": "1Gi", "junk": 1}));
    given["status"] = json!({"replicas": 9});
    let made = server.post(FOOS, given.clone()).created();
    assert_eq!(
        made.body["spec"],
        json!({"name": "n", "storage": "1Gi", "replicas": 1})
    );
    assert_eq!(
        (
            made.body.get("status"),
            &made.body["metadata"]["generation"]
        ),
        (None, &json!(1))
    );
    assert_eq!(made.warnings, ["unknown field \"spec.junk\""]);
    server.post(&format!("{FOOS}?fieldValidation=Strict"), given).refused(400, "Foo in version \"v1\" cannot be handled as a Foo: strict decoding error: unknown field \"spec.junk\"");
    let cases = [
        (
            json!({"name": "toolong", "replicas": -1, "storage": true}),
            "[spec.name: Too long: may not be more than 5 bytes, spec.replicas: Invalid value: -1: spec.replicas in body should be greater than or equal to 0, spec.storage: Invalid value: \"boolean\": spec.storage in body must be of type integer,string: \"boolean\", .spec.replicas: Invalid value: -1: should be a non-negative integer]",
        ),
        (
            json!({"mode": "slow"}),
            "spec.mode: Unsupported value: \"slow\": supported values: \"fast\", \"safe\"",
        ),
        (
            json!({"pattern": "A1"}),
            "spec.pattern: Invalid value: \"A1\": spec.pattern in body should match '^[a-z]+$'",
        ),
        (
            json!({"l": [{"n": "a"}, {"n": "a"}]}),
            "spec.l[1]: Duplicate value: {\"n\":\"a\"}",
        ),
        (json!({"l": [{"v": 1}]}), "spec.l[0].n: Required value"),
        (
            json!("text"),
            "spec: Invalid value: \"string\": spec in body must be of type object: \"string\"",
        ),
    ];
    for (spec, message) in cases {
        server
            .post(FOOS, foo("b", spec))
            .refused(422, &format!("Foo.ex.com \"b\" is invalid: {message}"));
    }
    let untyped = server.post(FOOS, json!({"metadata": {"name": "a"}, "spec": {}}));
    assert!(untyped.message().starts_with("the object provided is unrecognized (must be of type Foo): Object 'Kind' is missing in '"), "{}", untyped.message());
    server.put(&format!("{FOOS}/a"), foo("a", json!({"name": "m"}))).refused(422, "foos.ex.com \"a\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update");
    let strategic = server.patch(
        &format!("{FOOS}/a"),
        "application/strategic-merge-patch+json",
        json!({}),
    );
    assert_eq!(strategic.status, 415);
}

#[test]
fn values_are_checked_in_the_servers_words() {
    let mut server = Server::new();
    let mut wide = definition();
    wide["spec"]["versions"][0]["subresources"] = json!({});
    wide["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = json!({
        "n": {"type": "integer", "minimum": 1, "maximum": 3},
        "l": {"type": "array", "maxItems": 1, "minItems": 1, "items": {"type": "string", "minLength": 2}},
        "m": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
        "t": {"type": "string", "format": "date-time"},
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "any": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^[0-9]+$"},
    });
    wide["spec"]["versions"][0]["selectableFields"] = Value::Null;
    server.post(DEFINITIONS, wide).created();
    let cases = [
        (
            json!({"n": 0}),
            "spec.n: Invalid value: 0: spec.n in body should be greater than or equal to 1",
        ),
        (
            json!({"n": 5}),
            "spec.n: Invalid value: 5: spec.n in body should be less than or equal to 3",
        ),
        (
            json!({"l": []}),
            "spec.l: Invalid value: 0: spec.l in body should have at least 1 items",
        ),
        (
            json!({"l": ["aa", "bb"]}),
            "spec.l: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"l": ["a"]}),
            "spec.l[0]: Invalid value: \"a\": spec.l[0] in body should be at least 2 chars long",
        ),
        (
            json!({"m": {"a": "b", "c": "d"}}),
            "spec.m: Too many: 2: must have at most 1 item",
        ),
        (
            json!({"m": {"a": 1}}),
            "spec.m.a: Invalid value: \"integer\": spec.m.a in body must be of type string: \"integer\"",
        ),
        (
            json!({"t": "x"}),
            "spec.t: Invalid value: \"x\": spec.t in body must be of type date-time: \"x\"",
        ),
        (
            json!({"one": {}}),
            "[<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found none valid, spec.one.a: Required value]",
        ),
        (
            json!({"one": {"a": "x", "b": "y"}}),
            "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid alternatives",
        ),
        (
            json!({"any": "abc"}),
            "spec.any: Invalid value: \"abc\": spec.any in body should match '^[0-9]+$'",
        ),
        (
            json!({"any": true}),
            "[spec.any: Invalid value: \"boolean\": spec.any in body must be of type integer,string: \"boolean\", <nil>: Invalid value: \"\": \"spec.any\" must validate at least one schema (anyOf), spec.any: Invalid value: \"boolean\": spec.any in body must be of type integer: \"boolean\"]",
        ),
    ];
    for (spec, message) in cases {
        server
            .post(FOOS, foo("b", spec))
            .refused(422, &format!("Foo.ex.com \"b\" is invalid: {message}"));
    }
}

#[test]
fn generations_count_what_is_wanted() {
    let mut server = server();
    server.post(FOOS, foo("a", json!({"name": "n"}))).created();
    let path = format!("{FOOS}/a");
    let status = server.merge(&format!("{path}/status"), json!({"spec": {"name": "x"}, "metadata": {"labels": {"l": "x"}}, "status": {"replicas": 3}})).ok();
    assert_eq!(
        (
            &status.body["spec"]["name"],
            &status.body["status"],
            &status.body["metadata"]["generation"]
        ),
        (&json!("n"), &json!({"replicas": 3}), &json!(1))
    );
    assert_eq!(status.body["metadata"].get("labels"), None);
    let spec = server
        .merge(
            &path,
            json!({"spec": {"replicas": 4}, "status": {"replicas": 7}}),
        )
        .ok();
    assert_eq!(
        (
            &spec.body["status"]["replicas"],
            &spec.body["metadata"]["generation"]
        ),
        (&json!(3), &json!(2))
    );
    let labels = server
        .merge(&path, json!({"metadata": {"labels": {"a": "b"}}}))
        .ok();
    assert_eq!(labels.body["metadata"]["generation"], 2);
    let scale = server.get(&format!("{path}/scale")).ok();
    assert_eq!(
        (
            &scale.body["kind"],
            &scale.body["spec"],
            &scale.body["status"]
        ),
        (
            &json!("Scale"),
            &json!({"replicas": 4}),
            &json!({"replicas": 3})
        )
    );
    let scaled = server
        .merge(&format!("{path}/scale"), json!({"spec": {"replicas": 6}}))
        .ok();
    assert_eq!(scaled.body["spec"]["replicas"], 6);
    assert_eq!(server.get(&path).ok().body["metadata"]["generation"], 3);
    server.merge(&format!("{path}/scale"), json!({"spec": {"replicas": -1}})).refused(422, "Scale.autoscaling \"a\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0");
    let owners = server.get(&path).ok().body["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            entry
                .get("subresource")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        })
        .collect::<Vec<_>>();
    assert!(
        owners.contains(&"status".to_owned()) && owners.contains(&"scale".to_owned()),
        "{owners:?}"
    );
}

#[test]
fn selectable_fields_select() {
    let mut server = server();
    server.post(FOOS, foo("a", json!({"name": "n"}))).created();
    server.post(FOOS, foo("b", json!({"name": "m"}))).created();
    let found = server
        .get(&format!("{FOOS}?fieldSelector=spec.name=n"))
        .ok();
    assert_eq!(found.body["items"].as_array().unwrap().len(), 1);
    server
        .get(&format!("{FOOS}?fieldSelector=spec.replicas=1"))
        .refused(400, "field label not supported: spec.replicas");
}

#[test]
fn applies_merge_lists_by_their_keys() {
    let mut server = server();
    let path = format!("{FOOS}/a");
    let items = |names: &[&str]| {
        foo(
            "a",
            json!({"l": names.iter().map(|name| json!({"n": name, "v": 1})).collect::<Vec<_>>()}),
        )
    };
    server.apply(&path, "A", items(&["a", "b"])).created();
    let both = server.apply(&path, "B", items(&["c"])).ok();
    assert_eq!(both.body["metadata"]["generation"], 2);
    let dropped = server.apply(&path, "A", items(&["b"])).ok();
    assert_eq!(
        dropped.body["spec"],
        json!({"l": [{"n": "b", "v": 1}, {"n": "c", "v": 1}], "replicas": 1})
    );
    let noop = server.apply(&path, "A", items(&["b"])).ok();
    assert_eq!(dropped.version(), noop.version());
}

#[test]
fn definitions_are_checked() {
    let mut server = Server::new();
    let with_schema = |schema: Value| {
        let mut definition = definition();
        definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
            schema;
        definition["spec"]["versions"][0]["subresources"] = json!({});
        definition
    };
    let at = "CustomResourceDefinition.apiextensions.k8s.io \"foos.ex.com\" is invalid: spec.validation.openAPIV3Schema.properties[spec]";
    let cases = [
        (
            json!({"properties": {}}),
            ".type: Required value: must not be empty for specified object fields",
        ),
        (
            json!({"type": "object", "x-kubernetes-validations": [{"rule": "true"}]}),
            ".x-kubernetes-validations: Forbidden: this sandbox evaluates no CEL rules yet, and a rule that is stored but never checked would pretend it is",
        ),
        (
            json!({"type": "array"}),
            ".items: Required value: must be specified",
        ),
        (
            json!({"type": "object", "default": {"a": 1}}),
            ".default: Invalid value: {\"a\":1}: must not have unknown fields",
        ),
        (
            json!({"type": "integer", "default": "x"}),
            ".default: Invalid value: \"string\":  in body must be of type integer: \"string\"",
        ),
        (json!({"type": "string", "pattern": "("}), ".pattern: "),
        (
            json!({"type": "object", "uniqueItems": true}),
            ".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        ),
    ];
    for (schema, message) in cases {
        let reply = server.post(DEFINITIONS, with_schema(schema));
        assert_eq!(reply.status, 422, "{}", reply.body);
        assert!(
            reply.message().starts_with(&format!("{at}{message}")),
            "{}",
            reply.message()
        );
    }
    let mut webhook = definition();
    webhook["spec"]["conversion"] = json!({"strategy": "Webhook"});
    assert!(server.post(DEFINITIONS, webhook).message().contains(
        "spec.conversion.strategy: Forbidden: this sandbox calls no conversion webhooks yet"
    ));
    let mut misnamed = definition();
    misnamed["metadata"]["name"] = "bars.ex.com".into();
    assert!(server.post(DEFINITIONS, misnamed).message().contains(
        "metadata.name: Invalid value: \"bars.ex.com\": must be spec.names.plural+\".\"+spec.group"
    ));
}

#[test]
fn versions_differ_in_name_only() {
    let mut server = Server::new();
    let mut two = definition();
    let mut second = two["spec"]["versions"][0].clone();
    second["name"] = "v2".into();
    second["storage"] = false.into();
    second["deprecated"] = true.into();
    two["spec"]["versions"].as_array_mut().unwrap().push(second);
    server.post(DEFINITIONS, two).created();
    let watch = server.watch("/apis/ex.com/v2/foos?watch=true");
    server.post(FOOS, foo("a", json!({"name": "n"}))).created();
    let read = server.get("/apis/ex.com/v2/namespaces/default/foos/a").ok();
    assert_eq!(read.body["apiVersion"], "ex.com/v2");
    assert_eq!(read.warnings, ["ex.com/v2 Foo is deprecated"]);
    assert_eq!(server.seen(&watch)[0].object["apiVersion"], "ex.com/v2");
    let written = server
        .merge(
            "/apis/ex.com/v2/namespaces/default/foos/a",
            json!({"spec": {"replicas": 2}}),
        )
        .ok();
    assert_eq!(written.body["apiVersion"], "ex.com/v2");
    assert_eq!(
        server.get(&format!("{FOOS}/a")).ok().body["apiVersion"],
        "ex.com/v1"
    );
}

#[test]
fn a_changed_schema_shows_in_what_was_stored_before() {
    let mut server = server();
    server.post(FOOS, foo("a", json!({"name": "n"}))).created();
    let version = server
        .get(&format!("{DEFINITIONS}/foos.ex.com"))
        .ok()
        .version()
        .to_owned();
    let mut changed = definition();
    changed["metadata"]["resourceVersion"] = version.into();
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        ["colour"] = json!({"type": "string", "default": "blue"});
    let updated = server
        .put(&format!("{DEFINITIONS}/foos.ex.com"), changed)
        .ok();
    assert_eq!(updated.body["metadata"]["generation"], 2);
    assert_eq!(
        server.get(&format!("{FOOS}/a")).ok().body["spec"]["colour"],
        "blue"
    );
}

#[test]
fn a_definition_goes_after_its_last_object() {
    let mut server = server();
    let mut held = foo("held", json!({}));
    held["metadata"]["finalizers"] = json!(["x.example.com/y"]);
    server.post(FOOS, held).created();
    server.post(FOOS, foo("free", json!({}))).created();
    let path = format!("{DEFINITIONS}/foos.ex.com");
    let deleted = server.delete(&path, Value::Null).ok();
    assert!(deleted.body["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        server.get(FOOS).ok().body["items"]
            .as_array()
            .unwrap()
            .len(),
        1,
        "the one that is held is still there"
    );
    server.post(FOOS, foo("late", json!({}))).refused(
        405,
        "create not allowed while custom resource definition is terminating",
    );
    server
        .merge(
            &format!("{FOOS}/held"),
            json!({"metadata": {"finalizers": null}}),
        )
        .ok();
    server.get(&path).refused(
        404,
        "customresourcedefinitions.apiextensions.k8s.io \"foos.ex.com\" not found",
    );
    assert_eq!(server.get(FOOS).status, 404);
    server.post(DEFINITIONS, definition()).created();
    assert_eq!(server.get(FOOS).ok().body["items"], json!([]));
}
