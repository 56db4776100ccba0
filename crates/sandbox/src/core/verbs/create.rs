//! Making objects.

use std::sync::Arc;

use serde_json::Value;

use super::options::WriteOptions;
use super::{Call, Place};
use crate::core::error::{Cause, CauseReason, Details, Failure, Named, Outcome};
use crate::core::kind::{KindInfo, Source};
use crate::core::registry::builtin::Service;
use crate::core::registry::{DEFINITIONS, NAMESPACES};
use crate::core::response::Response;
use crate::core::{convert, crd, decode, fields, limits, meta, metadata};

/// Whether `metadata.managedFields` of an object is already as it should be: an apply brings its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owners {
    Record,
    Recorded,
}

impl Call<'_> {
    pub(super) fn create(&mut self, place: &Place) -> Outcome<Response> {
        if place
            .kind
            .row()
            .is_some_and(|row| row.service == Service::Answered)
        {
            return self.review(place);
        }
        let options = WriteOptions::of(self.request, "CreateOptions")?;
        let object = decode::object(
            self.request,
            &place.kind,
            options.validation,
            &mut self.warnings,
        )?;
        let namespace = place.namespace.as_deref().unwrap_or_default();
        let stored = self.store_new(&place.kind, namespace, object, &options, Owners::Record)?;
        Ok(self.show(&place.kind, 201, &stored))
    }

    /// Completes, checks and stores a new object that is in the shape of `kind`.
    pub(super) fn store_new(
        &mut self,
        kind: &Arc<KindInfo>,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
        owners: Owners,
    ) -> Outcome<Arc<Value>> {
        self.check_service(kind)?;
        set_namespace(kind, namespace, &mut object)?;
        self.check_namespace(kind, namespace, meta::name(&object))?;
        if kind.custom().is_some_and(|custom| custom.is_terminating) {
            let mut failure = Failure::method_not_allowed();
            failure.message =
                "create not allowed while custom resource definition is terminating".to_owned();
            return Err(failure);
        }
        if !meta::resource_version(&object).is_empty() {
            return Err(Failure::internal(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        metadata::dedup_owners(&mut object, &mut self.warnings);
        default(kind, &mut object);
        drop_status(kind, &mut object);
        if owners == Owners::Record {
            object = fields::record(kind, None, object, options.writer(self.now));
        }
        self.begin_metadata(kind, &mut object);
        let mut object = convert::to_stored(kind, object);
        self.choose_name(kind, &mut object)?;
        if let Source::Builtin(row) = &kind.source {
            (row.strategy.create)(&mut object, &mut self.admission())?;
        }
        check(kind, &object)?;
        let name = meta::name(&object);
        if self.state.get(&kind.resource, namespace, name).is_some() {
            return Err(Failure::already_exists(&kind.resource_named(name)));
        }
        if options.dry_run {
            return Ok(Arc::new(object));
        }
        Ok(self.commit(kind, object))
    }

    /// Stores what was checked, and serves it if it is a definition.
    pub(super) fn commit(&mut self, kind: &KindInfo, object: Value) -> Arc<Value> {
        let (object, change) = self.state.commit(&kind.resource, object);
        self.changes.push(change);
        if &*kind.resource == DEFINITIONS
            && let Ok(kinds) = crd::kinds(&object)
        {
            self.state.serve_definition(meta::name(&object), kinds);
        }
        object
    }

    fn begin_metadata(&mut self, kind: &KindInfo, object: &mut Value) {
        let uid = metadata::new_uid(self.rng);
        let created = meta::timestamp(self.now);
        for key in [
            "selfLink",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
        ] {
            meta::set_metadata(object, key, None);
        }
        meta::set_metadata(object, "uid", Some(uid.into()));
        meta::set_metadata(object, "creationTimestamp", Some(created.into()));
        if counts_generations(kind) {
            meta::set_metadata(object, "generation", Some(1.into()));
        }
    }

    fn choose_name(&mut self, kind: &KindInfo, object: &mut Value) -> Outcome<()> {
        let base = meta::text(object, &["metadata", "generateName"]).to_owned();
        if !meta::name(object).is_empty() || base.is_empty() {
            return Ok(());
        }
        let namespace = meta::namespace(object).to_owned();
        for _ in 0..limits::NAME_ATTEMPTS {
            let name = metadata::generated_name(&base, self.rng);
            if self.state.get(&kind.resource, &namespace, &name).is_none() {
                meta::set_metadata(object, "name", Some(name.into()));
                return Ok(());
            }
        }
        let details = Details {
            name: base.clone(),
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            retry_after_seconds: 1,
            ..Details::default()
        };
        let message = format!(
            "{} {base:?} already exists, the server was not able to generate a unique name for the object",
            kind.plural
        );
        Err(
            Failure::new(409, crate::core::error::Reason::AlreadyExists, message)
                .with_details(details),
        )
    }

    /// Nothing is made in a namespace that is not there or on its way out.
    fn check_namespace(&self, kind: &KindInfo, namespace: &str, name: &str) -> Outcome<()> {
        if !kind.is_namespaced() {
            return Ok(());
        }
        let Some(found) = self.state.get(NAMESPACES, "", namespace) else {
            return Err(Failure::not_found(&Named {
                group: "",
                kind: NAMESPACES,
                name: namespace,
            }));
        };
        if meta::is_deleting(found) {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            let mut failure = Failure::forbidden(&kind.resource_named(name), &why);
            let cause = Cause::new(
                CauseReason::NamespaceTerminating,
                "metadata.namespace",
                format!("namespace {namespace} is being terminated"),
            );
            if let Some(details) = &mut failure.details {
                details.causes.push(cause);
            }
            return Err(failure);
        }
        Ok(())
    }
}

/// The namespace of the path, which the body may repeat but not contradict.
pub(super) fn check_namespace_name(namespace: &str, object: &Value) -> Outcome<()> {
    let said = meta::namespace(object);
    if said.is_empty() || said == namespace {
        return Ok(());
    }
    Err(Failure::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// The object in the namespace of its path.
pub(super) fn set_namespace(kind: &KindInfo, namespace: &str, object: &mut Value) -> Outcome<()> {
    check_namespace_name(namespace, object)?;
    let field = kind.is_namespaced().then(|| namespace.into());
    meta::set_metadata(object, "namespace", field);
    Ok(())
}

pub(super) fn default(kind: &KindInfo, object: &mut Value) {
    match &kind.source {
        Source::Builtin(row) => (row.strategy.default)(object),
        Source::Custom(custom) => custom.default(object),
    }
}

pub(super) fn has_status(kind: &KindInfo) -> bool {
    kind.subresource("status").is_some()
}

/// Whoever makes an object wants something; what is, others say later. Nodes alone come with their status.
fn drop_status(kind: &KindInfo, object: &mut Value) {
    if has_status(kind) && kind.resource.as_ref() != "nodes" {
        meta::object(object).shift_remove("status");
    }
}

pub(super) fn counts_generations(kind: &KindInfo) -> bool {
    kind.row().is_none_or(|row| row.generation)
}

/// Everything that must hold for an object of this kind, in its stored shape.
pub(super) fn check(kind: &KindInfo, object: &Value) -> Outcome<()> {
    let mut causes = metadata::validate(kind, object);
    match &kind.source {
        Source::Builtin(row) => causes.extend((row.strategy.validate)(object)),
        Source::Custom(custom) => causes.extend(custom.validate(object)),
    }
    if causes.is_empty() && &*kind.resource == DEFINITIONS {
        causes.extend(
            crd::kinds(object)
                .err()
                .map(|reason| Cause::invalid("spec.versions", &Value::Null, &reason)),
        );
    }
    refuse(kind, object, causes)
}

pub(super) fn refuse(kind: &KindInfo, object: &Value, causes: Vec<Cause>) -> Outcome<()> {
    if causes.is_empty() {
        Ok(())
    } else {
        Err(Failure::invalid(
            &kind.kind_named(meta::name(object)),
            causes,
        ))
    }
}
