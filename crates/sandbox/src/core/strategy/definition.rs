//! CustomResourceDefinitions: what is accepted, and the status that makes a kind served.
//!
//! A real server establishes a definition a moment later, in a controller; here it happens in the same write.

use serde_json::{Value, json};

use super::{Admission, Strategy, accept_change};
use crate::core::error::{Cause, Outcome};
use crate::core::schema::structural;
use crate::core::state::State;
use crate::core::{crd, meta, names};

pub const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

pub static DEFINITION: Strategy = Strategy {
    default,
    create,
    update,
    validate,
    validate_update,
};

/// Printer columns' types, as the API lists them.
const COLUMN_TYPES: [&str; 5] = ["integer", "number", "string", "boolean", "date"];

fn default(definition: &mut Value) {
    let kind = meta::text(definition, &["spec", "names", "kind"]).to_owned();
    let spec = meta::child(definition, "spec");
    let names = meta::object(spec.entry("names").or_insert_with(|| json!({})));
    if !kind.is_empty() {
        meta::default_text(names, "singular", &kind.to_lowercase());
        meta::default_text(names, "listKind", &format!("{kind}List"));
    }
    let conversion = meta::object(spec.entry("conversion").or_insert_with(|| json!({})));
    meta::default_text(conversion, "strategy", "None");
}

fn create(definition: &mut Value, admission: &mut Admission<'_>) -> Outcome<()> {
    let metadata = meta::metadata(definition);
    let finalizers = metadata.entry("finalizers").or_insert_with(|| json!([]));
    if let Some(list) = finalizers.as_array_mut()
        && !list.iter().any(|finalizer| finalizer == CLEANUP_FINALIZER)
    {
        list.push(CLEANUP_FINALIZER.into());
    }
    establish(definition, &json!({}), admission);
    Ok(())
}

fn update(definition: &mut Value, old: &Value, admission: &mut Admission<'_>) -> Outcome<()> {
    let status = old.get("status").cloned().unwrap_or_else(|| json!({}));
    establish(definition, &status, admission);
    Ok(())
}

/// Accepts the names if nobody else has them, and lists the storage version among those that were ever used.
fn establish(definition: &mut Value, old_status: &Value, admission: &Admission<'_>) {
    let conflict = name_conflict(definition, admission.state);
    let (accepted, reason, message) = match &conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some(conflict) => ("False", conflict.0, conflict.1.clone()),
    };
    let was_established = condition(old_status, "Established")
        .is_some_and(|found| meta::text(found, &["status"]) == "True");
    let established = conflict.is_none() || was_established;
    let (established_status, established_reason, established_message) = if established {
        (
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
        )
    } else {
        ("False", "NotAccepted", "not all names are accepted")
    };
    let accepted_names = if conflict.is_none() {
        meta::at(definition, &["spec", "names"])
            .cloned()
            .unwrap_or_default()
    } else {
        old_status
            .get("acceptedNames")
            .cloned()
            .unwrap_or_else(|| json!({"plural": "", "kind": ""}))
    };
    let storage = meta::at(definition, &["spec", "versions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let storage = storage
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| meta::text(version, &["name"]).to_owned())
        .next();
    let mut stored: Vec<Value> = old_status
        .get("storedVersions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    if let Some(storage) = storage
        && !stored.contains(&storage.as_str().into())
    {
        stored.push(storage.into());
    }
    let now = meta::timestamp(admission.now);
    let make = |kind: &str, status: &str, reason: &str, message: &str| {
        let since = condition(old_status, kind)
            .filter(|found| meta::text(found, &["status"]) == status)
            .and_then(|found| found.get("lastTransitionTime"))
            .cloned();
        json!({"type": kind, "status": status, "lastTransitionTime": since.unwrap_or_else(|| now.clone().into()), "reason": reason, "message": message})
    };
    let mut conditions = vec![
        make("NamesAccepted", accepted, reason, &message),
        make(
            "Established",
            established_status,
            established_reason,
            established_message,
        ),
    ];
    if let Some(terminating) = condition(old_status, "Terminating") {
        conditions.push(terminating.clone());
    }
    definition["status"] = json!({"conditions": conditions, "acceptedNames": accepted_names, "storedVersions": stored});
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status
        .get("conditions")
        .and_then(Value::as_array)?
        .iter()
        .find(|condition| meta::text(condition, &["type"]) == kind)
}

/// Another kind of the same group that has one of the names.
fn name_conflict(definition: &Value, state: &State) -> Option<(&'static str, String)> {
    let own = meta::name(definition);
    let group = meta::text(definition, &["spec", "group"]);
    let spec_names = meta::at(definition, &["spec", "names"])?;
    let (plural, singular, kind, list_kind) = (
        meta::text(spec_names, &["plural"]),
        meta::text(spec_names, &["singular"]),
        meta::text(spec_names, &["kind"]),
        meta::text(spec_names, &["listKind"]),
    );
    let short_names: Vec<&str> = spec_names
        .get("shortNames")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for other in state.kinds().filter(|other| {
        other.group == group && other.custom().is_none_or(|custom| custom.definition != own)
    }) {
        let taken = |name: &str| {
            other.plural == name
                || other.singular == name
                || other.short_names.iter().any(|short| short == name)
        };
        if taken(plural) {
            return Some(("PluralConflict", format!("{plural:?} is already in use")));
        }
        if taken(singular) {
            return Some((
                "SingularConflict",
                format!("{singular:?} is already in use"),
            ));
        }
        if let Some(short) = short_names.iter().find(|short| taken(short)) {
            return Some(("ShortNamesConflict", format!("{short:?} is already in use")));
        }
        if other.kind == kind || other.list_kind == kind {
            return Some(("KindConflict", format!("{kind:?} is already in use")));
        }
        if other.kind == list_kind || other.list_kind == list_kind {
            return Some((
                "ListKindConflict",
                format!("{list_kind:?} is already in use"),
            ));
        }
    }
    None
}

fn validate(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let group = meta::text(definition, &["spec", "group"]);
    let plural = meta::text(definition, &["spec", "names", "plural"]);
    if meta::name(definition) != format!("{plural}.{group}") {
        causes.push(Cause::invalid(
            "metadata.name",
            &meta::name(definition).into(),
            "must be spec.names.plural+\".\"+spec.group",
        ));
    }
    if group.is_empty() {
        causes.push(Cause::required("spec.group", ""));
    } else if !group.contains('.') {
        causes.push(Cause::invalid(
            "spec.group",
            &group.into(),
            "should be a domain with at least one dot",
        ));
    } else {
        causes.extend(
            names::subdomain(group)
                .iter()
                .map(|problem| Cause::invalid("spec.group", &group.into(), problem)),
        );
    }
    let scope = meta::text(definition, &["spec", "scope"]);
    if !["Cluster", "Namespaced"].contains(&scope) {
        causes.push(Cause::not_supported(
            "spec.scope",
            &scope.into(),
            &["Cluster", "Namespaced"],
        ));
    }
    if meta::at(definition, &["spec", "preserveUnknownFields"]) == Some(&Value::Bool(true)) {
        causes.push(Cause::invalid("spec.preserveUnknownFields", &true.into(), "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"));
    }
    causes.extend(name_causes(definition));
    causes.extend(conversion_causes(definition));
    causes.extend(version_causes(definition));
    causes
}

fn name_causes(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in ["plural", "singular", "kind", "listKind"] {
        let field = format!("spec.names.{key}");
        let name = meta::text(definition, &["spec", "names", key]);
        if name.is_empty() {
            causes.push(Cause::required(field, ""));
            continue;
        }
        let shown = if key == "kind" || key == "listKind" {
            name.to_lowercase()
        } else {
            name.to_owned()
        };
        causes.extend(
            names::service_label(&shown)
                .iter()
                .map(|problem| Cause::invalid(field.clone(), &name.into(), problem)),
        );
    }
    let kind = meta::text(definition, &["spec", "names", "kind"]);
    if !kind.is_empty() && kind == meta::text(definition, &["spec", "names", "listKind"]) {
        causes.push(Cause::invalid(
            "spec.names.listKind",
            &kind.into(),
            "kind and listKind may not be the same",
        ));
    }
    causes
}

fn conversion_causes(definition: &Value) -> Option<Cause> {
    match meta::text(definition, &["spec", "conversion", "strategy"]) {
        "None" => None,
        "Webhook" => Some(Cause::forbidden(
            "spec.conversion.strategy",
            "this sandbox calls no conversion webhooks yet; serve one version, or versions that differ in name only with strategy None",
        )),
        other => Some(Cause::not_supported(
            "spec.conversion.strategy",
            &other.into(),
            &["None", "Webhook"],
        )),
    }
}

fn version_causes(definition: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let versions = meta::at(definition, &["spec", "versions"])
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let storage = versions
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .count();
    if storage != 1 {
        causes.push(Cause::invalid(
            "spec.versions",
            &Value::Array(versions.clone()),
            "must have exactly one version marked as storage version",
        ));
    }
    let schema = |version: &Value| meta::at(version, &["schema", "openAPIV3Schema"]).cloned();
    let same = versions
        .windows(2)
        .all(|pair| schema(&pair[0]) == schema(&pair[1]));
    let mut seen: Vec<&str> = Vec::new();
    for (index, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{index}]");
        let name = meta::text(version, &["name"]);
        causes.extend(
            names::service_label(name)
                .iter()
                .map(|problem| Cause::invalid(format!("{field}.name"), &name.into(), problem)),
        );
        if seen.contains(&name) {
            causes.push(Cause::invalid(
                format!("{field}.name"),
                &name.into(),
                "must contain unique version names",
            ));
        }
        seen.push(name);
        // A real server names the place where all versions' equal schema is kept inside it.
        let place = if same {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("{field}.schema.openAPIV3Schema")
        };
        match schema(version) {
            None => causes.push(Cause::required(
                format!("{field}.schema.openAPIV3Schema"),
                "schemas are required",
            )),
            Some(_) if same && index > 0 => {}
            Some(schema) => causes.extend(structural::check(&schema, &place)),
        }
        causes.extend(subresource_causes(version, &field));
        causes.extend(column_causes(version, &field));
    }
    causes
}

fn subresource_causes(version: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(scale) =
        meta::at(version, &["subresources", "scale"]).filter(|scale| !scale.is_null())
    {
        let mut check = |key: &str, beginnings: &[&str], required: bool| {
            let text = meta::text(scale, &[key]);
            let place = format!("{field}.subresources.scale.{key}");
            if text.is_empty() {
                if required {
                    causes.push(Cause::required(place, ""));
                }
            } else if crd::plain_path(text).is_none()
                || !beginnings
                    .iter()
                    .any(|beginning| text.starts_with(beginning))
            {
                causes.push(Cause::invalid(
                    place,
                    &text.into(),
                    &format!("should be a json path under {}", beginnings.join(" or ")),
                ));
            }
        };
        check("specReplicasPath", &[".spec."], true);
        check("statusReplicasPath", &[".status."], true);
        check("labelSelectorPath", &[".spec.", ".status."], false);
    }
    for (index, selectable) in version
        .get("selectableFields")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let path = meta::text(selectable, &["jsonPath"]);
        if crd::plain_path(path).is_none() {
            causes.push(Cause::invalid(
                format!("{field}.selectableFields[{index}].jsonPath"),
                &path.into(),
                "must be a simple path",
            ));
        }
    }
    causes
}

fn column_causes(version: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, column) in version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        let place = |key: &str| format!("{field}.additionalPrinterColumns[{index}].{key}");
        for key in ["name", "type", "jsonPath"] {
            if meta::text(column, &[key]).is_empty() {
                causes.push(Cause::required(place(key), ""));
            }
        }
        let kind = meta::text(column, &["type"]);
        if !kind.is_empty() && !COLUMN_TYPES.contains(&kind) {
            causes.push(Cause::invalid(
                place("type"),
                &kind.into(),
                &format!("must be one of {}", COLUMN_TYPES.join(",")),
            ));
        }
    }
    causes
}

fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = accept_change(new, old);
    for path in [
        &["spec", "group"][..],
        &["spec", "scope"],
        &["spec", "names", "plural"],
        &["spec", "names", "kind"],
    ] {
        let (after, before) = (meta::text(new, path), meta::text(old, path));
        if after != before {
            causes.push(Cause::invalid(
                path.join("."),
                &after.into(),
                "field is immutable",
            ));
        }
    }
    let served: Vec<&str> = meta::at(new, &["spec", "versions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|version| meta::text(version, &["name"]))
        .collect();
    for (index, stored) in meta::at(new, &["status", "storedVersions"])
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate()
    {
        if !stored
            .as_str()
            .is_some_and(|stored| served.contains(&stored))
        {
            let detail = format!(
                "missing from spec.versions; {} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {} and removes {} from status.storedVersions",
                shown(stored),
                shown(stored),
                shown(stored)
            );
            causes.push(Cause::invalid(
                format!("status.storedVersions[{index}]"),
                stored,
                &detail,
            ));
        }
    }
    causes
}

fn shown(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
