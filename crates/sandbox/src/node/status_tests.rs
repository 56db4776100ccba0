//! Tests of `status`: what a pod shows, and what a node makes of it later.
#![allow(
    clippy::needless_pass_by_value,
    reason = "literals read better by value"
)]

use super::*;
use crate::node::machine::{Action, Event};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": "p", "generation": 3}, "spec": spec}))
        .expect("a pod")
}

fn two_containers(policy: &str) -> Pod {
    pod(
        json!({"restartPolicy": policy, "initContainers": [{"name": "first", "image": "x:1"}], "containers": [{"name": "main", "image": "y:1"}]}),
    )
}

fn shown(machine: &PodMachine, pod: &Pod, now: Timestamp) -> PodStatus {
    let place = Place {
        pod_ip: Ipv4Addr::new(127, 9, 2, 1),
        host_ip: Ipv4Addr::new(127, 9, 1, 1),
    };
    build(
        machine,
        pod,
        Some(place),
        &|reference| Some(format!("id-of-{reference}")),
        now,
    )
}

fn condition<'a>(status: &'a PodStatus, kind: &str) -> &'a PodCondition {
    status
        .conditions
        .as_ref()
        .expect("conditions")
        .iter()
        .find(|condition| condition.type_ == kind)
        .expect("the condition")
}

/// Runs the pod's init container to its end and its main container up to running.
fn up(pod: &Pod) -> PodMachine {
    let mut machine = PodMachine::new(PodPlan::of(pod), at(0));
    let mut events = vec![Event::VolumesReady];
    loop {
        for action in machine.step(at(1)).actions {
            if let Action::Start { slot, .. } = action {
                events.push(Event::Started {
                    slot,
                    id: format!("run-{}", slot.index),
                });
                if slot.stage == Stage::Init {
                    events.push(Event::Exited {
                        slot,
                        id: format!("run-{}", slot.index),
                        exit_code: 0,
                        reason: EndReason::Completed,
                        message: None,
                    });
                }
            }
        }
        if events.is_empty() {
            return machine;
        }
        events
            .drain(..)
            .for_each(|event| machine.handle(event, at(1)));
    }
}

#[test]
fn a_pod_that_waits_says_for_what() {
    let pod = two_containers("Always");
    let machine = PodMachine::new(PodPlan::of(&pod), at(0));
    let status = shown(&machine, &pod, at(5));
    assert_eq!(status.phase.as_deref(), Some("Pending"));
    let waiting = status.container_statuses.as_ref().expect("containers")[0]
        .state
        .as_ref()
        .and_then(|state| state.waiting.clone())
        .expect("waiting");
    assert_eq!(waiting.reason.as_deref(), Some("PodInitializing"));
    assert_eq!(
        condition(&status, "Initialized").reason.as_deref(),
        Some("ContainersNotInitialized")
    );
    assert_eq!(
        condition(&status, "Initialized").message.as_deref(),
        Some("containers with incomplete status: [first]")
    );
    assert_eq!(
        condition(&status, "Ready").message.as_deref(),
        Some("containers with unready status: [main]")
    );
    assert_eq!(condition(&status, "PodScheduled").status, "True");
    assert_eq!(status.start_time, Some(Time(at(5))));
}

#[test]
fn a_running_pod_is_ready_and_its_times_stay() {
    let pod = two_containers("Always");
    let machine = up(&pod);
    let first = shown(&machine, &pod, at(5));
    assert_eq!(
        (
            first.phase.as_deref(),
            condition(&first, "Ready").status.as_str()
        ),
        (Some("Running"), "True")
    );
    let main = &first.container_statuses.as_ref().expect("containers")[0];
    assert_eq!(
        (
            main.ready,
            main.container_id.as_deref(),
            main.image_id.as_str()
        ),
        (true, Some("bubblewrap://run-0"), "id-of-y:1")
    );
    assert!(
        first
            .init_container_statuses
            .as_ref()
            .expect("init containers")[0]
            .ready
    );
    let later = shown(
        &machine,
        &Pod {
            status: Some(first.clone()),
            ..pod
        },
        at(500),
    );
    assert_eq!(later, first, "nothing changed, so nothing is written");
}

#[test]
fn conditions_of_others_stay_and_gates_hold_readiness_back() {
    let mut pod = two_containers("Always");
    pod.spec.as_mut().expect("a spec").readiness_gates =
        Some(vec![k8s_openapi::api::core::v1::PodReadinessGate {
            condition_type: "example.com/gate".to_owned(),
        }]);
    let machine = up(&pod);
    let closed = shown(&machine, &pod, at(5));
    assert_eq!(
        (
            condition(&closed, "Ready").status.as_str(),
            condition(&closed, "Ready").reason.as_deref()
        ),
        ("False", Some("ReadinessGatesNotReady"))
    );
    assert_eq!(condition(&closed, "ContainersReady").status, "True");
    let gate = PodCondition {
        type_: "example.com/gate".to_owned(),
        status: "True".to_owned(),
        ..PodCondition::default()
    };
    pod.status = Some(PodStatus {
        conditions: Some(vec![gate.clone()]),
        ..PodStatus::default()
    });
    let open = shown(&machine, &pod, at(5));
    assert_eq!(condition(&open, "Ready").status, "True");
    assert_eq!(condition(&open, "example.com/gate"), &gate);
}

#[test]
fn after_a_restart_of_the_node_what_ran_has_ended_unseen_and_runs_again() {
    let pod = two_containers("Always");
    let status = shown(&up(&pod), &pod, at(5));
    let mut machine = recover(PodPlan::of(&pod), &status, at(100));
    assert_eq!(machine.step(at(100)).actions, [Action::PrepareVolumes]);
    machine.handle(Event::VolumesReady, at(100));
    let init = crate::node::model::Slot {
        stage: Stage::Init,
        index: 0,
    };
    assert_eq!(
        machine.step(at(100)).actions,
        [Action::Start {
            slot: init,
            attempt: 1
        }],
        "init containers run again"
    );
    machine.handle(
        Event::Started {
            slot: init,
            id: "i2".to_owned(),
        },
        at(100),
    );
    machine.handle(
        Event::Exited {
            slot: init,
            id: "i2".to_owned(),
            exit_code: 0,
            reason: EndReason::Completed,
            message: None,
        },
        at(101),
    );
    let main = crate::node::model::Slot {
        stage: Stage::Main,
        index: 0,
    };
    assert_eq!(
        machine.step(at(101)).actions,
        [Action::Start {
            slot: main,
            attempt: 1
        }]
    );
    let last = machine.main[0].last.as_ref().expect("an earlier run");
    assert_eq!(
        (last.exit_code, last.reason, last.id.as_str()),
        (EXIT_UNSEEN, EndReason::Unknown, "run-0")
    );
}

#[test]
fn after_a_restart_of_the_node_a_pod_that_never_restarts_has_failed() {
    let pod = two_containers("Never");
    let status = shown(&up(&pod), &pod, at(5));
    let mut machine = recover(PodPlan::of(&pod), &status, at(100));
    assert_eq!(machine.phase(), Phase::Failed);
    assert_eq!(machine.step(at(100)).actions, []);
    let shown = shown(
        &machine,
        &Pod {
            status: Some(status),
            ..pod
        },
        at(100),
    );
    assert_eq!(
        condition(&shown, "Ready").reason.as_deref(),
        Some("PodFailed")
    );
}
