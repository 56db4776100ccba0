//! Runs passes: so many at a time, each with a deadline, none able to take the others down.
//!
//! What wakes an object are changes in stores, mapped to the object they belong to. What a pass does is the
//! [`Reconciler`]'s; most operators write an [`crate::operator::Operator`] instead and let the kit act.

mod relation;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap, future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration,
};

use futures::FutureExt;
use kube::Resource;
use parking_lot::{Mutex, RwLock};
use rand::Rng;
use serde::Serialize;
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

pub use relation::{Relation, by_label, by_owner, itself};

use crate::{
    hub::{Change, Source, Store},
    key::Key,
    limits,
    outcome::{Outcome, OutcomeKind},
    queue::{Depth, Next, Priority, QueueConfig, SharedQueue, Taken},
};

/// One look at one object, from start to end. Must not sleep: what it waits for is its outcome.
///
/// It is cut off at its deadline wherever it awaits. A pass that blocks its thread cannot be cut off.
pub trait Reconciler: Send + Sync + 'static {
    fn pass(&self, key: Key) -> impl Future<Output = Outcome> + Send;
}

#[derive(Clone, Debug)]
pub struct RunnerConfig {
    pub workers: usize,
    pub pass_deadline: Duration,
    pub shutdown_grace: Duration,
    /// `None`: an object that is done is not looked at until something changes.
    pub resync: Option<Duration>,
    pub queue: QueueConfig,
}

impl Default for RunnerConfig {
    fn default() -> Self {
        Self {
            workers: limits::WORKERS,
            pass_deadline: limits::PASS_DEADLINE,
            shutdown_grace: limits::SHUTDOWN_GRACE,
            resync: Some(limits::RESYNC_INTERVAL),
            queue: QueueConfig::default(),
        }
    }
}

/// What the runner has done and what is before it, for metrics and debugging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RunnerReport {
    pub passes: BTreeMap<OutcomeKind, u64>,
    pub queue: Depth,
    /// Why objects are not done, by key: the newest outcome that was not `Done`.
    pub unfinished: BTreeMap<String, String>,
}

impl RunnerReport {
    pub fn count(&self, kind: OutcomeKind) -> u64 {
        self.passes.get(&kind).copied().unwrap_or(0)
    }
}

/// Cheap to clone; all clones are the same runner.
pub struct Runner<R> {
    reconciler: Arc<R>,
    config: RunnerConfig,
    queue: SharedQueue,
    report: Arc<Mutex<RunnerReport>>,
    exists: Arc<RwLock<Vec<Exists>>>,
}

/// Is there an object that passes are about?
type Exists = Box<dyn Fn(&Key) -> bool + Send + Sync>;

impl<R> Clone for Runner<R> {
    fn clone(&self) -> Self {
        Self {
            reconciler: self.reconciler.clone(),
            config: self.config.clone(),
            queue: self.queue.clone(),
            report: self.report.clone(),
            exists: self.exists.clone(),
        }
    }
}

impl<R: Reconciler> Runner<R> {
    pub fn new(reconciler: R, config: RunnerConfig) -> Self {
        Self {
            reconciler: Arc::new(reconciler),
            queue: SharedQueue::new(config.queue),
            config,
            report: Arc::new(Mutex::new(RunnerReport::default())),
            exists: Arc::new(RwLock::new(Vec::new())),
        }
    }

    /// The objects that passes are about.
    pub fn primary<K: Resource + Send + Sync + 'static>(&self, store: &Store<K>) {
        let objects = store.clone();
        self.exists
            .write()
            .push(Box::new(move |key| objects.get(key).is_some()));
        self.wake_by(store, itself(), Priority::Deletion);
    }

    /// Objects whose changes wake the object that `relation` finds. If a change moves one from one owner to another, both wake.
    pub fn related<K: Resource + Send + Sync + 'static>(
        &self,
        store: &Store<K>,
        relation: Relation<K>,
    ) {
        self.wake_by(store, relation, Priority::Change);
    }

    /// `going` is how urgent it is when an object of this store goes away.
    fn wake_by<K: Resource + Send + Sync + 'static>(
        &self,
        store: &Store<K>,
        relation: Relation<K>,
        going: Priority,
    ) {
        let queue = self.queue.clone();
        store.listen(move |change: &Change<K>| {
            let priority = priority_of(change, going);
            for object in change.before.iter().chain(change.after.iter()) {
                for key in relation(object) {
                    queue.add(&key, priority);
                }
            }
        });
    }

    /// Wakes an object for a reason that no store knows of.
    pub fn wake(&self, key: &Key, priority: Priority) {
        self.queue.add(key, priority);
    }

    pub fn report(&self) -> RunnerReport {
        let mut report = self.report.lock().clone();
        report.queue = self.queue.depth();
        report
    }

    /// Runs until cancelled, then lets passes under way end for a while before it cuts them off. Start it when the stores
    /// are synced: before that "not found" means nothing.
    pub async fn run(self, cancel: CancellationToken) {
        let workers = Arc::new(Semaphore::new(self.config.workers.max(1)));
        let mut passes = JoinSet::new();
        loop {
            // A worker first and an entry second, so that the entry is the best one when a worker is free.
            let worker = tokio::select! {
                () = cancel.cancelled() => break,
                worker = workers.clone().acquire_owned() => worker,
            };
            let Ok(worker) = worker else { break };
            let taken = tokio::select! {
                () = cancel.cancelled() => break,
                taken = self.queue.next() => taken,
            };
            while passes.try_join_next().is_some() {}
            let runner = self.clone();
            passes.spawn(async move {
                let span = tracing::info_span!("pass", key = %taken.key);
                runner.one_pass(taken).instrument(span).await;
                drop(worker);
            });
        }
        let ended = async { while passes.join_next().await.is_some() {} };
        if tokio::time::timeout(self.config.shutdown_grace, ended)
            .await
            .is_err()
        {
            tracing::warn!(
                cut_off = passes.len(),
                "shutdown: passes still run after the grace period and are cut off"
            );
            passes.shutdown().await;
        }
    }

    async fn one_pass(&self, taken: Taken) {
        let Taken {
            key,
            priority,
            failures,
            waited,
        } = taken;
        tracing::debug!(%key, ?priority, failures, waited_ms = waited.as_millis(), "pass begins");
        // The call itself is inside too: a pass may panic before its first await.
        let pass =
            AssertUnwindSafe(async { self.reconciler.pass(key.clone()).await }).catch_unwind();
        let (kind, next, why) = match tokio::time::timeout(self.config.pass_deadline, pass).await {
            Ok(Ok(outcome)) => (
                outcome.kind(),
                self.next_of(&key, &outcome),
                why_of(outcome),
            ),
            Ok(Err(panic)) => (
                OutcomeKind::Panicked,
                Next::Backoff,
                Some(format!("panicked: {}", panic_text(&*panic))),
            ),
            Err(_) => {
                let text = format!(
                    "cut off after {} s",
                    self.config.pass_deadline.as_secs_f64()
                );
                (OutcomeKind::TimedOut, Next::Backoff, Some(text))
            }
        };
        match (kind, &why) {
            (OutcomeKind::Done, _) => tracing::debug!(%key, "pass done"),
            (OutcomeKind::Await | OutcomeKind::After, why) => {
                tracing::debug!(%key, ?kind, why, "pass waits");
            }
            (OutcomeKind::Panicked, why) => {
                tracing::error!(%key, why, "pass panicked; this is a bug");
            }
            // A first failure is mostly a conflict: somebody else was faster.
            (OutcomeKind::Retry, why) if failures == 0 => {
                tracing::info!(%key, why, "pass failed; it is tried again");
            }
            (_, why) => tracing::warn!(%key, ?kind, why, failures, "pass failed"),
        }
        {
            let mut report = self.report.lock();
            *report.passes.entry(kind).or_default() += 1;
            match why {
                Some(why) => report.unfinished.insert(key.to_string(), why),
                None => report.unfinished.remove(&key.to_string()),
            };
        }
        self.queue.finish(&key, next);
    }

    fn next_of(&self, key: &Key, outcome: &Outcome) -> Next {
        let now = self.queue.now();
        match outcome {
            Outcome::Await {
                deadline: duration, ..
            }
            | Outcome::After { duration, .. } => Next::At(now.after(*duration)),
            Outcome::Retry(_) => Next::Backoff,
            // An object that is gone is not kept awake.
            Outcome::Done | Outcome::Refused(_)
                if !self.exists.read().iter().any(|exists| exists(key)) =>
            {
                Next::Rest
            }
            Outcome::Done | Outcome::Refused(_) => match self.config.resync {
                None => Next::Rest,
                // Spread over the last tenth, so that what was listed together does not come back together.
                Some(resync) => {
                    Next::At(now.after(resync.mul_f64(rand::rng().random_range(0.9..1.0))))
                }
            },
        }
    }
}

fn priority_of<K: Resource>(change: &Change<K>, going: Priority) -> Priority {
    match (&change.after, change.source) {
        (None, _) => going,
        (Some(object), _) if object.meta().deletion_timestamp.is_some() => going,
        (Some(_), Source::List) => Priority::Resync,
        (Some(_), Source::Watch | Source::OwnWrite) => Priority::Change,
    }
}

fn why_of(outcome: Outcome) -> Option<String> {
    match outcome {
        Outcome::Done => None,
        Outcome::Await { what, .. } => Some(what),
        Outcome::After { reason, .. } => Some(reason),
        Outcome::Retry(error) | Outcome::Refused(error) => {
            Some(format!("{}: {error}", error.reason))
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    if let Some(text) = panic.downcast_ref::<&str>() {
        (*text).to_owned()
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text.clone()
    } else {
        "without a message".to_owned()
    }
}
