//! Tables of custom resources, from the columns in their definition.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell;
use super::path::Path;
use crate::core::kind::{KindInfo, PrinterColumn};
use crate::present::age;

/// The columns of one custom kind, their paths parsed once per table.
pub(super) struct Columns {
    columns: Vec<(PrinterColumn, Option<Path>)>,
}

impl Columns {
    pub(super) fn of(kind: &KindInfo) -> Self {
        let parse = |column: &PrinterColumn| (column.clone(), Path::parse(&column.json_path));
        let mut columns = kind.columns.iter().map(parse).collect::<Vec<_>>();
        if columns.is_empty() {
            columns.push(parse(&PrinterColumn {
                name: "Age".to_owned(),
                kind: "date".to_owned(),
                format: String::new(),
                description: "How long ago the object was made.".to_owned(),
                priority: 0,
                json_path: ".metadata.creationTimestamp".to_owned(),
            }));
        }
        Self { columns }
    }

    pub(super) fn definitions(&self) -> Vec<Value> {
        let mut definitions = vec![super::definition(&super::NAME)];
        definitions.extend(self.columns.iter().map(|(column, _)| {
            json!({
                "name": column.name, "type": column.kind, "format": column.format, "description": column.description,
                "priority": column.priority,
            })
        }));
        definitions
    }

    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut cells = vec![cell::name(object)];
        cells.extend(self.columns.iter().map(|(column, path)| match path {
            Some(path) => cell(column, &path.find(object), now),
            // The definition was stored with a path this server cannot follow: it says so in the cell, it does not guess.
            None => "<invalid>".into(),
        }));
        cells
    }
}

/// A value in its column's type; one of another type is left out, as a real server does.
fn cell(column: &PrinterColumn, found: &[&Value], now: Timestamp) -> Value {
    let Some(first) = found.first().filter(|value| !value.is_null()) else {
        return Value::Null;
    };
    match column.kind.as_str() {
        "integer" => first.as_i64().map_or(Value::Null, Value::from),
        "number" => first.as_f64().map_or(Value::Null, Value::from),
        "boolean" => first.as_bool().map_or(Value::Null, Value::from),
        "date" => age::since(Some(first), now).into(),
        _ => found
            .iter()
            .map(|value| cell::scalar(value))
            .collect::<Vec<_>>()
            .join(",")
            .into(),
    }
}
