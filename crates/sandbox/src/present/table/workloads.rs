//! Tables of what makes pods: Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs, CronJobs.

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{self, array, integer as number, text};
use super::{AGE, Column, NAME, Printer, integer, text as column, wide};
use crate::present::age;

const READY: Column = column("Ready", "Pods that are ready, of how many.");
const DESIRED: Column = integer("Desired", "How many pods there should be.");
const CURRENT: Column = integer("Current", "How many pods there are.");
const READY_COUNT: Column = integer("Ready", "How many pods are ready.");
const UP_TO_DATE: Column = integer("Up-to-date", "How many pods follow the newest template.");
const AVAILABLE: Column = integer("Available", "How many pods have been ready long enough.");
const CONTAINERS: Column = wide("Containers", "Names of the containers.");
const IMAGES: Column = wide("Images", "Images of the containers.");
const SELECTOR: Column = wide("Selector", "The labels of its pods.");

const TEMPLATE: &str = "/spec/template/spec";

pub(super) fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "Deployment" => &DEPLOYMENT,
        "ReplicaSet" => &REPLICA_SET,
        "StatefulSet" => &STATEFUL_SET,
        "DaemonSet" => &DAEMON_SET,
        "Job" => &JOB,
        "CronJob" => &CRON_JOB,
        _ => return None,
    })
}

fn count(object: &Value, pointer: &str) -> Value {
    number(object, pointer).into()
}

fn ready_of_desired(object: &Value) -> Value {
    format!(
        "{}/{}",
        number(object, "/status/readyReplicas"),
        number(object, "/spec/replicas")
    )
    .into()
}

const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        READY,
        // A real server calls these two strings, and sends numbers.
        Column {
            kind: "string",
            ..UP_TO_DATE
        },
        Column {
            kind: "string",
            ..AVAILABLE
        },
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (containers, images) = cell::containers(object.pointer(TEMPLATE));
        vec![
            cell::name(object),
            ready_of_desired(object),
            count(object, "/status/updatedReplicas"),
            count(object, "/status/availableReplicas"),
            cell::age(object, now),
            containers,
            images,
            cell::selector(object.pointer("/spec/selector")).into(),
        ]
    },
};

const REPLICA_SET: Printer = Printer {
    columns: &[
        NAME,
        DESIRED,
        CURRENT,
        READY_COUNT,
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (containers, images) = cell::containers(object.pointer(TEMPLATE));
        vec![
            cell::name(object),
            count(object, "/spec/replicas"),
            count(object, "/status/replicas"),
            count(object, "/status/readyReplicas"),
            cell::age(object, now),
            containers,
            images,
            cell::selector(object.pointer("/spec/selector")).into(),
        ]
    },
};

const STATEFUL_SET: Printer = Printer {
    columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
    cells: |object, now| {
        let (containers, images) = cell::containers(object.pointer(TEMPLATE));
        vec![
            cell::name(object),
            ready_of_desired(object),
            cell::age(object, now),
            containers,
            images,
        ]
    },
};

const DAEMON_SET: Printer = Printer {
    columns: &[
        NAME,
        DESIRED,
        CURRENT,
        READY_COUNT,
        UP_TO_DATE,
        AVAILABLE,
        column("Node Selector", "The labels of the nodes it runs on."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (containers, images) = cell::containers(object.pointer(TEMPLATE));
        vec![
            cell::name(object),
            count(object, "/status/desiredNumberScheduled"),
            count(object, "/status/currentNumberScheduled"),
            count(object, "/status/numberReady"),
            count(object, "/status/updatedNumberScheduled"),
            count(object, "/status/numberAvailable"),
            cell::labels(object.pointer("/spec/template/spec/nodeSelector")).into(),
            cell::age(object, now),
            containers,
            images,
            cell::selector(object.pointer("/spec/selector")).into(),
        ]
    },
};

const JOB: Printer = Printer {
    columns: &[
        NAME,
        column("Status", "Whether it runs, is done, or failed."),
        column(
            "Completions",
            "Pods that succeeded, of how many are wanted.",
        ),
        column("Duration", "How long it took, or has taken so far."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: job,
};

fn job(object: &Value, now: Timestamp) -> Vec<Value> {
    let succeeded = number(object, "/status/succeeded");
    let completions = match (
        object.pointer("/spec/completions").and_then(Value::as_i64),
        number(object, "/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let end = object.pointer("/status/completionTime");
    let duration = age::between(object.pointer("/status/startTime"), end, now).unwrap_or_default();
    let (containers, images) = cell::containers(object.pointer(TEMPLATE));
    vec![
        cell::name(object),
        job_status(object).into(),
        completions.into(),
        duration.into(),
        cell::age(object, now),
        containers,
        images,
        cell::selector(object.pointer("/spec/selector")).into(),
    ]
}

fn job_status(object: &Value) -> &'static str {
    let is_true = |kind: &str| {
        array(object, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == kind && text(condition, "/status") == "True"
        })
    };
    if is_true("Complete") {
        "Complete"
    } else if is_true("Failed") {
        "Failed"
    } else if cell::is_deleting(object) {
        "Terminating"
    } else if is_true("Suspended") {
        "Suspended"
    } else if is_true("FailureTarget") {
        "FailureTarget"
    } else if is_true("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    }
}

const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        column("Schedule", "When it runs."),
        column("Timezone", "Where that time is."),
        Column {
            name: "Suspend",
            kind: "boolean",
            priority: 0,
            description: "Whether it is paused.",
        },
        integer("Active", "How many of its jobs run."),
        column("Last Schedule", "When a job was last made."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    cells: |object, now| {
        let (containers, images) =
            cell::containers(object.pointer("/spec/jobTemplate/spec/template/spec"));
        let suspend = if cell::flag(object, "/spec/suspend") {
            "True"
        } else {
            "False"
        };
        let last = match object.pointer("/status/lastScheduleTime") {
            Some(time) if !time.is_null() => age::since(Some(time), now),
            _ => cell::NONE.to_owned(),
        };
        vec![
            cell::name(object),
            text(object, "/spec/schedule").into(),
            cell::text_or_none(object, "/spec/timeZone"),
            suspend.into(),
            array(object, "/status/active").len().into(),
            last.into(),
            cell::age(object, now),
            containers,
            images,
            cell::selector(object.pointer("/spec/jobTemplate/spec/selector")).into(),
        ]
    },
};
