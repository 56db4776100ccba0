//! PersistentVolumeClaims, PersistentVolumes, StorageClasses.
//!
//! The protection finalizers that a real cluster's admission adds to claims and volumes are not added: their controllers do not run here.

use serde_json::{Value, json};

use super::containers::list;
use super::{Admission, PLAIN, Strategy, quantity};
use crate::core::error::{Cause, Failure, Named, Outcome};
use crate::core::meta;

pub static CLAIM: Strategy = Strategy {
    default: default_claim,
    create: create_claim,
    update: update_claim,
    validate: validate_claim,
    validate_update: validate_claim_update,
};
pub static VOLUME: Strategy = Strategy {
    default: default_volume,
    create: create_volume,
    validate: validate_volume,
    ..PLAIN
};
pub static CLASS: Strategy = Strategy {
    default: default_class,
    validate: validate_class,
    validate_update: validate_class_update,
    ..PLAIN
};

const CLASSES: &str = "storageclasses.storage.k8s.io";
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
const ACCESS_MODES: [&str; 4] = [
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
];
const ONLY_THESE: &str = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims";

fn default_claim(claim: &mut Value) {
    meta::default_text(meta::child(claim, "spec"), "volumeMode", "Filesystem");
}

/// A claim that names no class gets the default one, if there is one; the newest if there are several.
fn create_claim(claim: &mut Value, admission: &mut Admission<'_>) -> Outcome<()> {
    claim["status"] = json!({"phase": "Pending"});
    if meta::at(claim, &["spec", "storageClassName"]).is_some() {
        return Ok(());
    }
    let is_default = |class: &&std::sync::Arc<Value>| {
        meta::text(class, &["metadata", "annotations", DEFAULT_CLASS]) == "true"
    };
    let newest = admission
        .state
        .objects(CLASSES)
        .filter(is_default)
        .max_by_key(|class| meta::text(class, &["metadata", "creationTimestamp"]).to_owned());
    if let Some(class) = newest {
        let name = meta::name(class).to_owned();
        meta::child(claim, "spec").insert("storageClassName".to_owned(), name.into());
    }
    Ok(())
}

fn access_causes(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if list(spec, "accessModes").next().is_none() {
        causes.push(Cause::required(
            "spec.accessModes",
            "at least 1 access mode is required",
        ));
    }
    for mode in list(spec, "accessModes") {
        if !mode
            .as_str()
            .is_some_and(|mode| ACCESS_MODES.contains(&mode))
        {
            causes.push(Cause::not_supported(
                "spec.accessModes",
                mode,
                &ACCESS_MODES,
            ));
        }
    }
    causes
}

fn validate_claim(claim: &Value) -> Vec<Cause> {
    let spec = claim.get("spec").unwrap_or(&Value::Null);
    let mut causes = access_causes(spec);
    match meta::at(spec, &["resources", "requests", "storage"]) {
        None => causes.push(Cause::required("spec.resources[storage]", "")),
        Some(size) => {
            if size
                .as_str()
                .and_then(quantity::parse)
                .is_none_or(|bytes| bytes <= 0.0)
            {
                causes.push(Cause::invalid(
                    "spec.resources[storage]",
                    size,
                    "must be greater than zero",
                ));
            }
        }
    }
    causes
}

/// Only the size asked for may change, and only of a bound claim; what is unset may be set once (volume, class).
fn validate_claim_update(new: &Value, old: &Value) -> Vec<Cause> {
    let empty = json!({});
    let mut after = new.get("spec").cloned().unwrap_or_else(|| json!({}));
    let before = old.get("spec").unwrap_or(&empty);
    for key in ["volumeName", "storageClassName"] {
        if meta::text(before, &[key]).is_empty() {
            put_back(&mut after, before, key);
        }
    }
    if meta::text(old, &["status", "phase"]) == "Bound" {
        put_back(&mut after, before, "volumeAttributesClassName");
        let requests = meta::at(before, &["resources", "requests"])
            .cloned()
            .unwrap_or_default();
        meta::child(&mut after, "resources").insert("requests".to_owned(), requests);
    }
    if after != *before {
        return vec![Cause::forbidden("spec", ONLY_THESE)];
    }
    let has_shrunk = size(new, &ASKED) < size(old, &ASKED);
    if has_shrunk && size(new, &ASKED) < size(old, &["status", "capacity", "storage"]) {
        let detail = "field can not be less than status.capacity";
        return vec![Cause::forbidden(ASKED.join("."), detail)];
    }
    Vec::new()
}

fn size(claim: &Value, path: &[&str]) -> Option<f64> {
    quantity::parse(meta::text(claim, path))
}

const ASKED: [&str; 4] = ["spec", "resources", "requests", "storage"];

/// Only a class that says so grows its volumes.
fn update_claim(new: &mut Value, old: &Value, admission: &mut Admission<'_>) -> Outcome<()> {
    let grows = size(new, &ASKED) > size(old, &ASKED);
    if !grows || meta::text(old, &["status", "phase"]) != "Bound" {
        return Ok(());
    }
    let class = meta::text(new, &["spec", "storageClassName"]);
    let class = admission.state.get(CLASSES, "", class);
    if class.is_some_and(|class| class.get("allowVolumeExpansion") == Some(&Value::Bool(true))) {
        return Ok(());
    }
    let named = Named {
        group: "",
        kind: "persistentvolumeclaims",
        name: meta::name(new),
    };
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(Failure::forbidden(&named, why))
}

fn put_back(value: &mut Value, original: &Value, key: &str) {
    let map = meta::object(value);
    match original.get(key) {
        Some(field) => map.insert(key.to_owned(), field.clone()),
        None => map.shift_remove(key),
    };
}

fn default_volume(volume: &mut Value) {
    let spec = meta::child(volume, "spec");
    meta::default_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    meta::default_text(spec, "volumeMode", "Filesystem");
    if let Some(path) = spec.get_mut("hostPath") {
        meta::default(meta::object(path), "type", "");
    }
}

fn create_volume(volume: &mut Value, admission: &mut Admission<'_>) -> Outcome<()> {
    volume["status"] =
        json!({"phase": "Pending", "lastPhaseTransitionTime": meta::timestamp(admission.now)});
    Ok(())
}

fn validate_volume(volume: &Value) -> Vec<Cause> {
    let spec = volume.get("spec").unwrap_or(&Value::Null);
    let mut causes = access_causes(spec);
    if meta::at(spec, &["capacity", "storage"]).is_none() {
        causes.push(Cause::required("spec.capacity", ""));
    }
    causes
}

fn default_class(class: &mut Value) {
    let object = meta::object(class);
    meta::default_text(object, "reclaimPolicy", "Delete");
    meta::default_text(object, "volumeBindingMode", "Immediate");
}

fn validate_class(class: &Value) -> Vec<Cause> {
    if meta::text(class, &["provisioner"]).is_empty() {
        vec![Cause::required("provisioner", "")]
    } else {
        Vec::new()
    }
}

fn validate_class_update(new: &Value, old: &Value) -> Vec<Cause> {
    let fixed = [
        "parameters",
        "provisioner",
        "reclaimPolicy",
        "volumeBindingMode",
    ];
    let changed = fixed
        .iter()
        .filter(|field| new.get(**field) != old.get(**field));
    changed
        .map(|field| {
            let value = new.get(*field).unwrap_or(&Value::Null);
            Cause::invalid(*field, value, "field is immutable")
        })
        .collect()
}
