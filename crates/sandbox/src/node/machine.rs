//! The life of one pod on a node as a state machine: events in, actions out. No clock, no IO, no client.
//!
//! `handle` takes what happened, `step` says what to do now and when to look again. A step is idempotent: an action is given once, because giving
//! it moves the state on. What it is not: the status (`status`) and the doing (`worker`).

use jiff::{SignedDuration, Timestamp};

use super::limits::{
    BACKOFF_FIRST_SECONDS, BACKOFF_LONGEST_SECONDS, GRACE_LONGEST_SECONDS, MOUNT_RETRY_FIRST_MS,
    MOUNT_RETRY_LONGEST_MS,
};
use super::model::{
    Cause, ContainerModel, ContainerPlan, ContainerState, EndReason, Ended, Ending, Phase, PodPlan,
    ProbeKind, RestartPolicy, Run, Slot, Stage, Stop, StopReason, Volumes, Waiting, WaitingReason,
    Watched,
};

/// What happened to the pod. `id` is the run it happened to: news of an earlier run changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    VolumesReady,
    VolumesFailed {
        message: String,
    },
    Started {
        slot: Slot,
        id: String,
    },
    StartFailed {
        slot: Slot,
        reason: WaitingReason,
        message: String,
    },
    Exited {
        slot: Slot,
        id: String,
        exit_code: i32,
        reason: EndReason,
        message: Option<String>,
    },
    Probed {
        slot: Slot,
        id: String,
        kind: ProbeKind,
        healthy: bool,
    },
    Redefined {
        slot: Slot,
    },
    End {
        cause: Cause,
        grace_seconds: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    PrepareVolumes,
    Start {
        slot: Slot,
        attempt: u32,
    },
    Probe {
        slot: Slot,
        kind: ProbeKind,
    },
    Terminate {
        slot: Slot,
        reason: StopReason,
    },
    Kill {
        slot: Slot,
    },
    /// Volumes have been missing for a while: tell people.
    ReportMount {
        message: String,
    },
    /// A restart has to wait: tell people.
    ReportBackoff {
        slot: Slot,
    },
    /// Nothing of the pod runs any more.
    Finish {
        cause: Cause,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    pub actions: Vec<Action>,
    /// Look again then, even if nothing happens.
    pub wake_at: Option<Timestamp>,
}

impl Step {
    pub(super) fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMachine {
    pub plan: PodPlan,
    pub volumes: Volumes,
    pub init: Vec<ContainerModel>,
    pub main: Vec<ContainerModel>,
    pub ending: Ending,
}

impl PodMachine {
    pub fn new(plan: PodPlan, now: Timestamp) -> Self {
        let waiting = if plan.init.is_empty() {
            WaitingReason::ContainerCreating
        } else {
            WaitingReason::PodInitializing
        };
        let init = plan
            .init
            .iter()
            .map(|_| ContainerModel::fresh(WaitingReason::PodInitializing))
            .collect();
        let main = plan
            .main
            .iter()
            .map(|_| ContainerModel::fresh(waiting))
            .collect();
        Self {
            plan,
            volumes: Volumes::Waiting {
                since: now,
                tries: 0,
                retry_at: now,
                problem: None,
            },
            init,
            main,
            ending: Ending::No,
        }
    }

    pub fn container(&self, slot: Slot) -> Option<&ContainerModel> {
        match slot.stage {
            Stage::Init => self.init.get(slot.index),
            Stage::Main => self.main.get(slot.index),
        }
    }

    pub(super) fn container_mut(&mut self, slot: Slot) -> Option<&mut ContainerModel> {
        match slot.stage {
            Stage::Init => self.init.get_mut(slot.index),
            Stage::Main => self.main.get_mut(slot.index),
        }
    }

    pub fn container_plan(&self, slot: Slot) -> Option<&ContainerPlan> {
        match slot.stage {
            Stage::Init => self.plan.init.get(slot.index),
            Stage::Main => self.plan.main.get(slot.index),
        }
    }

    pub fn slots(&self) -> Vec<Slot> {
        let init = (0..self.init.len()).map(|index| Slot {
            stage: Stage::Init,
            index,
        });
        init.chain((0..self.main.len()).map(|index| Slot {
            stage: Stage::Main,
            index,
        }))
        .collect()
    }

    pub fn is_done(&self) -> bool {
        matches!(self.ending, Ending::Done { .. })
    }

    pub fn initialized(&self) -> bool {
        self.init.iter().all(ContainerModel::succeeded)
    }

    /// Takes note of what happened.
    pub fn handle(&mut self, event: Event, now: Timestamp) {
        match event {
            Event::VolumesReady => self.volumes = Volumes::Ready,
            Event::VolumesFailed { message } => self.volumes_failed(message, now),
            Event::Started { slot, id } => self.started(slot, id, now),
            Event::StartFailed {
                slot,
                reason,
                message,
            } => self.start_failed(slot, reason, message, now),
            Event::Exited {
                slot,
                id,
                exit_code,
                reason,
                message,
            } => self.exited(
                slot,
                Ended {
                    id,
                    exit_code,
                    reason,
                    message,
                    started_at: None,
                    finished_at: now,
                },
            ),
            Event::Probed {
                slot,
                id,
                kind,
                healthy,
            } => self.probed(slot, &id, kind, healthy),
            Event::Redefined { slot } => self.want_stop(slot, StopReason::Redefined),
            Event::End {
                cause,
                grace_seconds,
            } => self.end(cause, grace_seconds, now),
        }
    }

    fn volumes_failed(&mut self, message: String, now: Timestamp) {
        if let Volumes::Preparing { since, tries, .. } = self.volumes {
            let wait_ms = MOUNT_RETRY_FIRST_MS
                .saturating_mul(1 << tries.min(16))
                .min(MOUNT_RETRY_LONGEST_MS);
            self.volumes = Volumes::Waiting {
                since,
                tries: tries + 1,
                retry_at: now + SignedDuration::from_millis(wait_ms),
                problem: Some(message),
            };
        }
    }

    fn started(&mut self, slot: Slot, id: String, now: Timestamp) {
        let Some(plan) = self.container_plan(slot) else {
            return;
        };
        let (started, ready) = (!plan.startup, !plan.startup && !plan.readiness);
        if let Some(container) = self.container_mut(slot) {
            container.failed_starts = 0;
            container.state = ContainerState::Running(Run {
                id,
                started_at: now,
                started,
                ready,
                stop: Stop::No,
                watched: Watched::Nothing,
            });
        }
    }

    fn start_failed(&mut self, slot: Slot, reason: WaitingReason, message: String, now: Timestamp) {
        let Some(container) = self.container_mut(slot) else {
            return;
        };
        let failed = container.failed_starts + 1;
        let wait = match reason {
            WaitingReason::ErrImagePull => SignedDuration::from_secs(
                (BACKOFF_FIRST_SECONDS << failed.min(6).saturating_sub(1))
                    .min(BACKOFF_LONGEST_SECONDS),
            ),
            _ => SignedDuration::from_millis(
                MOUNT_RETRY_FIRST_MS
                    .saturating_mul(1 << failed.min(16))
                    .min(MOUNT_RETRY_LONGEST_MS),
            ),
        };
        let reason = if reason == WaitingReason::ErrImagePull && failed > 1 {
            WaitingReason::ImagePullBackOff
        } else {
            reason
        };
        container.failed_starts = failed;
        container.state = ContainerState::Waiting(Waiting {
            reason,
            message: Some(message),
            retry_at: Some(now + wait),
            restarting: false,
        });
    }

    fn exited(&mut self, slot: Slot, mut ended: Ended) {
        let Some(container) = self.container_mut(slot) else {
            return;
        };
        match &container.state {
            ContainerState::Running(run) if run.id == ended.id => {
                ended.started_at = Some(run.started_at);
                container.state = ContainerState::Ended(ended);
            }
            _ => {}
        }
    }

    fn probed(&mut self, slot: Slot, id: &str, kind: ProbeKind, healthy: bool) {
        let readiness_probe = self.container_plan(slot).is_some_and(|plan| plan.readiness);
        let Some(ContainerState::Running(run)) = self
            .container_mut(slot)
            .map(|container| &mut container.state)
        else {
            return;
        };
        if run.id != id {
            return;
        }
        match (kind, healthy) {
            (ProbeKind::Readiness, healthy) => run.ready = healthy,
            (ProbeKind::Startup, true) => {
                run.started = true;
                run.ready = !readiness_probe;
            }
            (ProbeKind::Liveness, true) => {}
            (ProbeKind::Startup | ProbeKind::Liveness, false) => {
                self.want_stop(slot, StopReason::Unhealthy(kind));
            }
        }
    }

    fn want_stop(&mut self, slot: Slot, reason: StopReason) {
        if let Some(ContainerState::Running(run)) = self
            .container_mut(slot)
            .map(|container| &mut container.state)
            && run.stop == Stop::No
        {
            run.ready = false;
            run.stop = Stop::Wanted(reason);
        }
    }

    fn end(&mut self, cause: Cause, grace_seconds: i64, now: Timestamp) {
        let kill_at =
            now + SignedDuration::from_secs(grace_seconds.clamp(0, GRACE_LONGEST_SECONDS));
        self.ending = match &self.ending {
            Ending::No => Ending::Stopping { cause, kill_at },
            // A later order may shorten the grace, never lengthen it; and an object that is gone needs no goodbye.
            Ending::Stopping {
                cause: known,
                kill_at: earlier,
            } => {
                let cause = if *known == Cause::Shutdown || cause == Cause::Shutdown {
                    Cause::Shutdown
                } else {
                    cause
                };
                Ending::Stopping {
                    cause,
                    kill_at: kill_at.min(*earlier),
                }
            }
            Ending::Done { cause } => Ending::Done { cause: *cause },
        };
    }

    /// The pod's phase, by the rules of a kubelet.
    pub fn phase(&self) -> Phase {
        if self.ending != Ending::No
            && !self
                .slots()
                .into_iter()
                .filter_map(|slot| self.container(slot))
                .any(ContainerModel::is_active)
        {
            let good = self.initialized() && self.main.iter().all(ContainerModel::succeeded);
            return if good {
                Phase::Succeeded
            } else {
                Phase::Failed
            };
        }
        let ended: Vec<i32> = self
            .main
            .iter()
            .filter_map(|container| ended_for_good(container, self.plan.restart))
            .collect();
        if !self.main.is_empty() && ended.len() == self.main.len() {
            return if ended.iter().all(|code| *code == 0) {
                Phase::Succeeded
            } else {
                Phase::Failed
            };
        }
        let init_failed = |container: &ContainerModel| matches!(&container.state, ContainerState::Ended(ended) if ended.exit_code != 0);
        if self.plan.restart == RestartPolicy::Never && self.init.iter().any(init_failed) {
            return Phase::Failed;
        }
        if !self.initialized()
            || self.main.iter().any(|container| {
                !container.is_running() && container.last.is_none() && !container.has_ended()
            })
        {
            return Phase::Pending;
        }
        Phase::Running
    }
}

pub(super) fn should_restart(stage: Stage, policy: RestartPolicy, exit_code: i32) -> bool {
    match (stage, policy) {
        (_, RestartPolicy::Never) => false,
        // An init container has done its work when it succeeded.
        (Stage::Init, _) | (_, RestartPolicy::OnFailure) => exit_code != 0,
        (Stage::Main, RestartPolicy::Always) => true,
    }
}

fn ended_for_good(container: &ContainerModel, policy: RestartPolicy) -> Option<i32> {
    match &container.state {
        ContainerState::Ended(ended) if !should_restart(Stage::Main, policy, ended.exit_code) => {
            Some(ended.exit_code)
        }
        _ => None,
    }
}

impl ContainerModel {
    fn is_running(&self) -> bool {
        self.running().is_some()
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, ContainerState::Ended(_))
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
