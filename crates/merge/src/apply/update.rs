//! Writes that are not applies: create, replace, patch. They take what they change and are never refused.

use serde_json::{Value, json};

use super::{
    Applied, ApplyRequest, BEFORE_FIRST_APPLY, reset_fields, settle_against, strip,
    take_from_others,
};
use crate::field_set::FieldSet;
use crate::managed::{Entry, Managed, Manager, Operation, remove_managed_fields};
use crate::schema::Schema;
use crate::typed::{self, Duplicates};
use crate::value::equal;

/// One write that is not an apply.
#[derive(Clone, Copy, Debug)]
pub struct UpdateRequest<'a> {
    /// The stored object, with its managedFields; none if this creates it.
    pub live: Option<&'a Value>,
    /// What is to be stored, defaulted, with the metadata only the server sets. Its own managedFields replace the live ones, as a client
    /// may edit them; an empty list, or a list of one empty entry, resets them.
    pub new: &'a Value,
    /// `fieldManager` of the request, or what the user agent says up to its first slash.
    pub manager: &'a str,
    /// `status`, `scale`, …; empty for the main endpoint.
    pub subresource: &'a str,
    /// The version of the endpoint, as `apps/v1`.
    pub api_version: &'a str,
    /// RFC 3339, UTC, in seconds, as `2026-11-15T20:06:00Z`.
    pub now: &'a str,
    /// The type of the object.
    pub schema: &'a Schema,
}

/// Brings the managedFields of an object up to date with a write. An object that does not fit its schema loses them, as on a real server:
/// bookkeeping never stops a write.
#[must_use]
pub fn update(request: UpdateRequest<'_>) -> Applied {
    let mut object = request.new.clone();
    let managed = managed_of(&request);
    remove_managed_fields(&mut object);
    request.schema.normalise(&mut object);
    // An object whose entries were reset is not tracked again until somebody applies.
    let managed = if managed.0.is_empty() && request.live.is_some() {
        managed
    } else {
        let writer = Manager::new(
            request.manager,
            Operation::Update,
            request.api_version,
            request.subresource,
        );
        let mut live = request.live.cloned().unwrap_or(Value::Null);
        remove_managed_fields(&mut live);
        let write = Write {
            api_version: request.api_version,
            now: request.now,
            schema: request.schema,
        };
        let mut managed = record(&write, writer, request.subresource, managed, &live, &object)
            .unwrap_or_default();
        managed.cap_update_managers();
        managed
    };
    managed.encode(&mut object);
    settle_against(request.live, object)
}

fn managed_of(request: &UpdateRequest<'_>) -> Managed {
    let live = || {
        request
            .live
            .and_then(|live| Managed::decode(live).ok())
            .unwrap_or_default()
    };
    if !request.subresource.is_empty() {
        return live();
    }
    match request
        .new
        .pointer("/metadata/managedFields")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
    {
        Some([]) => return Managed::default(),
        Some([only]) if only.as_object().is_some_and(serde_json::Map::is_empty) => {
            return Managed::default();
        }
        _ => {}
    }
    match Managed::decode(request.new) {
        Ok(managed) if !managed.0.is_empty() => managed,
        _ => live(),
    }
}

/// What a record of a write needs besides the objects.
struct Write<'a> {
    api_version: &'a str,
    now: &'a str,
    schema: &'a Schema,
}

/// The entries after a write by `writer`; none if an object does not fit its schema.
fn record(
    write: &Write<'_>,
    writer: Manager,
    subresource: &str,
    mut managed: Managed,
    live: &Value,
    object: &Value,
) -> Option<Managed> {
    let kind = write.schema.root();
    // In a comparison, what a Go struct would write without being told counts as being there on both sides.
    let complete = |object: &Value| {
        let mut object = if object.is_null() {
            json!({})
        } else {
            object.clone()
        };
        if write.schema.is_structured {
            write.schema.fill_zero_values(&mut object);
        }
        object
    };
    let (live, object) = (complete(live), complete(object));
    typed::check(kind, &live, Duplicates::Allowed).ok()?;
    typed::check(kind, &object, Duplicates::Allowed).ok()?;
    super::forget_other_versions(&mut managed, write.api_version);
    for entry in managed.0.values_mut() {
        entry.fields = typed::reconcile(kind, &entry.fields);
    }
    let ignored = reset_fields(write.schema, subresource);
    let comparison = typed::compare(kind, &live, &object).ok()?.without(&ignored);
    // Nobody is called this, so that even the writer's own earlier entry gives up what this write changed, and then gets it back.
    let nobody = Manager::new("", Operation::Update, "", "current-operation");
    take_from_others(&mut managed, &comparison, &nobody, true).ok()?;
    let fields = comparison.modified.union(&comparison.added);
    let entry = Entry {
        api_version: write.api_version.to_owned(),
        fields,
        time: None,
    };
    managed.0.insert(nobody.clone(), entry);
    strip(&mut managed, &nobody);
    if let Some(written) = managed.0.remove(&nobody) {
        let earlier = managed
            .0
            .remove(&writer)
            .map_or_else(FieldSet::default, |entry| entry.fields);
        let entry = Entry {
            api_version: write.api_version.to_owned(),
            fields: written.fields.union(&earlier),
            time: Some(write.now.to_owned()),
        };
        managed.0.insert(writer, entry);
    }
    Some(managed)
}

/// The entry for everything in an object that nobody kept track of, made at its first apply.
pub(super) fn own_everything(request: &ApplyRequest<'_>, live: &Value) -> Managed {
    let writer = Manager::new(
        BEFORE_FIRST_APPLY,
        Operation::Update,
        request.api_version,
        request.subresource,
    );
    let write = Write {
        api_version: request.api_version,
        now: request.now,
        schema: request.schema,
    };
    let empty = json!({"apiVersion": request.api_version, "kind": request.applied.get("kind")});
    record(
        &write,
        writer,
        request.subresource,
        Managed::default(),
        &empty,
        live,
    )
    .unwrap_or_default()
}

/// Compares what is about to be stored with what is. If they differ in nothing but the times in managedFields and the resourceVersion, the
/// live times come back and the answer is false: there is nothing to write. Call it again after defaulting and admission.
pub fn settle(live: &Value, object: &mut Value) -> bool {
    let entries = |object: &Value| {
        object
            .pointer("/metadata/managedFields")
            .cloned()
            .unwrap_or_else(|| json!([]))
    };
    let (live_entries, new_entries) = (entries(live), entries(object));
    if !same_without_times(&live_entries, &new_entries)
        || !equal(&comparable(live), &comparable(object))
    {
        return true;
    }
    live.clone_into(object);
    false
}

fn same_without_times(live: &Value, new: &Value) -> bool {
    let without = |entries: &Value| {
        let mut entries = entries.as_array().cloned().unwrap_or_default();
        for entry in &mut entries {
            if let Some(entry) = entry.as_object_mut() {
                entry.retain(|name, _| name != "time");
            }
        }
        Value::Array(entries)
    };
    equal(&without(live), &without(new))
}

fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, _| name != "managedFields" && name != "resourceVersion");
    }
    object
}
