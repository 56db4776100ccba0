//! Fields that do not exist, for strict field validation of built-in kinds.

use serde_json::Value;

use crate::schema::{Schema, Type};

/// The paths of fields the type does not have, as `spec.containers[0].imge`. The server's message is `unknown field "PATH"`.
#[must_use]
pub fn unknown_fields(schema: &Schema, object: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    collect(schema.root(), object, "", &mut unknown);
    unknown
}

fn collect(kind: Type<'_>, value: &Value, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            let Some(map) = kind.map() else { return };
            for (name, field) in fields {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                match map.field_type(name) {
                    Some(kind) => collect(kind, field, &path, unknown),
                    None => unknown.push(path),
                }
            }
        }
        Value::Array(items) => {
            let Some(list) = kind.list() else { return };
            for (index, item) in items.iter().enumerate() {
                collect(list.element(), item, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::builtin;

    #[test]
    fn unknown_fields_are_found_wherever_they_are() {
        let pod = builtin::schema("v1", "Pod").expect("a built-in kind");
        let object = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"any": "thing"}, "lables": {}},
            "spec": {"junk": 1, "containers": [{"name": "c", "imge": "x", "resources": {"limits": {"cpu": 1}}}]},
        });
        assert_eq!(
            unknown_fields(pod, &object),
            ["metadata.lables", "spec.junk", "spec.containers[0].imge"]
        );
        let config_map = builtin::schema("v1", "ConfigMap").expect("a built-in kind");
        assert_eq!(
            unknown_fields(config_map, &json!({"data": {"free": "x"}, "datta": {}})),
            ["datta"]
        );
    }

    #[test]
    fn what_holds_anything_has_no_unknown_fields() {
        let definition = builtin::schema("apiextensions.k8s.io/v1", "CustomResourceDefinition")
            .expect("a built-in kind");
        let object = json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": {"properties": {"x": {"default": {"a": 1}, "typ": 1}}}}}]}});
        assert_eq!(
            unknown_fields(definition, &object),
            ["spec.versions[0].schema.openAPIV3Schema.properties.x.typ"]
        );
    }
}
