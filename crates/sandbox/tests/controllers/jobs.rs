//! Jobs run, fail, and are tidied away.

use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::stage::{Stage, eventually};

fn job(name: &str, spec: Value) -> Value {
    let mut value = json!({"metadata": {"name": name}, "spec": {"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "main", "image": "debian:12"}]}}}});
    for (key, part) in spec.as_object().expect("a spec") {
        value["spec"][key] = part.clone();
    }
    value
}

async fn pods(stage: &Stage, job: &str) -> Vec<Pod> {
    let of_job = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
    stage
        .api::<Pod>()
        .list(&of_job)
        .await
        .expect("an answer")
        .items
}

async fn running(stage: &Stage, job: &str) -> String {
    eventually("the job has a pod", || async {
        pods(stage, job).await.into_iter().find(|pod| {
            pod.status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Pending"))
        })
    })
    .await
    .name_any()
}

fn ended(phase: &str, code: i32) -> Value {
    json!({"phase": phase, "containerStatuses": [{"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"}}}]})
}

fn condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a str> {
    let found = status
        .conditions
        .as_ref()?
        .iter()
        .find(|condition| condition.type_ == kind && condition.status == "True")?;
    found.reason.as_deref()
}

fn finished(kind: &'static str) -> impl Fn(&Job) -> Option<JobStatus> {
    move |job| {
        job.status
            .clone()
            .filter(|status| condition(status, kind).is_some())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_completes_and_its_pods_are_free() {
    let stage = Stage::new().await;
    stage
        .create::<Job>(job("dump", json!({"completions": 2})))
        .await;
    for _ in 0..2 {
        let pod = running(&stage, "dump").await;
        stage.report(&pod, ended("Succeeded", 0)).await;
    }
    let status = stage
        .until::<Job, _>("dump", "is complete", finished("Complete"))
        .await;
    assert_eq!(status.succeeded, Some(2));
    assert_eq!(condition(&status, "Complete"), Some("CompletionsReached"));
    assert!(status.start_time.is_some() && status.completion_time.is_some());
    let pods = pods(&stage, "dump").await;
    assert_eq!(pods.len(), 2);
    for pod in pods {
        assert!(
            pod.metadata
                .finalizers
                .is_none_or(|finalizers| finalizers.is_empty()),
            "counted pods are not held"
        );
        assert_eq!(
            pod.metadata.owner_references.expect("an owner")[0].kind,
            "Job"
        );
    }
    stage.event("dump", "Completed").await;
    stage
        .api::<Job>()
        .delete("dump", &DeleteParams::background())
        .await
        .expect("deleted");
    eventually("its pods go with it", || async {
        self::pods(&stage, "dump").await.is_empty().then_some(())
    })
    .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_job_stops_at_its_limit_and_goes_when_its_time_is_over() {
    let stage = Stage::new().await;
    stage
        .create::<Job>(job(
            "dump",
            json!({"backoffLimit": 1, "ttlSecondsAfterFinished": 1}),
        ))
        .await;
    let first = running(&stage, "dump").await;
    stage.report(&first, ended("Failed", 1)).await;
    let second = running(&stage, "dump").await;
    assert_ne!(first, second);
    stage.report(&second, ended("Failed", 1)).await;
    assert_eq!(
        stage.event("dump", "BackoffLimitExceeded").await,
        "Job has reached the specified backoff limit"
    );
    stage.until_gone::<Job>("dump").await;
    eventually("its pods go with it", || async {
        pods(&stage, "dump").await.is_empty().then_some(())
    })
    .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_a_running_job_leaves_nothing_held() {
    let stage = Stage::new().await;
    stage.create::<Job>(job("dump", json!({}))).await;
    running(&stage, "dump").await;
    stage
        .api::<Job>()
        .delete("dump", &DeleteParams::background())
        .await
        .expect("deleted");
    stage.until_gone::<Job>("dump").await;
    eventually("its pods go with it", || async {
        pods(&stage, "dump").await.is_empty().then_some(())
    })
    .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_indexed_job_is_refused_in_its_status() {
    let stage = Stage::new().await;
    stage
        .create::<Job>(job(
            "dump",
            json!({"completionMode": "Indexed", "completions": 2}),
        ))
        .await;
    let status = stage
        .until::<Job, _>("dump", "is refused", finished("Failed"))
        .await;
    assert_eq!(
        condition(&status, "Failed"),
        Some("CompletionModeNotSupported")
    );
    assert!(pods(&stage, "dump").await.is_empty());
    stage.end().await;
}
