//! What is served below an object.

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use super::create::Owners;
use super::delete::{DeleteOptions, parse_embedded};
use super::options::{WriteOptions, dry_run};
use super::{Call, Place};
use crate::core::error::{Cause, CauseReason, Details, Failure, Named, Outcome, Reason};
use crate::core::response::Response;
use crate::core::{decode, meta};

const BUDGETS: &str = "poddisruptionbudgets.policy";

impl Call<'_> {
    pub(super) fn subresource(&mut self, place: &Place) -> Outcome<Response> {
        let name = place.subresource.as_deref().unwrap_or_default();
        let method = self.request.method.clone();
        match (name, method) {
            ("scale", _) => self.scale(place),
            ("status", Method::GET) => self.get(place),
            ("status", Method::PUT) => {
                let options = WriteOptions::of(self.request, "UpdateOptions")?.at("status");
                self.replace(place, &options)
            }
            ("status", Method::PATCH) => {
                let options = WriteOptions::of(self.request, "PatchOptions")?.at("status");
                self.patch_with(place, &options)
            }
            ("finalize", Method::PUT) => {
                let options = WriteOptions::of(self.request, "UpdateOptions")?.at("finalize");
                self.replace(place, &options)
            }
            ("binding", Method::POST) => self.bind(place),
            ("eviction", Method::POST) => self.evict(place),
            ("token", Method::POST) => Err(Failure::not_implemented(
                "tokens are made by the server around this core; it did not take this request",
            )),
            ("log", Method::GET)
            | ("exec" | "attach" | "portforward", Method::GET | Method::POST) => {
                self.ask_node(place, name)
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Only the node that runs a pod can answer; a pod without one has nothing to say yet.
    fn ask_node(&mut self, place: &Place, subresource: &str) -> Outcome<Response> {
        let pod = self.find(place)?;
        let (namespace, name) = place.object();
        if meta::text(&pod, &["spec", "nodeName"]).is_empty() {
            return Err(Failure::bad_request(format!(
                "pod {name} does not have a host assigned"
            )));
        }
        Ok(Response::Node {
            namespace: namespace.to_owned(),
            pod: name.to_owned(),
            subresource: subresource.to_owned(),
        })
    }

    /// What a scheduler does: give a pod to a node, once.
    fn bind(&mut self, place: &Place) -> Outcome<Response> {
        let options = WriteOptions::of(self.request, "CreateOptions")?.at("binding");
        let format = decode::format(self.request)?;
        let binding = parse_embedded(&self.request.body, format)?;
        let target = meta::text(&binding, &["target", "name"]);
        let target_kind = meta::text(&binding, &["target", "kind"]);
        if target.is_empty() || !["", "Node"].contains(&target_kind) {
            return Err(Failure::bad_request(
                "a Binding needs the name of a Node in target.name",
            ));
        }
        let pod = self.find(place)?;
        let (_, name) = place.object();
        let named = Named {
            group: "",
            kind: "pods/binding",
            name,
        };
        let conflict = |why: String| Failure::conflict(&named, &why);
        if meta::is_deleting(&pod) {
            return Err(conflict(format!(
                "pod {name} is being deleted, cannot be assigned to a host"
            )));
        }
        let assigned = meta::text(&pod, &["spec", "nodeName"]);
        if !assigned.is_empty() {
            return Err(conflict(format!(
                "pod {name} is already assigned to node {assigned:?}"
            )));
        }
        let mut new = Value::clone(&pod);
        meta::child(&mut new, "spec").insert("nodeName".to_owned(), target.into());
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": meta::timestamp(self.now)});
        let status = meta::child(&mut new, "status");
        if let Some(conditions) = status
            .entry("conditions")
            .or_insert_with(|| json!([]))
            .as_array_mut()
        {
            conditions.retain(|condition| meta::text(condition, &["type"]) != "PodScheduled");
            conditions.push(scheduled);
        }
        self.store_change(&place.kind, &pod, new, &options, Owners::Record)?;
        Ok(success(201))
    }

    /// A deletion that asks the disruption budgets first.
    fn evict(&mut self, place: &Place) -> Outcome<Response> {
        let format = decode::format(self.request)?;
        let body = if self.request.body.is_empty() {
            json!({})
        } else {
            parse_embedded(&self.request.body, format)?
        };
        let given = body
            .get("deleteOptions")
            .filter(|given| !given.is_null())
            .cloned()
            .unwrap_or_else(|| json!({}));
        let options =
            DeleteOptions::parse(&given)?.dry_run(dry_run(self.request, "CreateOptions")?);
        let pod = self.find(place)?;
        let ended = matches!(
            meta::text(&pod, &["status", "phase"]),
            "Succeeded" | "Failed" | "Pending"
        );
        let budget = if ended || meta::is_deleting(&pod) {
            None
        } else {
            self.budget_of(&pod)?
        };
        if let Some(budget) = &budget {
            check_budget(budget)?;
        }
        let kind = Arc::clone(&place.kind);
        let deleted = self.delete_object(&kind, &pod, &options)?;
        if let Some(budget) = budget.filter(|_| !options.is_dry_run()) {
            self.spend(&budget, meta::name(&deleted.object));
        }
        Ok(success(201))
    }

    fn budget_of(&self, pod: &Value) -> Outcome<Option<Arc<Value>>> {
        let namespace = meta::namespace(pod);
        let mut matching = self.state.objects(BUDGETS).filter(|budget| {
            meta::namespace(budget) == namespace
                && meta::at(budget, &["spec", "selector"])
                    .is_some_and(|selector| selects(selector, pod))
        });
        let first = matching.next().cloned();
        if matching.next().is_some() {
            return Err(Failure::internal(
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
            ));
        }
        Ok(first)
    }

    /// Counts an eviction against its budget, until the budget's controller has seen the pod go.
    fn spend(&mut self, budget: &Arc<Value>, pod: &str) {
        let Some(kind) = self
            .state
            .kind("policy", "v1", "poddisruptionbudgets")
            .cloned()
        else {
            return;
        };
        let mut new = Value::clone(budget);
        let now = meta::timestamp(self.now);
        let status = meta::child(&mut new, "status");
        let allowed = status
            .get("disruptionsAllowed")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        status.insert("disruptionsAllowed".to_owned(), (allowed - 1).max(0).into());
        meta::object(status.entry("disruptedPods").or_insert_with(|| json!({})))
            .insert(pod.to_owned(), now.into());
        self.commit(&kind, new);
    }
}

fn success(status: u16) -> Response {
    let body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": status});
    Response::Json {
        status,
        body,
        warnings: Vec::new(),
    }
}

fn check_budget(budget: &Value) -> Outcome<()> {
    let number = |path: &[&str]| {
        meta::at(budget, path)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let name = meta::name(budget);
    let refuse = |message: &str, detail: String| {
        let cause = Cause::new(CauseReason::DisruptionBudget, "", detail);
        let details = Details {
            causes: vec![cause],
            ..Details::default()
        };
        Err(Failure::new(429, Reason::TooManyRequests, message).with_details(details))
    };
    if number(&["status", "observedGeneration"]) < number(&["metadata", "generation"]) {
        return refuse(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            format!("The disruption budget {name} is still being processed by the server."),
        );
    }
    if number(&["status", "disruptionsAllowed"]) < 1 {
        let (needed, healthy) = (
            number(&["status", "desiredHealthy"]),
            number(&["status", "currentHealthy"]),
        );
        return refuse(
            "Cannot evict pod as it would violate the pod's disruption budget.",
            format!(
                "The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
            ),
        );
    }
    Ok(())
}

/// Whether a `LabelSelector` of the API matches an object. An empty one matches everything.
pub(super) fn selects(selector: &Value, object: &Value) -> bool {
    let label = |key: &str| meta::at(object, &["metadata", "labels", key]).and_then(Value::as_str);
    let equal = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .all(|(key, value)| label(key) == value.as_str());
    let expressions = selector
        .get("matchExpressions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let expressed = expressions.into_iter().all(|expression| {
        let found = label(meta::text(expression, &["key"]));
        let listed = || {
            expression
                .get("values")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .any(|value| value.as_str() == found)
        };
        match meta::text(expression, &["operator"]) {
            "In" => found.is_some() && listed(),
            "NotIn" => found.is_none() || !listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    });
    equal && expressed
}
