//! ConfigMaps, Secrets and Leases.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{PLAIN, Strategy};
use crate::core::error::Cause;
use crate::core::{limits, meta, names};

pub static CONFIG_MAP: Strategy = Strategy {
    validate: validate_map,
    validate_update: validate_map_update,
    ..PLAIN
};
pub static SECRET: Strategy = Strategy {
    default: default_secret,
    validate: validate_secret,
    validate_update: validate_secret_update,
    ..PLAIN
};
pub static LEASE: Strategy = Strategy {
    default: default_lease,
    validate: validate_lease,
    ..PLAIN
};

/// Keys that a Secret of a type must have.
const REQUIRED_KEYS: [(&str, &[&str]); 3] = [
    ("kubernetes.io/tls", &["tls.crt", "tls.key"]),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"]),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"]),
];

fn entries<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object
        .get(key)
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
}

fn validate_map(map: &Value) -> Vec<Cause> {
    let mut causes = key_causes(map, "data");
    causes.extend(key_causes(map, "binaryData"));
    for (key, _) in entries(map, "binaryData") {
        if meta::at(map, &["data", key]).is_some() {
            let detail = "duplicate of key present in data";
            causes.push(Cause::invalid(
                format!("binaryData[{key}]"),
                &key.as_str().into(),
                detail,
            ));
        }
    }
    let text: usize = entries(map, "data")
        .map(|(_, value)| value.as_str().map_or(0, str::len))
        .sum();
    causes.extend(size_cause(text + decoded_bytes(map, "binaryData"), "[]"));
    causes
}

fn key_causes(object: &Value, field: &str) -> Vec<Cause> {
    entries(object, field)
        .flat_map(|(key, _)| {
            names::config_key(key).into_iter().map(move |problem| {
                Cause::invalid(format!("{field}[{key}]"), &key.as_str().into(), &problem)
            })
        })
        .collect()
}

/// Bytes of base64 values when decoded, from their length.
fn decoded_bytes(object: &Value, field: &str) -> usize {
    entries(object, field)
        .map(|(_, value)| {
            value
                .as_str()
                .map_or(0, |text| text.trim_end_matches('=').len() * 3 / 4)
        })
        .sum()
}

fn size_cause(bytes: usize, field: &str) -> Option<Cause> {
    (bytes > limits::DATA_BYTES).then(|| Cause::too_long(field, limits::DATA_BYTES))
}

fn validate_map_update(new: &Value, old: &Value) -> Vec<Cause> {
    immutable_causes(new, old, &["data", "binaryData"])
}

fn immutable_causes(new: &Value, old: &Value, fields: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.get("immutable") != Some(&Value::Bool(true)) {
        return causes;
    }
    let detail = "field is immutable when `immutable` is set";
    if new.get("immutable") != Some(&Value::Bool(true)) {
        causes.push(Cause::forbidden("immutable", detail));
    }
    for field in fields {
        if new.get(field) != old.get(field) {
            causes.push(Cause::forbidden(*field, detail));
        }
    }
    causes
}

/// `stringData` is for writing only: it is merged into `data`.
fn default_secret(secret: &mut Value) {
    let object = meta::object(secret);
    meta::default_text(object, "type", "Opaque");
    if let Some(Value::Object(plain)) = object.shift_remove("stringData") {
        let data = meta::object(object.entry("data").or_insert_with(|| json!({})));
        for (key, value) in plain {
            data.insert(
                key,
                STANDARD.encode(value.as_str().unwrap_or_default()).into(),
            );
        }
    }
}

fn validate_secret(secret: &Value) -> Vec<Cause> {
    let mut causes = key_causes(secret, "data");
    causes.extend(size_cause(decoded_bytes(secret, "data"), "data"));
    let kind = meta::text(secret, &["type"]);
    for (_, keys) in REQUIRED_KEYS.iter().filter(|(name, _)| *name == kind) {
        for key in *keys {
            if meta::at(secret, &["data", key]).is_none() {
                causes.push(Cause::required(format!("data[{key}]"), ""));
            }
        }
    }
    causes
}

fn validate_secret_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = immutable_causes(new, old, &["data"]);
    let (after, before) = (meta::text(new, &["type"]), meta::text(old, &["type"]));
    if after != before {
        causes.push(Cause::invalid("type", &after.into(), "field is immutable"));
    }
    causes
}

fn default_lease(lease: &mut Value) {
    meta::child(lease, "spec");
}

fn validate_lease(lease: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(value) = meta::at(lease, &["spec", "leaseDurationSeconds"])
        && value.as_i64().is_some_and(|seconds| seconds <= 0)
    {
        causes.push(Cause::invalid(
            "spec.leaseDurationSeconds",
            value,
            "must be greater than 0",
        ));
    }
    if let Some(value) = meta::at(lease, &["spec", "leaseTransitions"])
        && value.as_i64().is_some_and(|count| count < 0)
    {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            value,
            "must be greater than or equal to 0",
        ));
    }
    causes
}
