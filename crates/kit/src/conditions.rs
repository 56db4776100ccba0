//! Conditions: set them so that a transition time changes only when the status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde::Serialize;

use crate::limits;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value { Self::True } else { Self::False }
    }
}

/// What a condition should say. `reason` is a word from the operator's enum of reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    pub type_: &'static str,
    pub truth: Truth,
    pub reason: &'static str,
    pub message: String,
    pub observed_generation: Option<i64>,
}

/// What `set` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It said so already.
    Same,
    /// Another reason or message, the same status: no transition.
    Reworded,
    /// Another status, or a new condition.
    Transition,
}

/// Makes the list say the statement.
pub fn set(conditions: &mut Vec<Condition>, statement: &Statement, now: Timestamp) -> Said {
    let mut said = condition_of(statement, now);
    let Some(current) = conditions
        .iter_mut()
        .find(|condition| condition.type_ == said.type_)
    else {
        conditions.push(said);
        return Said::Transition;
    };
    if current.status != said.status {
        *current = said;
        return Said::Transition;
    }
    said.last_transition_time = current.last_transition_time.clone();
    if *current == said {
        return Said::Same;
    }
    *current = said;
    Said::Reworded
}

/// The whole list of conditions that says these statements and nothing else, with the transition times of the old list
/// where the status stayed.
pub fn all(old: &[Condition], statements: &[Statement], now: Timestamp) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = old
        .iter()
        .filter(|condition| {
            statements
                .iter()
                .any(|statement| statement.type_ == condition.type_)
        })
        .cloned()
        .collect();
    for statement in statements {
        set(&mut conditions, statement, now);
    }
    conditions
}

pub fn get<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    get(conditions, type_).is_some_and(|condition| condition.status == Truth::True.as_str())
}

fn condition_of(statement: &Statement, now: Timestamp) -> Condition {
    Condition {
        type_: statement.type_.to_owned(),
        status: statement.truth.as_str().to_owned(),
        reason: statement.reason.to_owned(),
        message: shortened(&statement.message, limits::CONDITION_MESSAGE_BYTES_MAX),
        observed_generation: statement.observed_generation,
        last_transition_time: Time(now),
    }
}

/// At most so many bytes, cut between characters.
pub(crate) fn shortened(text: &str, bytes_max: usize) -> String {
    const MORE: &str = " …";
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    let mut end = bytes_max.saturating_sub(MORE.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MORE}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(truth: Truth, reason: &'static str, message: &str) -> Statement {
        Statement {
            type_: "Ready",
            truth,
            reason,
            message: message.into(),
            observed_generation: Some(1),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a small number")
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let mut conditions = Vec::new();
        let table = [
            (10, Truth::False, "Starting", "1 of 3", Said::Transition, 10),
            (20, Truth::False, "Starting", "1 of 3", Said::Same, 10),
            (30, Truth::False, "Starting", "2 of 3", Said::Reworded, 10),
            (40, Truth::False, "Stuck", "2 of 3", Said::Reworded, 10),
            (50, Truth::True, "Running", "3 of 3", Said::Transition, 50),
            (60, Truth::Unknown, "Silent", "", Said::Transition, 60),
        ];
        for (now, truth, reason, message, said, since) in table {
            assert_eq!(
                set(&mut conditions, &statement(truth, reason, message), at(now)),
                said,
                "at {now}"
            );
            assert_eq!(conditions.len(), 1);
            assert_eq!(conditions[0].last_transition_time.0, at(since), "at {now}");
            assert_eq!(
                (
                    conditions[0].reason.as_str(),
                    conditions[0].message.as_str()
                ),
                (reason, message)
            );
        }
        assert!(!is_true(&conditions, "Ready") && get(&conditions, "Other").is_none());
    }

    #[test]
    fn the_whole_list_keeps_times_and_drops_what_is_no_longer_said() {
        let mut old = Vec::new();
        set(&mut old, &statement(Truth::True, "Running", ""), at(10));
        set(
            &mut old,
            &Statement {
                type_: "Legacy",
                ..statement(Truth::True, "Old", "")
            },
            at(10),
        );
        let new = all(&old, &[statement(Truth::True, "Running", "fine")], at(99));
        assert_eq!(new.len(), 1);
        assert_eq!(new[0].last_transition_time.0, at(10));
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        assert_eq!(shortened("short", 5), "short");
        for bytes_max in 4..12 {
            let cut = shortened("äöüäöüäöü", bytes_max);
            assert!(cut.len() <= bytes_max && cut.ends_with('…'), "{cut}");
        }
    }
}
