//! What the node knows about one pod: the plan it was given and the state of each of its containers. Plain data; `machine` decides over it,
//! `status` turns it into what the API shows.

use std::fmt;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};

use super::limits::{
    BACKOFF_FIRST_SECONDS, BACKOFF_FORGOTTEN_AFTER_SECONDS, BACKOFF_LONGEST_SECONDS,
    GRACE_DEFAULT_SECONDS, GRACE_LONGEST_SECONDS,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    Init,
    Main,
}

/// One container of the pod: which list, which place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub stage: Stage,
    pub index: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

impl fmt::Display for ProbeKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPlan {
    pub name: String,
    pub image: String,
    /// The probes it has, and whether each is asked.
    pub startup: bool,
    pub readiness: bool,
    pub liveness: bool,
}

/// The part of a pod's spec that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    pub init: Vec<ContainerPlan>,
    pub main: Vec<ContainerPlan>,
    pub restart: RestartPolicy,
    pub grace_seconds: i64,
}

impl PodPlan {
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let restart = match spec.and_then(|spec| spec.restart_policy.as_deref()) {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        };
        Self {
            init: spec
                .and_then(|spec| spec.init_containers.as_ref())
                .into_iter()
                .flatten()
                .map(|container| container_plan(container, Stage::Init))
                .collect(),
            main: spec
                .into_iter()
                .flat_map(|spec| &spec.containers)
                .map(|container| container_plan(container, Stage::Main))
                .collect(),
            restart,
            grace_seconds: spec
                .and_then(|spec| spec.termination_grace_period_seconds)
                .unwrap_or(GRACE_DEFAULT_SECONDS)
                .clamp(0, GRACE_LONGEST_SECONDS),
        }
    }
}

fn container_plan(container: &Container, stage: Stage) -> ContainerPlan {
    let probed = stage == Stage::Main;
    ContainerPlan {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        startup: probed && container.startup_probe.is_some(),
        readiness: probed && container.readiness_probe.is_some(),
        liveness: probed && container.liveness_probe.is_some(),
    }
}

/// Why a container is not running yet: the words a kubelet uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingReason {
    PodInitializing,
    ContainerCreating,
    CrashLoopBackOff,
    ErrImagePull,
    ImagePullBackOff,
    CreateContainerConfigError,
    CreateContainerError,
}

impl WaitingReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PodInitializing => "PodInitializing",
            Self::ContainerCreating => "ContainerCreating",
            Self::CrashLoopBackOff => "CrashLoopBackOff",
            Self::ErrImagePull => "ErrImagePull",
            Self::ImagePullBackOff => "ImagePullBackOff",
            Self::CreateContainerConfigError => "CreateContainerConfigError",
            Self::CreateContainerError => "CreateContainerError",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub reason: WaitingReason,
    pub message: Option<String>,
    /// Not before this moment; `None` is at once.
    pub retry_at: Option<Timestamp>,
    /// The next start is a restart, and counts as one.
    pub restarting: bool,
}

/// Why a container is told to stop; becomes the text of its `Killing` event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    PodEnds,
    Unhealthy(ProbeKind),
    Redefined,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    No,
    /// Decided, not yet told.
    Wanted(StopReason),
    Asked {
        kill_at: Timestamp,
    },
    Killed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub id: String,
    pub started_at: Timestamp,
    /// The startup probe succeeded, or there is none.
    pub started: bool,
    pub ready: bool,
    pub stop: Stop,
    /// Which probes have been set going.
    pub watched: Watched,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Watched {
    Nothing,
    Startup,
    Everything,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    Completed,
    Error,
    /// The program could not be executed at all.
    StartError,
    /// It ended while no node was looking: the sandbox was restarted.
    Unknown,
}

impl EndReason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Error => "Error",
            Self::StartError => "StartError",
            Self::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub id: String,
    pub exit_code: i32,
    pub reason: EndReason,
    pub message: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    Waiting(Waiting),
    Starting,
    Running(Run),
    Ended(Ended),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerModel {
    pub state: ContainerState,
    pub last: Option<Ended>,
    /// Restarts so far; also the number of the current log.
    pub restarts: u32,
    pub backoff: Backoff,
    /// Starts that failed one after the other.
    pub failed_starts: u32,
}

impl ContainerModel {
    pub fn fresh(reason: WaitingReason) -> Self {
        Self {
            state: ContainerState::Waiting(Waiting {
                reason,
                message: None,
                retry_at: None,
                restarting: false,
            }),
            last: None,
            restarts: 0,
            backoff: Backoff::default(),
            failed_starts: 0,
        }
    }

    pub fn is_active(&self) -> bool {
        matches!(
            self.state,
            ContainerState::Starting | ContainerState::Running(_)
        )
    }

    pub fn running(&self) -> Option<&Run> {
        match &self.state {
            ContainerState::Running(run) => Some(run),
            _ => None,
        }
    }

    pub fn succeeded(&self) -> bool {
        matches!(&self.state, ContainerState::Ended(ended) if ended.exit_code == 0)
    }
}

/// The delay before the next restart: none, then 10 s doubling to 5 min; forgotten after 10 min of running.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    next_seconds: i64,
}

impl Backoff {
    /// The delay after a run that lasted `ran_seconds`.
    pub fn after_run(&mut self, ran_seconds: i64) -> i64 {
        if ran_seconds >= BACKOFF_FORGOTTEN_AFTER_SECONDS {
            self.next_seconds = 0;
        }
        let delay = self.next_seconds;
        self.next_seconds = if delay == 0 {
            BACKOFF_FIRST_SECONDS
        } else {
            (delay * 2).min(BACKOFF_LONGEST_SECONDS)
        };
        delay
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volumes {
    Waiting {
        since: Timestamp,
        tries: u32,
        retry_at: Timestamp,
        problem: Option<String>,
    },
    Preparing {
        since: Timestamp,
        tries: u32,
        problem: Option<String>,
    },
    Ready,
}

/// Why a pod has to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its object has a deletionTimestamp: stop it, then remove the object.
    Deleted,
    /// Its object is gone: stop it, there is nobody to tell.
    Vanished,
    /// The node stops: the pod's object stays, and a later node starts it again.
    Shutdown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    No,
    Stopping { cause: Cause, kill_at: Timestamp },
    Done { cause: Cause },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}
