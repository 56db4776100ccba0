//! A Job's life, told by what is done in each state.

#![allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.

use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

fn now() -> Timestamp {
    "2026-01-01T00:10:00Z".parse().expect("a time")
}

fn job(spec: Value, status: Value) -> Arc<Job> {
    let mut value = json!({"metadata": {"name": "dump", "namespace": "grove", "uid": "job"},
        "spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}, "parallelism": 1, "completions": 1}, "status": status});
    json_patch::merge(&mut value["spec"], &spec);
    Arc::new(serde_json::from_value(value).expect("a job"))
}

fn pod(uid: &str, change: Value) -> Arc<Pod> {
    let mut value = json!({
        "metadata": {"name": uid, "namespace": "grove", "uid": uid, "finalizers": [TRACKING],
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "dump", "uid": "job", "controller": true}]},
        "spec": {"containers": []}, "status": {"phase": "Running"},
    });
    json_patch::merge(&mut value, &change);
    Arc::new(serde_json::from_value(value).expect("a pod"))
}

fn ended(uid: &str, phase: &str, at: &str) -> Arc<Pod> {
    pod(
        uid,
        json!({"status": {"phase": phase, "containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"terminated": {"exitCode": 1, "finishedAt": at}}}]}}),
    )
}

fn counted(pod: Arc<Pod>) -> Arc<Pod> {
    let mut pod = Arc::unwrap_or_clone(pod);
    pod.metadata.finalizers = None;
    Arc::new(pod)
}

fn started() -> Value {
    json!({"startTime": "2026-01-01T00:00:00Z", "active": 1})
}

fn with(mut status: Value, change: Value) -> Value {
    json_patch::merge(&mut status, &change);
    status
}

fn interim(kind: &str, reason: &str) -> Value {
    json!({"conditions": [{"type": kind, "status": "True", "reason": reason, "message": "why", "lastTransitionTime": "2026-01-01T00:09:00Z"}]})
}

fn told(job: &Arc<Job>, pods: &[Arc<Pod>]) -> Vec<String> {
    decide(std::slice::from_ref(job), pods, now())
        .actions
        .iter()
        .map(short)
        .collect()
}

fn short(action: &Action) -> String {
    match action {
        Action::WriteStatus { status, .. } => {
            let conditions: Vec<String> = status
                .conditions
                .iter()
                .flatten()
                .map(|condition| {
                    format!(
                        "{}={} {}",
                        condition.type_,
                        condition.status,
                        condition.reason.as_deref().unwrap_or_default()
                    )
                })
                .collect();
            let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
            let waiting = uncounted.succeeded.unwrap_or_default().len()
                + uncounted.failed.unwrap_or_default().len();
            let number = |count: Option<i32>| count.unwrap_or(0);
            format!(
                "status a{} s{} f{} u{waiting} {conditions:?}",
                number(status.active),
                number(status.succeeded),
                number(status.failed)
            )
        }
        Action::CreatePods { count, .. } => format!("create {count}"),
        Action::ReleasePod { pod } => format!(
            "release {}",
            pod.metadata.name.as_deref().unwrap_or_default()
        ),
        Action::RemovePod { pod, .. } => format!(
            "remove {}",
            pod.metadata.name.as_deref().unwrap_or_default()
        ),
        Action::DeleteJob { .. } => "delete".to_owned(),
    }
}

#[test]
fn a_job_runs_to_completion_step_by_step() {
    assert_eq!(
        told(&job(json!({}), json!({})), &[]),
        ["status a0 s0 f0 u0 []", "create 1"]
    );
    let running = [pod("p1", json!({}))];
    assert!(
        told(&job(json!({}), started()), &running).is_empty(),
        "at rest while it runs"
    );
    let done = [ended("p1", "Succeeded", "2026-01-01T00:05:00Z")];
    assert_eq!(
        told(&job(json!({}), started()), &done),
        [r#"status a0 s0 f0 u1 ["SuccessCriteriaMet=True CompletionsReached"]"#]
    );
    let met = with(
        started(),
        with(
            interim("SuccessCriteriaMet", "CompletionsReached"),
            json!({"active": 0, "uncountedTerminatedPods": {"succeeded": ["p1"]}}),
        ),
    );
    assert_eq!(told(&job(json!({}), met.clone()), &done), ["release p1"]);
    let released = [counted(done[0].clone())];
    assert_eq!(
        told(&job(json!({}), met), &released),
        [
            r#"status a0 s1 f0 u0 ["SuccessCriteriaMet=True CompletionsReached", "Complete=True CompletionsReached"]"#
        ]
    );
    let complete = with(
        interim("Complete", "CompletionsReached"),
        json!({"succeeded": 1}),
    );
    assert!(told(&job(json!({}), complete), &released).is_empty());
}

#[test]
fn a_pod_that_vanishes_after_it_was_noted_is_still_counted() {
    let noted = with(
        started(),
        json!({"active": 0, "uncountedTerminatedPods": {"succeeded": ["p1"]}}),
    );
    let told = told(&job(json!({"completions": 2}), noted), &[]);
    assert_eq!(told, ["status a0 s1 f0 u0 []", "create 1"]);
}

#[test]
fn failures_back_off_and_then_end_the_job() {
    let failed = [ended("p1", "Failed", "2026-01-01T00:09:55Z")];
    let decision = decide(&[job(json!({}), started())], &failed, now());
    assert_eq!(
        decision.actions.iter().map(short).collect::<Vec<_>>(),
        ["status a0 s0 f0 u1 []"],
        "no new pod yet"
    );
    assert_eq!(
        decision.wake_up,
        Some("2026-01-01T00:10:05Z".parse().expect("a time"))
    );
    let long_ago = [ended("p1", "Failed", "2026-01-01T00:05:00Z")];
    assert_eq!(
        told(&job(json!({}), started()), &long_ago),
        ["status a0 s0 f0 u1 []", "create 1"]
    );
    assert_eq!(
        told(&job(json!({"backoffLimit": 0}), started()), &long_ago),
        [r#"status a0 s0 f0 u1 ["FailureTarget=True BackoffLimitExceeded"]"#]
    );
    let doomed = with(
        started(),
        with(
            interim("FailureTarget", "BackoffLimitExceeded"),
            json!({"active": 0, "failed": 1, "uncountedTerminatedPods": {}}),
        ),
    );
    assert_eq!(
        told(
            &job(json!({"backoffLimit": 0}), doomed),
            &[counted(long_ago[0].clone())]
        ),
        [
            r#"status a0 s0 f1 u0 ["FailureTarget=True BackoffLimitExceeded", "Failed=True BackoffLimitExceeded"]"#
        ]
    );
}

#[test]
fn the_wait_doubles_with_each_failure() {
    let failed: Vec<Arc<Pod>> = [
        "2026-01-01T00:09:00Z",
        "2026-01-01T00:09:10Z",
        "2026-01-01T00:09:45Z",
    ]
    .iter()
    .enumerate()
    .map(|(number, at)| counted(ended(&format!("p{number}"), "Failed", at)))
    .collect();
    let decision = decide(
        &[job(
            json!({}),
            with(started(), json!({"active": 0, "failed": 3})),
        )],
        &failed,
        now(),
    );
    assert_eq!(
        decision.wake_up,
        Some("2026-01-01T00:10:25Z".parse().expect("a time")),
        "40 s after the latest"
    );
}

#[test]
fn a_deadline_ends_what_runs() {
    let spec = json!({"activeDeadlineSeconds": 600});
    let running = [pod("p1", json!({}))];
    assert_eq!(
        told(&job(spec, started()), &running),
        [
            r#"status a1 s0 f0 u0 ["FailureTarget=True DeadlineExceeded"]"#,
            "remove p1"
        ]
    );
    let early = decide(
        &[job(json!({"activeDeadlineSeconds": 601}), started())],
        &running,
        now(),
    );
    assert!(early.actions.is_empty());
    assert_eq!(
        early.wake_up,
        Some("2026-01-01T00:10:01Z".parse().expect("a time"))
    );
}

#[test]
fn restarts_count_when_pods_restart_in_place() {
    let spec = json!({"backoffLimit": 2, "template": {"spec": {"restartPolicy": "OnFailure"}}});
    let restarted = pod(
        "p1",
        json!({"status": {"containerStatuses": [{"name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 2}]}}),
    );
    assert_eq!(
        told(&job(spec, started()), &[restarted]),
        [
            r#"status a1 s0 f0 u0 ["FailureTarget=True BackoffLimitExceeded"]"#,
            "remove p1"
        ]
    );
}

#[test]
fn parallelism_bounds_what_runs() {
    let spec = json!({"parallelism": 3, "completions": 5});
    let pods = [
        counted(ended("p1", "Succeeded", "2026-01-01T00:05:00Z")),
        pod("p2", json!({})),
    ];
    assert_eq!(
        told(&job(spec, with(started(), json!({"succeeded": 3}))), &pods),
        ["create 1"],
        "two are missing, one runs"
    );
    let fewer = [
        pod("p1", json!({})),
        pod("p2", json!({"status": {"phase": "Pending"}})),
    ];
    assert_eq!(
        told(
            &job(json!({}), with(started(), json!({"active": 2}))),
            &fewer
        ),
        ["remove p2"]
    );
}

#[test]
fn suspending_removes_the_pods_and_resuming_starts_anew() {
    let running = [pod("p1", json!({}))];
    assert_eq!(
        told(&job(json!({"suspend": true}), started()), &running),
        [
            r#"status a1 s0 f0 u0 ["Suspended=True JobSuspended"]"#,
            "remove p1"
        ]
    );
    let suspended = interim("Suspended", "JobSuspended");
    assert!(told(&job(json!({"suspend": true}), suspended.clone()), &[]).is_empty());
    assert_eq!(
        told(&job(json!({}), suspended), &[]),
        [
            r#"status a0 s0 f0 u0 ["Suspended=False JobResumed"]"#,
            "create 1"
        ]
    );
}

#[test]
fn indexed_jobs_are_refused_in_words() {
    let told = told(&job(json!({"completionMode": "Indexed"}), json!({})), &[]);
    assert_eq!(
        told,
        [
            r#"status a0 s0 f0 u0 ["FailureTarget=True CompletionModeNotSupported", "Failed=True CompletionModeNotSupported"]"#
        ]
    );
}

#[test]
fn a_finished_job_goes_when_its_time_is_over() {
    let finished = with(
        interim("Complete", "CompletionsReached"),
        json!({"succeeded": 1}),
    );
    assert_eq!(
        told(
            &job(json!({"ttlSecondsAfterFinished": 60}), finished.clone()),
            &[]
        ),
        ["delete"]
    );
    let later = decide(
        &[job(json!({"ttlSecondsAfterFinished": 61}), finished)],
        &[],
        now(),
    );
    assert!(later.actions.is_empty());
    assert_eq!(
        later.wake_up,
        Some("2026-01-01T00:10:01Z".parse().expect("a time"))
    );
}

#[test]
fn nothing_holds_the_pods_of_a_job_that_is_gone_or_going() {
    let pods = [pod("p1", json!({}))];
    let actions: Vec<String> = decide(&[], &pods, now())
        .actions
        .iter()
        .map(short)
        .collect();
    assert_eq!(actions, ["release p1"]);
    let mut going = Arc::unwrap_or_clone(job(json!({}), started()));
    going.metadata.deletion_timestamp = Some(Time(now()));
    assert_eq!(told(&Arc::new(going), &pods), ["release p1"]);
}

#[test]
fn a_deleted_pod_is_a_failure_and_is_replaced() {
    let deleted = pod(
        "p1",
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:05:00Z"}}),
    );
    assert_eq!(
        told(&job(json!({}), started()), &[deleted]),
        ["status a0 s0 f0 u1 []", "create 1"]
    );
}
