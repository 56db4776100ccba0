//! One look at one unfinished Job: count what ended, judge whether it is over, settle the number of pods. Pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::decide::{
    Action, News, after, has_condition, has_failed, is_active, is_ready, is_tracked, phase,
};

/// The wait after a pod failed, doubled with each further failure, as in a cluster.
const BACKOFF_FIRST: SignedDuration = SignedDuration::from_secs(10);
const BACKOFF_LONGEST: SignedDuration = SignedDuration::from_mins(10);
/// How often a Job's pods may fail when it does not say.
const BACKOFF_LIMIT_DEFAULT: i32 = 6;
/// Pods made in one pass; the rest follow in the next, so one large Job does not hold up all others.
const CREATE_LIMIT: i32 = 50;
/// UIDs waiting to be counted at once, so that a status stays small.
const UNCOUNTED_LIMIT: usize = 500;

/// Methods run in the order of [`Pass::of`].
pub(crate) struct Pass<'a> {
    job: &'a Arc<Job>,
    spec: &'a JobSpec,
    pods: &'a [&'a Arc<Pod>],
    now: Timestamp,
    pub status: JobStatus,
    pub actions: Vec<Action>,
    pub wake_up: Option<Timestamp>,
    pub news: Option<News>,
}

impl<'a> Pass<'a> {
    pub(crate) fn of(
        job: &'a Arc<Job>,
        spec: &'a JobSpec,
        pods: &'a [&'a Arc<Pod>],
        now: Timestamp,
        status: JobStatus,
    ) -> Pass<'a> {
        let mut pass = Pass {
            job,
            spec,
            pods,
            now,
            status,
            actions: Vec::new(),
            wake_up: None,
            news: None,
        };
        pass.count();
        pass.judge();
        pass.settle();
        pass
    }
}

impl Pass<'_> {
    fn uncounted(&self) -> UncountedTerminatedPods {
        self.status
            .uncounted_terminated_pods
            .clone()
            .unwrap_or_default()
    }

    /// Finished pods become numbers, in the steps the module's header tells.
    fn count(&mut self) {
        let uncounted = self.uncounted();
        let (mut succeeded, mut failed) = (
            uncounted.succeeded.unwrap_or_default(),
            uncounted.failed.unwrap_or_default(),
        );
        let pods = self.pods;
        let held = |uid: &String| {
            pods.iter()
                .any(|pod| pod.metadata.uid.as_ref() == Some(uid) && is_tracked(pod))
        };
        for pod in pods.iter().filter(|pod| is_tracked(pod)) {
            let Some(uid) = pod.metadata.uid.as_ref() else {
                continue;
            };
            if succeeded.contains(uid) || failed.contains(uid) {
                self.actions.push(Action::ReleasePod {
                    pod: (*pod).clone(),
                });
            }
        }
        let count_off = |uids: &mut Vec<String>, counter: &mut Option<i32>| {
            let before = uids.len();
            uids.retain(|uid| held(uid));
            let counted = i32::try_from(before - uids.len()).unwrap_or(i32::MAX);
            *counter = Some(counter.unwrap_or(0).saturating_add(counted));
        };
        count_off(&mut succeeded, &mut self.status.succeeded);
        count_off(&mut failed, &mut self.status.failed);
        for pod in pods.iter().filter(|pod| is_tracked(pod)) {
            let Some(uid) = pod.metadata.uid.as_ref() else {
                continue;
            };
            let known = succeeded.contains(uid) || failed.contains(uid);
            if known || succeeded.len() + failed.len() >= UNCOUNTED_LIMIT {
                continue;
            }
            if phase(pod) == "Succeeded" {
                succeeded.push(uid.clone());
            } else if has_failed(pod) {
                failed.push(uid.clone());
            }
        }
        let listed = |uids: Vec<String>| if uids.is_empty() { None } else { Some(uids) };
        self.status.uncounted_terminated_pods = Some(UncountedTerminatedPods {
            succeeded: listed(succeeded),
            failed: listed(failed),
        });
    }

    fn total_succeeded(&self) -> i32 {
        let waiting = self.uncounted().succeeded.map_or(0, |uids| uids.len());
        self.status
            .succeeded
            .unwrap_or(0)
            .saturating_add(i32::try_from(waiting).unwrap_or(i32::MAX))
    }

    fn total_failed(&self) -> i32 {
        let waiting = self.uncounted().failed.map_or(0, |uids| uids.len());
        self.status
            .failed
            .unwrap_or(0)
            .saturating_add(i32::try_from(waiting).unwrap_or(i32::MAX))
    }

    fn active(&self) -> Vec<&Arc<Pod>> {
        self.pods
            .iter()
            .copied()
            .filter(|pod| is_active(pod))
            .collect()
    }

    /// Whether the Job is done for, one way or the other. The interim condition comes before the final one, as in a cluster.
    fn judge(&mut self) {
        if has_condition(&self.status, "FailureTarget")
            || has_condition(&self.status, "SuccessCriteriaMet")
        {
            return;
        }
        let suspended = self.spec.suspend == Some(true);
        let verdict = if self.spec.completion_mode.as_deref() == Some("Indexed") {
            Some((
                "FailureTarget",
                "CompletionModeNotSupported",
                "completionMode Indexed is not supported by the sandbox; use NonIndexed",
            ))
        } else if self.total_failed() > self.backoff_limit() || self.restarts_exhausted() {
            Some((
                "FailureTarget",
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            ))
        } else if !suspended && self.deadline_passed() {
            Some((
                "FailureTarget",
                "DeadlineExceeded",
                "Job was active longer than specified deadline",
            ))
        } else if self.is_complete() {
            Some((
                "SuccessCriteriaMet",
                "CompletionsReached",
                "Reached expected number of succeeded pods",
            ))
        } else {
            None
        };
        match verdict {
            Some((kind, reason, message)) => {
                // A finished Job has a start, even one that was refused before it began.
                self.status.start_time.get_or_insert(Time(self.now));
                self.set_condition(kind, "True", reason, message);
            }
            None => self.suspend_or_resume(suspended),
        }
    }

    fn backoff_limit(&self) -> i32 {
        self.spec.backoff_limit.unwrap_or(BACKOFF_LIMIT_DEFAULT)
    }

    /// With `restartPolicy: OnFailure` failures are restarts of containers, not pods that failed.
    fn restarts_exhausted(&self) -> bool {
        if self
            .spec
            .template
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref())
            != Some("OnFailure")
        {
            return false;
        }
        let restarts: i32 = self
            .active()
            .iter()
            .filter_map(|pod| pod.status.as_ref())
            .flat_map(|status| {
                status
                    .init_container_statuses
                    .iter()
                    .flatten()
                    .chain(status.container_statuses.iter().flatten())
            })
            .map(|container| container.restart_count)
            .sum();
        let limit = self.backoff_limit();
        if limit == 0 {
            restarts > 0
        } else {
            restarts >= limit
        }
    }

    fn deadline_passed(&mut self) -> bool {
        let (Some(start), Some(seconds)) = (
            self.status.start_time.as_ref(),
            self.spec.active_deadline_seconds,
        ) else {
            return false;
        };
        let deadline = after(start.0, SignedDuration::from_secs(seconds));
        if deadline > self.now {
            self.wake_at(deadline);
        }
        deadline <= self.now
    }

    fn wake_at(&mut self, time: Timestamp) {
        self.wake_up = [self.wake_up, Some(time)].into_iter().flatten().min();
    }

    fn is_complete(&self) -> bool {
        match self.spec.completions {
            Some(completions) => self.total_succeeded() >= completions,
            None => self.total_succeeded() > 0 && self.active().is_empty(),
        }
    }

    fn suspend_or_resume(&mut self, suspended: bool) {
        let was = has_condition(&self.status, "Suspended");
        if suspended && !was {
            self.set_condition("Suspended", "True", "JobSuspended", "Job suspended");
            self.status.start_time = None;
            self.news = Some(News::Suspended);
        } else if !suspended && was {
            self.set_condition("Suspended", "False", "JobResumed", "Job resumed");
            self.news = Some(News::Resumed);
        }
        if !suspended && self.status.start_time.is_none() {
            self.status.start_time = Some(Time(self.now));
            if let Some(seconds) = self.spec.active_deadline_seconds {
                self.wake_at(after(self.now, SignedDuration::from_secs(seconds)));
            }
        }
    }

    fn set_condition(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        let conditions = self.status.conditions.get_or_insert_default();
        conditions.retain(|condition| condition.type_ != kind);
        conditions.push(JobCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            last_probe_time: Some(Time(self.now)),
            last_transition_time: Some(Time(self.now)),
        });
    }

    /// Brings the pods to the number wanted, and the Job to its end once they are all counted.
    fn settle(&mut self) {
        let ending = ["FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| has_condition(&self.status, kind));
        let wanted = if ending.is_some() || self.spec.suspend == Some(true) {
            0
        } else {
            self.wanted()
        };
        let active = i32::try_from(self.active().len()).unwrap_or(i32::MAX);
        let ready = self.active().iter().filter(|pod| is_ready(pod)).count();
        let terminating = self.pods.iter().filter(|pod| {
            pod.metadata.deletion_timestamp.is_some()
                && !matches!(phase(pod), "Succeeded" | "Failed")
        });
        let terminating = i32::try_from(terminating.count()).unwrap_or(i32::MAX);
        self.status.active = Some(active);
        self.status.ready = Some(i32::try_from(ready).unwrap_or(i32::MAX));
        self.status.terminating = Some(terminating);
        if active > wanted {
            self.remove_surplus(active - wanted);
        } else if active < wanted {
            self.create_missing(wanted - active);
        }
        let uncounted = self.uncounted();
        let counted = uncounted.succeeded.is_none() && uncounted.failed.is_none();
        if let Some(kind) = ending.filter(|_| active == 0 && terminating == 0 && counted) {
            self.finish(kind);
        }
    }

    fn wanted(&self) -> i32 {
        let parallelism = self.spec.parallelism.unwrap_or(1);
        match self.spec.completions {
            Some(completions) => {
                parallelism.min(completions.saturating_sub(self.total_succeeded()).max(0))
            }
            // A work queue: after the first success nobody new is started.
            None if self.total_succeeded() > 0 => {
                i32::try_from(self.active().len()).unwrap_or(i32::MAX)
            }
            None => parallelism,
        }
    }

    /// The ones that have got the least far go first.
    fn remove_surplus(&mut self, count: i32) {
        let mut active: Vec<Arc<Pod>> = self.active().into_iter().cloned().collect();
        active.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (
                is_ready(pod),
                phase(pod) == "Running",
                std::cmp::Reverse(created),
            )
        });
        let surplus = active.into_iter().take(usize::try_from(count).unwrap_or(0));
        self.actions.extend(surplus.map(|pod| Action::RemovePod {
            job: self.job.clone(),
            pod,
        }));
    }

    fn create_missing(&mut self, count: i32) {
        if let Some(until) = self.backing_off_until().filter(|until| *until > self.now) {
            self.wake_at(until);
            return;
        }
        self.actions.push(Action::CreatePods {
            job: self.job.clone(),
            count: count.min(CREATE_LIMIT),
        });
    }

    /// Failures since the last success double the wait after the latest of them.
    fn backing_off_until(&self) -> Option<Timestamp> {
        let last_success = self
            .pods
            .iter()
            .filter(|pod| phase(pod) == "Succeeded")
            .filter_map(|pod| finished_at(pod))
            .max();
        let mut failures: Vec<Timestamp> = self
            .pods
            .iter()
            .filter(|pod| has_failed(pod))
            .map(|pod| finished_at(pod).unwrap_or(self.now))
            .filter(|time| last_success.is_none_or(|success| *time > success))
            .collect();
        failures.sort();
        let latest = *failures.last()?;
        let doublings = u32::try_from(failures.len() - 1)
            .unwrap_or(u32::MAX)
            .min(16);
        Some(after(
            latest,
            (BACKOFF_FIRST * (1_i32 << doublings)).min(BACKOFF_LONGEST),
        ))
    }

    fn finish(&mut self, interim: &str) {
        let verdict = self
            .status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == interim)
            .cloned();
        let (reason, message) = verdict
            .map(|verdict| {
                (
                    verdict.reason.unwrap_or_default(),
                    verdict.message.unwrap_or_default(),
                )
            })
            .unwrap_or_default();
        if interim == "SuccessCriteriaMet" {
            self.set_condition("Complete", "True", &reason, &message);
            self.status.completion_time = Some(Time(self.now));
            self.news = Some(News::Completed);
        } else {
            self.set_condition("Failed", "True", &reason, &message);
            self.news = Some(News::Failed);
        }
    }
}

fn finished_at(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let ended = status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|container| {
            container
                .state
                .as_ref()?
                .terminated
                .as_ref()?
                .finished_at
                .as_ref()
                .map(|time| time.0)
        });
    ended
        .max()
        .or(pod.metadata.deletion_timestamp.as_ref().map(|time| time.0))
}
