//! Small readings of an object that many columns share.

use jiff::Timestamp;
use serde_json::Value;

use crate::present::age;

/// What an empty cell shows.
pub(super) const NONE: &str = "<none>";

pub(super) fn name(object: &Value) -> Value {
    object
        .pointer("/metadata/name")
        .cloned()
        .unwrap_or_default()
}

pub(super) fn age(object: &Value, now: Timestamp) -> Value {
    age::since(object.pointer("/metadata/creationTimestamp"), now).into()
}

/// The text at a JSON pointer; empty if there is none.
pub(super) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The text at a pointer, or what an empty cell shows.
pub(super) fn text_or_none(object: &Value, pointer: &str) -> Value {
    or_none(text(object, pointer)).into()
}

pub(super) fn or_none(text: &str) -> &str {
    if text.is_empty() { NONE } else { text }
}

pub(super) fn integer(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn flag(object: &Value, pointer: &str) -> bool {
    object
        .pointer(pointer)
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

pub(super) fn array<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

/// How many entries the map at a pointer has.
pub(super) fn size(object: &Value, pointer: &str) -> usize {
    object
        .pointer(pointer)
        .and_then(Value::as_object)
        .map_or(0, serde_json::Map::len)
}

pub(super) fn is_deleting(object: &Value) -> bool {
    object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(|time| !time.is_null())
}

/// A number or a string as it is written: quantities, int-or-strings.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// `key=value` pairs in order of the keys; `<none>` if there are none.
pub(super) fn labels(map: Option<&Value>) -> String {
    let Some(map) = map.and_then(Value::as_object).filter(|map| !map.is_empty()) else {
        return NONE.to_owned();
    };
    let mut pairs = map
        .iter()
        .map(|(key, value)| format!("{key}={}", scalar(value)))
        .collect::<Vec<_>>();
    pairs.sort();
    pairs.join(",")
}

/// A label selector in the form `kubectl` accepts for `-l`.
pub(super) fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else {
        return NONE.to_owned();
    };
    let mut terms = match selector.get("matchLabels").and_then(Value::as_object) {
        Some(map) => map
            .iter()
            .map(|(key, value)| format!("{key}={}", scalar(value)))
            .collect::<Vec<_>>(),
        None => Vec::new(),
    };
    terms.sort();
    for expression in array(selector, "/matchExpressions") {
        let key = text(expression, "/key");
        let mut values = array(expression, "/values")
            .iter()
            .map(scalar)
            .collect::<Vec<_>>();
        values.sort();
        let values = values.join(",");
        terms.push(match text(expression, "/operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            other => format!("{key} {other} ({values})"),
        });
    }
    if terms.is_empty() {
        NONE.to_owned()
    } else {
        terms.join(",")
    }
}

/// Names and images of a pod template's containers, each joined by commas.
pub(super) fn containers(pod_spec: Option<&Value>) -> (Value, Value) {
    let containers = pod_spec.map_or(&[][..], |spec| array(spec, "/containers"));
    let join = |pointer: &str| {
        containers
            .iter()
            .map(|container| text(container, pointer))
            .collect::<Vec<_>>()
            .join(",")
    };
    (join("/name").into(), join("/image").into())
}

/// `RWO,RWX`, as volumes' access modes are abbreviated.
pub(super) fn access_modes(modes: &[Value]) -> String {
    let short = |mode: &Value| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        _ => "?",
    };
    modes.iter().map(short).collect::<Vec<_>>().join(",")
}

/// The first few of a list, and how many more there are.
pub(super) fn shortened(entries: &[String], shown: usize) -> String {
    if entries.is_empty() {
        return NONE.to_owned();
    }
    let mut text = entries[..entries.len().min(shown)].join(",");
    if entries.len() > shown {
        text.push_str(&format!(" + {} more...", entries.len() - shown));
    }
    text
}
