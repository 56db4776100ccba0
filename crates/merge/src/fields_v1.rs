//! The wire form of a `FieldSet`, `fieldsV1` in `metadata.managedFields`: a tree of objects whose keys are `f:NAME`, `k:{KEYS}`, `v:VALUE`,
//! `i:INDEX`, and `.` for "this one too".

use serde_json::{Map, Value};

use crate::field_set::{FieldSet, PathElement};
use crate::value::OrderedValue;

/// Why a `fieldsV1` cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FieldsError {
    /// A node of the tree is not an object.
    #[error("fieldsV1 must be an object of objects, but one is {0}")]
    NotAnObject(Value),
    /// A key has no `X:` prefix.
    #[error(
        "{0:?} is no path element: it must be \".\" or start with \"f:\", \"k:\", \"v:\" or \"i:\""
    )]
    NoPrefix(String),
    /// What follows the prefix is not what the prefix promises.
    #[error("{0:?} is no path element: after its prefix must come {1}")]
    BadContent(String, &'static str),
}

/// Writes a set.
#[must_use]
pub fn encode(set: &FieldSet) -> Value {
    Value::Object(encode_level(set, false))
}

fn encode_level(set: &FieldSet, include_self: bool) -> Map<String, Value> {
    let mut object = Map::new();
    if include_self {
        object.insert(".".to_owned(), Value::Object(Map::new()));
    }
    let elements: std::collections::BTreeSet<_> =
        set.members.iter().chain(set.children.keys()).collect();
    for element in elements {
        let below = match set.children.get(element) {
            Some(child) => encode_level(child, set.members.contains(element)),
            None => Map::new(),
        };
        object.insert(encode_element(element), Value::Object(below));
    }
    object
}

fn encode_element(element: &PathElement) -> String {
    match element {
        PathElement::Field(name) => format!("f:{name}"),
        PathElement::Key(fields) => {
            let object: Map<_, _> = fields
                .iter()
                .map(|(name, value)| (name.clone(), value.0.clone()))
                .collect();
            format!("k:{}", Value::Object(object))
        }
        PathElement::Value(value) => format!("v:{}", value.0),
        PathElement::Index(index) => format!("i:{index}"),
    }
}

/// Reads a set.
///
/// # Errors
/// When the tree is not one of objects or a key is malformed. A prefix of a future version is skipped, as the server does.
pub fn decode(fields: &Value) -> Result<FieldSet, FieldsError> {
    Ok(decode_level(fields)?.0)
}

/// What is below, and whether the node itself is a member.
fn decode_level(fields: &Value) -> Result<(FieldSet, bool), FieldsError> {
    let object = match fields {
        Value::Object(object) => object,
        Value::Null => return Ok((FieldSet::default(), true)),
        other => return Err(FieldsError::NotAnObject(other.clone())),
    };
    let mut set = FieldSet::default();
    let mut is_member = false;
    for (key, value) in object {
        if key == "." {
            is_member = true;
            continue;
        }
        let Some(element) = decode_element(key)? else {
            continue;
        };
        let (below, below_is_member) = decode_level(value)?;
        if below_is_member {
            set.members.insert(element.clone());
        }
        if !below.is_empty() {
            set.children.insert(element, below);
        }
    }
    let is_leaf = set.is_empty();
    Ok((set, is_member || is_leaf))
}

fn decode_element(key: &str) -> Result<Option<PathElement>, FieldsError> {
    let Some((prefix, content)) = key.split_once(':').filter(|(prefix, _)| prefix.len() == 1)
    else {
        return Err(FieldsError::NoPrefix(key.to_owned()));
    };
    let bad = |expected| FieldsError::BadContent(key.to_owned(), expected);
    Ok(Some(match prefix {
        "f" => PathElement::field(content),
        "k" => {
            let fields: Map<String, Value> =
                serde_json::from_str(content).map_err(|_| bad("a JSON object"))?;
            let mut fields: Vec<_> = fields
                .into_iter()
                .map(|(name, value)| (name, OrderedValue(value)))
                .collect();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            PathElement::Key(fields)
        }
        "v" => PathElement::Value(OrderedValue(
            serde_json::from_str(content).map_err(|_| bad("a JSON value"))?,
        )),
        "i" => PathElement::Index(content.parse().map_err(|_| bad("a whole number"))?),
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_wrote_is_read_and_written_unchanged() {
        let fields = json!({
            "f:metadata": {"f:finalizers": {".": {}, "v:\"x.example.com/y\"": {}}, "f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:selector": {}},
        });
        let set = decode(&fields).expect("valid");
        assert_eq!(encode(&set).to_string(), fields.to_string());
        assert!(set.has(&[PathElement::field("metadata"), PathElement::field("labels")]));
        assert!(!set.has(&[PathElement::field("spec")]));
    }

    #[test]
    fn the_empty_tree_is_the_empty_set() {
        assert!(decode(&json!({})).expect("valid").is_empty());
    }

    #[test]
    fn malformed_keys_are_errors_and_future_ones_are_skipped() {
        assert!(decode(&json!({"nonsense": {}})).is_err());
        assert!(decode(&json!({"k:[1]": {}})).is_err());
        assert!(decode(&json!({"i:x": {}})).is_err());
        assert!(decode(&json!({"f:a": 1})).is_err());
        assert!(
            decode(&json!({"z:future": {}}))
                .expect("skipped")
                .is_empty()
        );
    }
}
