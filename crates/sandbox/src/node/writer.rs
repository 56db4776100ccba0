//! Writing a pod's status: the newest one, when it differs from the last, for as long as it takes. A server that is away never stops the pod.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::limits::{API_REQUEST_DEADLINE, WRITE_RETRY_FIRST, WRITE_RETRY_LONGEST};

const HTTP_NOT_FOUND: u16 = 404;
const HTTP_CONFLICT: u16 = 409;

/// The object a writer writes to; another one of the same name is not touched.
#[derive(Clone)]
pub struct PodRef {
    api: Api<Pod>,
    name: String,
    uid: String,
}

impl PodRef {
    pub fn of(client: &Client, pod: &Pod) -> Self {
        Self {
            api: Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default()),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
        }
    }
}

pub struct StatusWriter {
    desired: watch::Sender<Option<PodStatus>>,
    task: JoinHandle<()>,
}

impl StatusWriter {
    /// `shown` is what the API shows already and need not be told.
    pub fn start(pod: PodRef, shown: Option<PodStatus>) -> Self {
        let (desired, receiver) = watch::channel(None);
        Self {
            desired,
            task: tokio::spawn(write_newest(pod, receiver, shown)),
        }
    }

    /// Wants this to be the status. Returns whether it is news.
    pub fn want(&self, status: PodStatus) -> bool {
        self.desired.send_if_modified(|known| {
            let news = known.as_ref() != Some(&status);
            *known = Some(status);
            news
        })
    }

    /// Waits until the last wanted status is written, or the object is gone.
    pub async fn finish(self) {
        let Self { desired, task } = self;
        drop(desired);
        let _ = task.await;
    }

    pub fn stop(&self) {
        self.task.abort();
    }
}

async fn write_newest(
    pod: PodRef,
    mut desired: watch::Receiver<Option<PodStatus>>,
    mut written: Option<PodStatus>,
) {
    let mut wait = WRITE_RETRY_FIRST;
    loop {
        let target = desired.borrow_and_update().clone();
        if target.is_some() && target != written {
            match write(&pod, target.as_ref()).await {
                Outcome::Done => (written, wait) = (target, WRITE_RETRY_FIRST),
                Outcome::Gone => return,
                Outcome::Again(reason) => {
                    tracing::warn!(
                        pod = pod.name,
                        reason,
                        "failed to write a pod's status; trying again"
                    );
                    tokio::time::sleep(wait).await;
                    wait = longer(wait);
                    continue;
                }
            }
        }
        if desired.changed().await.is_err() {
            return;
        }
    }
}

fn longer(wait: Duration) -> Duration {
    (wait * 2).min(WRITE_RETRY_LONGEST)
}

enum Outcome {
    Done,
    /// The object is not there any more, or is another one by now.
    Gone,
    Again(String),
}

async fn write(pod: &PodRef, status: Option<&PodStatus>) -> Outcome {
    let patch = Patch::Merge(serde_json::json!({"metadata": {"uid": pod.uid}, "status": status}));
    let parameters = PatchParams::default();
    let request = pod.api.patch_status(&pod.name, &parameters, &patch);
    outcome(
        tokio::time::timeout(API_REQUEST_DEADLINE, request)
            .await
            .map(|answer| answer.map(|_| ())),
    )
}

fn outcome(answer: Result<kube::Result<()>, tokio::time::error::Elapsed>) -> Outcome {
    match answer {
        Ok(Ok(())) => Outcome::Done,
        Ok(Err(kube::Error::Api(status)))
            if status.code == HTTP_NOT_FOUND || status.code == HTTP_CONFLICT =>
        {
            Outcome::Gone
        }
        Ok(Err(error)) => Outcome::Again(error.to_string()),
        Err(_) => Outcome::Again(format!(
            "no answer within {} s",
            API_REQUEST_DEADLINE.as_secs()
        )),
    }
}

/// Removes the object of a pod of which nothing runs any more; returns when it is gone, or is another one.
pub async fn remove(pod: PodRef) {
    let mut wait = WRITE_RETRY_FIRST;
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: Some(pod.uid.clone()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    loop {
        let request = pod.api.delete(&pod.name, &parameters);
        match outcome(
            tokio::time::timeout(API_REQUEST_DEADLINE, request)
                .await
                .map(|answer| answer.map(|_| ())),
        ) {
            Outcome::Done | Outcome::Gone => return,
            Outcome::Again(reason) => {
                tracing::warn!(
                    pod = pod.name,
                    reason,
                    "failed to remove a pod that has ended; trying again"
                );
                tokio::time::sleep(wait).await;
                wait = longer(wait);
            }
        }
    }
}
