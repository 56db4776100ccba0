//! Who owns which field: `metadata.managedFields`, kept by the `geodb-merge` crate.

use geodb_merge::apply::{ApplyError, ApplyRequest, UpdateRequest};
use geodb_merge::schema::Schema;
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::error::{Cause, CauseReason, Details, Failure, Outcome, Reason};
use super::kind::{KindInfo, Source};
use super::meta;
use super::registry::DEFINITIONS;

/// Who writes, through which door, when.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    pub manager: &'a str,
    pub subresource: &'a str,
    pub now: Timestamp,
}

/// What merging needs to know about a custom resource.
pub fn custom_schema(schema: &Value, has_status: bool) -> Result<Schema, String> {
    Schema::from_openapi(schema)
        .map(|schema| schema.with_status_subresource(has_status))
        .map_err(|error| error.to_string())
}

pub fn schema(kind: &KindInfo) -> Option<&Schema> {
    match &kind.source {
        Source::Builtin(_) => geodb_merge::builtin::schema(&kind.api_version(), &kind.kind),
        Source::Custom(custom) => Some(&custom.merge_schema),
    }
}

/// Brings the managedFields of `new` up to date. Both objects are in the shape of `kind`.
pub fn record(kind: &KindInfo, live: Option<&Value>, new: Value, writer: Writer<'_>) -> Value {
    let Some(schema) = schema(kind) else {
        return new;
    };
    let mut recorded = geodb_merge::apply::update(UpdateRequest {
        live,
        new: &new,
        manager: writer.manager,
        subresource: writer.subresource,
        api_version: &kind.api_version(),
        now: &meta::timestamp(writer.now),
        schema,
    })
    .object;
    keep_status_doors(kind, &[&new], &mut recorded);
    recorded
}

/// Merges what is applied into what is live.
pub fn apply(
    kind: &KindInfo,
    live: Option<&Value>,
    applied: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Outcome<Value> {
    let Some(schema) = schema(kind) else {
        return Err(Failure::not_implemented(format!(
            "this sandbox has no schema of {} to apply by",
            kind.kind
        )));
    };
    let request = ApplyRequest {
        live,
        applied,
        manager: writer.manager,
        subresource: writer.subresource,
        api_version: &kind.api_version(),
        force,
        now: &meta::timestamp(writer.now),
        schema,
    };
    let mut merged = geodb_merge::apply::apply(request).map_err(failure)?.object;
    keep_status_doors(kind, &[applied, live.unwrap_or(&Value::Null)], &mut merged);
    Ok(merged)
}

fn failure(error: ApplyError) -> Box<Failure> {
    match error {
        ApplyError::Conflicts(conflicts) => {
            let cause = |conflict: &geodb_merge::apply::Conflict| {
                let message = format!("conflict with {}", conflict.manager);
                Cause::new(
                    CauseReason::FieldManagerConflict,
                    conflict.field.clone(),
                    message,
                )
            };
            let causes = conflicts.0.iter().map(cause).collect();
            Failure::new(409, Reason::Conflict, conflicts.message()).with_details(Details {
                causes,
                ..Details::default()
            })
        }
        ApplyError::BadRequest(message) => Failure::bad_request(message),
        ApplyError::Schema(message) => Failure::internal(message),
        ApplyError::ManagedFields(error) => {
            Failure::internal(format!("failed to decode managed fields: {error}"))
        }
    }
}

/// Whether a write changes anything. If not, times that only bookkeeping moved are put back.
pub fn settle(live: &Value, new: &mut Value) -> bool {
    geodb_merge::apply::settle(live, new)
}

/// Merging takes an empty object without declared fields for an empty map and leaves it out. In a definition there is one that says
/// something: `subresources.status: {}`. The first of the sources that has a version says whether it has that door.
fn keep_status_doors(kind: &KindInfo, sources: &[&Value], result: &mut Value) {
    if &*kind.resource != DEFINITIONS {
        return;
    }
    let find = |source: &Value, name: &str| {
        let versions = meta::at(source, &["spec", "versions"]).and_then(Value::as_array);
        let mut named = versions
            .into_iter()
            .flatten()
            .filter(|version| meta::text(version, &["name"]) == name);
        named.next().cloned()
    };
    let versions = result
        .get_mut("spec")
        .and_then(|spec| spec.get_mut("versions"))
        .and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let name = meta::text(version, &["name"]).to_owned();
        let said = sources.iter().find_map(|source| find(source, &name));
        let has_door = said
            .as_ref()
            .and_then(|said| meta::at(said, &["subresources", "status"]))
            .is_some_and(Value::is_object);
        if has_door {
            meta::default(
                meta::child(version, "subresources"),
                "status",
                Value::Object(Map::new()),
            );
        }
    }
}
