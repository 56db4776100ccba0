//! The rules for `metadata` that hold for every kind: what a client may write there, and what only the server writes.

use rand::RngCore;
use serde_json::{Map, Value};

use super::error::{Cause, CauseReason};
use super::kind::KindInfo;
use super::registry::builtin::NameRule;
use super::{limits, meta, names};

/// Letters of a generated suffix: no vowels, so no words; nothing that looks like something else.
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LETTERS: usize = 5;

/// Finalizers without a domain that the API itself knows.
const STANDARD_FINALIZERS: [&str; 4] = [
    "foregroundDeletion",
    "kubernetes",
    "metadata.finalizers",
    "orphan",
];

/// Kinds that may not own anything: they come and go too fast for a garbage collector.
const NEVER_OWNERS: [(&str, &str); 1] = [("v1", "Event")];

pub fn suffix(rng: &mut dyn RngCore) -> String {
    (0..SUFFIX_LETTERS)
        .map(|_| {
            let index = rng.next_u32() as usize % SUFFIX_ALPHABET.len();
            char::from(SUFFIX_ALPHABET[index])
        })
        .collect()
}

pub fn generated_name(base: &str, rng: &mut dyn RngCore) -> String {
    let mut end = base.len().min(limits::GENERATED_BASE_BYTES);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &base[..end], suffix(rng))
}

pub fn new_uid(rng: &mut dyn RngCore) -> String {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .to_string()
}

/// What is wrong with a name of this kind.
pub fn name_problems(kind: &KindInfo, name: &str) -> Vec<String> {
    match kind.row().map_or(NameRule::Subdomain, |row| row.name_rule) {
        NameRule::Subdomain => names::subdomain(name),
        NameRule::Label => names::label(name),
        NameRule::PathSegment => names::path_segment(name),
    }
}

pub fn validate(kind: &KindInfo, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = meta::name(object);
    let base = meta::text(object, &["metadata", "generateName"]);
    if !base.is_empty() {
        // A base may end in what a name may not: the suffix follows.
        let masked = base
            .strip_suffix('-')
            .map_or_else(|| base.to_owned(), |stem| format!("{stem}a"));
        causes.extend(
            name_problems(kind, &masked)
                .iter()
                .map(|problem| Cause::invalid("metadata.generateName", &base.into(), problem)),
        );
    }
    if name.is_empty() {
        causes.push(Cause::required(
            "metadata.name",
            "name or generateName is required",
        ));
    } else {
        causes.extend(
            name_problems(kind, name)
                .iter()
                .map(|problem| Cause::invalid("metadata.name", &name.into(), problem)),
        );
    }
    let map = |key: &str| meta::at(object, &["metadata", key]).and_then(Value::as_object);
    if let Some(labels) = map("labels") {
        causes.extend(labels_causes(labels, "metadata.labels"));
    }
    if let Some(annotations) = map("annotations") {
        causes.extend(annotation_causes(annotations));
    }
    causes.extend(owner_causes(object));
    for (index, finalizer) in meta::finalizers(object).iter().enumerate() {
        causes.extend(finalizer_causes(
            kind,
            finalizer,
            &format!("metadata.finalizers[{index}]"),
        ));
    }
    causes
}

pub fn labels_causes(labels: &Map<String, Value>, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (key, value) in labels {
        causes.extend(
            names::qualified(key)
                .iter()
                .map(|problem| Cause::invalid(field, &key.as_str().into(), problem)),
        );
        let text = value.as_str().unwrap_or_default();
        causes.extend(
            names::label_value(text)
                .iter()
                .map(|problem| Cause::invalid(field, value, problem)),
        );
    }
    causes
}

fn annotation_causes(annotations: &Map<String, Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut bytes = 0;
    for (key, value) in annotations {
        // Case does not matter in an annotation's key.
        let problems = names::qualified(&key.to_lowercase());
        causes.extend(
            problems.iter().map(|problem| {
                Cause::invalid("metadata.annotations", &key.as_str().into(), problem)
            }),
        );
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > limits::ANNOTATION_BYTES {
        causes.push(Cause::too_long(
            "metadata.annotations",
            limits::ANNOTATION_BYTES,
        ));
    }
    causes
}

fn owner_causes(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(owners) = meta::at(object, &["metadata", "ownerReferences"]).and_then(Value::as_array)
    else {
        return causes;
    };
    let mut controller: Option<String> = None;
    for owner in owners {
        let field = |name: &str| format!("metadata.ownerReferences.{name}");
        let version = meta::text(owner, &["apiVersion"]);
        if version.is_empty() {
            causes.push(Cause::invalid(
                field("apiVersion"),
                &"".into(),
                "version must not be empty",
            ));
        }
        for key in ["kind", "name", "uid"] {
            if meta::text(owner, &[key]).is_empty() {
                causes.push(Cause::invalid(field(key), &"".into(), "must not be empty"));
            }
        }
        let kind = meta::text(owner, &["kind"]);
        if NEVER_OWNERS.contains(&(version, kind)) {
            let detail = format!("{version}, Kind={kind} is disallowed from being an owner");
            causes.push(Cause::invalid("metadata.ownerReferences", owner, &detail));
        }
        if owner.get("controller") == Some(&Value::Bool(true)) {
            let this = format!("{kind}/{}", meta::text(owner, &["name"]));
            if let Some(other) = &controller {
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {other} and {this}"
                );
                causes.push(Cause::invalid(
                    "metadata.ownerReferences",
                    &Value::Array(owners.clone()),
                    &detail,
                ));
            }
            controller = Some(this);
        }
    }
    causes
}

/// Custom resources and their definitions may have finalizers without a domain; the API's own kinds may not.
fn finalizer_causes(kind: &KindInfo, finalizer: &str, field: &str) -> Vec<Cause> {
    let mut causes: Vec<Cause> = names::qualified(finalizer)
        .iter()
        .map(|problem| Cause::invalid(field, &finalizer.into(), problem))
        .collect();
    let is_lenient = kind.is_custom() || kind.group == "apiextensions.k8s.io";
    if causes.is_empty()
        && !is_lenient
        && !finalizer.contains('/')
        && !STANDARD_FINALIZERS.contains(&finalizer)
    {
        causes.push(Cause::invalid(
            field,
            &finalizer.into(),
            "name is neither a standard finalizer name nor is it fully qualified",
        ));
    }
    causes
}

/// What may not change in `metadata`. The fields that only the server writes were put back before.
pub fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new_field, old_field) = (
            meta::at(new, &["metadata", key]),
            meta::at(old, &["metadata", key]),
        );
        if new_field != old_field {
            causes.push(Cause::invalid(
                format!("metadata.{key}"),
                new_field.unwrap_or(&Value::Null),
                "field is immutable",
            ));
        }
    }
    if meta::is_deleting(old) {
        let before = meta::finalizers(old);
        let added: Vec<String> = meta::finalizers(new)
            .iter()
            .filter(|finalizer| !before.contains(finalizer))
            .map(|finalizer| format!("{finalizer:?}"))
            .collect();
        if !added.is_empty() {
            let list = added.join(", ");
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
            );
            causes.push(Cause::new(
                CauseReason::Forbidden,
                "metadata.finalizers",
                format!("Forbidden: {detail}"),
            ));
        }
    }
    causes
}

/// Drops repeated owner references, as the API does, and says so.
pub fn dedup_owners(object: &mut Value, warnings: &mut Vec<String>) {
    let Some(owners) = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("ownerReferences"))
        .and_then(Value::as_array_mut)
    else {
        return;
    };
    let mut seen: Vec<Value> = Vec::with_capacity(owners.len());
    for owner in owners.drain(..) {
        if seen.contains(&owner) {
            let uid = meta::text(&owner, &["uid"]);
            warnings.push(format!(".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {uid}"));
        } else {
            seen.push(owner);
        }
    }
    *owners = seen;
}
