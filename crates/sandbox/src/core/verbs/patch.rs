//! The four patches: JSON patch, merge patch, strategic merge, apply.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::create::{Owners, check_namespace_name, set_namespace};
use super::options::{WriteOptions, invalid};
use super::update::check_name;
use super::{Call, Place};
use crate::core::decode::{self, Document, FieldValidation, Format};
use crate::core::error::{Cause, Details, Failure, Outcome, Reason};
use crate::core::kind::KindInfo;
use crate::core::response::Response;
use crate::core::{convert, fields, limits, meta};

const OPTIONS: &str = "PatchOptions";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

impl PatchType {
    pub(super) fn of(content_type: &str, kind: &KindInfo) -> Outcome<PatchType> {
        match content_type {
            "application/json-patch+json" => Ok(PatchType::Json),
            "application/merge-patch+json" => Ok(PatchType::Merge),
            "application/apply-patch+yaml" => Ok(PatchType::Apply),
            "application/strategic-merge-patch+json" if !kind.is_custom() => {
                Ok(PatchType::Strategic)
            }
            "application/strategic-merge-patch+json" => Err(Failure::new(
                415,
                Reason::UnsupportedMediaType,
                "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => Err(Failure::new(
                415,
                Reason::UnsupportedMediaType,
                "415: Unsupported Media Type",
            )
            .with_details(Details::default())),
        }
    }
}

impl Call<'_> {
    pub(super) fn patch(&mut self, place: &Place) -> Outcome<Response> {
        let options = WriteOptions::of(self.request, OPTIONS)?;
        self.patch_with(place, &options)
    }

    /// PATCH, to the object itself or to one of its subresources that speak its kind.
    pub(super) fn patch_with(
        &mut self,
        place: &Place,
        options: &WriteOptions,
    ) -> Outcome<Response> {
        let patch_type = PatchType::of(&self.request.content_type, &place.kind)?;
        if patch_type == PatchType::Apply {
            return self.apply(place, options);
        }
        if self.request.parameter("force").is_some() {
            return Err(invalid(
                OPTIONS,
                Cause::forbidden("force", "may not be specified for non-apply patch"),
            ));
        }
        let kind = Arc::clone(&place.kind);
        let old = self.find(place)?;
        let live = convert::from_stored(&kind, &old);
        let patched = patch_value(patch_type, &live, &self.request.body, &kind)?;
        let mut new = self.decode_patched(&kind, &patched, options.validation)?;
        let (namespace, name) = place.object();
        check_name(&new, name)?;
        set_namespace(&kind, namespace, &mut new)?;
        meta::set_metadata(&mut new, "name", Some(name.into()));
        let stored = self.store_change(&kind, &old, new, options, Owners::Record)?;
        Ok(self.show(&kind, 200, &stored))
    }

    /// A patched object goes through the same decoding as one that was sent.
    fn decode_patched(
        &mut self,
        kind: &KindInfo,
        patched: &Value,
        validation: FieldValidation,
    ) -> Outcome<Value> {
        let said = (
            meta::text(patched, &["apiVersion"]),
            meta::text(patched, &["kind"]),
        );
        if said != (kind.api_version().as_str(), kind.kind.as_str()) {
            return Err(Failure::bad_request(format!(
                "a patch may not change apiVersion and kind: found {} {}, expected {} {}",
                said.0,
                said.1,
                kind.api_version(),
                kind.kind
            )));
        }
        decode::canonical(patched, kind, validation, &[], &mut self.warnings)
            .map_err(|failure| refused_patch(patched, &failure))
    }

    fn apply(&mut self, place: &Place, options: &WriteOptions) -> Outcome<Response> {
        if self
            .request
            .parameter("fieldManager")
            .unwrap_or_default()
            .is_empty()
        {
            return Err(invalid(
                OPTIONS,
                Cause::required("fieldManager", "is required for apply patch"),
            ));
        }
        let force = self.request.parameter("force") == Some("true");
        let kind = Arc::clone(&place.kind);
        let (namespace, name) = place.object();
        let mut applied = self.applied(&kind, options)?;
        check_name(&applied, name)?;
        check_namespace_name(namespace, &applied)?;
        meta::set_metadata(&mut applied, "name", Some(name.into()));
        let old = self.state.get(&kind.resource, namespace, name).cloned();
        if let Some(old) = &old {
            let asked = meta::resource_version(&applied);
            if !asked.is_empty() && asked != meta::resource_version(old) {
                return Err(Failure::modified(&kind.resource_named(name)));
            }
        } else {
            if !options.subresource.is_empty() {
                return Err(Failure::not_found(&kind.resource_named(name)));
            }
            let uid = meta::uid(&applied);
            if !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Failure::conflict(&kind.resource_named(name), &why));
            }
        }
        let live = old.as_ref().map(|old| convert::from_stored(&kind, old));
        let merged = fields::apply(
            &kind,
            live.as_deref(),
            &applied,
            options.writer(self.now),
            force,
        )?;
        let merged = decode::canonical(
            &merged,
            &kind,
            FieldValidation::Ignore,
            &[],
            &mut self.warnings,
        )?;
        match old {
            Some(old) => {
                let stored = self.store_change(&kind, &old, merged, options, Owners::Recorded)?;
                Ok(self.show(&kind, 200, &stored))
            }
            None => {
                let stored = self.store_new(&kind, namespace, merged, options, Owners::Recorded)?;
                Ok(self.show(&kind, 201, &stored))
            }
        }
    }

    /// What is applied, in the words of the client; unknown fields are the merge's to refuse.
    fn applied(&mut self, kind: &KindInfo, options: &WriteOptions) -> Outcome<Value> {
        let yaml = |error: String| Failure::bad_request(format!("error decoding YAML: {error}"));
        // Most clients send JSON, which is YAML too; its own parser also sees keys that are there twice.
        let Document { value, duplicates } = decode::parse(&self.request.body, Format::Json)
            .or_else(|_| decode::parse(&self.request.body, Format::Yaml))
            .map_err(yaml)?;
        if !duplicates.is_empty() && options.validation == FieldValidation::Strict {
            let list: Vec<String> = duplicates
                .iter()
                .map(|field| format!("duplicate field {field:?}"))
                .collect();
            return Err(Failure::bad_request(format!(
                "error strict decoding YAML: {}",
                list.join(", ")
            )));
        }
        if !value.is_object() {
            return Err(yaml("the document is not an object".to_owned()));
        }
        let (said_version, said_kind) = (
            meta::text(&value, &["apiVersion"]),
            meta::text(&value, &["kind"]),
        );
        if said_version != kind.api_version() || said_kind != kind.kind {
            let (group, version) = said_version.split_once('/').unwrap_or(("", said_version));
            return Err(Failure::bad_request(format!(
                "invalid object type: {group}/{version}, Kind={said_kind}"
            )));
        }
        if meta::at(&value, &["metadata", "managedFields"]).is_some_and(|fields| !fields.is_null())
        {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        Ok(value)
    }
}

/// The live object with a patch on it.
pub(super) fn patch_value(
    patch_type: PatchType,
    live: &Value,
    body: &[u8],
    kind: &KindInfo,
) -> Outcome<Value> {
    match patch_type {
        PatchType::Json => json_patch(live, body),
        PatchType::Merge => {
            let patch = parse_patch(body, "error decoding patch: ")?;
            let mut patched = live.clone();
            geodb_merge::merge_patch::merge_patch(&mut patched, &patch);
            Ok(patched)
        }
        PatchType::Strategic => {
            let patch = parse_patch(body, "")?;
            let schema = fields::schema(kind).ok_or_else(|| {
                Failure::not_implemented(format!(
                    "this sandbox has no schema of {} to merge by",
                    kind.kind
                ))
            })?;
            strategic(live, &patch, schema)
        }
        PatchType::Apply => Err(Failure::bad_request(
            "an apply is merged with its owners, not as a patch",
        )),
    }
}

fn strategic(live: &Value, patch: &Value, schema: &geodb_merge::schema::Schema) -> Outcome<Value> {
    geodb_merge::strategic::strategic_merge(schema, live, patch).map_err(|error| {
        match error.status_code() {
            415 => Failure::new(415, Reason::UnsupportedMediaType, error.to_string()),
            422 => Failure::new(422, Reason::Invalid, error.to_string()),
            500 => Failure::internal(error.to_string()),
            _ => Failure::bad_request(error.to_string()),
        }
    })
}

fn parse_patch(body: &[u8], prefix: &str) -> Outcome<Value> {
    let refuse = |why: &str| Failure::bad_request(format!("{prefix}{why}"));
    let Document { value, .. } =
        decode::parse(body, Format::Json).map_err(|error| refuse(&error))?;
    let shape = match &value {
        Value::Object(_) => return Ok(value),
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        Value::Null => return Ok(Value::Object(Map::new())),
    };
    Err(refuse(&format!(
        "json: cannot unmarshal {shape} into Go value of type map[string]interface {{}}"
    )))
}

fn json_patch(live: &Value, body: &[u8]) -> Outcome<Value> {
    let document = decode::parse(body, Format::Json)
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?
        .value;
    let Some(operations) = document.as_array() else {
        let shape = if document.is_object() {
            "object"
        } else {
            "value"
        };
        return Err(Failure::bad_request(format!(
            "error decoding patch: json: cannot unmarshal {shape} into Go value of type []handlers.jsonPatchOp"
        )));
    };
    if operations.len() > limits::JSON_PATCH_OPERATIONS {
        let message = format!(
            "The allowed maximum operations in a JSON patch is {}, got {}",
            limits::JSON_PATCH_OPERATIONS,
            operations.len()
        );
        return Err(Failure::new(413, Reason::RequestEntityTooLarge, message));
    }
    let mut patched = live.clone();
    let mut copied_bytes = 0;
    for operation in operations {
        check_operation(operation, &patched, &mut copied_bytes)?;
        let patch: json_patch::Patch =
            serde_json::from_value(json!([operation])).map_err(|_| rejected())?;
        json_patch::patch(&mut patched, &patch).map_err(|_| rejected())?;
    }
    Ok(patched)
}

/// A short patch must not grow into something large or deep: copies are counted, and so are the levels of a path.
fn check_operation(operation: &Value, patched: &Value, copied_bytes: &mut usize) -> Outcome<()> {
    for key in ["path", "from"] {
        if meta::text(operation, &[key]).matches('/').count() > limits::DEPTH_LEVELS {
            return Err(Failure::bad_request(format!(
                "a JSON patch's {key} may have up to {} levels",
                limits::DEPTH_LEVELS
            )));
        }
    }
    if meta::text(operation, &["op"]) == "copy" {
        let source = patched.pointer(meta::text(operation, &["from"]));
        *copied_bytes += source.map_or(0, |value| value.to_string().len());
        if *copied_bytes > limits::BODY_BYTES {
            let message = format!("a JSON patch may copy up to {} bytes", limits::BODY_BYTES);
            return Err(Failure::new(413, Reason::RequestEntityTooLarge, message));
        }
    }
    Ok(())
}

fn rejected() -> Box<Failure> {
    Failure::new(
        422,
        Reason::Invalid,
        "the server rejected our request due to an error in our request",
    )
    .with_details(Details::default())
}

/// What a real server says when a patched object cannot be decoded: 422 about the patch, with the reason at the end.
fn refused_patch(patched: &Value, failure: &Failure) -> Box<Failure> {
    let reason = failure
        .message
        .split_once(": ")
        .map_or(failure.message.as_str(), |(_, reason)| reason);
    let cause = Cause::invalid("patch", &patched.to_string().into(), reason);
    let message = format!(" \"\" is invalid: patch: {}", cause.message);
    Failure::new(422, Reason::Invalid, message).with_details(Details {
        causes: vec![cause],
        ..Details::default()
    })
}
