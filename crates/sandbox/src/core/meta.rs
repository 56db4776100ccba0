//! Reading and writing the parts of a JSON object that every kind has.

use serde_json::{Map, Value};

/// A string at a path, empty if there is none: the API does not tell absent from empty.
pub fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

pub fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub fn resource_version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

pub fn is_deleting(object: &Value) -> bool {
    at(object, &["metadata", "deletionTimestamp"]).is_some_and(|value| !value.is_null())
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = at(object, &["metadata", "finalizers"]).and_then(Value::as_array);
    list.map(|items| items.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default()
}

/// The object at `key`, made if it is absent or not an object.
pub fn child<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let map = object(value);
    object(map.entry(key).or_insert_with(|| Value::Object(Map::new())))
}

pub fn metadata(value: &mut Value) -> &mut Map<String, Value> {
    child(value, "metadata")
}

pub fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value
        .as_object_mut()
        .expect("made an object in the line above")
}

/// Sets a metadata field, or removes it if there is no value.
pub fn set_metadata(value: &mut Value, key: &str, field: Option<Value>) {
    let metadata = metadata(value);
    match field {
        Some(field) => {
            metadata.insert(key.to_owned(), field);
        }
        None => {
            metadata.shift_remove(key);
        }
    }
}

/// Sets a default: only where the field is absent or null.
pub fn default(map: &mut Map<String, Value>, key: &str, value: impl Into<Value>) {
    match map.get_mut(key) {
        None => {
            map.insert(key.to_owned(), value.into());
        }
        Some(field) if field.is_null() => *field = value.into(),
        Some(_) => {}
    }
}

/// Sets a default where the field is absent, null or empty: what the API does for strings.
pub fn default_text(map: &mut Map<String, Value>, key: &str, value: &str) {
    if map
        .get(key)
        .and_then(Value::as_str)
        .is_none_or(str::is_empty)
    {
        map.insert(key.to_owned(), value.into());
    }
}

/// Seconds, as the API writes times.
pub fn timestamp(now: jiff::Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
