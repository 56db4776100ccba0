//! Who owns which field: `metadata.managedFields`, kept by the `geodb-merge` crate.

use geodb_merge::apply::{ApplyError, ApplyRequest, UpdateRequest};
use geodb_merge::schema::Schema;
use jiff::Timestamp;
use serde_json::Value;

use super::error::{Cause, CauseReason, Details, Failure, Outcome, Reason};
use super::kind::{KindInfo, Source};
use super::meta;

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
    geodb_merge::apply::update(UpdateRequest {
        live,
        new: &new,
        manager: writer.manager,
        subresource: writer.subresource,
        api_version: &kind.api_version(),
        now: &meta::timestamp(writer.now),
        schema,
    })
    .object
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
    Ok(geodb_merge::apply::apply(request).map_err(failure)?.object)
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
