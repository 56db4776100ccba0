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
