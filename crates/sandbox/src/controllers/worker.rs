//! The loop every controller runs: something changed, decide over what is known, do it, wait.
//!
//! Decisions are pure and made over all objects at once; a sandbox has hundreds, not millions. There is no polling: a pass happens
//! when a watched object changes, when a decision named a time, or when a failed action may be tried again.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::clock;

/// The first wait before a failed action is tried again.
const RETRY_FIRST: SignedDuration = SignedDuration::from_millis(50);
/// The longest wait: what fails for good is tried about twice a minute.
const RETRY_LONGEST: SignedDuration = SignedDuration::from_secs(30);
/// The longest sleep computed from a time in an object: a date of a user's choosing must not overflow a timer.
const SLEEP_LONGEST: Duration = Duration::from_secs(3600);

/// Why an action was not done, and so when it is worth another try.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// Somebody changed the object since it was read. The watch brings the new one; then it is decided again.
    #[error("the object changed meanwhile: {0}")]
    Conflict(String),
    /// The object is no longer there, so there is nothing left to do to it.
    #[error("the object is gone: {0}")]
    Gone(String),
    #[error("the API server refused or failed: {0}")]
    Api(String),
    #[error("failed to {what}: {source}")]
    Files {
        what: String,
        source: std::io::Error,
    },
    /// Doing it would be unsafe; somebody has to look.
    #[error("{0}")]
    Unsafe(String),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match &error {
            kube::Error::Api(status) if status.code == 404 => Failure::Gone(status.message.clone()),
            kube::Error::Api(status) if status.code == 409 => {
                Failure::Conflict(status.message.clone())
            }
            _ => Failure::Api(error.to_string()),
        }
    }
}

/// What a controller wants done now, and when it wants to be asked again if nothing changes before.
#[derive(Debug)]
pub(super) struct Decision<A> {
    pub actions: Vec<A>,
    pub wake_up: Option<Timestamp>,
}

impl<A> Decision<A> {
    pub(super) fn of(actions: Vec<A>) -> Self {
        Decision {
            actions,
            wake_up: None,
        }
    }
}

pub(super) trait Action: Debug + Send + Sync {
    /// What the action is about: failures are counted, and spaced out, by it.
    fn key(&self) -> String;
}

pub(super) trait Controller: Send + Sync + 'static {
    const NAME: &'static str;
    type Action: Action;

    /// Whether everything a decision needs has been seen at least once.
    fn synced(&self) -> bool;
    fn decide(&self, now: Timestamp) -> Decision<Self::Action>;
    fn act(&self, action: &Self::Action) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Runs a controller until cancelled.
pub(super) async fn run<C: Controller>(
    controller: C,
    nudge: Arc<Notify>,
    cancel: CancellationToken,
) {
    let mut retries = Retries::default();
    loop {
        let mut wake_up = None;
        if controller.synced() {
            let now = clock::now();
            let decision = controller.decide(now);
            wake_up = decision.wake_up;
            retries.keep(decision.actions.iter().map(Action::key));
            for action in &decision.actions {
                if cancel.is_cancelled() {
                    return;
                }
                perform(&controller, action, &mut retries).await;
            }
        }
        let next = [wake_up, retries.next()].into_iter().flatten().min();
        tokio::select! {
            () = cancel.cancelled() => return,
            () = nudge.notified() => {}
            () = sleep_until(next) => {}
        }
    }
}

async fn perform<C: Controller>(controller: &C, action: &C::Action, retries: &mut Retries) {
    let key = action.key();
    if !retries.may_run(&key, clock::now()) {
        return;
    }
    tracing::debug!(controller = C::NAME, ?action, "acting");
    match controller.act(action).await {
        Ok(()) | Err(Failure::Gone(_)) => retries.succeeded(&key),
        Err(failure) => {
            let attempts = retries.failed(key, clock::now());
            // What fails for good would otherwise fill the log with one line for ever.
            let loud = attempts.is_power_of_two() && !matches!(failure, Failure::Conflict(_));
            if loud {
                tracing::warn!(controller = C::NAME, ?action, %failure, attempts, "failed to act, will retry");
            } else {
                tracing::debug!(controller = C::NAME, ?action, %failure, attempts, "failed to act, will retry");
            }
        }
    }
}

async fn sleep_until(time: Option<Timestamp>) {
    match time {
        None => std::future::pending().await,
        Some(time) => {
            let wait = time.duration_since(clock::now());
            let wait = Duration::try_from(wait).unwrap_or(Duration::ZERO);
            tokio::time::sleep(wait.min(SLEEP_LONGEST)).await;
        }
    }
}

/// When each failed action may be tried again.
#[derive(Debug, Default)]
struct Retries {
    failed: HashMap<String, Failed>,
}

#[derive(Debug)]
struct Failed {
    attempts: u32,
    not_before: Timestamp,
}

impl Retries {
    fn may_run(&self, key: &str, now: Timestamp) -> bool {
        self.failed
            .get(key)
            .is_none_or(|failed| failed.not_before <= now)
    }

    fn succeeded(&mut self, key: &str) {
        self.failed.remove(key);
    }

    fn failed(&mut self, key: String, now: Timestamp) -> u32 {
        let failed = self.failed.entry(key).or_insert(Failed {
            attempts: 0,
            not_before: now,
        });
        failed.attempts = failed.attempts.saturating_add(1);
        failed.not_before = now
            .saturating_add(wait_after(failed.attempts))
            .unwrap_or(Timestamp::MAX);
        failed.attempts
    }

    /// Forgets failures of what is no longer wanted, so the table cannot grow for ever.
    fn keep(&mut self, wanted: impl Iterator<Item = String>) {
        if self.failed.is_empty() {
            return;
        }
        let wanted: std::collections::HashSet<String> = wanted.collect();
        self.failed.retain(|key, _| wanted.contains(key));
    }

    fn next(&self) -> Option<Timestamp> {
        self.failed.values().map(|failed| failed.not_before).min()
    }
}

fn wait_after(attempts: u32) -> SignedDuration {
    let doublings = attempts.saturating_sub(1).min(16);
    (RETRY_FIRST * (1_i32 << doublings)).min(RETRY_LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        assert_eq!(wait_after(1), RETRY_FIRST);
        assert_eq!(wait_after(2), RETRY_FIRST * 2);
        assert_eq!(wait_after(100), RETRY_LONGEST);
    }

    #[test]
    fn a_failed_action_waits_and_others_do_not() {
        let now = Timestamp::UNIX_EPOCH;
        let mut retries = Retries::default();
        assert_eq!(retries.failed("a".into(), now), 1);
        assert!(!retries.may_run("a", now));
        assert!(retries.may_run("b", now));
        assert!(retries.may_run("a", now + RETRY_FIRST));
        assert_eq!(retries.next(), Some(now + RETRY_FIRST));
        retries.keep(std::iter::once("b".to_owned()));
        assert_eq!(retries.next(), None);
    }
}
