//! Which Events are told, and how: the memory that keeps a pass from saying the same thing again. Pure.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::Note;
use crate::{clock::Moment, limits};

/// What to do about a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Tell it as a new Event.
    Tell { name_suffix: u64 },
    /// It happened again: the same Event, counted.
    Again { name_suffix: u64, count: i32 },
    /// This very occurrence was told before.
    Known,
    /// Too many about this object.
    TooMany,
}

/// Which Event a note belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subject {
    uid: String,
    reason: &'static str,
    note: String,
}

#[derive(Debug)]
struct Told {
    occurrences: Vec<String>,
    count: i32,
    name_suffix: u64,
}

/// Tokens of one object: one per Event.
#[derive(Debug)]
struct Bucket {
    tokens: u32,
    refilled_at: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Ledger {
    told: HashMap<Subject, Told>,
    /// Oldest first, for forgetting.
    order: VecDeque<Subject>,
    buckets: HashMap<String, Bucket>,
    suffixes: u64,
}

/// Occurrences remembered per Event. More than this and the oldest counts as new again.
const OCCURRENCES_MAX: usize = 64;

impl Ledger {
    /// `start` makes Event names differ between runs of the program.
    pub(super) fn new(start: u64) -> Self {
        Self {
            suffixes: start,
            ..Self::default()
        }
    }

    pub(super) fn judge(&mut self, note: &Note, now: Moment) -> Verdict {
        let subject = subject_of(note);
        if self
            .told
            .get(&subject)
            .is_some_and(|told| told.occurrences.contains(&note.occurrence))
        {
            return Verdict::Known;
        }
        if !self.take_token(&subject.uid, now) {
            return Verdict::TooMany;
        }
        if let Some(told) = self.told.get_mut(&subject) {
            told.count = told.count.saturating_add(1);
            if told.occurrences.len() >= OCCURRENCES_MAX {
                told.occurrences.remove(0);
            }
            told.occurrences.push(note.occurrence.clone());
            return Verdict::Again {
                name_suffix: told.name_suffix,
                count: told.count,
            };
        }
        self.suffixes = self.suffixes.wrapping_add(1);
        let name_suffix = self.suffixes;
        self.remember(subject, note.occurrence.clone(), name_suffix);
        Verdict::Tell { name_suffix }
    }

    /// The server lost the Event that a count was for (they live for an hour): the next one is new.
    pub(super) fn lost(&mut self, note: &Note) -> Verdict {
        let subject = subject_of(note);
        self.suffixes = self.suffixes.wrapping_add(1);
        if let Some(told) = self.told.get_mut(&subject) {
            told.count = 1;
            told.name_suffix = self.suffixes;
        }
        Verdict::Tell {
            name_suffix: self.suffixes,
        }
    }

    /// It could not be sent: the occurrence is not known after all.
    pub(super) fn not_told(&mut self, note: &Note) {
        if let Some(told) = self.told.get_mut(&subject_of(note)) {
            told.occurrences
                .retain(|occurrence| *occurrence != note.occurrence);
        }
    }

    fn remember(&mut self, subject: Subject, occurrence: String, name_suffix: u64) {
        if self.order.len() >= limits::EVENTS_REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.told.remove(&oldest);
        }
        self.order.push_back(subject.clone());
        let told = Told {
            occurrences: vec![occurrence],
            count: 1,
            name_suffix,
        };
        self.told.insert(subject, told);
    }

    fn take_token(&mut self, uid: &str, now: Moment) -> bool {
        if self.buckets.len() >= limits::EVENTS_REMEMBERED_MAX {
            // A full bucket says nothing; what is left are objects that talk.
            self.buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.tokens < limits::EVENTS_BURST
            });
        }
        let bucket = self.buckets.entry(uid.to_owned()).or_insert(Bucket {
            tokens: limits::EVENTS_BURST,
            refilled_at: now,
        });
        bucket.refill(now);
        if bucket.tokens == 0 {
            return false;
        }
        bucket.tokens -= 1;
        true
    }
}

fn subject_of(note: &Note) -> Subject {
    Subject {
        uid: note.regarding.uid.clone().unwrap_or_default(),
        reason: note.reason,
        note: note.note.clone(),
    }
}

impl Bucket {
    fn refill(&mut self, now: Moment) {
        let refill_ms = limits::EVENTS_REFILL.as_millis().max(1);
        let tokens = now.since(self.refilled_at).as_millis() / refill_ms;
        let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
        if tokens > 0 {
            self.tokens = self.tokens.saturating_add(tokens).min(limits::EVENTS_BURST);
            self.refilled_at = self
                .refilled_at
                .after(limits::EVENTS_REFILL.saturating_mul(tokens));
        }
        debug_assert!(
            self.refilled_at <= now.after(Duration::ZERO),
            "tokens are not given in advance"
        );
    }
}

#[cfg(test)]
impl Ledger {
    pub(super) fn remembered(&self) -> (usize, usize) {
        (self.told.len(), self.order.len())
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }
}
