//! Between the shape in which a kind is served and the one in which it is stored.
//!
//! Versions of a custom resource differ in name only (`strategy: None`). Events have two shapes: the core group's is the stored one.

use std::sync::Arc;

use serde_json::Value;

use super::kind::{KindInfo, Source};
use super::meta;

/// Fields of an Event: in `events.k8s.io`, and in the core group.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

fn is_grouped_event(kind: &KindInfo) -> bool {
    kind.group == "events.k8s.io" && kind.kind == "Event"
}

pub fn to_stored(kind: &KindInfo, mut object: Value) -> Value {
    match &kind.source {
        Source::Custom(custom) => object["apiVersion"] = custom.storage_api_version.as_str().into(),
        Source::Builtin(_) if is_grouped_event(kind) => {
            rename(&mut object, |(served, stored)| (served, stored));
            object["apiVersion"] = "v1".into();
        }
        Source::Builtin(_) => {}
    }
    object
}

/// Shares the stored object where nothing is different.
pub fn from_stored(kind: &KindInfo, object: &Arc<Value>) -> Arc<Value> {
    match &kind.source {
        Source::Custom(custom) => {
            let api_version = kind.api_version();
            let is_other_version = custom.storage_api_version != api_version;
            if !is_other_version && !custom.reads_by_schema {
                return Arc::clone(object);
            }
            let mut served = Value::clone(object);
            served["apiVersion"] = api_version.into();
            custom.prune(&mut served, &mut Vec::new());
            custom.default(&mut served);
            Arc::new(served)
        }
        Source::Builtin(_) if is_grouped_event(kind) => {
            let mut served = Value::clone(object);
            rename(&mut served, |(served, stored)| (stored, served));
            served["apiVersion"] = kind.api_version().into();
            Arc::new(served)
        }
        Source::Builtin(_) => Arc::clone(object),
    }
}

fn rename(
    object: &mut Value,
    direction: fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let map = meta::object(object);
    for pair in EVENT_FIELDS {
        let (from, to) = direction(pair);
        if let Some(value) = map.shift_remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}
