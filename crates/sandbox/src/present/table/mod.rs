//! `as=Table`: the columns and rows `kubectl get` prints.
//!
//! Built-in kinds have their printers in `workloads`, `storage`, `network`, `cluster`; custom resources bring columns in their definition
//! (`custom`). Whatever has neither shows its name and when it was made.

mod cell;
mod cluster;
mod custom;
mod network;
mod path;
mod pod;
mod storage;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::partial;
use crate::core::kind::KindInfo;

/// One column of a built-in kind.
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    /// 0 is always shown, 1 only with `-o wide`.
    priority: u8,
    description: &'static str,
}

/// How a built-in kind is printed.
pub(super) struct Printer {
    columns: &'static [Column],
    cells: fn(&Value, Timestamp) -> Vec<Value>,
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        priority: 0,
        description,
    }
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "integer",
        priority: 0,
        description,
    }
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column {
        name,
        kind: "string",
        priority: 1,
        description,
    }
}

const NAME: Column = text(
    "Name",
    "The object's name, unique among its kind in its namespace.",
);
const AGE: Column = text("Age", "How long ago the object was made.");
const CREATED_AT: Column = Column {
    name: "Created At",
    kind: "date",
    priority: 0,
    description: "When the object was made, in UTC.",
};

const PLAIN: Printer = Printer {
    columns: &[NAME, CREATED_AT],
    cells: |object, _| {
        vec![
            cell::name(object),
            object
                .pointer("/metadata/creationTimestamp")
                .cloned()
                .unwrap_or_default(),
        ]
    },
};

/// A table of these objects. `metadata` is the list's own, or the object's `resourceVersion` for a single one.
pub(super) fn table<'a>(
    kind: &KindInfo,
    objects: impl Iterator<Item = &'a Value>,
    metadata: Value,
    now: Timestamp,
) -> Value {
    let (definitions, rows) = if kind.is_custom() {
        let columns = custom::Columns::of(kind);
        let rows = objects
            .map(|object| row(object, columns.cells(object, now)))
            .collect::<Vec<_>>();
        (columns.definitions(), rows)
    } else {
        let printer = printer(&kind.group, &kind.kind);
        let rows = objects
            .map(|object| row(object, (printer.cells)(object, now)))
            .collect::<Vec<_>>();
        (printer.columns.iter().map(definition).collect(), rows)
    };
    let mut table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1"});
    table["metadata"] = metadata;
    table["columnDefinitions"] = Value::Array(definitions);
    table["rows"] = Value::Array(rows);
    table
}

fn printer(group: &str, kind: &str) -> &'static Printer {
    match (group, kind) {
        ("", "Pod") => Some(&pod::POD),
        ("", _) => network::printer(kind)
            .or_else(|| storage::printer(kind))
            .or_else(|| cluster::printer(kind)),
        ("apps" | "batch", _) => workloads::printer(kind),
        ("discovery.k8s.io" | "networking.k8s.io", _) => network::printer(kind),
        ("storage.k8s.io", _) => storage::printer(kind),
        _ => cluster::printer(kind),
    }
    .unwrap_or(&PLAIN)
}

fn definition(column: &Column) -> Value {
    let format = if column.name == "Name" { "name" } else { "" };
    json!({
        "name": column.name, "type": column.kind, "format": format, "description": column.description, "priority": column.priority,
    })
}

fn row(object: &Value, cells: Vec<Value>) -> Value {
    let mut row = json!({});
    row["cells"] = Value::Array(cells);
    row["object"] = partial(object);
    if let Some(condition) = pod::completed(object) {
        row["conditions"] = json!([condition]);
    }
    row
}
