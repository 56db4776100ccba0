//! Tests of `machine` and `step`: stories of one pod, told in events and actions.

use super::*;
use crate::node::limits::{BACKOFF_FORGOTTEN_AFTER_SECONDS, BACKOFF_LONGEST_SECONDS};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

fn container(name: &str) -> ContainerPlan {
    ContainerPlan {
        name: name.to_owned(),
        image: "i".to_owned(),
        startup: false,
        readiness: false,
        liveness: false,
    }
}

fn plan(init: usize, main: usize, restart: RestartPolicy) -> PodPlan {
    let named = |prefix: &str, count: usize| {
        (0..count)
            .map(|number| container(&format!("{prefix}{number}")))
            .collect()
    };
    PodPlan {
        init: named("init", init),
        main: named("main", main),
        restart,
        grace_seconds: 30,
    }
}

const fn main_slot(index: usize) -> Slot {
    Slot {
        stage: Stage::Main,
        index,
    }
}

const fn init_slot(index: usize) -> Slot {
    Slot {
        stage: Stage::Init,
        index,
    }
}

/// A machine whose volumes are ready.
fn mounted(plan: PodPlan) -> PodMachine {
    let mut machine = PodMachine::new(plan, at(0));
    assert_eq!(machine.step(at(0)).actions, [Action::PrepareVolumes]);
    machine.handle(Event::VolumesReady, at(0));
    machine
}

fn start(machine: &mut PodMachine, slot: Slot, id: &str, second: i64) {
    machine.handle(
        Event::Started {
            slot,
            id: id.to_owned(),
        },
        at(second),
    );
}

fn exit(machine: &mut PodMachine, slot: Slot, id: &str, exit_code: i32, second: i64) {
    let reason = if exit_code == 0 {
        EndReason::Completed
    } else {
        EndReason::Error
    };
    machine.handle(
        Event::Exited {
            slot,
            id: id.to_owned(),
            exit_code,
            reason,
            message: None,
        },
        at(second),
    );
}

/// A pod with one running container.
fn running(plan: PodPlan) -> PodMachine {
    let mut machine = mounted(plan);
    machine.step(at(0));
    start(&mut machine, main_slot(0), "a", 0);
    machine.step(at(0));
    machine
}

#[test]
fn init_containers_run_one_after_the_other_then_all_others_at_once() {
    let mut machine = mounted(plan(2, 2, RestartPolicy::Always));
    for index in 0..2 {
        assert_eq!(machine.phase(), Phase::Pending);
        assert_eq!(
            machine.step(at(1)).actions,
            [Action::Start {
                slot: init_slot(index),
                attempt: 0
            }]
        );
        assert_eq!(
            machine.step(at(1)),
            Step::default(),
            "an action is given once"
        );
        start(&mut machine, init_slot(index), "i", 1);
        assert_eq!(machine.step(at(1)).actions, []);
        exit(&mut machine, init_slot(index), "i", 0, 2);
    }
    assert!(machine.initialized());
    assert_eq!(
        machine.step(at(2)).actions,
        [
            Action::Start {
                slot: main_slot(0),
                attempt: 0
            },
            Action::Start {
                slot: main_slot(1),
                attempt: 0
            }
        ]
    );
    start(&mut machine, main_slot(0), "a", 3);
    assert_eq!(machine.phase(), Phase::Pending, "one has not started yet");
    start(&mut machine, main_slot(1), "b", 3);
    assert_eq!(machine.phase(), Phase::Running);
}

#[test]
fn a_restart_is_immediate_once_and_then_doubles_up_to_five_minutes() {
    let mut machine = running(plan(0, 1, RestartPolicy::Always));
    let mut now = 0;
    for (attempt, delay) in [
        (1, 0),
        (2, 10),
        (3, 20),
        (4, 40),
        (5, 80),
        (6, 160),
        (7, 300),
        (8, BACKOFF_LONGEST_SECONDS),
    ] {
        exit(&mut machine, main_slot(0), "a", 1, now);
        let step = machine.step(at(now));
        if delay > 0 {
            assert_eq!(
                step,
                Step {
                    actions: vec![Action::ReportBackoff { slot: main_slot(0) }],
                    wake_at: Some(at(now + delay))
                }
            );
            assert_eq!(
                machine.main[0].restarts,
                attempt - 1,
                "a restart counts when it happens"
            );
            assert_eq!(machine.phase(), Phase::Running);
            now += delay;
            assert_eq!(
                machine.step(at(now)).actions,
                [Action::Start {
                    slot: main_slot(0),
                    attempt
                }]
            );
        } else {
            assert_eq!(
                step.actions,
                [Action::Start {
                    slot: main_slot(0),
                    attempt
                }]
            );
        }
        start(&mut machine, main_slot(0), "a", now);
    }
    exit(
        &mut machine,
        main_slot(0),
        "a",
        1,
        now + BACKOFF_FORGOTTEN_AFTER_SECONDS,
    );
    assert_eq!(
        machine
            .step(at(now + BACKOFF_FORGOTTEN_AFTER_SECONDS))
            .actions,
        [Action::Start {
            slot: main_slot(0),
            attempt: 9
        }]
    );
}

#[test]
fn the_restart_policy_decides_what_an_exit_means() {
    let table = [
        (RestartPolicy::Always, 0, Phase::Running),
        (RestartPolicy::Always, 1, Phase::Running),
        (RestartPolicy::OnFailure, 0, Phase::Succeeded),
        (RestartPolicy::OnFailure, 1, Phase::Running),
        (RestartPolicy::Never, 0, Phase::Succeeded),
        (RestartPolicy::Never, 1, Phase::Failed),
    ];
    for (policy, code, phase) in table {
        let mut machine = running(plan(0, 1, policy));
        exit(&mut machine, main_slot(0), "a", code, 5);
        let restarted = !machine.step(at(5)).actions.is_empty();
        assert_eq!(
            (machine.phase(), restarted),
            (phase, phase == Phase::Running),
            "{policy:?} {code}"
        );
    }
}

#[test]
fn a_failed_init_container_is_tried_again_unless_the_pod_never_restarts() {
    for (policy, phase) in [
        (RestartPolicy::OnFailure, Phase::Pending),
        (RestartPolicy::Never, Phase::Failed),
    ] {
        let mut machine = mounted(plan(1, 1, policy));
        machine.step(at(0));
        start(&mut machine, init_slot(0), "i", 0);
        exit(&mut machine, init_slot(0), "i", 9, 1);
        let actions = machine.step(at(1)).actions;
        assert_eq!(machine.phase(), phase);
        assert_eq!(actions.is_empty(), policy == RestartPolicy::Never);
    }
}

#[test]
fn missing_volumes_are_tried_again_and_reported_only_after_a_while() {
    let mut machine = PodMachine::new(plan(0, 1, RestartPolicy::Always), at(0));
    machine.step(at(0));
    machine.handle(
        Event::VolumesFailed {
            message: "no secret".to_owned(),
        },
        at(0),
    );
    let step = machine.step(at(0));
    assert_eq!(step.actions, []);
    assert!(
        step.wake_at
            .is_some_and(|wake| wake > at(0) && wake < at(1))
    );
    assert_eq!(machine.step(at(1)).actions, [Action::PrepareVolumes]);
    machine.handle(
        Event::VolumesFailed {
            message: "no secret".to_owned(),
        },
        at(1),
    );
    assert_eq!(
        machine.step(at(9)).actions,
        [
            Action::ReportMount {
                message: "no secret".to_owned()
            },
            Action::PrepareVolumes
        ]
    );
}

#[test]
fn an_image_that_is_not_mapped_backs_off_and_other_failures_are_tried_soon() {
    let mut machine = mounted(plan(0, 1, RestartPolicy::Always));
    machine.step(at(0));
    let failed = |reason| Event::StartFailed {
        slot: main_slot(0),
        reason,
        message: "m".to_owned(),
    };
    let reason = |machine: &PodMachine| match &machine.main[0].state {
        ContainerState::Waiting(waiting) => waiting.reason,
        other => panic!("waiting, not {other:?}"),
    };
    machine.handle(failed(WaitingReason::ErrImagePull), at(0));
    assert_eq!(
        (reason(&machine), machine.step(at(0)).wake_at),
        (WaitingReason::ErrImagePull, Some(at(10)))
    );
    assert_eq!(
        machine.step(at(10)).actions,
        [Action::Start {
            slot: main_slot(0),
            attempt: 0
        }]
    );
    machine.handle(failed(WaitingReason::ErrImagePull), at(10));
    assert_eq!(
        (reason(&machine), machine.step(at(10)).wake_at),
        (WaitingReason::ImagePullBackOff, Some(at(30)))
    );
    machine.step(at(30));
    machine.handle(failed(WaitingReason::CreateContainerConfigError), at(30));
    assert!(
        machine
            .step(at(30))
            .wake_at
            .is_some_and(|wake| wake <= at(32))
    );
    assert_eq!(machine.phase(), Phase::Pending);
}

#[test]
fn readiness_waits_for_startup_and_liveness_restarts() {
    let mut with_probes = plan(0, 1, RestartPolicy::Always);
    with_probes.main[0] = ContainerPlan {
        startup: true,
        readiness: true,
        liveness: true,
        ..container("main0")
    };
    let mut machine = mounted(with_probes);
    machine.step(at(0));
    start(&mut machine, main_slot(0), "a", 0);
    let probed = |kind, healthy| Event::Probed {
        slot: main_slot(0),
        id: "a".to_owned(),
        kind,
        healthy,
    };
    assert_eq!(
        machine.step(at(0)).actions,
        [Action::Probe {
            slot: main_slot(0),
            kind: ProbeKind::Startup
        }]
    );
    machine.handle(probed(ProbeKind::Startup, true), at(1));
    let serving = [
        Action::Probe {
            slot: main_slot(0),
            kind: ProbeKind::Readiness,
        },
        Action::Probe {
            slot: main_slot(0),
            kind: ProbeKind::Liveness,
        },
    ];
    assert_eq!(machine.step(at(1)).actions, serving);
    let ready = |machine: &PodMachine| machine.main[0].running().is_some_and(|run| run.ready);
    assert!(!ready(&machine));
    machine.handle(probed(ProbeKind::Readiness, true), at(2));
    assert!(ready(&machine));
    machine.handle(
        Event::Probed {
            slot: main_slot(0),
            id: "older".to_owned(),
            kind: ProbeKind::Liveness,
            healthy: false,
        },
        at(3),
    );
    assert_eq!(machine.step(at(3)).actions, [], "news of an earlier run");
    machine.handle(probed(ProbeKind::Liveness, false), at(3));
    assert!(!ready(&machine));
    assert_eq!(
        machine.step(at(3)),
        Step {
            actions: vec![Action::Terminate {
                slot: main_slot(0),
                reason: StopReason::Unhealthy(ProbeKind::Liveness)
            }],
            wake_at: Some(at(33))
        }
    );
    assert_eq!(
        machine.step(at(33)).actions,
        [Action::Kill { slot: main_slot(0) }]
    );
    exit(&mut machine, main_slot(0), "a", 137, 34);
    assert_eq!(
        machine.step(at(34)).actions,
        [Action::Start {
            slot: main_slot(0),
            attempt: 1
        }]
    );
}

#[test]
fn a_deleted_pod_is_asked_then_killed_then_finished() {
    let mut machine = running(plan(0, 1, RestartPolicy::Always));
    machine.handle(
        Event::End {
            cause: Cause::Deleted,
            grace_seconds: 5,
        },
        at(10),
    );
    assert_eq!(
        machine.step(at(10)),
        Step {
            actions: vec![Action::Terminate {
                slot: main_slot(0),
                reason: StopReason::PodEnds
            }],
            wake_at: Some(at(15))
        }
    );
    machine.handle(
        Event::End {
            cause: Cause::Deleted,
            grace_seconds: 1,
        },
        at(11),
    );
    assert_eq!(
        machine.step(at(11)).wake_at,
        Some(at(12)),
        "a shorter grace counts"
    );
    assert_eq!(
        machine.step(at(12)).actions,
        [Action::Kill { slot: main_slot(0) }]
    );
    exit(&mut machine, main_slot(0), "a", 137, 12);
    assert_eq!(
        machine.step(at(12)).actions,
        [Action::Finish {
            cause: Cause::Deleted
        }]
    );
    assert_eq!((machine.phase(), machine.is_done()), (Phase::Failed, true));
    assert_eq!(machine.step(at(13)), Step::default());
}

#[test]
fn a_pod_that_ends_while_a_container_starts_waits_for_it_and_starts_no_other() {
    let mut machine = mounted(plan(0, 1, RestartPolicy::Always));
    machine.step(at(0));
    machine.handle(
        Event::End {
            cause: Cause::Shutdown,
            grace_seconds: 5,
        },
        at(0),
    );
    assert_eq!(machine.step(at(0)).actions, []);
    start(&mut machine, main_slot(0), "a", 1);
    assert_eq!(
        machine.step(at(1)).actions,
        [Action::Terminate {
            slot: main_slot(0),
            reason: StopReason::PodEnds
        }]
    );
    exit(&mut machine, main_slot(0), "a", 0, 2);
    assert_eq!(
        machine.step(at(2)).actions,
        [Action::Finish {
            cause: Cause::Shutdown
        }]
    );
}

#[test]
fn a_pod_that_ends_before_its_volumes_are_there_waits_for_the_answer() {
    let mut machine = PodMachine::new(plan(0, 1, RestartPolicy::Always), at(0));
    machine.step(at(0));
    machine.handle(
        Event::End {
            cause: Cause::Deleted,
            grace_seconds: 5,
        },
        at(0),
    );
    assert_eq!(machine.step(at(0)).actions, []);
    machine.handle(Event::VolumesReady, at(1));
    assert_eq!(
        machine.step(at(1)).actions,
        [Action::Finish {
            cause: Cause::Deleted
        }]
    );
}

#[test]
fn a_new_image_restarts_the_container() {
    let mut machine = running(plan(0, 1, RestartPolicy::Always));
    machine.handle(Event::Redefined { slot: main_slot(0) }, at(1));
    assert_eq!(
        machine.step(at(1)).actions,
        [Action::Terminate {
            slot: main_slot(0),
            reason: StopReason::Redefined
        }]
    );
}

#[test]
fn a_grace_beyond_all_times_is_taken_as_very_long() {
    let mut machine = running(PodPlan {
        grace_seconds: 30,
        ..plan(0, 1, RestartPolicy::Always)
    });
    machine.handle(
        Event::End {
            cause: Cause::Deleted,
            grace_seconds: i64::MAX,
        },
        at(10),
    );
    assert!(
        machine
            .step(at(10))
            .wake_at
            .is_some_and(|wake| wake > at(1_000_000_000))
    );
    let pod: k8s_openapi::api::core::v1::Pod = serde_json::from_value(
        serde_json::json!({"spec": {"terminationGracePeriodSeconds": i64::MAX, "containers": []}}),
    )
    .expect("a pod");
    assert!(PodPlan::of(&pod).grace_seconds < i64::MAX);
}
