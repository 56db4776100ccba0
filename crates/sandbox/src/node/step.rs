//! The deciding half of the pod's machine: what to do now, from the state `machine` keeps. Pure, like it.

use jiff::{SignedDuration, Timestamp};

use super::limits::MOUNT_REPORT_AFTER_MS;
use super::machine::{Action, PodMachine, Step, should_restart};
use super::model::{
    Cause, ContainerModel, ContainerPlan, ContainerState, Ending, ProbeKind, Run, Slot, Stage,
    Stop, StopReason, Volumes, Waiting, WaitingReason, Watched,
};

impl PodMachine {
    /// What to do now.
    pub fn step(&mut self, now: Timestamp) -> Step {
        let mut step = Step::default();
        match self.ending {
            Ending::No => {
                self.step_stops(now, &mut step);
                if !self.phase().is_terminal() && self.step_volumes(now, &mut step) {
                    self.step_containers(now, &mut step);
                }
            }
            Ending::Stopping { cause, kill_at } => self.step_ending(cause, kill_at, now, &mut step),
            Ending::Done { .. } => {}
        }
        step
    }

    /// Whether the volumes are ready.
    fn step_volumes(&mut self, now: Timestamp, step: &mut Step) -> bool {
        match &mut self.volumes {
            Volumes::Ready => return true,
            Volumes::Preparing { .. } => {}
            Volumes::Waiting {
                since,
                tries,
                retry_at,
                problem,
            } if *retry_at <= now => {
                if let Some(message) = problem.as_ref().filter(|_| {
                    now.duration_since(*since) >= SignedDuration::from_millis(MOUNT_REPORT_AFTER_MS)
                }) {
                    step.actions.push(Action::ReportMount {
                        message: message.clone(),
                    });
                }
                self.volumes = Volumes::Preparing {
                    since: *since,
                    tries: *tries,
                    problem: problem.take(),
                };
                step.actions.push(Action::PrepareVolumes);
            }
            Volumes::Waiting { retry_at, .. } => step.wake(*retry_at),
        }
        false
    }

    fn step_containers(&mut self, now: Timestamp, step: &mut Step) {
        if let Some(index) = self
            .init
            .iter()
            .position(|container| !container.succeeded())
        {
            self.step_container(
                Slot {
                    stage: Stage::Init,
                    index,
                },
                now,
                step,
            );
            return;
        }
        for index in 0..self.main.len() {
            self.step_container(
                Slot {
                    stage: Stage::Main,
                    index,
                },
                now,
                step,
            );
        }
    }

    fn step_container(&mut self, slot: Slot, now: Timestamp, step: &mut Step) {
        let restart = self.plan.restart;
        let Some(plan) = self.container_plan(slot).cloned() else {
            return;
        };
        let Some(container) = self.container_mut(slot) else {
            return;
        };
        if let ContainerState::Ended(ended) = &container.state
            && should_restart(slot.stage, restart, ended.exit_code)
        {
            let delay = container.schedule_restart(&plan.name);
            if delay > 0 {
                step.actions.push(Action::ReportBackoff { slot });
            }
        }
        match &mut container.state {
            ContainerState::Waiting(waiting) if waiting.retry_at.is_none_or(|at| at <= now) => {
                if waiting.restarting {
                    container.restarts += 1;
                }
                container.state = ContainerState::Starting;
                step.actions.push(Action::Start {
                    slot,
                    attempt: container.restarts,
                });
            }
            ContainerState::Waiting(Waiting {
                retry_at: Some(at), ..
            }) => step.wake(*at),
            ContainerState::Running(run) => step_probes(slot, &plan, run, step),
            ContainerState::Waiting(_) | ContainerState::Starting | ContainerState::Ended(_) => {}
        }
    }

    /// Containers that have to stop while the pod goes on: the word first, force when the grace is over.
    fn step_stops(&mut self, now: Timestamp, step: &mut Step) {
        let grace = SignedDuration::from_secs(self.plan.grace_seconds);
        for slot in self.slots() {
            let Some(ContainerState::Running(run)) = self
                .container_mut(slot)
                .map(|container| &mut container.state)
            else {
                continue;
            };
            match run.stop {
                Stop::Wanted(reason) => {
                    run.stop = Stop::Asked {
                        kill_at: now + grace,
                    };
                    step.actions.push(Action::Terminate { slot, reason });
                    step.wake(now + grace);
                }
                Stop::Asked { kill_at } if kill_at <= now => {
                    run.stop = Stop::Killed;
                    step.actions.push(Action::Kill { slot });
                }
                Stop::Asked { kill_at } => step.wake(kill_at),
                Stop::No | Stop::Killed => {}
            }
        }
    }

    fn step_ending(&mut self, cause: Cause, kill_at: Timestamp, now: Timestamp, step: &mut Step) {
        let mut active = false;
        for slot in self.slots() {
            let Some(container) = self.container_mut(slot) else {
                continue;
            };
            active |= container.is_active();
            let ContainerState::Running(run) = &mut container.state else {
                continue;
            };
            run.ready = false;
            match run.stop {
                Stop::No | Stop::Wanted(_) => {
                    run.stop = Stop::Asked { kill_at };
                    step.actions.push(Action::Terminate {
                        slot,
                        reason: StopReason::PodEnds,
                    });
                    step.wake(kill_at);
                }
                Stop::Asked { kill_at: asked } if asked.min(kill_at) <= now => {
                    run.stop = Stop::Killed;
                    step.actions.push(Action::Kill { slot });
                }
                Stop::Asked { kill_at: asked } => step.wake(asked.min(kill_at)),
                Stop::Killed => {}
            }
        }
        if !active && !matches!(self.volumes, Volumes::Preparing { .. }) {
            self.ending = Ending::Done { cause };
            step.actions.push(Action::Finish { cause });
        }
    }
}

fn step_probes(slot: Slot, plan: &ContainerPlan, run: &mut Run, step: &mut Step) {
    if run.stop != Stop::No {
        return;
    }
    if !run.started && run.watched == Watched::Nothing {
        run.watched = Watched::Startup;
        step.actions.push(Action::Probe {
            slot,
            kind: ProbeKind::Startup,
        });
    }
    if run.started && run.watched != Watched::Everything {
        run.watched = Watched::Everything;
        for (asked, kind) in [
            (plan.readiness, ProbeKind::Readiness),
            (plan.liveness, ProbeKind::Liveness),
        ] {
            if asked {
                step.actions.push(Action::Probe { slot, kind });
            }
        }
    }
}

impl ContainerModel {
    /// From ended to waiting for the next start; returns the delay in seconds.
    fn schedule_restart(&mut self, name: &str) -> i64 {
        let ContainerState::Ended(ended) = &self.state else {
            return 0;
        };
        let ended = ended.clone();
        let ran = ended
            .started_at
            .map_or(0, |at| ended.finished_at.duration_since(at).as_secs());
        let delay = self.backoff.after_run(ran);
        let retry_at = (delay > 0).then(|| ended.finished_at + SignedDuration::from_secs(delay));
        self.state = ContainerState::Waiting(Waiting {
            reason: WaitingReason::CrashLoopBackOff,
            message: Some(format!(
                "back-off {delay}s restarting failed container={name}"
            )),
            retry_at,
            restarting: true,
        });
        self.last = Some(ended);
        delay
    }
}
