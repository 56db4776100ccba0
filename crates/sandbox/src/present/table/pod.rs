//! The table of pods: the one whose STATUS is a small computation over container states.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell::{self, array, integer, text};
use super::{AGE, Column, NAME, Printer, text as column, wide};
use crate::present::age;

const COLUMNS: &[Column] = &[
    NAME,
    column("Ready", "Containers that are ready, of how many."),
    column("Status", "What the pod does, or why it does not."),
    column(
        "Restarts",
        "How often its containers were started again, and when last.",
    ),
    AGE,
    wide("IP", "The pod's address."),
    wide("Node", "The node that runs it."),
    wide("Nominated Node", "The node that room is being made on."),
    wide(
        "Readiness Gates",
        "Conditions besides the containers' that readiness waits for.",
    ),
];

pub(super) const POD: Printer = Printer {
    columns: COLUMNS,
    cells,
};

struct Summary {
    status: String,
    ready: usize,
    total: usize,
    restarts: i64,
    last_restart: Option<Timestamp>,
}

fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = summarise(pod);
    let restarts = match summary.last_restart {
        Some(last) if summary.restarts > 0 => {
            format!(
                "{} ({} ago)",
                summary.restarts,
                age::human(now.as_second() - last.as_second())
            )
        }
        _ => summary.restarts.to_string(),
    };
    vec![
        cell::name(pod),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.status.into(),
        restarts.into(),
        cell::age(pod, now),
        cell::text_or_none(pod, "/status/podIP"),
        cell::text_or_none(pod, "/spec/nodeName"),
        cell::text_or_none(pod, "/status/nominatedNodeName"),
        readiness_gates(pod).into(),
    ]
}

/// Marks rows of pods that are done, so that clients can grey them out.
pub(super) fn completed(object: &Value) -> Option<Value> {
    if text(object, "/kind") != "Pod" {
        return None;
    }
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!({"type": "Completed", "status": "True", "reason": reason, "message": message}))
}

fn summarise(pod: &Value) -> Summary {
    let phase = text(pod, "/status/phase");
    let reason = text(pod, "/status/reason");
    let mut summary = Summary {
        status: if reason.is_empty() { phase } else { reason }.to_owned(),
        ready: 0,
        total: array(pod, "/spec/containers").len(),
        restarts: 0,
        last_restart: None,
    };
    if condition(pod, "PodScheduled")
        .is_some_and(|condition| text(condition, "/reason") == "SchedulingGated")
    {
        "SchedulingGated".clone_into(&mut summary.status);
    }
    let initializing = initialize(pod, &mut summary);
    if !initializing || is_true(pod, "Initialized") {
        // What init containers went through is over; only containers that go on running count now.
        (summary.restarts, summary.last_restart) = (0, None);
        for status in array(pod, "/status/initContainerStatuses") {
            if is_sidecar(pod, status) {
                add_restarts(status, &mut summary);
            }
        }
        run(pod, &mut summary);
    }
    if cell::is_deleting(pod) {
        if reason == "NodeLost" {
            "Unknown".clone_into(&mut summary.status);
        } else if !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.status);
        }
    }
    summary
}

/// An init container that goes on running beside the others.
fn is_sidecar(pod: &Value, status: &Value) -> bool {
    array(pod, "/spec/initContainers").iter().any(|spec| {
        text(spec, "/name") == text(status, "/name") && text(spec, "/restartPolicy") == "Always"
    })
}

/// Looks at the init containers; true if the pod is still in one of them.
fn initialize(pod: &Value, summary: &mut Summary) -> bool {
    let specs = array(pod, "/spec/initContainers");
    summary.total += specs
        .iter()
        .filter(|spec| text(spec, "/restartPolicy") == "Always")
        .count();
    for (index, status) in array(pod, "/status/initContainerStatuses")
        .iter()
        .enumerate()
    {
        add_restarts(status, summary);
        if let Some(terminated) = status.pointer("/state/terminated") {
            if integer(terminated, "/exitCode") == 0 {
                continue;
            }
            summary.status = format!("Init:{}", ended(terminated));
            return true;
        }
        if is_sidecar(pod, status) && cell::flag(status, "/started") {
            summary.ready += usize::from(cell::flag(status, "/ready"));
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        summary.status = if waiting.is_empty() || waiting == "PodInitializing" {
            format!("Init:{index}/{}", specs.len())
        } else {
            format!("Init:{waiting}")
        };
        return true;
    }
    false
}

fn run(pod: &Value, summary: &mut Summary) {
    let mut running = false;
    for status in array(pod, "/status/containerStatuses").iter().rev() {
        add_restarts(status, summary);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            waiting.clone_into(&mut summary.status);
        } else if let Some(terminated) = status.pointer("/state/terminated") {
            summary.status = ended(terminated);
        } else if cell::flag(status, "/ready") && status.pointer("/state/running").is_some() {
            running = true;
            summary.ready += 1;
        }
    }
    // One container is done and another runs: the pod as a whole is not completed.
    if summary.status == "Completed" && running {
        summary.status = if is_true(pod, "Ready") {
            "Running"
        } else {
            "NotReady"
        }
        .to_owned();
    }
}

fn ended(terminated: &Value) -> String {
    let reason = text(terminated, "/reason");
    match integer(terminated, "/signal") {
        _ if !reason.is_empty() => reason.to_owned(),
        0 => format!("ExitCode:{}", integer(terminated, "/exitCode")),
        signal => format!("Signal:{signal}"),
    }
}

fn add_restarts(status: &Value, summary: &mut Summary) {
    summary.restarts += integer(status, "/restartCount");
    let finished = text(status, "/lastState/terminated/finishedAt")
        .parse::<Timestamp>()
        .ok();
    summary.last_restart = summary.last_restart.max(finished);
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    array(pod, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == kind)
}

fn is_true(pod: &Value, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

fn readiness_gates(pod: &Value) -> String {
    let gates = array(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return cell::NONE.to_owned();
    }
    let met = gates
        .iter()
        .filter(|gate| is_true(pod, text(gate, "/conditionType")))
        .count();
    format!("{met}/{}", gates.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pod: &Value) -> (String, String, String) {
        let cells = cells(pod, "2030-01-01T00:10:00Z".parse().unwrap());
        let text = |index: usize| cells[index].as_str().unwrap().to_owned();
        (text(1), text(2), text(3))
    }

    fn expect(pod: &Value, ready: &str, status: &str, restarts: &str) {
        assert_eq!(
            shown(pod),
            (ready.to_owned(), status.to_owned(), restarts.to_owned())
        );
    }

    #[test]
    fn a_fresh_pod_is_pending() {
        expect(
            &json!({"spec": {"containers": [{"name": "a"}]}, "status": {"phase": "Pending"}}),
            "0/1",
            "Pending",
            "0",
        );
    }

    #[test]
    fn init_containers_come_first() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}, {"name": "j"}]},
            "status": {"phase": "Pending",
                "initContainerStatuses": [
                    {"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                    {"name": "j", "state": {"waiting": {"reason": "PodInitializing"}}}],
                "containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "PodInitializing"}}}]},
        });
        expect(&pod, "0/1", "Init:1/2", "0");
        pod["status"]["initContainerStatuses"][1]["state"] =
            json!({"terminated": {"exitCode": 3, "reason": "Error"}});
        expect(&pod, "0/1", "Init:Error", "0");
        pod["status"]["initContainerStatuses"][1]["state"] =
            json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        expect(&pod, "0/1", "PodInitializing", "0");
    }

    #[test]
    fn restarts_say_when_the_last_one_was() {
        let pod = json!({
            "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 2, "state": {"running": {}},
                 "lastState": {"terminated": {"finishedAt": "2030-01-01T00:09:00Z"}}},
                {"name": "b", "ready": false, "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        });
        expect(&pod, "1/2", "CrashLoopBackOff", "3 (60s ago)");
    }

    /// After a restart of the sandbox every instance showed two restarts: one was its init container's.
    #[test]
    fn restarts_of_init_containers_count_only_while_they_run() {
        let mut pod = json!({
            "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]},
            "status": {"phase": "Running",
                "initContainerStatuses": [{"name": "i", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]},
        });
        expect(&pod, "0/1", "Init:CrashLoopBackOff", "4");
        pod["status"]["initContainerStatuses"][0]["state"] =
            json!({"terminated": {"exitCode": 0, "reason": "Completed"}});
        pod["status"]["containerStatuses"] =
            json!([{"name": "a", "ready": true, "restartCount": 1, "state": {"running": {}}}]);
        expect(&pod, "1/1", "Running", "1");
    }

    #[test]
    fn ends_and_deletions_have_their_own_words() {
        let mut pod = json!({
            "metadata": {},
            "spec": {"containers": [{"name": "a"}]},
            "status": {"phase": "Failed", "containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 137, "signal": 9}}}]},
        });
        expect(&pod, "0/1", "Signal:9", "0");
        pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        expect(&pod, "0/1", "Signal:9", "0");
        pod["status"]["phase"] = json!("Running");
        expect(&pod, "0/1", "Terminating", "0");
    }
}
