//! A fingerprint of what we meant, kept on the object itself.
//!
//! Comparing desired with live fields finds what others changed, but not what we no longer mean: a field that was dropped from
//! the desired object is still there and no desired field disagrees. The fingerprint of the whole desired object, taken
//! before the server fills in its defaults, finds that. It is versioned so that a change of the method is told from a
//! change of the meaning.

use std::fmt::Write as _;

use serde_json::Value;
use sha2::{Digest, Sha256};

const METHOD: &str = "v1";

/// Bytes of SHA-256 that are kept. This is no defence against forgery, only against chance.
const DIGEST_BYTES: usize = 16;

/// The fingerprint of a desired object, which must not carry one yet. The order of fields does not matter.
pub fn fingerprint(desired: &Value) -> String {
    let mut canonical = String::new();
    write_canonical(desired, &mut canonical);
    let digest = Sha256::digest(canonical.as_bytes());
    let mut text = format!("{METHOD}:");
    for byte in digest.iter().take(DIGEST_BYTES) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// JSON with sorted keys and no null members: a field set to null and one left out mean the same.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields
                .iter()
                .filter(|(_, value)| !value.is_null())
                .collect();
            sorted.sort_by(|left, right| left.0.cmp(right.0));
            out.push('{');
            for (name, value) in sorted {
                out.push_str(&Value::String(name.clone()).to_string());
                out.push(':');
                write_canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                write_canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn order_and_nulls_do_not_matter_but_everything_else_does() {
        let base = fingerprint(&json!({"a": 1, "b": {"c": [1, 2], "d": "x"}}));
        assert_eq!(
            base,
            fingerprint(&json!({"b": {"d": "x", "c": [1, 2]}, "a": 1}))
        );
        assert_eq!(
            base,
            fingerprint(&json!({"b": {"d": "x", "c": [1, 2], "e": null}, "a": 1}))
        );
        for other in [
            json!({"a": 1, "b": {"c": [2, 1], "d": "x"}}),
            json!({"a": 1, "b": {"c": [1, 2]}}),
            json!({"a": "1", "b": {"c": [1, 2], "d": "x"}}),
            json!({"a": 1, "b": {"c": [[1], 2], "d": "x"}}),
        ] {
            assert_ne!(base, fingerprint(&other), "{other}");
        }
    }

    #[test]
    fn the_method_is_part_of_it_and_it_never_changes_by_accident() {
        // Changing this value makes every operator rewrite every object once: raise METHOD with it, on purpose.
        assert_eq!(
            fingerprint(&json!({"kind": "ConfigMap"})),
            "v1:abe9e46ff64aa9d84a3ac8b9693a314b"
        );
    }
}
