//! Deleting objects: preconditions, finalizers, grace.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::options::invalid;
use super::update::is_finished;
use super::{Call, Place};
use crate::core::decode::{self, Format};
use crate::core::error::{Cause, Details, Failure, Outcome};
use crate::core::kind::KindInfo;
use crate::core::registry::{DEFINITIONS, NAMESPACES, PODS};
use crate::core::response::Response;
use crate::core::selector::Selector;
use crate::core::{convert, meta};
use crate::present;

const OPTIONS: &str = "DeleteOptions";
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
/// Namespaces that a cluster does not live without.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What happens to what the object owns. Finalizers tell the garbage collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Propagation {
    Foreground,
    Background,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub(super) struct DeleteOptions {
    dry_run: bool,
    grace_seconds: Option<i64>,
    propagation: Option<Propagation>,
    uid: Option<String>,
    resource_version: Option<String>,
}

/// What a deletion led to: the object as it was shown last, and whether it is gone.
pub(super) struct Deleted {
    pub object: Arc<Value>,
    pub gone: bool,
}

impl DeleteOptions {
    /// From the body, or from the query if there is none: as a real server reads them.
    fn of(call: &Call<'_>) -> Outcome<DeleteOptions> {
        let request = call.request;
        let body = if request.body.is_empty() {
            let number = |name: &str| {
                request
                    .parameter(name)
                    .and_then(|text| text.parse::<i64>().ok())
            };
            json!({
                "gracePeriodSeconds": number("gracePeriodSeconds"),
                "propagationPolicy": request.parameter("propagationPolicy"),
                "orphanDependents": request.parameter("orphanDependents").map(|text| text == "true"),
                "dryRun": request.parameter("dryRun").map(|text| vec![text]),
            })
        } else {
            let format = decode::format(request)?;
            let document = decode::parse(&request.body, format).map_err(|error| {
                Failure::bad_request(format!("couldn't read the DeleteOptions: {error}"))
            })?;
            document.value
        };
        DeleteOptions::parse(&body)
    }

    /// Of an eviction: the same options, inside another document.
    pub(super) fn parse(body: &Value) -> Outcome<DeleteOptions> {
        let kind = meta::text(body, &["kind"]);
        if !body.is_object() || !(kind.is_empty() || kind == OPTIONS) {
            let version = meta::text(body, &["apiVersion"]);
            return Err(Failure::bad_request(format!(
                "no kind {kind:?} is registered for version {version:?}; send DeleteOptions or nothing"
            )));
        }
        let orphan = body.get("orphanDependents").and_then(Value::as_bool);
        let policy = meta::text(body, &["propagationPolicy"]);
        if orphan.is_some() && !policy.is_empty() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            return Err(invalid(
                OPTIONS,
                Cause::invalid("propagationPolicy", &policy.into(), detail),
            ));
        }
        let propagation = match (policy, orphan) {
            ("Foreground", _) => Some(Propagation::Foreground),
            ("Background", _) | ("", Some(false)) => Some(Propagation::Background),
            ("Orphan", _) | ("", Some(true)) => Some(Propagation::Orphan),
            ("", None) => None,
            (other, _) => {
                let cause = Cause::not_supported(
                    "propagationPolicy",
                    &other.into(),
                    &["Foreground", "Background", "Orphan", "nil"],
                );
                return Err(invalid(OPTIONS, cause));
            }
        };
        let dry_run = match body.get("dryRun").and_then(Value::as_array) {
            None => false,
            Some(list) if list.is_empty() => false,
            Some(list) if list.iter().all(|item| item == "All") => true,
            Some(list) => {
                return Err(invalid(
                    OPTIONS,
                    Cause::not_supported("dryRun", &Value::Array(list.clone()), &["All"]),
                ));
            }
        };
        let precondition = |key: &str| {
            meta::at(body, &["preconditions", key])
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        Ok(DeleteOptions {
            dry_run,
            grace_seconds: body
                .get("gracePeriodSeconds")
                .and_then(Value::as_i64)
                .map(|seconds| if seconds < 0 { 1 } else { seconds }),
            propagation,
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
        })
    }

    pub(super) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(super) fn dry_run(mut self, dry_run: bool) -> DeleteOptions {
        self.dry_run |= dry_run;
        self
    }
}

impl Call<'_> {
    pub(super) fn delete(&mut self, place: &Place) -> Outcome<Response> {
        let options = DeleteOptions::of(self)?;
        let kind = Arc::clone(&place.kind);
        let object = self.find(place)?;
        let deleted = self.delete_object(&kind, &object, &options)?;
        let shows_object = !deleted.gone || kind.row().is_some_and(|row| row.returns_deleted);
        if shows_object {
            return Ok(self.show(&kind, 200, &deleted.object));
        }
        let (name, uid) = (
            meta::name(&object).to_owned(),
            meta::uid(&object).to_owned(),
        );
        let details = Details {
            name,
            uid,
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            ..Details::default()
        };
        let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details.to_json()});
        Ok(Response::Json {
            status: 200,
            body,
            warnings: Vec::new(),
        })
    }

    pub(super) fn delete_collection(&mut self, place: &Place) -> Outcome<Response> {
        let options = DeleteOptions::of(self)?;
        let selector = Selector::of(self.request, &place.kind)?;
        let namespace = place
            .namespace
            .as_deref()
            .filter(|namespace| !namespace.is_empty());
        let objects =
            self.state
                .snapshot(&place.kind.resource, namespace, self.state.revision())?;
        let matching: Vec<&Arc<Value>> = objects
            .values()
            .filter(|object| selector.matches(object))
            .collect();
        // All or nothing: a refusal must not leave half of it done.
        for object in &matching {
            check_preconditions(&place.kind, object, &options)?;
        }
        let mut items = Vec::new();
        for object in matching {
            let deleted = self.delete_object(&place.kind, object, &options)?;
            items.push(convert::from_stored(&place.kind, &deleted.object));
        }
        let metadata = json!({"resourceVersion": self.state.revision().to_string()});
        let body = present::list(self.view, &place.kind, &items, metadata, self.now);
        Ok(Response::Json {
            status: 200,
            body,
            warnings: Vec::new(),
        })
    }

    pub(super) fn delete_object(
        &mut self,
        kind: &Arc<KindInfo>,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Outcome<Deleted> {
        check_preconditions(kind, old, options)?;
        match &*kind.resource {
            NAMESPACES => self.delete_namespace(kind, old, options),
            DEFINITIONS => self.delete_definition(kind, old, options),
            _ => self.delete_plain(kind, old, options),
        }
    }

    fn delete_plain(
        &mut self,
        kind: &Arc<KindInfo>,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Outcome<Deleted> {
        let mut new = Value::clone(old);
        let was_deleting = meta::is_deleting(old);
        let grace = self.grace(kind, old, options);
        if was_deleting {
            let before = meta::at(old, &["metadata", "deletionGracePeriodSeconds"])
                .and_then(Value::as_i64)
                .unwrap_or_default();
            // Grace may only shrink; and while it runs, nothing else changes.
            match options.grace_seconds {
                Some(asked) if &*kind.resource == PODS && asked < before => {
                    mark(&mut new, shortened(old, before, asked, self.now), asked);
                }
                _ if &*kind.resource == PODS && before > 0 => {
                    return Ok(Deleted {
                        object: Arc::clone(old),
                        gone: false,
                    });
                }
                _ => {}
            }
        } else {
            let when = self
                .now
                .checked_add(SignedDuration::from_secs(grace))
                .unwrap_or(self.now);
            mark(&mut new, when, grace);
            bump_generation(&mut new);
        }
        set_finalizers(&mut new, kind, options);
        Ok(self.conclude(kind, old, new, options))
    }

    /// Removes what nothing holds any more, and stores what goes later.
    fn conclude(
        &mut self,
        kind: &Arc<KindInfo>,
        old: &Arc<Value>,
        new: Value,
        options: &DeleteOptions,
    ) -> Deleted {
        let gone = is_finished(kind, &new);
        if gone && !options.dry_run {
            self.remove(kind, old);
        }
        let stored = !gone && !options.dry_run && new != **old;
        let object = if stored {
            self.commit(kind, new)
        } else {
            Arc::new(new)
        };
        Deleted { object, gone }
    }

    /// Seconds until a pod must be gone. A pod that no node has, or that has ended, needs none; other kinds know no grace.
    fn grace(&self, kind: &KindInfo, object: &Value, options: &DeleteOptions) -> i64 {
        let ended = matches!(
            meta::text(object, &["status", "phase"]),
            "Succeeded" | "Failed"
        );
        if &*kind.resource != PODS || meta::text(object, &["spec", "nodeName"]).is_empty() || ended
        {
            return 0;
        }
        let own =
            meta::at(object, &["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_i64);
        match options.grace_seconds.or(own).unwrap_or_default() {
            negative if negative < 0 => 1,
            seconds => seconds,
        }
    }

    /// A namespace goes when the namespace controller has emptied it; until then nothing new comes in.
    fn delete_namespace(
        &mut self,
        kind: &Arc<KindInfo>,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Outcome<Deleted> {
        let name = meta::name(old);
        if IMMORTAL.contains(&name) {
            return Err(Failure::forbidden(
                &kind.resource_named(name),
                "this namespace may not be deleted",
            ));
        }
        let mut new = Value::clone(old);
        if !meta::is_deleting(old) {
            meta::set_metadata(
                &mut new,
                "deletionTimestamp",
                Some(meta::timestamp(self.now).into()),
            );
        }
        meta::child(&mut new, "status").insert("phase".to_owned(), "Terminating".into());
        Ok(self.conclude(kind, old, new, options))
    }

    /// A definition goes after its last object; its objects are deleted with it, and may have finalizers.
    fn delete_definition(
        &mut self,
        kind: &Arc<KindInfo>,
        old: &Arc<Value>,
        options: &DeleteOptions,
    ) -> Outcome<Deleted> {
        if meta::is_deleting(old) || options.dry_run {
            return Ok(Deleted {
                object: Arc::clone(old),
                gone: false,
            });
        }
        let mut new = Value::clone(old);
        meta::set_metadata(
            &mut new,
            "deletionTimestamp",
            Some(meta::timestamp(self.now).into()),
        );
        let terminating = json!({
            "type": "Terminating", "status": "True", "lastTransitionTime": meta::timestamp(self.now),
            "reason": "InstanceDeletionInProgress", "message": "CustomResource deletion is in progress",
        });
        let status = meta::child(&mut new, "status");
        if let Some(conditions) = status
            .entry("conditions")
            .or_insert_with(|| json!([]))
            .as_array_mut()
        {
            conditions.push(terminating);
        }
        let shown = self.commit(kind, new);
        let definition = meta::name(&shown);
        let instances = self
            .state
            .kinds()
            .find(|kind| {
                kind.custom()
                    .is_some_and(|custom| custom.definition == definition)
            })
            .cloned();
        if let Some(instances) = instances {
            let objects: Vec<Arc<Value>> =
                self.state.objects(&instances.resource).cloned().collect();
            for object in objects {
                self.delete_plain(&instances, &object, &DeleteOptions::default())?;
            }
        }
        self.finish_definition(definition);
        Ok(Deleted {
            object: shown,
            gone: false,
        })
    }

    /// Takes an object out of the store, and with the last object of a definition that waits for it, the definition.
    pub(super) fn remove(&mut self, kind: &KindInfo, object: &Value) {
        let change = self
            .state
            .remove(&kind.resource, meta::namespace(object), meta::name(object));
        self.changes.extend(change);
        if let Some(custom) = kind.custom()
            && self.state.count(&kind.resource) == 0
        {
            self.finish_definition(&custom.definition);
        }
    }

    fn finish_definition(&mut self, name: &str) {
        let resource: Arc<str> = DEFINITIONS.into();
        let Some(definition) = self.state.get(&resource, "", name).cloned() else {
            return;
        };
        if !meta::is_deleting(&definition) {
            return;
        }
        let instances = self
            .state
            .kinds()
            .find(|kind| {
                kind.custom()
                    .is_some_and(|custom| custom.definition == name)
            })
            .map(|kind| Arc::clone(&kind.resource));
        if instances.is_some_and(|resource| self.state.count(&resource) > 0) {
            return;
        }
        let cleanup = crate::core::strategy::definition::CLEANUP_FINALIZER;
        let others: Vec<&str> = meta::finalizers(&definition)
            .into_iter()
            .filter(|finalizer| *finalizer != cleanup)
            .collect();
        if others.is_empty() {
            self.changes.extend(self.state.remove(&resource, "", name));
            return;
        }
        // Somebody else holds on to the definition; our part is done.
        let mut waiting = Value::clone(&definition);
        meta::set_metadata(
            &mut waiting,
            "finalizers",
            Some(others.into_iter().map(Value::from).collect()),
        );
        let (_, change) = self.state.commit(&resource, waiting);
        self.changes.push(change);
    }
}

fn check_preconditions(kind: &KindInfo, object: &Value, options: &DeleteOptions) -> Outcome<()> {
    let name = meta::name(object);
    let refuse = |why: String| Err(Failure::conflict(&kind.kind_named(name), &why));
    if let Some(uid) = &options.uid
        && uid != meta::uid(object)
    {
        let found = meta::uid(object);
        return refuse(format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({found}). The object might have been deleted and then recreated"
        ));
    }
    if let Some(version) = &options.resource_version
        && version != meta::resource_version(object)
    {
        let found = meta::resource_version(object);
        return refuse(format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({found}). The object might have been modified"
        ));
    }
    Ok(())
}

fn mark(object: &mut Value, when: Timestamp, grace_seconds: i64) {
    meta::set_metadata(
        object,
        "deletionTimestamp",
        Some(meta::timestamp(when).into()),
    );
    meta::set_metadata(
        object,
        "deletionGracePeriodSeconds",
        Some(grace_seconds.into()),
    );
}

/// The same beginning, with less grace.
fn shortened(object: &Value, before: i64, asked: i64, now: Timestamp) -> Timestamp {
    let end: Option<Timestamp> = meta::text(object, &["metadata", "deletionTimestamp"])
        .parse()
        .ok();
    let moved = end.and_then(|end| {
        end.checked_sub(SignedDuration::from_secs(before - asked))
            .ok()
    });
    moved.unwrap_or(now)
}

fn bump_generation(object: &mut Value) {
    if let Some(generation) = meta::at(object, &["metadata", "generation"])
        .and_then(Value::as_i64)
        .filter(|generation| *generation > 0)
    {
        meta::set_metadata(object, "generation", Some((generation + 1).into()));
    }
}

fn set_finalizers(object: &mut Value, kind: &KindInfo, options: &DeleteOptions) {
    let present: Vec<String> = meta::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    let has = |name: &str| present.iter().any(|finalizer| finalizer == name);
    let (orphan, foreground) = match options.propagation {
        Some(propagation) => (
            propagation == Propagation::Orphan,
            propagation == Propagation::Foreground,
        ),
        None if has(ORPHAN) || has(FOREGROUND) => return,
        None => (kind.row().is_some_and(|row| row.orphans_by_default), false),
    };
    let mut finalizers: Vec<Value> = present
        .iter()
        .filter(|finalizer| *finalizer != ORPHAN && *finalizer != FOREGROUND)
        .map(|finalizer| finalizer.as_str().into())
        .collect();
    if orphan {
        finalizers.push(ORPHAN.into());
    }
    if foreground {
        finalizers.push(FOREGROUND.into());
    }
    let field = (!finalizers.is_empty()).then_some(Value::Array(finalizers));
    meta::set_metadata(object, "finalizers", field);
}

/// For callers that have options in a document of their own.
pub(super) fn parse_embedded(bytes: &[u8], format: Format) -> Outcome<Value> {
    decode::parse(bytes, format)
        .map(|document| document.value)
        .map_err(|error| Failure::bad_request(format!("couldn't read the document: {error}")))
}
