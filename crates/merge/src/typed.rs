//! Values walked along their types: check, list the fields, remove fields. `typed/merge.rs` and `typed/compare.rs` take two values at once.
//! Everything here is about one object in memory; who owns what is `managed`.

mod compare;
mod merge;

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field_set::{FieldSet, Path, PathElement, path_text};
use crate::schema::{ListRelation, ListType, MapType, Scalar, Shape, Type};
use crate::value::{OrderedValue, go_text};

pub(crate) use compare::{Comparison, compare};
pub(crate) use merge::merge;

/// Where a value does not fit its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypeError {
    pub path: String,
    pub message: String,
}

/// All of them, in the server's words.
pub(crate) fn describe(errors: &[TypeError]) -> String {
    let one = |error: &TypeError| match error.path.as_str() {
        "" => error.message.clone(),
        path => format!("{path}: {}", error.message),
    };
    match errors {
        [only] => one(only),
        many => {
            let lines = many.iter().map(|error| format!("  {}", one(error)));
            std::iter::once("errors:".to_owned())
                .chain(lines)
                .collect::<Vec<_>>()
                .join("\n")
        }
    }
}

/// Whether a list may hold several items with the same key. Live objects may, what is applied may not.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicates {
    Allowed,
    Refused,
}

/// Checks a whole value; the errors say all that is wrong.
pub(crate) fn check(
    kind: Type<'_>,
    value: &Value,
    duplicates: Duplicates,
) -> Result<(), Vec<TypeError>> {
    let mut checker = Checker {
        duplicates,
        path: Vec::new(),
        errors: Vec::new(),
    };
    checker.value(kind, value);
    if checker.errors.is_empty() {
        Ok(())
    } else {
        Err(checker.errors)
    }
}

struct Checker {
    duplicates: Duplicates,
    path: Path,
    errors: Vec<TypeError>,
}

impl Checker {
    fn error(&mut self, message: String) {
        self.errors.push(TypeError {
            path: path_text(&self.path),
            message,
        });
    }

    fn value(&mut self, kind: Type<'_>, value: &Value) {
        match (kind.shape(Some(value)), value) {
            (_, Value::Null) => {}
            (Shape::Scalar(scalar), value) => {
                if let Some(message) = scalar_mismatch(scalar, value) {
                    self.error(message);
                }
            }
            (Shape::List(list), Value::Array(items)) => self.items(list, items),
            (Shape::List(_), other) => {
                self.error(format!("expected list, got {}", go_value(other)));
            }
            (Shape::Map(map), Value::Object(fields)) => self.fields(map, fields),
            (Shape::Map(_), other) => self.error(format!("expected map, got {}", go_value(other))),
        }
    }

    fn items(&mut self, list: ListType<'_>, items: &[Value]) {
        let mut seen = BTreeSet::new();
        for (index, item) in items.iter().enumerate() {
            let element = if list.is_atomic() {
                PathElement::Index(i64::try_from(index).unwrap_or(i64::MAX))
            } else {
                match list_element(list, item) {
                    Ok(element) => element,
                    Err(message) => {
                        self.error(format!("element {index}: {message}"));
                        return;
                    }
                }
            };
            if !seen.insert(element.clone()) && self.duplicates == Duplicates::Refused {
                self.error(format!("duplicate entries for key {element}"));
            }
            self.path.push(element);
            self.value(list.element(), item);
            self.path.pop();
        }
    }

    fn fields(&mut self, map: MapType<'_>, fields: &serde_json::Map<String, Value>) {
        for (name, value) in fields {
            self.path.push(PathElement::field(name));
            match map.field_type(name) {
                Some(kind) => self.value(kind, value),
                None => self.error("field not declared in schema".to_owned()),
            }
            self.path.pop();
        }
    }
}

fn scalar_mismatch(scalar: Scalar, value: &Value) -> Option<String> {
    match (scalar, value) {
        (Scalar::Number, Value::Number(_))
        | (Scalar::String, Value::String(_))
        | (Scalar::Boolean, Value::Bool(_))
        | (Scalar::Any, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Scalar::Number, other) => Some(format!(
            "expected numeric (int or float), got {}",
            go_type(other)
        )),
        (Scalar::String, other) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_syntax(other)
        )),
        (Scalar::Boolean, other) => Some(format!("expected boolean, got {}", go_value(other))),
        (Scalar::Any, other) => Some(format!("expected any scalar, got {}", go_value(other))),
    }
}

/// The server prints its own representation of a value in these messages; clients show them to people, so ours read the same.
fn go_value(value: &Value) -> String {
    format!("&{{{}}}", go_text(value))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::Null => "<nil>",
    }
}

fn go_syntax(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            format!(
                "[]interface {{}}{{{}}}",
                items.iter().map(go_syntax).collect::<Vec<_>>().join(", ")
            )
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name:?}:{}", go_syntax(value)))
                .collect();
            fields.sort();
            format!("map[string]interface {{}}{{{}}}", fields.join(", "))
        }
        Value::Null => "interface {}(nil)".to_owned(),
        other => other.to_string(),
    }
}

/// How an item of a set or keyed list is found: by its value, or by its key fields with their defaults.
pub(crate) fn list_element(list: ListType<'_>, item: &Value) -> Result<PathElement, String> {
    let keys = match list.relation() {
        ListRelation::Atomic => return Err("invalid indexing of non-associative list".to_owned()),
        ListRelation::Set => return set_element(item),
        ListRelation::Keyed(keys) => keys,
    };
    let fields = match item {
        Value::Object(fields) => fields,
        Value::Null => {
            return Err("associative list with keys may not have a null element".to_owned());
        }
        _ => return Err("associative list with keys may not have non-map elements".to_owned()),
    };
    let Some(map) = list.element().map() else {
        return Err("associative list may not have non-map types".to_owned());
    };
    let mut key = Vec::with_capacity(keys.len());
    for name in keys {
        let default = || map.field(name).and_then(|field| field.default.as_ref());
        // A key field that is neither there nor has a default is left out: that is a different item from one that has it.
        if let Some(value) = fields.get(name).or_else(default) {
            key.push((name.clone(), OrderedValue(value.clone())));
        }
    }
    if key.is_empty() {
        let names: Vec<_> = keys.iter().map(|name| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    key.sort_by(|(left, _), (right, _)| left.cmp(right));
    Ok(PathElement::Key(key))
}

fn set_element(item: &Value) -> Result<PathElement, String> {
    match item {
        Value::Object(_) => {
            Err("associative list without keys has an element that's a map type".to_owned())
        }
        Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
        Value::Null => {
            Err("associative list without keys has an element that's an explicit null".to_owned())
        }
        scalar => Ok(PathElement::Value(OrderedValue(scalar.clone()))),
    }
}

/// Every leaf, list item and map key of a checked value. Declared parents are left out: they are there because their children are.
pub(crate) fn field_set(kind: Type<'_>, value: &Value) -> FieldSet {
    fields_below(kind, value).0
}

/// What is below a value, and whether the value is a leaf itself.
fn fields_below(kind: Type<'_>, value: &Value) -> (FieldSet, bool) {
    let mut set = FieldSet::default();
    match kind.shape(Some(value)) {
        Shape::Scalar(_) => return (set, true),
        Shape::List(list) if list.is_atomic() => return (set, true),
        Shape::Map(map) if map.is_atomic() => return (set, true),
        Shape::List(list) => {
            let mut repeated = BTreeSet::new();
            for item in items(value) {
                let Ok(element) = list_element(list, item) else {
                    continue;
                };
                if !set.members.insert(element.clone()) {
                    repeated.insert(element);
                    continue;
                }
                let (below, _) = fields_below(list.element(), item);
                if !below.is_empty() {
                    set.children.insert(element, below);
                }
            }
            // Duplicates are owned as a whole: there is no telling which of them a path below would mean.
            set.children
                .retain(|element, _| !repeated.contains(element));
        }
        Shape::Map(map) => {
            for (name, field) in fields(Some(value)) {
                let Some(kind) = map.field_type(name) else {
                    continue;
                };
                let (below, is_leaf) = fields_below(kind, field);
                let is_empty =
                    field.is_null() || field.as_object().is_some_and(serde_json::Map::is_empty);
                if is_leaf || is_empty || !map.is_declared(name) {
                    set.members.insert(PathElement::field(name));
                }
                if !below.is_empty() {
                    set.children.insert(PathElement::field(name), below);
                }
            }
        }
    }
    (set, false)
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn fields(value: Option<&Value>) -> &serde_json::Map<String, Value> {
    static EMPTY: std::sync::LazyLock<serde_json::Map<String, Value>> =
        std::sync::LazyLock::new(serde_json::Map::new);
    value.and_then(Value::as_object).unwrap_or(&EMPTY)
}

/// The value without the fields and items in the set. What becomes empty by it becomes null.
pub(crate) fn remove(kind: Type<'_>, value: &Value, set: &FieldSet) -> Value {
    match (kind.shape(Some(value)), value) {
        (Shape::Scalar(_), value) => value.clone(),
        (Shape::List(list), Value::Array(items)) if !list.is_atomic() => {
            let mut kept = Vec::new();
            for item in items {
                let Ok(element) = list_element(list, item) else {
                    kept.push(item.clone());
                    continue;
                };
                if set.members.contains(&element) {
                    continue;
                }
                kept.push(
                    set.below(&element)
                        .map_or_else(|| item.clone(), |below| remove(list.element(), item, below)),
                );
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        (Shape::Map(map), Value::Object(fields)) if !map.is_atomic() => {
            let mut kept = serde_json::Map::new();
            for (name, field) in fields {
                let element = PathElement::field(name);
                if set.members.contains(&element) {
                    continue;
                }
                let rest = match (set.below(&element), map.field_type(name)) {
                    (Some(below), Some(kind)) => remove(kind, field, below),
                    _ => field.clone(),
                };
                kept.insert(name.clone(), rest);
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        _ => Value::Null,
    }
}

/// A set that was written under an older schema, brought to this one: where a list or map has become atomic meanwhile, whoever owned
/// something inside owns the whole.
pub(crate) fn reconcile(kind: Type<'_>, set: &FieldSet) -> FieldSet {
    let mut atomic = FieldSet::default();
    find_newly_atomic(kind, Some(set), false, &mut Vec::new(), &mut atomic);
    if atomic.is_empty() {
        set.clone()
    } else {
        set.recursive_difference(&atomic).union(&atomic)
    }
}

fn find_newly_atomic(
    kind: Type<'_>,
    set: Option<&FieldSet>,
    is_leaf: bool,
    path: &mut Path,
    found: &mut FieldSet,
) {
    let Some(set) = set else { return };
    let (map, list) = match kind.shape(None) {
        Shape::Scalar(_) => return,
        Shape::Map(map) if map.is_plain_map() && map.has_untyped_elements() => return,
        Shape::Map(map) => (Some(map), None),
        Shape::List(list) => (None, Some(list)),
    };
    let is_atomic =
        map.is_some_and(|map| map.is_atomic()) || list.is_some_and(|list| list.is_atomic());
    if is_atomic && !is_leaf {
        found.insert(path);
        return;
    }
    for element in set
        .members
        .iter()
        .chain(set.children.keys())
        .collect::<BTreeSet<_>>()
    {
        let below = match (element, map, list) {
            (PathElement::Field(name), Some(map), _) => map.field_type(name),
            (_, _, Some(list)) => Some(list.element()),
            _ => None,
        };
        let Some(below) = below else { continue };
        let child = set.children.get(element);
        path.push(element.clone());
        find_newly_atomic(
            below,
            child,
            set.members.contains(element) && child.is_none(),
            path,
            found,
        );
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fields_v1;
    use crate::schema::Schema;

    #[test]
    fn owners_of_parts_own_the_whole_once_it_has_become_atomic() {
        let atomic = Schema::from_openapi(&json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "list": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "map": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "string"}},
            "granular": {"type": "object", "additionalProperties": {"type": "string"}},
        }}}}))
        .expect("structural");
        let written = json!({"f:spec": {
            "f:granular": {".": {}, "f:a": {}},
            "f:list": {".": {}, "k:{\"name\":\"x\"}": {".": {}, "f:name": {}}},
            "f:map": {"f:a": {}},
        }});
        let set = reconcile(atomic.root(), &fields_v1::decode(&written).expect("valid"));
        let expected =
            json!({"f:spec": {"f:granular": {".": {}, "f:a": {}}, "f:list": {}, "f:map": {}}});
        assert_eq!(fields_v1::encode(&set), expected);
        assert_eq!(reconcile(atomic.root(), &set), set);
    }
}
