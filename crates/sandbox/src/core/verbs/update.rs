//! Changing objects: the one way in which every PUT, patch and apply ends.

use std::sync::Arc;

use serde_json::Value;

use super::create::{
    Owners, check, counts_generations, default, has_status, refuse, set_namespace,
};
use super::options::WriteOptions;
use super::{Call, Place};
use crate::core::error::{Cause, Failure, Outcome};
use crate::core::kind::{KindInfo, Source};
use crate::core::registry::NAMESPACES;
use crate::core::response::Response;
use crate::core::{convert, decode, fields, meta, metadata};

impl Call<'_> {
    pub(super) fn update(&mut self, place: &Place) -> Outcome<Response> {
        let options = WriteOptions::of(self.request, "UpdateOptions")?;
        self.replace(place, &options)
    }

    /// PUT, to the object itself or to one of its subresources that speak its kind.
    pub(super) fn replace(&mut self, place: &Place, options: &WriteOptions) -> Outcome<Response> {
        let kind = &place.kind;
        let mut new = decode::object(self.request, kind, options.validation, &mut self.warnings)?;
        let (namespace, name) = place.object();
        check_name(&new, name)?;
        set_namespace(kind, namespace, &mut new)?;
        meta::set_metadata(&mut new, "name", Some(name.into()));
        let Some(old) = self.state.get(&kind.resource, namespace, name).cloned() else {
            let creates = options.subresource.is_empty()
                && kind.row().is_some_and(|row| row.create_on_update);
            if !creates {
                return Err(Failure::not_found(&kind.resource_named(name)));
            }
            let stored = self.store_new(kind, namespace, new, options, Owners::Record)?;
            return Ok(self.show(kind, 201, &stored));
        };
        check_uid(kind, &new, &old)?;
        if meta::resource_version(&new).is_empty()
            && kind.row().is_none_or(|row| !row.unconditional_update)
        {
            let cause = Cause::invalid(
                "metadata.resourceVersion",
                &0.into(),
                "must be specified for an update",
            );
            return Err(Failure::invalid(&kind.resource_named(name), vec![cause]));
        }
        let stored = self.store_change(kind, &old, new, options, Owners::Record)?;
        Ok(self.show(kind, 200, &stored))
    }

    /// Completes, checks and stores a change. `old` is as stored, `new` in the shape of `kind`.
    pub(super) fn store_change(
        &mut self,
        kind: &Arc<KindInfo>,
        old: &Arc<Value>,
        mut new: Value,
        options: &WriteOptions,
        owners: Owners,
    ) -> Outcome<Arc<Value>> {
        let asked = meta::resource_version(&new);
        if !asked.is_empty() && asked != meta::resource_version(old) {
            return Err(Failure::modified(&kind.resource_named(meta::name(old))));
        }
        let live = convert::from_stored(kind, old);
        metadata::dedup_owners(&mut new, &mut self.warnings);
        keep_server_metadata(&mut new, &live);
        default(kind, &mut new);
        let mut new = isolate(kind, new, &live, options.subresource);
        if owners == Owners::Record {
            new = fields::record(kind, Some(&live), new, options.writer(self.now));
        }
        let mut new = convert::to_stored(kind, new);
        if options.subresource.is_empty()
            && let Source::Builtin(row) = &kind.source
        {
            (row.strategy.update)(&mut new, old, &mut self.admission())?;
        }
        if counts_generations(kind) && wants_other(kind, &new, old) {
            let generation = meta::at(old, &["metadata", "generation"])
                .and_then(Value::as_i64)
                .unwrap_or_default();
            meta::set_metadata(&mut new, "generation", Some((generation + 1).into()));
        }
        check_change(kind, &new, old, options.subresource)?;
        meta::set_metadata(
            &mut new,
            "resourceVersion",
            Some(meta::resource_version(old).into()),
        );
        if !fields::settle(old, &mut new) {
            return Ok(Arc::clone(old));
        }
        if options.dry_run {
            return Ok(Arc::new(new));
        }
        if is_finished(kind, &new) {
            self.remove(kind, old);
            return Ok(Arc::new(new));
        }
        Ok(self.commit(kind, new))
    }
}

/// The name of the path, which the body may repeat but not contradict.
pub(super) fn check_name(object: &Value, name: &str) -> Outcome<()> {
    let said = meta::name(object);
    if !said.is_empty() && said != name {
        let message =
            format!("the name of the object ({said}) does not match the name on the URL ({name})");
        return Err(Failure::bad_request(message));
    }
    Ok(())
}

fn check_uid(kind: &KindInfo, new: &Value, old: &Value) -> Outcome<()> {
    let (asked, found) = (meta::uid(new), meta::uid(old));
    if asked.is_empty() || asked == found {
        return Ok(());
    }
    let name = meta::name(old);
    let namespace = meta::namespace(old);
    let group = if kind.is_custom() {
        format!("{}/", kind.group)
    } else {
        String::new()
    };
    let place = if namespace.is_empty() {
        String::new()
    } else {
        format!("{namespace}/")
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{place}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {asked}, UID in object meta: {found}",
        kind.plural
    );
    Err(Failure::conflict(&kind.resource_named(name), &why))
}

/// What only the server writes stays as it is, whatever the client sent.
fn keep_server_metadata(new: &mut Value, live: &Value) {
    for key in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ] {
        let field = meta::at(live, &["metadata", key]).cloned();
        meta::set_metadata(new, key, field);
    }
    if meta::uid(new).is_empty() {
        meta::set_metadata(new, "uid", Some(meta::uid(live).into()));
    }
}

/// Each door changes its own part: the object's leaves the status alone, the status' door the rest.
fn isolate(kind: &KindInfo, mut new: Value, live: &Value, subresource: &str) -> Value {
    let put = |object: &mut Value, key: &str, field: Option<Value>| {
        match field {
            Some(field) => meta::object(object).insert(key.to_owned(), field),
            None => meta::object(object).shift_remove(key),
        };
    };
    match subresource {
        "status" => {
            let mut result = live.clone();
            put(&mut result, "status", new.get("status").cloned());
            if kind.is_custom() {
                let owners = meta::at(&new, &["metadata", "managedFields"]).cloned();
                meta::set_metadata(&mut result, "managedFields", owners);
            } else {
                put(
                    &mut result,
                    "metadata",
                    new.get_mut("metadata").map(Value::take),
                );
            }
            result
        }
        "" | "finalize" => {
            if has_status(kind) {
                put(&mut new, "status", live.get("status").cloned());
            }
            new
        }
        _ => new,
    }
}

/// Whether something else is wanted: anything but metadata and, where it has a door of its own, status.
fn wants_other(kind: &KindInfo, new: &Value, old: &Value) -> bool {
    let is_wanted = |key: &str| {
        key != "metadata" && key != "apiVersion" && (key != "status" || !has_status(kind))
    };
    let (Some(new), Some(old)) = (new.as_object(), old.as_object()) else {
        return false;
    };
    let differs = |one: &serde_json::Map<String, Value>, other: &serde_json::Map<String, Value>| {
        one.iter()
            .any(|(key, value)| is_wanted(key) && other.get(key) != Some(value))
    };
    differs(new, old) || differs(old, new)
}

fn check_change(kind: &KindInfo, new: &Value, old: &Value, subresource: &str) -> Outcome<()> {
    let mut causes = metadata::validate_update(new, old);
    if subresource.is_empty()
        && let Source::Builtin(row) = &kind.source
    {
        causes.extend((row.strategy.validate_update)(new, old));
    }
    refuse(kind, new, causes)?;
    check(kind, new)
}

/// An object that is being deleted and that nobody holds on to any longer.
pub(super) fn is_finished(kind: &KindInfo, object: &Value) -> bool {
    let grace = meta::at(object, &["metadata", "deletionGracePeriodSeconds"])
        .and_then(Value::as_i64)
        .unwrap_or_default();
    let held_by_namespace = &*kind.resource == NAMESPACES
        && meta::at(object, &["spec", "finalizers"])
            .and_then(Value::as_array)
            .is_some_and(|finalizers| !finalizers.is_empty());
    meta::is_deleting(object)
        && grace == 0
        && meta::finalizers(object).is_empty()
        && !held_by_namespace
}
