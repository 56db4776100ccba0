//! Jobs that run to completion (NonIndexed). Indexed Jobs are refused in their status; pod failure policies, success policies and
//! per-index limits are not looked at.

mod decide;
mod pass;

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::json;

use super::cache::Cache;
use super::record::{Recorder, Severity};
use super::worker::{Controller, Decision, Failure};
use decide::{Action, News, TRACKING, is_tracked};

/// The longest part of a Job's name that fits into a pod's name with its random end.
const NAME_LIMIT: usize = 57;

pub(crate) struct Jobs {
    pub client: Client,
    pub recorder: Recorder,
    pub jobs: Cache<Job>,
    pub pods: Cache<Pod>,
}

impl Jobs {
    fn job_api(&self, job: &Job) -> Api<Job> {
        Api::namespaced(
            self.client.clone(),
            job.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    fn pod_api(&self, namespace: Option<&str>) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace.unwrap_or_default())
    }

    async fn write_status(
        &self,
        job: &Job,
        status: &JobStatus,
        news: Option<News>,
    ) -> Result<(), Failure> {
        let mut changed = job.clone();
        changed.status = Some(status.clone());
        // Carries the version it was decided on: counts must never be written over newer ones.
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .job_api(job)
            .replace_status(name, &PostParams::default(), &changed)
            .await?;
        self.jobs.overlay(answer);
        if let Some(news) = news {
            self.tell(job, status, news).await;
        }
        Ok(())
    }

    async fn tell(&self, job: &Job, status: &JobStatus, news: News) {
        match news {
            News::Completed => {
                self.recorder
                    .record(job, Severity::Normal, "Completed", "Job completed")
                    .await;
            }
            News::Suspended => {
                self.recorder
                    .record(job, Severity::Normal, "Suspended", "Job suspended")
                    .await;
            }
            News::Resumed => {
                self.recorder
                    .record(job, Severity::Normal, "Resumed", "Job resumed")
                    .await;
            }
            News::Failed => {
                let failed = status
                    .conditions
                    .iter()
                    .flatten()
                    .find(|condition| condition.type_ == "Failed");
                let reason = failed
                    .and_then(|failed| failed.reason.as_deref())
                    .unwrap_or("Failed");
                let message = failed
                    .and_then(|failed| failed.message.as_deref())
                    .unwrap_or_default();
                self.recorder
                    .record(job, Severity::Warning, reason, message)
                    .await;
            }
        }
    }

    async fn create_pods(&self, job: &Job, count: i32) -> Result<(), Failure> {
        let api = self.pod_api(job.metadata.namespace.as_deref());
        let pod = pod_for(job);
        for _ in 0..count {
            let created = match api.create(&PostParams::default(), &pod).await {
                Ok(created) => created,
                Err(error) => {
                    let message = format!("Error creating: {error}");
                    self.recorder
                        .record(job, Severity::Warning, "FailedCreate", &message)
                        .await;
                    return Err(error.into());
                }
            };
            let message = format!(
                "Created pod: {}",
                created.metadata.name.as_deref().unwrap_or_default()
            );
            // Known at once: the next pass must not make it again.
            self.pods.overlay(created);
            self.recorder
                .record(job, Severity::Normal, "SuccessfulCreate", &message)
                .await;
        }
        Ok(())
    }

    async fn release_pod(&self, pod: &Pod) -> Result<(), Failure> {
        let finalizers: Vec<&String> = pod
            .metadata
            .finalizers
            .iter()
            .flatten()
            .filter(|finalizer| *finalizer != TRACKING)
            .collect();
        let patch = json!({"metadata": {"resourceVersion": pod.metadata.resource_version, "finalizers": finalizers}});
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let api = self.pod_api(pod.metadata.namespace.as_deref());
        let answer = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        // One that was only waiting for this is gone now; the watch will say so.
        if answer.metadata.deletion_timestamp.is_none() {
            self.pods.overlay(answer);
        }
        Ok(())
    }

    async fn remove_pod(&self, job: &Job, pod: &Pod) -> Result<(), Failure> {
        if is_tracked(pod) {
            self.release_pod(pod).await?;
        }
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        };
        let api = self.pod_api(pod.metadata.namespace.as_deref());
        let answer = api
            .delete(name, &DeleteParams::default().preconditions(preconditions))
            .await?;
        if let Some(deleting) = answer
            .left()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some())
        {
            self.pods.overlay(deleting);
        }
        self.recorder
            .record(
                job,
                Severity::Normal,
                "SuccessfulDelete",
                &format!("Deleted pod: {name}"),
            )
            .await;
        Ok(())
    }

    async fn delete_job(&self, job: &Job) -> Result<(), Failure> {
        let preconditions = Preconditions {
            uid: job.metadata.uid.clone(),
            resource_version: job.metadata.resource_version.clone(),
        };
        let name = job.metadata.name.as_deref().unwrap_or_default();
        self.job_api(job)
            .delete(
                name,
                &DeleteParams::background().preconditions(preconditions),
            )
            .await?;
        Ok(())
    }
}

fn pod_for(job: &Job) -> Pod {
    let name = job.metadata.name.clone().unwrap_or_default();
    let uid = job.metadata.uid.clone().unwrap_or_default();
    let template = job
        .spec
        .as_ref()
        .map(|spec| spec.template.clone())
        .unwrap_or_default();
    let metadata = template.metadata.unwrap_or_default();
    let mut labels = metadata.labels.unwrap_or_default();
    for (key, value) in [
        ("batch.kubernetes.io/job-name", &name),
        ("job-name", &name),
        ("batch.kubernetes.io/controller-uid", &uid),
        ("controller-uid", &uid),
    ] {
        labels.insert(key.to_owned(), value.clone());
    }
    let mut finalizers = metadata.finalizers.unwrap_or_default();
    finalizers.push(TRACKING.to_owned());
    let prefix: String = name.chars().take(NAME_LIMIT).collect();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{prefix}-")),
            namespace: job.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: metadata.annotations,
            finalizers: Some(finalizers),
            owner_references: Some(vec![OwnerReference {
                api_version: "batch/v1".to_owned(),
                kind: "Job".to_owned(),
                name,
                uid,
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

impl Controller for Jobs {
    const NAME: &'static str = "jobs";
    type Action = Action;

    fn synced(&self) -> bool {
        self.jobs.synced() && self.pods.synced()
    }

    fn decide(&self, now: Timestamp) -> Decision<Action> {
        decide::decide(&self.jobs.all(), &self.pods.all(), now)
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::WriteStatus { job, status, news } => {
                self.write_status(job, status, *news).await
            }
            Action::CreatePods { job, count } => self.create_pods(job, *count).await,
            Action::ReleasePod { pod } => self.release_pod(pod).await,
            Action::RemovePod { job, pod } => self.remove_pod(job, pod).await,
            Action::DeleteJob { job } => self.delete_job(job).await,
        }
    }
}
