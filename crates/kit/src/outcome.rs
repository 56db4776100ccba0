//! How a pass ended: one value that says what happens next. There is no "requeue and error" to combine wrongly.

use std::{error::Error, fmt, time::Duration};

use serde::Serialize;

use crate::executor::StepError;

#[derive(Debug)]
pub enum Outcome {
    /// As it should be. Nothing more until something changes.
    Done,
    /// Something outside must happen first; the change wakes us. If it does not come in time, look again anyway.
    Await { what: String, deadline: Duration },
    /// Nothing to wait for but time.
    After { duration: Duration, reason: String },
    /// It failed and may work later: again after a backoff.
    Retry(PassError),
    /// It cannot work until a person changes something: no retries.
    Refused(PassError),
}

impl Outcome {
    pub fn kind(&self) -> OutcomeKind {
        match self {
            Self::Done => OutcomeKind::Done,
            Self::Await { .. } => OutcomeKind::Await,
            Self::After { .. } => OutcomeKind::After,
            Self::Retry(_) => OutcomeKind::Retry,
            Self::Refused(_) => OutcomeKind::Refused,
        }
    }
}

/// An outcome without its details, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OutcomeKind {
    Done,
    Await,
    After,
    Retry,
    Refused,
    /// The pass took longer than its deadline and was cut off.
    TimedOut,
    Panicked,
}

/// Why a pass failed: one word for machines, the rest for people.
#[derive(Debug)]
pub struct PassError {
    /// The same word in logs, metrics, conditions and Events.
    pub reason: &'static str,
    source: Box<dyn Error + Send + Sync>,
}

impl PassError {
    pub fn new(reason: &'static str, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            reason,
            source: source.into(),
        }
    }
}

impl fmt::Display for PassError {
    /// The whole chain in one line: a pass error is shown once, where it is handled.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.source)?;
        let mut cause = self.source.source();
        while let Some(error) = cause {
            write!(formatter, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl Error for PassError {}

impl From<StepError> for Outcome {
    /// Every failed step is tried again after the object's backoff, whoever must act: what is in the way may be removed, a
    /// permission granted, without any change to the object itself. `Refused` is for decisions, not for steps.
    fn from(error: StepError) -> Self {
        Self::Retry(PassError::new(error.reason(), error))
    }
}
