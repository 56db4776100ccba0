//! Tables of what keeps data: claims, volumes, storage classes.

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{self, array, text};
use super::{AGE, Column, NAME, Printer, text as column, wide};

const DEFAULT_CLASS_ANNOTATION: &str = "storageclass.kubernetes.io/is-default-class";

const CAPACITY: Column = column("Capacity", "How much it holds.");
const ACCESS_MODES: Column = column("Access Modes", "Who may mount it, and how.");
const CLASS: Column = column("StorageClass", "The class it comes from.");
const ATTRIBUTES_CLASS: Column = column(
    "VolumeAttributesClass",
    "The class of its adjustable properties.",
);
const MODE: Column = wide("VolumeMode", "A file system or a raw block device.");

pub(super) fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "PersistentVolumeClaim" => &CLAIM,
        "PersistentVolume" => &VOLUME,
        "StorageClass" => &STORAGE_CLASS,
        _ => return None,
    })
}

fn phase(object: &Value) -> Value {
    if cell::is_deleting(object) {
        "Terminating".into()
    } else {
        text(object, "/status/phase").into()
    }
}

const CLAIM: Printer = Printer {
    columns: &[
        NAME,
        column("Status", "Whether it has a volume."),
        column("Volume", "The volume it is bound to."),
        CAPACITY,
        ACCESS_MODES,
        CLASS,
        ATTRIBUTES_CLASS,
        AGE,
        MODE,
    ],
    cells: claim,
};

fn claim(object: &Value, now: Timestamp) -> Vec<Value> {
    let volume = text(object, "/spec/volumeName");
    // Capacity and modes are the volume's, so an unbound claim has none yet.
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        let capacity = object
            .pointer("/status/capacity/storage")
            .map(cell::scalar)
            .unwrap_or_default();
        (
            capacity,
            cell::access_modes(array(object, "/status/accessModes")),
        )
    };
    vec![
        cell::name(object),
        phase(object),
        volume.into(),
        capacity.into(),
        modes.into(),
        text(object, "/spec/storageClassName").into(),
        unset(text(object, "/spec/volumeAttributesClassName")),
        cell::age(object, now),
        unset(text(object, "/spec/volumeMode")),
    ]
}

fn unset(value: &str) -> Value {
    if value.is_empty() {
        "<unset>".into()
    } else {
        value.into()
    }
}

const VOLUME: Printer = Printer {
    columns: &[
        NAME,
        CAPACITY,
        ACCESS_MODES,
        column("Reclaim Policy", "What becomes of it when its claim goes."),
        column("Status", "Whether it is in use."),
        column("Claim", "The claim that has it."),
        CLASS,
        ATTRIBUTES_CLASS,
        column("Reason", "Why it is in this state."),
        AGE,
        MODE,
    ],
    cells: volume,
};

fn volume(object: &Value, now: Timestamp) -> Vec<Value> {
    let claim = match object.pointer("/spec/claimRef") {
        Some(claim) => format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")),
        None => String::new(),
    };
    vec![
        cell::name(object),
        object
            .pointer("/spec/capacity/storage")
            .map(cell::scalar)
            .unwrap_or_default()
            .into(),
        cell::access_modes(array(object, "/spec/accessModes")).into(),
        text(object, "/spec/persistentVolumeReclaimPolicy").into(),
        phase(object),
        claim.into(),
        text(object, "/spec/storageClassName").into(),
        unset(text(object, "/spec/volumeAttributesClassName")),
        text(object, "/status/reason").into(),
        cell::age(object, now),
        unset(text(object, "/spec/volumeMode")),
    ]
}

const STORAGE_CLASS: Printer = Printer {
    columns: &[
        NAME,
        column("Provisioner", "Who makes volumes of this class."),
        column(
            "ReclaimPolicy",
            "What becomes of a volume when its claim goes.",
        ),
        column("VolumeBindingMode", "When a claim gets its volume."),
        column("AllowVolumeExpansion", "Whether volumes may grow."),
        AGE,
    ],
    cells: storage_class,
};

fn storage_class(object: &Value, now: Timestamp) -> Vec<Value> {
    let annotation = object
        .pointer("/metadata/annotations")
        .and_then(|map| map.get(DEFAULT_CLASS_ANNOTATION));
    let suffix = if annotation.and_then(Value::as_str) == Some("true") {
        " (default)"
    } else {
        ""
    };
    let or = |pointer: &str, default: &str| match text(object, pointer) {
        "" => Value::from(default),
        value => value.into(),
    };
    vec![
        format!("{}{suffix}", text(object, "/metadata/name")).into(),
        text(object, "/provisioner").into(),
        or("/reclaimPolicy", "Delete"),
        or("/volumeBindingMode", "Immediate"),
        cell::flag(object, "/allowVolumeExpansion").into(),
        cell::age(object, now),
    ]
}
