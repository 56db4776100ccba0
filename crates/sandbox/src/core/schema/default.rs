//! Fills in the schema's defaults, on requests and on what is read from storage.

use serde_json::Value;

use super::flag;

/// Nulls where the schema allows none are dropped first, so that a default can take their place.
pub fn apply(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(map) => {
            if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
                for (key, property) in properties {
                    if map.get(key).is_some_and(Value::is_null) && !flag(property, "nullable") {
                        map.shift_remove(key);
                    }
                    if let Some(default) =
                        property.get("default").filter(|default| !default.is_null())
                        && !map.contains_key(key)
                    {
                        map.insert(key.clone(), default.clone());
                    }
                    if let Some(field) = map.get_mut(key) {
                        apply(field, property);
                    }
                }
            }
            if let Some(additional) = schema
                .get("additionalProperties")
                .filter(|additional| additional.is_object())
            {
                let declared = schema.get("properties").and_then(Value::as_object);
                for (key, field) in map.iter_mut() {
                    if declared.is_some_and(|declared| declared.contains_key(key)) {
                        continue;
                    }
                    replace_null(field, additional);
                    apply(field, additional);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item_schema) = schema.get("items") {
                for item in items {
                    replace_null(item, item_schema);
                    apply(item, item_schema);
                }
            }
        }
        _ => {}
    }
}

fn replace_null(value: &mut Value, schema: &Value) {
    if value.is_null()
        && !flag(schema, "nullable")
        && let Some(default) = schema.get("default")
    {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn defaults_go_where_something_is_missing() {
        let schema = json!({"type": "object", "properties": {
            "spec": {"type": "object", "default": {}, "properties": {
                "replicas": {"type": "integer", "default": 1},
                "note": {"type": "string", "nullable": true, "default": "n"},
                "list": {"type": "array", "items": {"type": "object", "properties": {"port": {"type": "integer", "default": 5432}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}},
            }},
        }});
        let cases = [
            (json!({}), json!({"spec": {"replicas": 1, "note": "n"}})),
            (
                json!({"spec": {"replicas": 3, "note": null}}),
                json!({"spec": {"replicas": 3, "note": null}}),
            ),
            (
                json!({"spec": {"replicas": null}}),
                json!({"spec": {"replicas": 1, "note": "n"}}),
            ),
            (
                json!({"spec": {"list": [{}, {"port": 1}], "map": {"k": {}}}}),
                json!({"spec": {"replicas": 1, "note": "n", "list": [{"port": 5432}, {"port": 1}], "map": {"k": {"a": "x"}}}}),
            ),
        ];
        for (mut given, expected) in cases {
            apply(&mut given, &schema);
            assert_eq!(given, expected);
        }
    }
}
