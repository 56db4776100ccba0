//! Conditions: a transition time moves only when the status does.

use geodb_api::v2::{Condition, ConditionReason, ConditionStatus, ConditionType};
use jiff::Timestamp;

/// What a condition should say now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub kind: ConditionType,
    pub status: ConditionStatus,
    pub reason: ConditionReason,
    pub message: String,
}

impl Verdict {
    pub fn new(
        kind: ConditionType,
        holds: bool,
        reason: ConditionReason,
        message: impl Into<String>,
    ) -> Self {
        let status = if holds {
            ConditionStatus::True
        } else {
            ConditionStatus::False
        };
        Self {
            kind,
            status,
            reason,
            message: message.into(),
        }
    }
}

pub fn merge(
    before: &[Condition],
    verdicts: Vec<Verdict>,
    generation: i64,
    now: Timestamp,
) -> Vec<Condition> {
    let merged = verdicts.into_iter().map(|verdict| {
        let same = before
            .iter()
            .find(|condition| condition.kind == verdict.kind && condition.status == verdict.status);
        let last_transition_time = same.map_or_else(
            || to_seconds(now),
            |condition| condition.last_transition_time.clone(),
        );
        Condition {
            kind: verdict.kind,
            status: verdict.status,
            reason: verdict.reason,
            message: verdict.message,
            observed_generation: generation,
            last_transition_time,
        }
    });
    merged.collect()
}

pub fn holds(conditions: &[Condition], kind: ConditionType) -> bool {
    conditions
        .iter()
        .any(|condition| condition.kind == kind && condition.status == ConditionStatus::True)
}

/// Kubernetes keeps times to the second.
fn to_seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
