//! The paths of an OpenAPI document: which operations a kind has, and the query parameters clients look for.
//!
//! kubectl reads from here whether the server takes `fieldValidation` and `dryRun`, and which kind lives at a path.

use serde_json::{Map, Value, json};

use crate::core::kind::{KindInfo, Subresource};

const PATCH_TYPES: [&str; 3] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
];
/// Only kinds whose merge keys are known to clients.
const STRATEGIC_PATCH_TYPE: &str = "application/strategic-merge-patch+json";

/// `api/v1`, `apis/apps/v1`.
pub(super) fn group_version(kind: &KindInfo) -> String {
    if kind.group.is_empty() {
        format!("api/{}", kind.version)
    } else {
        format!("apis/{}/{}", kind.group, kind.version)
    }
}

/// Adds the paths of a kind whose schema is called `schema`.
pub(super) fn add(kind: &KindInfo, schema: &str, paths: &mut Map<String, Value>) {
    let root = format!("/{}", group_version(kind));
    let base = if kind.is_namespaced() {
        let mut everywhere = item(kind, &[("get", "list")], schema, false);
        everywhere["parameters"] = json!([]);
        paths.insert(format!("{root}/{}", kind.plural), everywhere);
        format!("{root}/namespaces/{{namespace}}/{}", kind.plural)
    } else {
        format!("{root}/{}", kind.plural)
    };
    paths.insert(
        base.clone(),
        item(
            kind,
            &[
                ("get", "list"),
                ("post", "create"),
                ("delete", "deletecollection"),
            ],
            schema,
            false,
        ),
    );
    let one = [
        ("get", "get"),
        ("put", "update"),
        ("patch", "patch"),
        ("delete", "delete"),
    ];
    paths.insert(format!("{base}/{{name}}"), item(kind, &one, schema, true));
    for subresource in &kind.subresources {
        paths.insert(
            format!("{base}/{{name}}/{}", subresource.name),
            subresource_item(kind, subresource, schema),
        );
    }
}

fn item(kind: &KindInfo, operations: &[(&str, &str)], schema: &str, named: bool) -> Value {
    let mut item = Map::new();
    for (method, verb) in operations {
        if kind.verbs.contains(verb) {
            let own = (
                kind.group.as_str(),
                kind.version.as_str(),
                kind.kind.as_str(),
            );
            item.insert(
                (*method).to_owned(),
                operation(verb, own, schema, kind.is_custom()),
            );
        }
    }
    item.insert(
        "parameters".to_owned(),
        path_parameters(kind.is_namespaced(), named),
    );
    Value::Object(item)
}

fn subresource_item(kind: &KindInfo, subresource: &Subresource, schema: &str) -> Value {
    let mut item = Map::new();
    let own = (
        subresource.group.as_str(),
        subresource.version.as_str(),
        subresource.kind.as_str(),
    );
    for (method, verb) in [
        ("get", "get"),
        ("post", "create"),
        ("put", "update"),
        ("patch", "patch"),
    ] {
        if subresource.verbs.contains(&verb) {
            item.insert(
                method.to_owned(),
                operation(verb, own, schema, kind.is_custom()),
            );
        }
    }
    item.insert(
        "parameters".to_owned(),
        path_parameters(kind.is_namespaced(), true),
    );
    Value::Object(item)
}

fn operation(
    verb: &str,
    (group, version, kind): (&str, &str, &str),
    schema: &str,
    custom: bool,
) -> Value {
    let reference = json!({"$ref": format!("#/components/schemas/{schema}")});
    let answer = match verb {
        "list" => json!({"$ref": format!("#/components/schemas/{schema}List")}),
        _ => reference.clone(),
    };
    let mut operation = json!({
        "parameters": query_parameters(verb),
        "responses": {"200": {"description": "OK", "content": {"application/json": {"schema": answer}}}},
        "x-kubernetes-action": match verb {
            "create" => "post",
            "update" => "put",
            other => other,
        },
        "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
    });
    let body = |types: &[&str], schema: &Value| {
        types
            .iter()
            .map(|media_type| ((*media_type).to_owned(), json!({"schema": schema})))
            .collect::<Map<_, _>>()
    };
    match verb {
        "create" | "update" => {
            operation["requestBody"] = json!({"content": body(&["application/json", "application/yaml"], &reference), "required": true});
        }
        "patch" => {
            let mut types = PATCH_TYPES.to_vec();
            if !custom {
                types.push(STRATEGIC_PATCH_TYPE);
            }
            operation["requestBody"] =
                json!({"content": body(&types, &json!({"type": "object"})), "required": true});
        }
        _ => {}
    }
    operation
}

/// Name, type and meaning of a query parameter.
type Query = (&'static str, &'static str, &'static str);

const DRY_RUN: Query = (
    "dryRun",
    "string",
    "`All`: check everything, store nothing.",
);
const FIELD_MANAGER: Query = ("fieldManager", "string", "Who owns the fields that change.");
const FIELD_VALIDATION: Query = (
    "fieldValidation",
    "string",
    "`Ignore`, `Warn` or `Strict` for unknown and duplicate fields.",
);
const FORCE: Query = (
    "force",
    "boolean",
    "Take fields from other managers (apply only).",
);

const LIST_QUERY: &[Query] = &[
    (
        "allowWatchBookmarks",
        "boolean",
        "Ask for bookmark events in a watch.",
    ),
    ("continue", "string", "Where the previous page ended."),
    ("fieldSelector", "string", "Only objects with these fields."),
    ("labelSelector", "string", "Only objects with these labels."),
    ("limit", "integer", "At most so many objects in one answer."),
    ("resourceVersion", "string", "As of, or from, this version."),
    (
        "resourceVersionMatch",
        "string",
        "How the version is meant.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        "Begin a watch with what there is.",
    ),
    ("timeoutSeconds", "integer", "How long a watch lasts."),
    ("watch", "boolean", "Go on with every change."),
];

const DELETE_QUERY: &[Query] = &[
    DRY_RUN,
    (
        "gracePeriodSeconds",
        "integer",
        "How long it may take to end.",
    ),
    (
        "propagationPolicy",
        "string",
        "`Orphan`, `Background` or `Foreground` for what it owns.",
    ),
];

fn query_parameters(verb: &str) -> Value {
    let names: &[Query] = match verb {
        "list" => LIST_QUERY,
        "create" | "update" => &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION],
        "patch" => &[DRY_RUN, FIELD_MANAGER, FIELD_VALIDATION, FORCE],
        "delete" | "deletecollection" => DELETE_QUERY,
        _ => &[],
    };
    names
        .iter()
        .map(|(name, kind, description)| parameter(name, "query", kind, description))
        .collect()
}

fn path_parameters(namespaced: bool, named: bool) -> Value {
    let mut parameters = Vec::new();
    if named {
        parameters.push(parameter("name", "path", "string", "The object's name."));
    }
    if namespaced {
        parameters.push(parameter(
            "namespace",
            "path",
            "string",
            "The object's namespace.",
        ));
    }
    Value::Array(parameters)
}

fn parameter(name: &str, place: &str, kind: &str, description: &str) -> Value {
    let mut parameter = json!({"name": name, "in": place, "description": description, "schema": {"type": kind, "uniqueItems": true}});
    if place == "path" {
        parameter["required"] = json!(true);
    }
    parameter
}
