//! The usual way to write an operator: observe, decide, and nothing else. The kit acts and reports.
//!
//! `observe` reads caches into a `World`; `decide` is a pure function from the world to a [`Decision`]; then the steps run, part by part, the status is
//! written if it means something else, and Events are told. A step that fails ends its own part only: a broken part must
//! not starve the others.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    barrier::has_ended,
    clock::{Clock, SystemClock},
    events::{Note, Recorder},
    executor::{Effect, Executor, Step, StepError, Target},
    key::Key,
    outcome::{Outcome, PassError},
    runner::Reconciler,
    status,
};

pub trait Operator: Send + Sync + 'static {
    /// Everything that a decision depends on. Unknown is not absent: say which.
    type World: Send + Sync;

    /// `None` if the object is gone and there is nothing to decide.
    fn observe(
        &self,
        key: &Key,
    ) -> impl Future<Output = Result<Option<Self::World>, PassError>> + Send;

    /// Pure: no client, no clock, no randomness.
    fn decide(&self, world: &Self::World, now: Timestamp) -> Decision;

    /// Says in the status what went wrong with steps of this pass. By default the status stays as decided.
    fn explain(&self, _status: &mut Value, _errors: &[StepError], _now: Timestamp) {}
}

/// What a pass has decided, as data.
#[derive(Clone, Debug)]
pub struct Decision {
    /// Independent of each other; run in order.
    pub parts: Vec<Part>,
    pub report: Option<Report>,
    pub events: Vec<Note>,
    pub next: Wait,
}

impl Decision {
    /// Nothing to do but wait.
    pub fn new(next: Wait) -> Self {
        Self {
            parts: Vec::new(),
            report: None,
            events: Vec::new(),
            next,
        }
    }

    #[must_use]
    pub fn part(mut self, name: &'static str, steps: Vec<Step>) -> Self {
        self.parts.push(Part { name, steps });
        self
    }

    #[must_use]
    pub fn report(mut self, report: Report) -> Self {
        self.report = Some(report);
        self
    }

    #[must_use]
    pub fn event(mut self, note: Note) -> Self {
        self.events.push(note);
        self
    }
}

/// The plan in words, a line for each step: what a dry run shows.
impl fmt::Display for Decision {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            for step in &part.steps {
                writeln!(formatter, "{}: {step}", part.name)?;
            }
        }
        match &self.next {
            Wait::Nothing => writeln!(formatter, "then: nothing"),
            Wait::For { what, deadline } => writeln!(
                formatter,
                "then: wait for {what}, at most {} s",
                deadline.as_secs()
            ),
            Wait::Until { duration, reason } => writeln!(
                formatter,
                "then: look again in {} s, because {reason}",
                duration.as_secs()
            ),
            Wait::Refused { reason, message } => {
                writeln!(formatter, "refused ({reason}): {message}")
            }
        }
    }
}

/// Steps that depend on each other: after one fails, the rest is left for the next pass.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub name: &'static str,
    pub steps: Vec<Step>,
}

/// The whole status that the object should have.
#[derive(Clone, Debug)]
pub struct Report {
    pub target: Target,
    /// The object as it was observed.
    pub live: Value,
    pub status: Value,
}

/// What the decision waits for, if all steps go well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    Nothing,
    For {
        what: String,
        deadline: Duration,
    },
    Until {
        duration: Duration,
        reason: String,
    },
    /// A person must act first; the word is the condition's reason.
    Refused {
        reason: &'static str,
        message: String,
    },
}

/// Makes an [`Operator`] into something a runner can run.
pub struct Driver<O> {
    operator: O,
    executor: Arc<Executor>,
    recorder: Option<Recorder>,
    clock: Arc<dyn Clock>,
}

impl<O: Operator> Driver<O> {
    pub fn new(operator: O, executor: Arc<Executor>) -> Self {
        Self {
            operator,
            executor,
            recorder: None,
            clock: Arc::new(SystemClock),
        }
    }

    #[must_use]
    pub fn with_recorder(mut self, recorder: Recorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    async fn act(&self, parts: &[Part]) -> (Vec<(Target, Effect)>, Vec<StepError>) {
        let mut effects = Vec::new();
        let mut errors = Vec::new();
        for part in parts {
            for step in &part.steps {
                match self.executor.run(step).await {
                    Ok(effect) => effects.push((step.target().clone(), effect)),
                    Err(error) => {
                        tracing::debug!(part = part.name, %step, "the rest of this part is left for the next pass");
                        errors.push(error);
                        break;
                    }
                }
            }
        }
        (effects, errors)
    }

    async fn report(
        &self,
        mut report: Report,
        effects: &[(Target, Effect)],
        errors: &[StepError],
        now: Timestamp,
    ) -> Result<(), Outcome> {
        // A step of this pass may have written the object itself (a finalizer): go on from that version.
        for (target, effect) in effects {
            if let (true, Some(object)) = (*target == report.target, &effect.object) {
                if has_ended(object) {
                    // Our step was the object's end: there is nothing left to report on.
                    return Ok(());
                }
                report.live["metadata"]["resourceVersion"] =
                    object.metadata.resource_version.clone().into();
            }
        }
        if !errors.is_empty() {
            self.operator.explain(&mut report.status, errors, now);
        }
        let step = status::report(&report.target, &report.live, &report.status)
            .map_err(|error| Outcome::Retry(PassError::new("Status", error)))?;
        if let Some(step) = step {
            self.executor.run(&step).await.map_err(Outcome::from)?;
        }
        Ok(())
    }
}

impl<O: Operator> Reconciler for Driver<O> {
    async fn pass(&self, key: Key) -> Outcome {
        let world = match self.operator.observe(&key).await {
            Ok(Some(world)) => world,
            Ok(None) => return Outcome::Done,
            Err(error) => return Outcome::Retry(error),
        };
        let now = self.clock.now();
        let Decision {
            parts,
            report,
            events,
            next,
        } = self.operator.decide(&world, now);
        let (effects, errors) = self.act(&parts).await;
        if let Some(report) = report
            && let Err(outcome) = self.report(report, &effects, &errors, now).await
            && errors.is_empty()
        {
            return outcome;
        }
        if let Some(recorder) = &self.recorder {
            for event in events {
                recorder.record(event);
            }
        }
        if let Some(error) = errors.into_iter().next() {
            return Outcome::from(error);
        }
        match next {
            Wait::Nothing => Outcome::Done,
            Wait::For { what, deadline } => Outcome::Await { what, deadline },
            Wait::Until { duration, reason } => Outcome::After { duration, reason },
            Wait::Refused { reason, message } => Outcome::Refused(PassError::new(reason, message)),
        }
    }
}
