//! What holds for every object: nothing panics, an apply repeated changes nothing, managers of different fields do not care who comes first.

use std::sync::OnceLock;

use geodb_merge::apply::{Applied, ApplyRequest, UpdateRequest, apply, update};
use geodb_merge::merge_patch::merge_patch;
use geodb_merge::schema::Schema;
use geodb_merge::strategic::strategic_merge;
use geodb_merge::validate::unknown_fields;
use geodb_merge::{builtin, fields_v1};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const NOON: &str = "2026-11-15T12:00:00Z";
const LATER: &str = "2026-11-15T12:00:09Z";

fn thing_schema() -> &'static Schema {
    static SCHEMA: OnceLock<Schema> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let recording: Value =
            serde_json::from_str(include_str!("golden/stories.json")).expect("a recording");
        Schema::from_openapi(&recording["schema"])
            .expect("structural")
            .with_status_subresource(true)
    })
}

/// An object with a spec, or without any if it is null.
fn thing(spec: Value) -> Value {
    let mut thing =
        json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    if !spec.is_null() {
        thing["spec"] = spec;
    }
    thing
}

fn apply_thing(
    schema: &Schema,
    live: Option<&Value>,
    manager: &str,
    spec: Value,
    force: bool,
    now: &str,
) -> Option<Applied> {
    let applied = thing(spec);
    let api_version = "example.com/v1";
    apply(ApplyRequest {
        live,
        applied: &applied,
        manager,
        subresource: "",
        api_version,
        force,
        now,
        schema,
    })
    .ok()
}

/// Any JSON, with the words that mean something to somebody here among the names.
fn any_json() -> impl Strategy<Value = Value> {
    let name = prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "managedFields",
            "labels",
            "spec",
            "ports",
            "port",
            "protocol",
            "containers",
            "name",
            "template",
            "status",
            "finalizers",
            "$patch",
            "$retainKeys",
            "$setElementOrder/ports",
            "$deleteFromPrimitiveList/finalizers",
            "$setElementOrder",
            "apiVersion",
            "kind",
            "manager",
            "operation",
            "fieldsType",
            "fieldsV1",
            "time",
            "data",
            "keyed",
            "set",
            "free",
            "properties",
            "type",
            "items",
            "additionalProperties",
            "x-kubernetes-list-type",
            "x-kubernetes-list-map-keys",
            "f:spec",
            "k:{}",
            ".",
        ])
        .prop_map(str::to_owned),
        "[a-z]{0,3}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec![
            "v1", "Service", "delete", "replace", "Update", "FieldsV1", "object", "array", "map",
            "set", "x"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::Array),
            prop::collection::vec((name.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A spec that fits the schema, over some of its fields.
fn spec(fields: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let small = || 0..3i32;
    let text = || prop::sample::select(vec!["a", "b", "c"]);
    let labels =
        move || prop::collection::btree_map(text(), text(), 0..3).prop_map(|map| json!(map));
    let keyed = prop::collection::btree_map(text(), (small(), labels(), any::<bool>()), 0..3)
        .prop_map(|items| {
            let item = |(name, (size, labels, there)): (&str, (i32, Value, bool))| {
                let mut item = json!({"name": name, "size": size, "labels": labels});
                if there {
                    item["zone"] = json!("there");
                }
                item
            };
            Value::Array(items.into_iter().map(item).collect())
        });
    let values = (
        small().prop_map(Value::from),
        labels(),
        prop::collection::btree_set(text(), 0..3).prop_map(|set| json!(set)),
        keyed,
        prop::collection::vec(text(), 0..3).prop_map(|list| json!(list)),
        any_json(),
        prop::collection::vec(any::<bool>(), fields.len()),
    );
    values.prop_map(move |(number, labels, set, keyed, plain, free, chosen)| {
        let mut spec = Map::new();
        for (position, (field, is_chosen)) in fields.iter().zip(chosen).enumerate() {
            // Never none at all: an empty spec is a field of its own, which two managers then share.
            if is_chosen || position == 0 {
                let value = match *field {
                    "number" => number.clone(),
                    "labels" => labels.clone(),
                    "set" => set.clone(),
                    "keyed" => keyed.clone(),
                    "plain" => plain.clone(),
                    "free" => json!({"any": free}),
                    other => unreachable!("{other} has no values"),
                };
                spec.insert((*field).to_owned(), value);
            }
        }
        Value::Object(spec)
    })
}

const ALL: &[&str] = &["number", "labels", "set", "keyed", "plain", "free"];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn applying_the_same_again_changes_nothing(first in spec(ALL), second in spec(ALL)) {
        let schema = thing_schema();
        let live = apply_thing(schema, None, "A", first, false, NOON).expect("fits the schema").object;
        let once = apply_thing(schema, Some(&live), "B", second.clone(), true, NOON).expect("forced");
        let twice = apply_thing(schema, Some(&once.object), "B", second, false, LATER).expect("no conflict with itself");
        prop_assert!(!twice.changed);
        prop_assert_eq!(twice.object, once.object);
    }

    #[test]
    fn managers_of_different_fields_do_not_care_who_comes_first(
        one in spec(&["number", "set", "free"]), other in spec(&["labels", "keyed", "plain"]),
    ) {
        let schema = thing_schema();
        let both = |first: (&str, &Value), second: (&str, &Value)| {
            let live = apply_thing(schema, None, first.0, first.1.clone(), false, NOON).expect("fits the schema").object;
            apply_thing(schema, Some(&live), second.0, second.1.clone(), false, NOON).expect("no conflict").object
        };
        prop_assert_eq!(both(("A", &one), ("B", &other)), both(("B", &other), ("A", &one)));
    }

    #[test]
    fn what_one_manager_no_longer_wants_goes_and_the_rest_stays(
        mine in spec(&["number", "set", "free"]), theirs in spec(&["labels", "keyed", "plain"]),
    ) {
        // Nobody owns an empty set or keyed list: a real server leaves one behind, too.
        prop_assume!(mine.get("set") != Some(&json!([])));
        let schema = thing_schema();
        let alone = apply_thing(schema, None, "B", theirs.clone(), false, NOON).expect("fits the schema").object;
        let both = apply_thing(schema, Some(&alone), "A", mine, false, NOON).expect("no conflict").object;
        let after = apply_thing(schema, Some(&both), "A", Value::Null, false, NOON).expect("no conflict").object;
        prop_assert_eq!(after, alone);
    }

    #[test]
    fn written_fields_are_read_as_they_were(spec in spec(ALL)) {
        let schema = thing_schema();
        let object = apply_thing(schema, None, "A", spec, false, NOON).expect("fits the schema").object;
        for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
            let set = fields_v1::decode(&entry["fieldsV1"]).expect("ours");
            prop_assert_eq!(fields_v1::encode(&set).to_string(), entry["fieldsV1"].to_string());
        }
    }

    #[test]
    fn nothing_panics(live in any_json(), body in any_json()) {
        let thing = thing_schema();
        let service = builtin::schema("v1", "Service").expect("a built-in kind");
        for schema in [thing, service] {
            for live in [None, Some(&live)] {
                for subresource in ["", "status"] {
                    let mut applied = body.clone();
                    if let Some(object) = applied.as_object_mut() {
                        object.insert("apiVersion".to_owned(), json!("v1"));
                    }
                    let _ = apply(ApplyRequest {
                        live, applied: &applied, manager: "kubectl", subresource, api_version: "v1", force: false, now: NOON, schema,
                    });
                    let _ = update(UpdateRequest { live, new: &body, manager: "", subresource, api_version: "v1", now: NOON, schema });
                }
            }
            let _ = strategic_merge(schema, &live, &body);
            let _ = unknown_fields(schema, &body);
        }
        let _ = Schema::from_openapi(&body);
        let _ = fields_v1::decode(&body);
        let mut target = live;
        merge_patch(&mut target, &body);
    }
}
