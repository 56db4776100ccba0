//! What a Job needs next. Pure.
//!
//! Pods carry a finalizer until they are counted, so a pod that vanishes is never forgotten: a finished pod's UID first goes into
//! `uncountedTerminatedPods`, then the pod loses its finalizer, then the UID becomes part of a number. Each step can be repeated.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;

use super::super::worker::{self, Decision};
use super::pass::Pass;

pub(crate) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What happened, as it is told in events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Completed,
    Failed,
    Suspended,
    Resumed,
}

#[derive(Debug)]
pub(crate) enum Action {
    WriteStatus {
        job: Arc<Job>,
        status: Box<JobStatus>,
        news: Option<News>,
    },
    CreatePods {
        job: Arc<Job>,
        count: i32,
    },
    /// Takes the finalizer off a pod that is counted, or that nobody will count any more.
    ReleasePod {
        pod: Arc<Pod>,
    },
    /// Ends a pod the Job no longer wants; it does not count as failed.
    RemovePod {
        job: Arc<Job>,
        pod: Arc<Pod>,
    },
    DeleteJob {
        job: Arc<Job>,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::WriteStatus { job, .. } => format!("status {:?}", job.metadata.uid),
            Action::CreatePods { job, .. } => format!("create {:?}", job.metadata.uid),
            Action::DeleteJob { job } => format!("delete {:?}", job.metadata.uid),
            Action::ReleasePod { pod } => format!("release {:?}", pod.metadata.uid),
            Action::RemovePod { pod, .. } => format!("remove {:?}", pod.metadata.uid),
        }
    }
}

pub(crate) fn decide(jobs: &[Arc<Job>], pods: &[Arc<Pod>], now: Timestamp) -> Decision<Action> {
    let mut decision = Decision::of(Vec::new());
    for job in jobs.iter().filter(|job| {
        job.spec
            .as_ref()
            .is_some_and(|spec| spec.managed_by.as_deref().is_none_or(is_us))
    }) {
        let owned: Vec<&Arc<Pod>> = pods
            .iter()
            .filter(|pod| owner_uid(pod) == job.metadata.uid.as_deref())
            .collect();
        let one = decide_job(job, &owned, now);
        decision.actions.extend(one.actions);
        decision.wake_up = [decision.wake_up, one.wake_up].into_iter().flatten().min();
    }
    // Pods whose Job is gone: nobody counts them, so nothing may hold them.
    for pod in pods.iter().filter(|pod| is_tracked(pod)) {
        let has_job = jobs
            .iter()
            .any(|job| job.metadata.uid.as_deref() == owner_uid(pod));
        if !has_job {
            decision
                .actions
                .push(Action::ReleasePod { pod: pod.clone() });
        }
    }
    decision
}

fn is_us(manager: &str) -> bool {
    manager == "kubernetes.io/job-controller"
}

fn owner_uid(pod: &Pod) -> Option<&str> {
    let owner = pod
        .metadata
        .owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))?;
    (owner.kind == "Job").then_some(owner.uid.as_str())
}

pub(crate) fn is_tracked(pod: &Pod) -> bool {
    pod.metadata
        .finalizers
        .iter()
        .flatten()
        .any(|finalizer| finalizer == TRACKING)
}

pub(crate) fn has_condition(status: &JobStatus, kind: &str) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

/// A pod on its way out that did not succeed has failed: it may never get to say so itself.
pub(crate) fn has_failed(pod: &Pod) -> bool {
    phase(pod) == "Failed"
        || (pod.metadata.deletion_timestamp.is_some() && phase(pod) != "Succeeded")
}

pub(crate) fn is_active(pod: &Pod) -> bool {
    !matches!(phase(pod), "Succeeded" | "Failed") && pod.metadata.deletion_timestamp.is_none()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn decide_job(job: &Arc<Job>, pods: &[&Arc<Pod>], now: Timestamp) -> Decision<Action> {
    let status = job.status.clone().unwrap_or_default();
    if job.metadata.deletion_timestamp.is_some() {
        return Decision::of(release(pods.iter().filter(|pod| is_tracked(pod))));
    }
    if has_condition(&status, "Complete") || has_condition(&status, "Failed") {
        return decide_finished(job, &status, pods, now);
    }
    let Some(spec) = job.spec.as_ref() else {
        return Decision::of(Vec::new());
    };
    let mut pass = Pass::of(job, spec, pods, now, status.clone());
    if !same(&status, &pass.status) {
        let write = Action::WriteStatus {
            job: job.clone(),
            status: Box::new(pass.status),
            news: pass.news,
        };
        pass.actions.insert(0, write);
    }
    Decision {
        actions: pass.actions,
        wake_up: pass.wake_up,
    }
}

fn release<'a>(pods: impl Iterator<Item = &'a &'a Arc<Pod>>) -> Vec<Action> {
    pods.map(|pod| Action::ReleasePod {
        pod: (*pod).clone(),
    })
    .collect()
}

/// A finished Job only waits for its time to be removed.
fn decide_finished(
    job: &Arc<Job>,
    status: &JobStatus,
    pods: &[&Arc<Pod>],
    now: Timestamp,
) -> Decision<Action> {
    let mut decision = Decision::of(release(pods.iter().filter(|pod| is_tracked(pod))));
    let finished = status.conditions.iter().flatten().find(|condition| {
        matches!(condition.type_.as_str(), "Complete" | "Failed") && condition.status == "True"
    });
    let since = finished
        .and_then(|condition| condition.last_transition_time.as_ref())
        .map(|time| time.0);
    let keep = job
        .spec
        .as_ref()
        .and_then(|spec| spec.ttl_seconds_after_finished);
    if let (Some(since), Some(keep)) = (since, keep) {
        let until = after(since, SignedDuration::from_secs(keep.into()));
        if until <= now {
            decision
                .actions
                .push(Action::DeleteJob { job: job.clone() });
        } else {
            decision.wake_up = Some(until);
        }
    }
    decision
}

pub(crate) fn after(time: Timestamp, wait: SignedDuration) -> Timestamp {
    time.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

/// Equal in what they say; when we looked is not part of it.
fn same(left: &JobStatus, right: &JobStatus) -> bool {
    let plain = |status: &JobStatus| {
        let mut status = status.clone();
        for count in [
            &mut status.active,
            &mut status.succeeded,
            &mut status.failed,
            &mut status.ready,
            &mut status.terminating,
        ] {
            *count = Some(count.unwrap_or(0));
        }
        let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
        (
            status,
            uncounted.succeeded.unwrap_or_default(),
            uncounted.failed.unwrap_or_default(),
        )
    };
    plain(left) == plain(right)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
