//! Equality, order and spelling of JSON values as the API server has them: numbers are compared by what they mean, so `1` and `1.0` are
//! equal. Not a general-purpose order: it exists so that list items can be keys of sets.

use std::cmp::Ordering;

use serde_json::{Number, Value};

/// A JSON value that can be the key of a sorted set.
#[derive(Clone, Debug)]
pub struct OrderedValue(pub Value);

impl PartialEq for OrderedValue {
    fn eq(&self, other: &Self) -> bool {
        equal(&self.0, &other.0)
    }
}

impl Eq for OrderedValue {}

impl PartialOrd for OrderedValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedValue {
    fn cmp(&self, other: &Self) -> Ordering {
        compare(&self.0, &other.0)
    }
}

/// Whether two values mean the same. The order of an object's fields does not matter.
#[must_use]
pub fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            compare_numbers(left, right) == Ordering::Equal
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| equal(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(name, value)| right.get(name).is_some_and(|other| equal(value, other)))
        }
        (left, right) => left == right,
    }
}

/// A total order: numbers, strings, booleans, lists, objects, null.
#[must_use]
pub fn compare(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => compare_numbers(left, right),
        (Value::String(left), Value::String(right)) => left.cmp(right),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(right),
        (Value::Array(left), Value::Array(right)) => left
            .iter()
            .zip(right)
            .map(|(left, right)| compare(left, right))
            .find(|order| order.is_ne())
            .unwrap_or_else(|| left.len().cmp(&right.len())),
        (Value::Object(left), Value::Object(right)) => {
            let (left, right) = (sorted(left), sorted(right));
            left.iter()
                .zip(&right)
                .map(|((name, value), (other_name, other))| {
                    name.cmp(other_name).then_with(|| compare(value, other))
                })
                .find(|order| order.is_ne())
                .unwrap_or_else(|| left.len().cmp(&right.len()))
        }
        (left, right) => rank(left).cmp(&rank(right)),
    }
}

fn sorted(object: &serde_json::Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut fields: Vec<_> = object.iter().collect();
    fields.sort_by_key(|(name, _)| *name);
    fields
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

fn compare_numbers(left: &Number, right: &Number) -> Ordering {
    match (integer(left), integer(right)) {
        (Some(left), Some(right)) => left.cmp(&right),
        (Some(left), None) => compare_integer_with_float(left, float(right)),
        (None, Some(right)) => compare_integer_with_float(right, float(left)).reverse(),
        (None, None) => float(left)
            .partial_cmp(&float(right))
            .unwrap_or(Ordering::Equal),
    }
}

/// Exact, because a comparison through floats is not transitive above 2^53, and sets need it to be.
fn compare_integer_with_float(integer: i128, float: f64) -> Ordering {
    let floor = float.floor();
    // Casting a float to an integer saturates, so that infinities and huge values land beyond every JSON integer.
    #[allow(clippy::cast_possible_truncation)]
    let whole = floor as i128;
    integer.cmp(&whole).then(if float > floor {
        Ordering::Less
    } else {
        Ordering::Equal
    })
}

fn integer(number: &Number) -> Option<i128> {
    number
        .as_i64()
        .map(i128::from)
        .or_else(|| number.as_u64().map(i128::from))
}

fn float(number: &Number) -> f64 {
    number.as_f64().unwrap_or(0.0)
}

/// How the server writes a value inside a field path, as in `[port=80,protocol="TCP"]`.
#[must_use]
pub(crate) fn spell(value: &Value) -> String {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}={}", spell(value)))
            .collect(),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(spell).collect::<Vec<_>>().join(",")
        ),
        other => other.to_string(),
    }
}

/// How the server prints a value it knows nothing about, as in `map[name:web port:80]`.
#[must_use]
pub(crate) fn go_text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(go_text).collect::<Vec<_>>().join(" ")
        ),
        Value::Object(fields) => {
            let fields = sorted(fields)
                .into_iter()
                .map(|(name, value)| format!("{name}:{}", go_text(value)));
            format!("map[{}]", fields.collect::<Vec<_>>().join(" "))
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_by_what_they_mean() {
        assert!(equal(&json!(1), &json!(1.0)));
        assert!(equal(
            &json!({"a": [1], "b": 2}),
            &json!({"b": 2.0, "a": [1.0]})
        ));
        assert!(!equal(&json!(1), &json!("1")));
        assert_eq!(
            compare(
                &json!(9_007_199_254_740_993_i64),
                &json!(9_007_199_254_740_992.0)
            ),
            Ordering::Greater
        );
        assert_eq!(compare(&json!(1.5), &json!(1)), Ordering::Greater);
        assert_eq!(compare(&json!(-1.5), &json!(-1)), Ordering::Less);
    }

    #[test]
    fn kinds_of_values_have_an_order() {
        let ordered = [
            json!(1),
            json!("a"),
            json!("b"),
            json!(false),
            json!(true),
            json!([]),
            json!({}),
            json!(null),
        ];
        for pair in ordered.windows(2) {
            assert_eq!(
                compare(&pair[0], &pair[1]),
                Ordering::Less,
                "{} < {}",
                pair[0],
                pair[1]
            );
        }
    }
}
