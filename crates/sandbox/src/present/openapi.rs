//! OpenAPI v3: an index with hashes, and one document per group and version, built from the kinds that are served.
//!
//! This is where kubectl learns merge keys, whether the server validates fields, and what `explain` prints.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{SERVER_VERSION, paths};
use crate::core::kind::KindInfo;
use crate::core::{Response, State};

const REFERENCE_PREFIX: &str = "#/components/schemas/";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const LIST_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
const KIND_EXTENSION: &str = "x-kubernetes-group-version-kind";

/// `rest` is the path after `/openapi/v3`.
pub(super) fn document(state: &State, rest: &str) -> Option<Response> {
    let groups = groups(state);
    let body = if rest.is_empty() {
        let entry = |(path, kinds): (&String, &Vec<&Arc<KindInfo>>)| {
            let url = format!("/openapi/v3/{path}?hash={}", hash(path, kinds));
            (path.clone(), json!({"serverRelativeURL": url}))
        };
        json!({"paths": groups.iter().map(entry).collect::<Map<_, _>>()})
    } else {
        let path = rest.strip_prefix('/')?;
        let kinds = groups.get(path)?;
        match builtin(path, kinds) {
            Some(built) => built.document.clone(),
            None => build(kinds),
        }
    };
    Some(Response::Json {
        status: 200,
        body,
        warnings: Vec::new(),
    })
}

/// `api/v1`, `apis/apps/v1`: the documents there are, each with its kinds.
fn groups(state: &State) -> BTreeMap<String, Vec<&Arc<KindInfo>>> {
    let mut groups: BTreeMap<String, Vec<&Arc<KindInfo>>> = BTreeMap::new();
    for kind in state.kinds() {
        groups
            .entry(paths::group_version(kind))
            .or_default()
            .push(kind);
    }
    groups
}

struct Built {
    document: Value,
    hash: String,
}

/// Built-in groups never change while the program runs, so their documents are built once.
fn builtin(path: &str, kinds: &[&Arc<KindInfo>]) -> Option<Arc<Built>> {
    static BUILT: OnceLock<parking_lot::Mutex<BTreeMap<String, Arc<Built>>>> = OnceLock::new();
    if kinds.iter().any(|kind| kind.is_custom()) {
        return None;
    }
    let mut built = BUILT.get_or_init(parking_lot::Mutex::default).lock();
    let entry = built.entry(path.to_owned()).or_insert_with(|| {
        let document = build(kinds);
        let hash = digest(&document);
        Arc::new(Built { document, hash })
    });
    Some(Arc::clone(entry))
}

fn hash(path: &str, kinds: &[&Arc<KindInfo>]) -> String {
    builtin(path, kinds).map_or_else(|| digest(&build(kinds)), |built| built.hash.clone())
}

fn digest(document: &Value) -> String {
    let digest = Sha256::digest(document.to_string().as_bytes());
    digest.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02X}");
        text
    })
}

fn build(kinds: &[&Arc<KindInfo>]) -> Value {
    let mut schemas = BTreeMap::new();
    let mut served = Map::new();
    for kind in kinds {
        let name = define(kind, &mut schemas);
        paths::add(kind, &name, &mut served);
    }
    let referenced = schemas.values().flat_map(references).collect::<Vec<_>>();
    for name in referenced {
        include(&name, &mut schemas);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "geodb sandbox", "version": SERVER_VERSION},
        "paths": served,
        "components": {"schemas": schemas},
    })
}

/// Adds the schemas of a kind and of its list; returns the name of the first.
fn define(kind: &KindInfo, schemas: &mut BTreeMap<String, Value>) -> String {
    let found = builtin_definition(kind);
    let name = found.map_or_else(|| custom_name(kind), |(name, _)| name.to_owned());
    let schema = match (found, &kind.schema) {
        (Some((_, definition)), _) => definition.clone(),
        (None, schema) => custom_schema(kind, schema.as_deref()),
    };
    let item = format!("{REFERENCE_PREFIX}{name}");
    let list = json!({
        "type": "object",
        "description": format!("{} is a list of {}", kind.list_kind, kind.kind),
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"$ref": format!("{REFERENCE_PREFIX}{LIST_META}")},
            "items": {"type": "array", "items": {"$ref": item}},
        },
        KIND_EXTENSION: [{"group": kind.group, "version": kind.version, "kind": kind.list_kind}],
    });
    schemas.insert(name.clone(), schema);
    schemas.insert(format!("{name}List"), list);
    name
}

fn builtin_definition(kind: &KindInfo) -> Option<(&'static str, &'static Value)> {
    if kind.is_custom() {
        return None;
    }
    let is_of = |definition: &Value| {
        definition
            .get(KIND_EXTENSION)
            .and_then(Value::as_array)
            .is_some_and(|entries| {
                entries.iter().any(|entry| {
                    entry["group"] == kind.group
                        && entry["version"] == kind.version
                        && entry["kind"] == kind.kind
                })
            })
    };
    let definitions = geodb_merge::builtin::definitions().as_object()?;
    definitions
        .iter()
        .find(|(_, definition)| is_of(definition))
        .map(|(name, definition)| (name.as_str(), definition))
}

/// `stable.imaginedata.com`, `v2`, `Database` becomes `com.imaginedata.stable.v2.Database`.
fn custom_name(kind: &KindInfo) -> String {
    let reversed = kind.group.rsplit('.').collect::<Vec<_>>().join(".");
    format!("{reversed}.{}.{}", kind.version, kind.kind)
}

fn custom_schema(kind: &KindInfo, schema: Option<&Value>) -> Value {
    let mut schema = schema
        .filter(|schema| schema.is_object())
        .cloned()
        .unwrap_or_else(|| json!({"type": "object"}));
    schema[KIND_EXTENSION] =
        json!([{"group": kind.group, "version": kind.version, "kind": kind.kind}]);
    // A definition that preserves everything says nothing about fields; naming three of them would make kubectl refuse the others.
    if schema.get("properties").is_none() && schema["x-kubernetes-preserve-unknown-fields"] == true
    {
        return schema;
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] =
        json!({"type": "string", "description": "The group and version of this object's schema."});
    properties["kind"] = json!({"type": "string", "description": "The kind of this object."});
    properties["metadata"] = json!({
        "description": "What every object has.",
        "allOf": [{"$ref": format!("{REFERENCE_PREFIX}{OBJECT_META}")}],
    });
    schema
}

/// Adds a built-in definition and everything it refers to.
fn include(name: &str, schemas: &mut BTreeMap<String, Value>) {
    let mut waiting = BTreeSet::from([name.to_owned()]);
    while let Some(name) = waiting.pop_first() {
        if schemas.contains_key(&name) {
            continue;
        }
        let Some(definition) = geodb_merge::builtin::definitions().get(&name) else {
            continue;
        };
        waiting.extend(references(definition));
        schemas.insert(name, definition.clone());
    }
}

/// The names a schema refers to.
fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields
                .get("$ref")
                .and_then(Value::as_str)
                .and_then(|reference| reference.strip_prefix(REFERENCE_PREFIX));
            let mut names = fields.values().flat_map(references).collect::<Vec<_>>();
            names.extend(own.map(str::to_owned));
            names
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}
