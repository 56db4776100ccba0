//! The way from kubectl's client-side apply to server-side apply: conflicts about fields that the annotation says kubectl applied itself are
//! none, and the annotation is kept true so that one can go back. Only for the manager `kubectl`; others opt out by their name.

use serde_json::Value;

use super::{ApplyError, ApplyRequest, Conflicts, apply_once};
use crate::field_set::FieldSet;
use crate::typed::{self, Duplicates};

const KUBECTL: &str = "kubectl";
const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The server's limit on all annotations of an object together; over it the annotation is dropped and not the apply.
const ANNOTATIONS_LIMIT_BYTES: usize = 256 * 1024;

pub(super) fn apply(request: &ApplyRequest<'_>) -> Result<Value, ApplyError> {
    let mut object = match apply_once(request, request.force) {
        Err(ApplyError::Conflicts(conflicts)) if request.manager == KUBECTL => {
            let allowed = request
                .live
                .and_then(|live| fields_last_applied(request, live))
                .unwrap_or_default();
            let remaining: Vec<_> = conflicts
                .0
                .into_iter()
                .filter(|conflict| !allowed.has(&conflict.path))
                .collect();
            if !remaining.is_empty() {
                return Err(Conflicts(remaining).into());
            }
            apply_once(request, true)?
        }
        other => other?,
    };
    if request.manager == KUBECTL {
        refresh_annotation(&mut object, request.applied);
    }
    Ok(object)
}

fn annotation(object: &Value) -> Option<&str> {
    object
        .get("metadata")?
        .get("annotations")?
        .get(ANNOTATION)?
        .as_str()
        .filter(|text| !text.is_empty())
}

/// The fields of the annotation that still have the values it says.
fn fields_last_applied(request: &ApplyRequest<'_>, live: &Value) -> Option<FieldSet> {
    let last: Value = serde_json::from_str(annotation(live)?).ok()?;
    if last.get("apiVersion")?.as_str()? != request.api_version {
        return None;
    }
    let kind = request.schema.root();
    let mut live = live.clone();
    crate::managed::remove_managed_fields(&mut live);
    typed::check(kind, &last, Duplicates::Refused).ok()?;
    typed::check(kind, &live, Duplicates::Refused).ok()?;
    let difference = typed::compare(kind, &last, &live).ok()?;
    let changed = difference
        .modified
        .union(&difference.added)
        .union(&difference.removed);
    Some(typed::field_set(kind, &last).difference(&changed))
}

fn refresh_annotation(object: &mut Value, applied: &Value) {
    if annotation(object).is_none() {
        return;
    }
    let mut applied = applied.clone();
    if let Some(annotations) = applied
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.retain(|name, _| name != ANNOTATION);
    }
    // The server writes fields in alphabetical order and ends the line.
    applied.sort_all_objects();
    let text = format!("{applied}\n");
    let Some(annotations) = object
        .pointer_mut("/metadata/annotations")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    annotations.insert(ANNOTATION.to_owned(), Value::String(text));
    let size: usize = annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
        .sum();
    if size > ANNOTATIONS_LIMIT_BYTES {
        annotations.retain(|name, _| name != ANNOTATION);
    }
}
