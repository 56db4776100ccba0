//! Takes away what the schema does not know. The root's `apiVersion`, `kind` and `metadata` are the server's own and always stay.

use serde_json::Value;

use super::{flag, join, preserves_unknown};

const TYPE_AND_METADATA: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Prunes a whole object; `removed` gets the paths of what went.
pub fn prune_root(object: &mut Value, schema: &Value, removed: &mut Vec<String>) {
    prune_map(object, schema, "", true, removed);
}

/// Prunes a part of an object.
pub fn prune(value: &mut Value, schema: &Value, path: &str, removed: &mut Vec<String>) {
    match value {
        Value::Object(_) => prune_map(
            value,
            schema,
            path,
            flag(schema, "x-kubernetes-embedded-resource"),
            removed,
        ),
        Value::Array(items) => {
            let Some(item_schema) = schema.get("items") else {
                return;
            };
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, item_schema, &format!("{path}[{index}]"), removed);
            }
        }
        _ => {}
    }
}

fn prune_map(
    value: &mut Value,
    schema: &Value,
    path: &str,
    is_resource: bool,
    removed: &mut Vec<String>,
) {
    let Some(map) = value.as_object_mut() else {
        return;
    };
    let properties = schema.get("properties").and_then(Value::as_object);
    let additional = schema.get("additionalProperties");
    let mut unknown = Vec::new();
    for (key, field) in map.iter_mut() {
        if is_resource && TYPE_AND_METADATA.contains(&key.as_str()) {
            continue;
        }
        if let Some(property) = properties.and_then(|properties| properties.get(key)) {
            prune(field, property, &join(path, key), removed);
            continue;
        }
        match additional {
            Some(Value::Object(_)) => prune(
                field,
                &schema["additionalProperties"],
                &join(path, key),
                removed,
            ),
            Some(Value::Bool(true)) => {}
            _ if preserves_unknown(schema) => {}
            _ => unknown.push(key.clone()),
        }
    }
    for key in unknown {
        map.shift_remove(&key);
        removed.push(join(path, &key));
    }
}
