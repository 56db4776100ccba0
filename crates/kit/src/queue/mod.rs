//! Which object comes next: one entry per object, FIFO within a priority, fair between namespaces, with a backoff for
//! each object that fails and entries for later. A plain data structure: it never waits and is told what time it
//! is. `SharedQueue` is what a runner waits on.
//!
//! It holds at most one entry per object, so its size is bounded by the caches that feed it.

mod lane;
mod shared;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde::Serialize;

pub use shared::SharedQueue;

use crate::{backoff::Backoff, clock::Moment, key::Key, limits};
use lane::Lane;

/// Why an object is to be looked at; also which goes first, the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Priority {
    /// Its last pass failed.
    Failing,
    /// Nothing is known to have changed: first list, timers.
    Resync,
    /// It, or something it owns, changed.
    Change,
    /// It is going away, and others may wait for that.
    Deletion,
}

impl Priority {
    pub const ALL: [Self; 4] = [Self::Failing, Self::Resync, Self::Change, Self::Deletion];
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueConfig {
    pub backoff: Backoff,
    pub failing_interval_min: Duration,
    pub oldest_first_every: u64,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            backoff: Backoff {
                base: limits::RETRY_BASE,
                cap: limits::RETRY_CAP,
            },
            failing_interval_min: limits::FAILING_INTERVAL_MIN,
            oldest_first_every: limits::OLDEST_FIRST_EVERY,
        }
    }
}

/// What becomes of an entry when its pass has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until something changes.
    Rest,
    /// Once more at this moment, if nothing changes before.
    At(Moment),
    /// It failed: once more after its backoff.
    Backoff,
}

/// An entry handed to a worker. Give it back with `finish`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub key: Key,
    pub priority: Priority,
    /// Failed passes in a row before this one.
    pub failures: u32,
    /// How long it was ready before it was taken.
    pub waited: Duration,
}

#[derive(Debug)]
enum Place {
    Ready {
        priority: Priority,
        ticket: u64,
        since: Moment,
    },
    Delayed {
        priority: Priority,
        ticket: u64,
        at: Moment,
    },
    /// With a worker. What was asked for meanwhile is not lost.
    Running { again: Option<Priority> },
    /// Only its failures are remembered.
    Idle,
}

#[derive(Debug)]
struct Entry {
    place: Place,
    failures: u32,
    failed_at: Moment,
}

/// How many entries are where, for metrics and debugging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Depth {
    pub ready: usize,
    pub delayed: usize,
    pub running: usize,
}

#[derive(Debug)]
pub struct Queue {
    config: QueueConfig,
    entries: HashMap<Key, Entry>,
    lanes: BTreeMap<Priority, Lane>,
    /// All ready entries by age.
    by_age: BTreeMap<u64, Key>,
    delayed: BTreeMap<(Moment, u64), Key>,
    tickets: u64,
    taken: u64,
    running: usize,
    random: StdRng,
}

impl Queue {
    /// The seed decides the jitter, and nothing else is random.
    pub fn new(config: QueueConfig, seed: u64) -> Self {
        Self {
            config,
            entries: HashMap::new(),
            lanes: Priority::ALL
                .into_iter()
                .map(|priority| (priority, Lane::default()))
                .collect(),
            by_age: BTreeMap::new(),
            delayed: BTreeMap::new(),
            tickets: 0,
            taken: 0,
            running: 0,
            random: StdRng::seed_from_u64(seed),
        }
    }

    /// Something happened to this object. Cancels a wait; never makes a second entry, never lowers a priority.
    pub fn add(&mut self, key: &Key, priority: Priority, now: Moment) {
        let interval_min = self.config.failing_interval_min;
        let earliest = match self.entries.get_mut(key) {
            None => now,
            Some(entry) => match &mut entry.place {
                Place::Running { again } => {
                    *again = (*again).max(Some(priority));
                    return;
                }
                Place::Ready {
                    priority: current, ..
                } if *current >= priority => return,
                Place::Delayed { at, .. } if entry.failures > 0 => {
                    entry.failed_at.after(interval_min).min(*at)
                }
                _ => now,
            },
        };
        let since = self.unplace(key).unwrap_or(now);
        if earliest > now {
            self.place_delayed(key, priority, earliest);
        } else {
            self.place_ready(key, priority, since.min(now));
        }
    }

    /// Looks at this object at a later moment, unless it is looked at before.
    pub fn add_at(&mut self, key: &Key, priority: Priority, at: Moment, now: Moment) {
        if at <= now {
            return self.add(key, priority, now);
        }
        match self.entries.get(key).map(|entry| &entry.place) {
            Some(Place::Ready { .. } | Place::Running { .. }) => {}
            Some(Place::Delayed { at: current, .. }) if *current <= at => {}
            _ => {
                self.unplace(key);
                self.place_delayed(key, priority, at);
            }
        }
    }

    /// The entry to work on now, if there is one.
    pub fn take(&mut self, now: Moment) -> Option<Taken> {
        self.promote_due(now);
        if self.by_age.is_empty() {
            return None;
        }
        self.taken = self.taken.wrapping_add(1);
        let key = if self
            .taken
            .is_multiple_of(self.config.oldest_first_every.max(1))
        {
            self.by_age.values().next().cloned()
        } else {
            self.lanes.values_mut().rev().find_map(Lane::next)
        }?;
        let entry = self
            .entries
            .get_mut(&key)
            .expect("a key in a lane has its entry: both are changed together");
        let Place::Ready {
            priority,
            ticket,
            since,
        } = entry.place
        else {
            unreachable!("an entry in a lane is Ready: place_ready and unplace change both");
        };
        let failures = entry.failures;
        entry.place = Place::Running { again: None };
        self.lane(priority).remove(&key, ticket);
        self.lane(priority).served(&key.namespace);
        self.by_age.remove(&ticket);
        self.running += 1;
        Some(Taken {
            key,
            priority,
            failures,
            waited: now.since(since),
        })
    }

    /// The worker has ended its pass. Finishing what is not running changes nothing.
    pub fn finish(&mut self, key: &Key, next: Next, now: Moment) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        let Place::Running { again } = entry.place else {
            return;
        };
        self.running -= 1;
        entry.place = Place::Idle;
        if next == Next::Backoff {
            entry.failures = entry.failures.saturating_add(1);
            entry.failed_at = now;
            let spread = self.random.random::<f64>();
            let at = now.after(self.config.backoff.delay(entry.failures, spread));
            self.place_delayed(key, Priority::Failing, at);
        } else {
            entry.failures = 0;
            match next {
                Next::At(at) => self.place_delayed(key, Priority::Resync, at),
                Next::Rest | Next::Backoff => {
                    self.entries.remove(key);
                }
            }
        }
        if let Some(priority) = again {
            self.add(key, priority, now);
        }
    }

    /// The object is gone: forget its waits and its failures. A pass under way is let be.
    pub fn forget(&mut self, key: &Key) {
        match self.entries.get_mut(key) {
            Some(Entry {
                place: Place::Running { again },
                ..
            }) => *again = None,
            Some(_) => {
                self.unplace(key);
                self.entries.remove(key);
            }
            None => {}
        }
    }

    /// When `take` will have something: now if an entry is ready, else when the first delayed one is due.
    pub fn due(&self, now: Moment) -> Option<Moment> {
        if self.by_age.is_empty() {
            self.delayed.keys().next().map(|(at, _)| *at)
        } else {
            Some(now)
        }
    }

    pub fn depth(&self) -> Depth {
        Depth {
            ready: self.by_age.len(),
            delayed: self.delayed.len(),
            running: self.running,
        }
    }

    /// Failed passes in a row of this object.
    pub fn failures(&self, key: &Key) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    fn promote_due(&mut self, now: Moment) {
        while let Some((&(at, ticket), _)) = self.delayed.first_key_value() {
            if at > now {
                break;
            }
            let key = self
                .delayed
                .remove(&(at, ticket))
                .expect("the first key was just read");
            let entry = self
                .entries
                .get_mut(&key)
                .expect("a delayed key has its entry: both are changed together");
            let Place::Delayed { priority, .. } = entry.place else {
                unreachable!(
                    "an entry in `delayed` is Delayed: place_delayed and unplace change both"
                );
            };
            entry.place = Place::Idle;
            self.place_ready(&key, priority, at);
        }
    }

    fn place_ready(&mut self, key: &Key, priority: Priority, since: Moment) {
        let ticket = self.ticket();
        self.entry(key).place = Place::Ready {
            priority,
            ticket,
            since,
        };
        self.lane(priority).insert(key.clone(), ticket);
        self.by_age.insert(ticket, key.clone());
    }

    fn place_delayed(&mut self, key: &Key, priority: Priority, at: Moment) {
        let ticket = self.ticket();
        self.entry(key).place = Place::Delayed {
            priority,
            ticket,
            at,
        };
        self.delayed.insert((at, ticket), key.clone());
    }

    /// Takes an entry out of whatever it waits in. Returns since when it was ready, if it was.
    fn unplace(&mut self, key: &Key) -> Option<Moment> {
        let entry = self.entries.get_mut(key)?;
        match std::mem::replace(&mut entry.place, Place::Idle) {
            Place::Ready {
                priority,
                ticket,
                since,
            } => {
                self.lane(priority).remove(key, ticket);
                self.by_age.remove(&ticket);
                Some(since)
            }
            Place::Delayed { at, ticket, .. } => {
                self.delayed.remove(&(at, ticket));
                None
            }
            running @ Place::Running { .. } => {
                entry.place = running;
                None
            }
            Place::Idle => None,
        }
    }

    fn entry(&mut self, key: &Key) -> &mut Entry {
        self.entries.entry(key.clone()).or_insert(Entry {
            place: Place::Idle,
            failures: 0,
            failed_at: Moment::START,
        })
    }

    fn lane(&mut self, priority: Priority) -> &mut Lane {
        self.lanes.entry(priority).or_default()
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}
