//! Objects as the server would read and write them. Of built-in kinds, as a Go struct: null means unset, empty lists and maps are left out.
//! Of custom resources: nulls are left out unless the schema says `nullable`. What cannot be known from OpenAPI stays as it is: whether a
//! `false` or `0` of a built-in kind is left out depends on a pointer in the Go source.

use serde_json::Value;

use crate::schema::{MapType, Scalar, Schema, Shape, Type};

impl Schema {
    /// Leaves out nulls, and lists and maps that are empty, where the server would. Does nothing inside fields of any type. Of a custom
    /// resource only the metadata is a struct; elsewhere only nulls go.
    pub fn normalise(&self, object: &mut Value) {
        if self.is_structured {
            return leave_out_empty(self.root(), object);
        }
        let metadata = self.root().map().and_then(|map| map.field_type("metadata"));
        if let (Some(kind), Some(value)) = (metadata, object.get_mut("metadata")) {
            leave_out_empty(kind, value);
        }
        leave_out_nulls(self.root(), object);
    }

    /// Adds what the server writes even when nothing was set: `status: {}`, `containers: null`.
    pub(crate) fn fill_zero_values(&self, object: &mut Value) {
        fill(self.root(), object);
    }
}

fn leave_out_nulls(kind: Type<'_>, value: &mut Value) {
    match value {
        Value::Array(items) => {
            if let Some(list) = kind.list() {
                items
                    .iter_mut()
                    .for_each(|item| leave_out_nulls(list.element(), item));
            }
        }
        Value::Object(fields) => {
            let Some(map) = kind.map() else { return };
            for (name, field) in fields.iter_mut() {
                if let Some(kind) = map.field_type(name) {
                    leave_out_nulls(kind, field);
                }
            }
            fields.retain(|name, field| {
                !field.is_null() || map.field_type(name).is_none_or(Type::is_nullable)
            });
        }
        _ => {}
    }
}

fn leave_out_empty(kind: Type<'_>, value: &mut Value) {
    if kind.is_untyped() {
        return;
    }
    match value {
        Value::Array(items) => {
            if let Some(list) = kind.list() {
                items
                    .iter_mut()
                    .for_each(|item| leave_out_empty(list.element(), item));
            }
        }
        Value::Object(fields) => {
            let Some(map) = kind.map() else { return };
            for (name, field) in fields.iter_mut() {
                let Some(kind) = map.field_type(name) else {
                    continue;
                };
                leave_out_empty(kind, field);
                if field.is_null()
                    && !map.is_declared(name)
                    && matches!(kind.shape(None), Shape::Scalar(Scalar::String))
                {
                    // Null in a map of strings is the empty string.
                    *field = Value::String(String::new());
                }
            }
            fields.retain(|name, field| !is_left_out(map, name, field));
        }
        _ => {}
    }
}

fn is_left_out(map: MapType<'_>, name: &str, value: &Value) -> bool {
    let Some(field) = map.field(name) else {
        return false;
    };
    let Some(kind) = map.field_type(name) else {
        return false;
    };
    match value {
        Value::Null => !field.is_always_written || kind.map().is_some(),
        _ if field.is_always_written || kind.is_untyped() => false,
        Value::Array(items) => items.is_empty(),
        // An empty struct says something (`emptyDir: {}`), an empty map does not.
        Value::Object(fields) => fields.is_empty() && kind.map().is_some_and(is_typed_map),
        _ => false,
    }
}

/// A map of something, such as labels. A type without fields and without elements is a struct that only says that it is there.
fn is_typed_map(map: MapType<'_>) -> bool {
    map.is_plain_map() && !map.has_untyped_elements()
}

fn fill(kind: Type<'_>, value: &mut Value) {
    if kind.is_untyped() {
        return;
    }
    match value {
        Value::Array(items) => {
            if let Some(list) = kind.list() {
                items.iter_mut().for_each(|item| fill(list.element(), item));
            }
        }
        Value::Object(fields) => {
            let Some(map) = kind.map() else { return };
            for (name, field, kind) in map
                .declared()
                .filter(|(_, field, _)| field.is_always_written)
            {
                if !fields.contains_key(name) {
                    let zero = match (kind.shape(None), &field.default) {
                        (Shape::Map(map), _) if !is_typed_map(map) => {
                            Value::Object(serde_json::Map::new())
                        }
                        (Shape::Scalar(_), Some(default)) if !default.is_object() => {
                            default.clone()
                        }
                        _ => Value::Null,
                    };
                    fields.insert(name.to_owned(), zero);
                }
            }
            for (name, field) in fields.iter_mut() {
                if let Some(kind) = map.field_type(name) {
                    fill(kind, field);
                }
            }
        }
        _ => {}
    }
}
