//! Server-side apply, and what every other write does to `metadata.managedFields`. The rules of a real server, in three parts: merge what is
//! applied over what is live, remove what this applier no longer wants and nobody else owns, and see whose fields that changed.
//! Not here: defaulting, admission, and keeping `status` out of the main endpoint's reach; those are the caller's, before `update`, after
//! `apply`. After them, `settle` tells whether anything is to be written.

mod last_applied;
mod update;

use serde_json::{Value, json};

use crate::field_set::{FieldSet, Path, path_text};
use crate::managed::{
    Entry, Managed, ManagedFieldsError, Manager, Operation, remove_managed_fields,
};
use crate::schema::Schema;
use crate::typed::{self, Comparison, Duplicates, TypeError, describe};
use crate::value::equal;

pub use update::{UpdateRequest, settle, update};

/// Who owned everything before the first apply to an object that nobody kept track of.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// One apply.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// The stored object, with its managedFields; none if this creates it.
    pub live: Option<&'a Value>,
    /// The body of the request.
    pub applied: &'a Value,
    /// `fieldManager` of the request.
    pub manager: &'a str,
    /// `status`, `scale`, …; empty for the main endpoint.
    pub subresource: &'a str,
    /// The version of the endpoint, as `apps/v1`.
    pub api_version: &'a str,
    /// Take the fields of others instead of refusing.
    pub force: bool,
    /// RFC 3339, UTC, in seconds, as `2026-11-15T20:06:00Z`.
    pub now: &'a str,
    /// The type of the object.
    pub schema: &'a Schema,
}

/// What is to be stored.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The whole object with its managedFields. Equal to the live one, times and all, if nothing changed.
    pub object: Value,
    /// Whether it differs from the live one in anything but times.
    pub changed: bool,
}

/// Why an apply is refused. The text is the server's.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// 409: fields belong to others and have other values. `force`, or leave them out.
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
    /// 400: the request is not an apply patch.
    #[error("{0}")]
    BadRequest(String),
    /// 500 on a real server: the object does not fit its schema.
    #[error("{0}")]
    Schema(String),
    /// 500 on a real server: what is stored cannot be read. Reset with an empty `managedFields` list.
    #[error("failed to decode managed fields: {0}")]
    ManagedFields(#[from] ManagedFieldsError),
}

impl ApplyError {
    /// The HTTP status a real server answers with.
    #[must_use]
    pub fn status_code(&self) -> u16 {
        match self {
            Self::Conflicts(_) => 409,
            Self::BadRequest(_) => 400,
            Self::Schema(_) | Self::ManagedFields(_) => 500,
        }
    }
}

/// Fields whose owners have other values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
pub struct Conflicts(pub Vec<Conflict>);

/// One field of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// As in the messages, with quotes: `"A"`, `"kubectl" using apps/v1`.
    pub manager: String,
    /// As `.spec.replicas`.
    pub field: String,
    pub(crate) path: Path,
}

impl Conflicts {
    /// `message` of the Status.
    #[must_use]
    pub fn message(&self) -> String {
        if let [only] = self.0.as_slice() {
            return format!(
                "Apply failed with 1 conflict: conflict with {}: {}",
                only.manager, only.field
            );
        }
        let mut lines = Vec::new();
        let mut previous = None;
        for conflict in &self.0 {
            if previous != Some(&conflict.manager) {
                lines.push(format!("conflicts with {}:", conflict.manager));
                previous = Some(&conflict.manager);
            }
            lines.push(format!("- {}", conflict.field));
        }
        format!(
            "Apply failed with {} conflicts: {}",
            self.0.len(),
            lines.join("\n")
        )
    }

    /// `details.causes` of the Status.
    #[must_use]
    pub fn causes(&self) -> Vec<Value> {
        let cause = |conflict: &Conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.manager),
                "field": conflict.field,
            })
        };
        self.0.iter().map(cause).collect()
    }
}

/// Applies.
///
/// # Errors
/// Conflicts with other managers, and objects that are not what their schema says.
pub fn apply(request: ApplyRequest<'_>) -> Result<Applied, ApplyError> {
    check_request(&request)?;
    let result = last_applied::apply(&request)?;
    Ok(settle_against(request.live, result))
}

fn settle_against(live: Option<&Value>, mut object: Value) -> Applied {
    let changed = live.is_none_or(|live| settle(live, &mut object));
    Applied { object, changed }
}

fn check_request(request: &ApplyRequest<'_>) -> Result<(), ApplyError> {
    let bad = |message: &str| Err(ApplyError::BadRequest(message.to_owned()));
    if !request.applied.is_object() {
        return bad("the body of an apply patch must be an object");
    }
    if request
        .applied
        .pointer("/metadata/managedFields")
        .is_some_and(|entries| !entries.is_null())
    {
        return bad("metadata.managedFields must be nil");
    }
    let text = |object: &Value, field: &str| {
        object
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (specified, kind) = (
        text(request.applied, "apiVersion"),
        text(request.applied, "kind"),
    );
    let live_kind = request.live.map(|live| text(live, "kind"));
    if specified != request.api_version
        || live_kind.is_some_and(|live| !live.is_empty() && live != kind)
    {
        return Err(ApplyError::BadRequest(format!(
            "invalid object type: {}",
            type_text(&specified, &kind)
        )));
    }
    Ok(())
}

/// As the server writes a group, version and kind.
fn type_text(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    format!("{group}/{version}, Kind={kind}")
}

fn object_text(object: &Value) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let kind = type_text(text("/apiVersion"), text("/kind"));
    format!(
        "{}/{}; {kind}",
        text("/metadata/namespace"),
        text("/metadata/name")
    )
}

/// The fields no entry ever lists.
fn never_owned() -> FieldSet {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

/// The fields an endpoint ignores, so that writing to it never owns them.
fn reset_fields(schema: &Schema, subresource: &str) -> FieldSet {
    match subresource {
        "" if schema.endpoints.has_status => FieldSet::of_fields(&[&["status"]]),
        "status" => FieldSet::of_fields(schema.endpoints.status_ignores),
        _ => FieldSet::default(),
    }
}

/// What an apply starts from: the live object without its entries, and the entries.
fn start(request: &ApplyRequest<'_>) -> Result<(Value, Managed), ApplyError> {
    let kind = request.schema.root();
    let mut managed = request
        .live
        .map_or_else(|| Ok(Managed::default()), Managed::decode)?;
    let new = || json!({"apiVersion": request.api_version, "kind": request.applied.get("kind")});
    let mut live = request.live.cloned().unwrap_or_else(new);
    remove_managed_fields(&mut live);
    if managed.0.is_empty() && request.live.is_some() {
        managed = update::own_everything(request, &live);
    }
    let misfit = |which: &str, object: &Value, errors: &[TypeError]| {
        let (object, errors) = (object_text(object), describe(errors));
        ApplyError::Schema(format!(
            "failed to create typed {which} object ({object}): {errors}"
        ))
    };
    typed::check(kind, request.applied, Duplicates::Refused)
        .map_err(|errors| misfit("patch", request.applied, &errors))?;
    typed::check(kind, &live, Duplicates::Allowed)
        .map_err(|errors| misfit("live", &live, &errors))?;
    forget_other_versions(&mut managed, request.api_version);
    for entry in managed.0.values_mut() {
        entry.fields = typed::reconcile(kind, &entry.fields);
    }
    Ok((live, managed))
}

/// The whole of an apply except for what is peculiar to kubectl.
fn apply_once(request: &ApplyRequest<'_>, force: bool) -> Result<Value, ApplyError> {
    let kind = request.schema.root();
    let (live, mut managed) = start(request)?;
    let merged = typed::merge(kind, Some(&live), Some(request.applied))
        .map_err(|errors| {
            ApplyError::Schema(format!("failed to merge config: {}", describe(&errors)))
        })?
        .unwrap_or_else(|| json!({}));
    let ignored = reset_fields(request.schema, request.subresource);
    let wanted = typed::field_set(kind, request.applied).recursive_difference(&ignored);
    let manager = Manager::new(
        request.manager,
        Operation::Apply,
        request.api_version,
        request.subresource,
    );
    let entry = Entry {
        api_version: request.api_version.to_owned(),
        fields: wanted,
        time: None,
    };
    let last = managed.0.insert(manager.clone(), entry);
    let mut object = match &last {
        Some(last) if !last.fields.is_empty() => {
            prune(request.schema, &merged, &managed, &last.fields)
        }
        _ => merged,
    };

    let comparison = typed::compare(kind, &live, &object)
        .map_err(|errors| {
            ApplyError::Schema(format!("failed to compare objects: {}", describe(&errors)))
        })?
        .without(&ignored);
    take_from_others(&mut managed, &comparison, &manager, force)?;
    strip(&mut managed, &manager);
    let is_changed = !equal(&live, &object);
    if let Some(entry) = managed.0.get_mut(&manager) {
        // Sharing what is there already changes nothing, so it is not an event that has a time.
        entry.time = if is_changed {
            Some(request.now.to_owned())
        } else {
            last.and_then(|last| last.time)
        };
    }
    request.schema.normalise(&mut object);
    if !object.get("metadata").is_some_and(Value::is_object) {
        object["metadata"] = json!({});
    }
    managed.encode(&mut object);
    Ok(object)
}

/// Entries of versions that this endpoint cannot read. A real server converts the object to those it still serves; here they are forgotten,
/// which is what it does with the others.
fn forget_other_versions(managed: &mut Managed, api_version: &str) {
    managed
        .0
        .retain(|_, entry| entry.api_version == api_version);
}

/// Removes what the applier wanted last time and does not want now, unless somebody owns it.
fn prune(schema: &Schema, merged: &Value, managed: &Managed, last: &FieldSet) -> Value {
    let kind = schema.root();
    let with_parents = |set: &FieldSet| set.with_declared_parents(Some(kind));
    let (all, last) = (
        with_parents(&typed::field_set(kind, merged)),
        with_parents(last),
    );
    let owned = managed
        .0
        .values()
        .fold(FieldSet::default(), |owned, entry| {
            owned.union(&entry.fields)
        });
    // First without anything of last time, then with what is owned again, then with what never was this applier's: a parent goes only if
    // nothing else is below it.
    let bare = typed::remove(kind, merged, &last);
    let bare_fields = with_parents(&typed::field_set(kind, &bare));
    let kept = typed::remove(
        kind,
        merged,
        &all.difference(&bare_fields.union(&with_parents(&owned))),
    );
    let kept_fields = with_parents(&typed::field_set(kind, &kept));
    match typed::remove(
        kind,
        merged,
        &all.difference(&kept_fields).intersection(&last),
    ) {
        Value::Null => json!({}),
        pruned => pruned,
    }
}

/// Whoever owns a field that this write changed or removed loses it, or, without force, is a conflict.
fn take_from_others(
    managed: &mut Managed,
    comparison: &Comparison,
    writer: &Manager,
    force: bool,
) -> Result<(), Conflicts> {
    let changed = comparison.modified.union(&comparison.added);
    let others = managed.0.iter().filter(|(manager, _)| *manager != writer);
    let taken: Vec<_> = others
        .map(|(manager, entry)| (manager.clone(), entry.fields.intersection(&changed)))
        .collect();
    if !force {
        let conflicts: Vec<_> = taken
            .iter()
            .flat_map(|(manager, fields)| {
                fields.paths().into_iter().map(|path| Conflict {
                    manager: manager.describe(),
                    field: path_text(&path),
                    path,
                })
            })
            .collect();
        if !conflicts.is_empty() {
            return Err(Conflicts(conflicts));
        }
    }
    for (manager, fields) in taken {
        if let Some(entry) = managed.0.get_mut(&manager) {
            entry.fields = entry
                .fields
                .difference(&fields)
                .difference(&comparison.removed);
        }
    }
    managed
        .0
        .retain(|manager, entry| manager == writer || !entry.fields.is_empty());
    Ok(())
}

/// Takes the fields nobody owns out of the writer's entry, and the entry out if nothing is left.
fn strip(managed: &mut Managed, writer: &Manager) {
    if let Some(entry) = managed.0.get_mut(writer) {
        entry.fields = entry.fields.difference(&never_owned());
        if entry.fields.is_empty() {
            managed.0.remove(writer);
        }
    }
}
