//! Writes a status only if it means something else.
//!
//! The write is a JSON merge patch of the differences with the object's UID and resourceVersion, not a server-side apply: a paused
//! leader that wakes up with an old view must get a conflict and not overwrite what is newer, and a spec that
//! changed in between must be looked at before it is called observed. The price is a conflict, and another pass, when somebody
//! writes the object at the same time.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::executor::{Seen, Step, Target};

/// Fields that say when and not what: a difference in them alone is no news.
const TIMES: [&str; 4] = [
    "lastTransitionTime",
    "lastUpdateTime",
    "lastHeartbeatTime",
    "lastProbeTime",
];

#[derive(Debug, Error, PartialEq, Eq)]
pub enum StatusError {
    #[error("{target} was not read from the server: it has no UID or no resourceVersion")]
    NotFromServer { target: Target },
    #[error("the status of {target} must be a JSON object")]
    NoObject { target: Target },
    #[error(
        "the status of {target} would claim generation {observed}, but only {seen} was seen; this is a bug in the operator"
    )]
    Ahead {
        target: Target,
        observed: i64,
        seen: i64,
    },
}

/// The step that makes the live object's status mean what `desired` means, or `None` if it does. `desired` is the whole status: what it lacks is
/// removed.
///
/// # Errors
/// When the objects make no sense together; see [`StatusError`].
pub fn report(target: &Target, live: &Value, desired: &Value) -> Result<Option<Step>, StatusError> {
    if !desired.is_object() {
        return Err(StatusError::NoObject {
            target: target.clone(),
        });
    }
    check_generation(target, live, desired)?;
    let empty = Value::Object(Map::new());
    let current = live
        .get("status")
        .filter(|status| status.is_object())
        .unwrap_or(&empty);
    if means_same(current, desired) {
        return Ok(None);
    }
    let text = |field: &str| live["metadata"][field].as_str().map(str::to_owned);
    let (Some(uid), Some(resource_version)) = (text("uid"), text("resourceVersion")) else {
        return Err(StatusError::NotFromServer {
            target: target.clone(),
        });
    };
    let mut patch = Map::new();
    patch.insert("status".to_owned(), merge_patch(current, desired));
    Ok(Some(Step::PatchStatus {
        target: target.clone(),
        seen: Seen {
            uid,
            resource_version,
        },
        patch: Value::Object(patch),
    }))
}

/// `observedGeneration`, of the status and of each condition, is never ahead of what was observed.
fn check_generation(target: &Target, live: &Value, desired: &Value) -> Result<(), StatusError> {
    let seen = live["metadata"]["generation"].as_i64().unwrap_or(0);
    let conditions = desired["conditions"].as_array().into_iter().flatten();
    let claims = std::iter::once(desired).chain(conditions);
    for observed in claims.filter_map(|claim| claim["observedGeneration"].as_i64()) {
        if observed > seen {
            return Err(StatusError::Ahead {
                target: target.clone(),
                observed,
                seen,
            });
        }
    }
    Ok(())
}

/// Equal but for times, and for members that are null or missing.
pub fn means_same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let says = |value: &(&String, &Value)| {
                !value.1.is_null() && !TIMES.contains(&value.0.as_str())
            };
            left.iter().filter(says).count() == right.iter().filter(says).count()
                && left.iter().filter(says).all(|(name, value)| {
                    right
                        .get(name)
                        .is_some_and(|other| means_same(value, other))
                })
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .zip(right)
                    .all(|(left, right)| means_same(left, right))
        }
        (Value::Number(left), Value::Number(right)) => {
            left == right || left.as_f64() == right.as_f64()
        }
        (left, right) => left == right,
    }
}

/// The JSON merge patch (RFC 7386) from one value to another.
pub(crate) fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let mut patch = Map::new();
    for (name, before) in from {
        if !before.is_null() && to.get(name).is_none_or(Value::is_null) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    for (name, value) in to {
        match from.get(name) {
            _ if value.is_null() => {}
            Some(before) if before == value => {}
            Some(before) => {
                patch.insert(name.clone(), merge_patch(before, value));
            }
            None => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::api::ApiResource;
    use serde_json::json;

    use super::*;
    use crate::key::Key;

    fn target() -> Target {
        Target::new(ApiResource::erase::<ConfigMap>(&()), Key::new("ns", "x"))
    }

    fn live(status: &Value) -> Value {
        json!({"metadata": {"uid": "u1", "resourceVersion": "7", "generation": 4}, "status": status})
    }

    fn patch(current: &Value, desired: &Value) -> Option<Value> {
        match report(&target(), &live(current), desired).expect("these make sense") {
            None => None,
            Some(Step::PatchStatus { patch, seen, .. }) => {
                assert_eq!(
                    (seen.uid.as_str(), seen.resource_version.as_str()),
                    ("u1", "7")
                );
                Some(patch["status"].clone())
            }
            Some(other) => panic!("not a status patch: {other}"),
        }
    }

    #[test]
    fn the_same_meaning_is_not_written() {
        let condition = |time: &str| json!({"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": time}]});
        let table = [
            (json!({"a": 1}), json!({"a": 1})),
            (json!({"a": 1, "b": null}), json!({"a": 1})),
            (json!({"a": 1}), json!({"a": 1.0, "c": null})),
            (
                condition("2026-01-01T00:00:00Z"),
                condition("2026-02-02T00:00:00Z"),
            ),
            (Value::Null, json!({})),
        ];
        for (current, desired) in table {
            assert_eq!(patch(&current, &desired), None, "{current} and {desired}");
        }
    }

    #[test]
    fn another_meaning_is_written_as_the_difference() {
        let table = [
            (json!({}), json!({"a": 1}), json!({"a": 1})),
            (Value::Null, json!({"a": 1}), json!({"a": 1})),
            (
                json!({"a": 1, "b": {"c": 1, "d": 2}}),
                json!({"b": {"c": 1, "d": 3}}),
                json!({"a": null, "b": {"d": 3}}),
            ),
            (json!({"l": [1, 2]}), json!({"l": [2]}), json!({"l": [2]})),
            (json!({"a": 1}), json!({"a": null}), json!({"a": null})),
        ];
        for (current, desired, expected) in table {
            assert_eq!(
                patch(&current, &desired),
                Some(expected),
                "{current} to {desired}"
            );
        }
    }

    #[test]
    fn the_observed_generation_is_never_ahead() {
        assert!(patch(&json!({}), &json!({"observedGeneration": 4})).is_some());
        for status in [
            json!({"observedGeneration": 5}),
            json!({"conditions": [{"observedGeneration": 5}]}),
        ] {
            let error =
                report(&target(), &live(&json!({})), &status).expect_err("5 was never seen");
            assert_eq!(
                error,
                StatusError::Ahead {
                    target: target(),
                    observed: 5,
                    seen: 4
                }
            );
        }
    }

    #[test]
    fn what_was_never_read_cannot_be_reported_on() {
        let error = report(&target(), &json!({"metadata": {}}), &json!({"a": 1}));
        assert_eq!(error, Err(StatusError::NotFromServer { target: target() }));
        assert_eq!(
            report(&target(), &live(&json!({})), &json!([])),
            Err(StatusError::NoObject { target: target() })
        );
    }
}
