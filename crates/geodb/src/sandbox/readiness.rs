//! When is an applied object ready? Pure: an object in, a verdict with its reason out.
//!
//! Conditions are the contract: `Ready` true for the object's current generation. A kind that reports no conditions is ready when it is there.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::Value;

/// What kind of readiness an object can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The condition `Ready`.
    ReadyCondition,
    /// The conditions `Complete` and `Failed`, as a Job has.
    Completion,
    /// Nothing more than to exist.
    Applied,
}

/// Groups that the API server itself serves; a dot elsewhere means a custom resource.
const BUILT_IN_GROUPS: [&str; 3] = ["", "apps", "batch"];
const BUILT_IN_ENDING: &str = ".k8s.io";

impl Expectation {
    /// None for kinds that are not built in.
    pub fn of_built_in(group: &str, kind: &str) -> Option<Self> {
        match (group, kind) {
            ("", "Pod" | "Node") => Some(Self::ReadyCondition),
            ("batch", "Job") => Some(Self::Completion),
            (group, _) if BUILT_IN_GROUPS.contains(&group) || group.ends_with(BUILT_IN_ENDING) => {
                Some(Self::Applied)
            }
            ("policy" | "autoscaling", _) => Some(Self::Applied),
            _ => None,
        }
    }

    /// A custom kind reports readiness if its schema has `status.conditions`.
    pub fn of_definition(definition: &CustomResourceDefinition, version: &str) -> Self {
        let has_conditions = definition
            .spec
            .versions
            .iter()
            .filter(|candidate| candidate.name == version)
            .filter_map(|candidate| {
                candidate
                    .schema
                    .as_ref()?
                    .open_api_v3_schema
                    .as_ref()?
                    .properties
                    .as_ref()?
                    .get("status")
            })
            .any(|status| {
                status
                    .properties
                    .as_ref()
                    .is_some_and(|properties| properties.contains_key("conditions"))
            });
        if has_conditions {
            Self::ReadyCondition
        } else {
            Self::Applied
        }
    }
}

/// The answer, with the reason a person needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ready(String),
    Waiting(String),
    /// It will not become ready by waiting.
    Failed(String),
}

/// Judges an object as the server last showed it.
pub fn judge(expectation: Expectation, object: &Value) -> Verdict {
    if object.pointer("/metadata/deletionTimestamp").is_some() {
        return Verdict::Failed("it is being deleted".to_owned());
    }
    match expectation {
        Expectation::Applied => Verdict::Ready("applied".to_owned()),
        Expectation::Completion => judge_completion(object),
        Expectation::ReadyCondition => judge_ready(object),
    }
}

fn judge_completion(object: &Value) -> Verdict {
    if let Some(failed) = condition(object, "Failed").filter(|condition| is_true(condition)) {
        return Verdict::Failed(describe(failed));
    }
    match condition(object, "Complete") {
        Some(complete) if is_true(complete) => Verdict::Ready("complete".to_owned()),
        _ => Verdict::Waiting("not complete yet".to_owned()),
    }
}

fn judge_ready(object: &Value) -> Verdict {
    if object.pointer("/status/phase").and_then(Value::as_str) == Some("Succeeded") {
        return Verdict::Ready("succeeded".to_owned());
    }
    let generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let Some(ready) = condition(object, "Ready") else {
        return Verdict::Waiting("nobody has reported on it yet".to_owned());
    };
    // A status that speaks of an older spec says nothing about this one. Zero and absent mean: the reporter does not keep count.
    let seen = ready
        .get("observedGeneration")
        .or_else(|| object.pointer("/status/observedGeneration"));
    let seen = seen.and_then(Value::as_i64).filter(|seen| *seen > 0);
    if seen.is_some_and(|seen| seen < generation) {
        return Verdict::Waiting("the change has not been looked at yet".to_owned());
    }
    if is_true(ready) {
        return Verdict::Ready(describe(ready));
    }
    match condition(object, "NeedsHuman").filter(|condition| is_true(condition)) {
        Some(needs_human) => Verdict::Waiting(describe(needs_human)),
        None => Verdict::Waiting(describe(ready)),
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object.pointer("/status/conditions")?.as_array()?;
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
}

fn is_true(condition: &Value) -> bool {
    condition["status"] == "True"
}

/// The message where there is one: it is written for people. Else the reason.
fn describe(condition: &Value) -> String {
    let text = |field: &str| condition[field].as_str().filter(|text| !text.is_empty());
    let kind = text("type").unwrap_or("condition");
    text("message").or_else(|| text("reason")).map_or_else(
        || format!("{kind} is {}", condition["status"]),
        str::to_owned,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn database(generation: i64, conditions: &Value) -> Value {
        json!({"metadata": {"name": "rivers", "generation": generation}, "status": {"conditions": conditions}})
    }

    #[test]
    fn ready_means_the_condition_for_this_generation() {
        let message = "3 of 3 instances are ready";
        let ready = json!([{"type": "Ready", "status": "True", "observedGeneration": 2, "message": message}]);
        let table = [
            (database(2, &ready), Verdict::Ready(message.to_owned())),
            (
                database(3, &ready),
                Verdict::Waiting("the change has not been looked at yet".to_owned()),
            ),
            (
                database(
                    2,
                    &json!([{"type": "Ready", "status": "False", "reason": "AwaitingFirstPrimary", "message": ""}]),
                ),
                Verdict::Waiting("AwaitingFirstPrimary".to_owned()),
            ),
            (
                database(
                    2,
                    &json!([{"type": "NeedsHuman", "status": "True", "message": "make room"}, {"type": "Ready", "status": "False", "message": "x"}]),
                ),
                Verdict::Waiting("make room".to_owned()),
            ),
            (
                json!({"metadata": {"generation": 1}}),
                Verdict::Waiting("nobody has reported on it yet".to_owned()),
            ),
        ];
        for (object, expected) in table {
            assert_eq!(
                judge(Expectation::ReadyCondition, &object),
                expected,
                "{object}"
            );
        }
    }

    #[test]
    fn an_object_on_its_way_out_is_never_ready() {
        let mut object = database(1, &json!([{"type": "Ready", "status": "True"}]));
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(matches!(
            judge(Expectation::ReadyCondition, &object),
            Verdict::Failed(_)
        ));
    }

    #[test]
    fn a_job_completes_or_fails() {
        let job = |kind: &str| json!({"status": {"conditions": [{"type": kind, "status": "True", "message": "BackoffLimitExceeded"}]}});
        assert_eq!(
            judge(Expectation::Completion, &job("Complete")),
            Verdict::Ready("complete".to_owned())
        );
        assert_eq!(
            judge(Expectation::Completion, &job("Failed")),
            Verdict::Failed("BackoffLimitExceeded".to_owned())
        );
        assert!(matches!(
            judge(Expectation::Completion, &json!({})),
            Verdict::Waiting(_)
        ));
    }

    #[test]
    fn our_database_reports_conditions_and_a_config_map_does_not() {
        let definition = &geodb_api::crds()[0];
        assert_eq!(
            Expectation::of_definition(definition, "v2"),
            Expectation::ReadyCondition
        );
        assert_eq!(
            Expectation::of_definition(definition, "v9"),
            Expectation::Applied
        );
        assert_eq!(
            Expectation::of_built_in("", "ConfigMap"),
            Some(Expectation::Applied)
        );
        assert_eq!(
            Expectation::of_built_in("rbac.authorization.k8s.io", "Role"),
            Some(Expectation::Applied)
        );
        assert_eq!(
            Expectation::of_built_in("stable.imaginedata.com", "Database"),
            None
        );
    }
}
