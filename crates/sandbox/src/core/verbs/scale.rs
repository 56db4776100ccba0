//! The `scale` subresource: how many, and how many there are, in one shape for every kind that can be scaled.

use std::sync::Arc;

use http::Method;
use serde_json::{Map, Value, json};

use super::create::Owners;
use super::options::{WriteOptions, invalid};
use super::patch::{PatchType, patch_value};
use super::update::check_name;
use super::{Call, Place};
use crate::core::crd::ScalePaths;
use crate::core::decode;
use crate::core::error::{Cause, Failure, Named, Outcome};
use crate::core::kind::{KindInfo, Source};
use crate::core::response::{Response, View};
use crate::core::{convert, meta};

impl Call<'_> {
    pub(super) fn scale(&mut self, place: &Place) -> Outcome<Response> {
        // A scale is shown as it is; no client asks for a table of it.
        self.view = View::Object;
        let kind = Arc::clone(&place.kind);
        let old = self.find(place)?;
        let live = convert::from_stored(&kind, &old);
        let paths = paths(&kind);
        let current = show(&paths, &live)?;
        let method = self.request.method.clone();
        let (wanted, options) = match method {
            Method::GET => {
                return Ok(Response::Json {
                    status: 200,
                    body: current,
                    warnings: Vec::new(),
                });
            }
            Method::PUT => {
                let options = WriteOptions::of(self.request, "UpdateOptions")?;
                let format = decode::format(self.request)?;
                let document =
                    decode::parse(&self.request.body, format).map_err(Failure::bad_request)?;
                (document.value, options)
            }
            Method::PATCH => self.patched_scale(&kind, &current)?,
            _ => return Err(Failure::method_not_allowed()),
        };
        let (_, name) = place.object();
        let replicas = check(&wanted, name)?;
        let mut new = Value::clone(&live);
        set(&mut new, &paths.spec_replicas, replicas.into());
        let version = meta::resource_version(&wanted);
        meta::set_metadata(&mut new, "resourceVersion", Some(version.into()));
        let stored = self.store_change(&kind, &old, new, &options.at("scale"), Owners::Record)?;
        let body = show(&paths, &convert::from_stored(&kind, &stored))?;
        Ok(Response::Json {
            status: 200,
            body,
            warnings: Vec::new(),
        })
    }

    fn patched_scale(&self, kind: &KindInfo, current: &Value) -> Outcome<(Value, WriteOptions)> {
        let options = WriteOptions::of(self.request, "PatchOptions")?;
        let patch_type = match PatchType::of(&self.request.content_type, kind)? {
            PatchType::Apply => {
                return Err(Failure::not_implemented(
                    "this sandbox does not apply to scale yet; use a merge patch",
                ));
            }
            // A Scale has no lists: here a strategic merge is a merge.
            PatchType::Strategic => PatchType::Merge,
            other => other,
        };
        if self.request.parameter("force").is_some() {
            return Err(invalid(
                "PatchOptions",
                Cause::forbidden("force", "may not be specified for non-apply patch"),
            ));
        }
        Ok((
            patch_value(patch_type, current, &self.request.body, kind)?,
            options,
        ))
    }
}

fn paths(kind: &KindInfo) -> ScalePaths {
    let path = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    let custom = match &kind.source {
        Source::Custom(custom) => custom.scale.clone(),
        Source::Builtin(_) => None,
    };
    custom.unwrap_or_else(|| ScalePaths {
        spec_replicas: path(&["spec", "replicas"]),
        status_replicas: path(&["status", "replicas"]),
        label_selector: None,
    })
}

fn show(paths: &ScalePaths, object: &Value) -> Outcome<Value> {
    let find = |path: &[String]| {
        meta::at(object, &path.iter().map(String::as_str).collect::<Vec<_>>()).cloned()
    };
    let mut metadata = Map::new();
    for key in [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ] {
        if let Some(field) = meta::at(object, &["metadata", key]) {
            metadata.insert(key.to_owned(), field.clone());
        }
    }
    let replicas = find(&paths.spec_replicas).unwrap_or_else(|| 0.into());
    if !replicas.is_i64() && !replicas.is_u64() {
        return Err(Failure::internal(format!(
            "the spec replicas field {:?} does not exist or is no number",
            paths.spec_replicas.join(".")
        )));
    }
    let mut status = json!({"replicas": find(&paths.status_replicas).unwrap_or_else(|| 0.into())});
    let selector = match &paths.label_selector {
        Some(path) => find(path).and_then(|value| value.as_str().map(str::to_owned)),
        None => meta::at(object, &["spec", "selector"]).map(selector_text),
    };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    Ok(
        json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": {"replicas": replicas}, "status": status}),
    )
}

/// A selector of the API's own kinds, in the form in which a client lists with it.
fn selector_text(selector: &Value) -> String {
    let mut terms: Vec<String> = Vec::new();
    for (key, value) in selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let key = meta::text(expression, &["key"]);
        let values: Vec<&str> = expression
            .get("values")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        terms.push(match meta::text(expression, &["operator"]) {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.sort();
    terms.join(",")
}

fn check(wanted: &Value, name: &str) -> Outcome<i64> {
    let (version, kind) = (
        meta::text(wanted, &["apiVersion"]),
        meta::text(wanted, &["kind"]),
    );
    if version != "autoscaling/v1" || kind != "Scale" {
        return Err(Failure::bad_request(format!(
            "expected a Scale of autoscaling/v1, found {kind:?} of {version:?}"
        )));
    }
    check_name(wanted, name)?;
    let replicas = meta::at(wanted, &["spec", "replicas"])
        .cloned()
        .unwrap_or_else(|| 0.into());
    match replicas.as_i64() {
        Some(count) if (0..=i64::from(i32::MAX)).contains(&count) => Ok(count),
        Some(_) => {
            let cause = Cause::invalid(
                "spec.replicas",
                &replicas,
                "must be greater than or equal to 0",
            );
            Err(Failure::invalid(
                &Named {
                    group: "autoscaling",
                    kind: "Scale",
                    name,
                },
                vec![cause],
            ))
        }
        None => Err(Failure::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: json: spec.replicas must be a number, found {replicas}"
        ))),
    }
}

fn set(object: &mut Value, path: &[String], value: Value) {
    let mut place = object;
    for key in path {
        place = meta::object(place)
            .entry(key.as_str())
            .or_insert(Value::Null);
    }
    *place = value;
}
