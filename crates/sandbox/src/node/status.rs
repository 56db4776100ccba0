//! From what the node knows to the status a pod shows, and back again when a node takes over a pod that already had one. Pure.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::environment::Place;
use super::machine::PodMachine;
use super::model::{
    ContainerModel, ContainerPlan, ContainerState, EndReason, Ended, Phase, PodPlan, Run, Stage,
    Waiting, WaitingReason,
};

/// Exit code of a container whose end nobody saw: what a kubelet shows after its machine was restarted.
const EXIT_UNSEEN: i32 = 255;
/// Scheme of our container ids.
const ID_SCHEME: &str = "bubblewrap://";

/// The status for the API. `shown` is what the API shows now: parts that are not the node's are kept, and times of conditions stay where nothing changed.
pub fn build(
    machine: &PodMachine,
    pod: &Pod,
    place: Option<Place>,
    image_id: &dyn Fn(&str) -> Option<String>,
    now: Timestamp,
) -> PodStatus {
    let shown = pod.status.clone().unwrap_or_default();
    let phase = machine.phase();
    let containers = statuses(Stage::Main, &machine.plan.main, &machine.main, image_id);
    let init = statuses(Stage::Init, &machine.plan.init, &machine.init, image_id);
    let conditions = conditions(machine, phase, pod, &shown, now);
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        conditions: Some(conditions),
        host_ip: place
            .map(|place| place.host_ip.to_string())
            .or(shown.host_ip.clone()),
        host_ips: place
            .map(|place| {
                vec![HostIP {
                    ip: place.host_ip.to_string(),
                }]
            })
            .or(shown.host_ips.clone()),
        pod_ip: place
            .map(|place| place.pod_ip.to_string())
            .or(shown.pod_ip.clone()),
        pod_ips: place
            .map(|place| {
                vec![PodIP {
                    ip: place.pod_ip.to_string(),
                }]
            })
            .or(shown.pod_ips.clone()),
        start_time: shown.start_time.clone().or(Some(Time(whole_second(now)))),
        container_statuses: Some(containers),
        init_container_statuses: (!init.is_empty()).then_some(init),
        observed_generation: pod.metadata.generation,
        ..shown
    }
}

/// The API keeps whole seconds; comparing with what it gives back needs the same.
fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

fn statuses(
    stage: Stage,
    plans: &[ContainerPlan],
    models: &[ContainerModel],
    image_id: &dyn Fn(&str) -> Option<String>,
) -> Vec<ContainerStatus> {
    plans
        .iter()
        .zip(models)
        .map(|(plan, model)| container_status(stage, plan, model, image_id(&plan.image)))
        .collect()
}

fn container_status(
    stage: Stage,
    plan: &ContainerPlan,
    model: &ContainerModel,
    image_id: Option<String>,
) -> ContainerStatus {
    let (state, id, ready, started) = match &model.state {
        ContainerState::Waiting(waiting) => (
            waiting_state(waiting.reason, waiting.message.clone()),
            None,
            false,
            false,
        ),
        ContainerState::Starting if stage == Stage::Init => (
            waiting_state(WaitingReason::PodInitializing, None),
            None,
            false,
            false,
        ),
        ContainerState::Starting => (
            waiting_state(WaitingReason::ContainerCreating, None),
            None,
            false,
            false,
        ),
        ContainerState::Running(run) => (
            running_state(run),
            Some(run.id.clone()),
            run.ready && stage == Stage::Main,
            run.started,
        ),
        // An init container is ready when it has done its work, any other only while it runs.
        ContainerState::Ended(ended) => (
            ended_state(ended),
            Some(ended.id.clone()),
            stage == Stage::Init && ended.exit_code == 0,
            false,
        ),
    };
    let id = id
        .or_else(|| model.last.as_ref().map(|last| last.id.clone()))
        .filter(|id| !id.is_empty());
    ContainerStatus {
        name: plan.name.clone(),
        image: plan.image.clone(),
        image_id: id.as_ref().and(image_id).unwrap_or_default(),
        container_id: id.map(|id| format!("{ID_SCHEME}{id}")),
        ready,
        started: Some(started),
        restart_count: i32::try_from(model.restarts).unwrap_or(i32::MAX),
        state: Some(state),
        last_state: model.last.as_ref().map(ended_state),
        ..ContainerStatus::default()
    }
}

fn waiting_state(reason: WaitingReason, message: Option<String>) -> ApiState {
    ApiState {
        waiting: Some(ContainerStateWaiting {
            reason: Some(reason.as_str().to_owned()),
            message,
        }),
        ..ApiState::default()
    }
}

fn running_state(run: &Run) -> ApiState {
    ApiState {
        running: Some(ContainerStateRunning {
            started_at: Some(Time(whole_second(run.started_at))),
        }),
        ..ApiState::default()
    }
}

fn ended_state(ended: &Ended) -> ApiState {
    let terminated = ContainerStateTerminated {
        container_id: (!ended.id.is_empty()).then(|| format!("{ID_SCHEME}{}", ended.id)),
        exit_code: ended.exit_code,
        finished_at: Some(Time(whole_second(ended.finished_at))),
        message: ended.message.clone(),
        reason: Some(ended.reason.as_str().to_owned()),
        signal: None,
        started_at: ended.started_at.map(|at| Time(whole_second(at))),
    };
    ApiState {
        terminated: Some(terminated),
        ..ApiState::default()
    }
}

/// A condition the node owns: whether it holds, and if not why.
struct Verdict {
    kind: &'static str,
    holds: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

fn conditions(
    machine: &PodMachine,
    phase: Phase,
    pod: &Pod,
    shown: &PodStatus,
    now: Timestamp,
) -> Vec<PodCondition> {
    let known = shown.conditions.clone().unwrap_or_default();
    let verdicts = verdicts(machine, phase, pod, &known);
    let mut conditions: Vec<PodCondition> = Vec::with_capacity(known.len() + verdicts.len());
    for verdict in &verdicts {
        conditions.push(condition(
            verdict,
            known
                .iter()
                .find(|condition| condition.type_ == verdict.kind),
            pod,
            now,
        ));
    }
    // What others say about the pod stays.
    conditions.extend(known.into_iter().filter(|condition| {
        verdicts
            .iter()
            .all(|verdict| verdict.kind != condition.type_)
    }));
    conditions
}

fn condition(
    verdict: &Verdict,
    known: Option<&PodCondition>,
    pod: &Pod,
    now: Timestamp,
) -> PodCondition {
    let status = if verdict.holds { "True" } else { "False" };
    let transition = known
        .filter(|known| known.status == status)
        .and_then(|known| known.last_transition_time.clone());
    PodCondition {
        type_: verdict.kind.to_owned(),
        status: status.to_owned(),
        reason: verdict.reason.map(str::to_owned),
        message: verdict.message.clone(),
        last_transition_time: transition.or(Some(Time(whole_second(now)))),
        last_probe_time: None,
        observed_generation: pod.metadata.generation,
    }
}

fn verdicts(machine: &PodMachine, phase: Phase, pod: &Pod, known: &[PodCondition]) -> Vec<Verdict> {
    let scheduled = Verdict {
        kind: "PodScheduled",
        holds: true,
        reason: None,
        message: None,
    };
    let containers = containers_verdict(machine, phase);
    let ready = ready_verdict(&containers, failing_gate(pod, known));
    vec![
        scheduled,
        initialized_verdict(machine, phase),
        containers,
        ready,
    ]
}

fn initialized_verdict(machine: &PodMachine, phase: Phase) -> Verdict {
    let incomplete = names(&machine.plan.init, &machine.init, &|model| {
        !model.succeeded()
    });
    let holds = incomplete.is_empty() || phase == Phase::Succeeded;
    let message = format!(
        "containers with incomplete status: [{}]",
        incomplete.join(" ")
    );
    Verdict {
        kind: "Initialized",
        holds,
        reason: (!holds).then_some("ContainersNotInitialized"),
        message: (!holds).then_some(message),
    }
}

fn containers_verdict(machine: &PodMachine, phase: Phase) -> Verdict {
    let unready = names(&machine.plan.main, &machine.main, &|model| {
        model.running().is_none_or(|run| !run.ready)
    });
    let (reason, message) = match phase {
        Phase::Succeeded => (Some("PodCompleted"), None),
        Phase::Failed => (Some("PodFailed"), None),
        Phase::Pending | Phase::Running if unready.is_empty() => (None, None),
        Phase::Pending | Phase::Running => (
            Some("ContainersNotReady"),
            Some(format!(
                "containers with unready status: [{}]",
                unready.join(" ")
            )),
        ),
    };
    Verdict {
        kind: "ContainersReady",
        holds: !phase.is_terminal() && unready.is_empty(),
        reason,
        message,
    }
}

fn ready_verdict(containers: &Verdict, gate: Option<String>) -> Verdict {
    match gate {
        Some(gate) if containers.holds => Verdict {
            kind: "Ready",
            holds: false,
            reason: Some("ReadinessGatesNotReady"),
            message: Some(format!(
                "corresponding condition of pod readiness gate {gate:?} does not exist or is not true."
            )),
        },
        _ => Verdict {
            kind: "Ready",
            holds: containers.holds,
            reason: containers.reason,
            message: containers.message.clone(),
        },
    }
}

/// Names of the containers that are as `bad` says.
fn names(
    plans: &[ContainerPlan],
    models: &[ContainerModel],
    bad: &dyn Fn(&ContainerModel) -> bool,
) -> Vec<String> {
    plans
        .iter()
        .zip(models)
        .filter(|(_, model)| bad(model))
        .map(|(plan, _)| plan.name.clone())
        .collect()
}

fn failing_gate(pod: &Pod, known: &[PodCondition]) -> Option<String> {
    let gates = pod.spec.as_ref()?.readiness_gates.as_ref()?;
    let holds = |kind: &str| {
        known
            .iter()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    gates
        .iter()
        .map(|gate| gate.condition_type.clone())
        .find(|kind| !holds(kind))
}

/// The machine of a pod that already has a status: an earlier node ran it, and whatever ran then has ended unseen.
pub fn recover(plan: PodPlan, shown: &PodStatus, now: Timestamp) -> PodMachine {
    let mut machine = PodMachine::new(plan, now);
    let find = |list: &Option<Vec<ContainerStatus>>, name: &str| {
        list.iter()
            .flatten()
            .find(|status| status.name == name)
            .cloned()
    };
    for (plan, model) in machine.plan.main.iter().zip(&mut machine.main) {
        if let Some(status) = find(&shown.container_statuses, &plan.name) {
            recover_container(model, &status, now);
        }
    }
    for (plan, model) in machine.plan.init.iter().zip(&mut machine.init) {
        if let Some(status) = find(&shown.init_container_statuses, &plan.name) {
            recover_container(model, &status, now);
        }
    }
    if !machine.phase().is_terminal() {
        // What init containers made may be gone with the machine's memory: they run again, as after a restart of a real node.
        machine.init.iter_mut().for_each(run_again);
    }
    machine
}

fn recover_container(model: &mut ContainerModel, status: &ContainerStatus, now: Timestamp) {
    model.restarts = u32::try_from(status.restart_count).unwrap_or(0);
    model.last = status
        .last_state
        .as_ref()
        .and_then(|state| state.terminated.as_ref())
        .map(|terminated| ended_from(terminated, now));
    let Some(state) = &status.state else { return };
    if let Some(terminated) = &state.terminated {
        model.state = ContainerState::Ended(ended_from(terminated, now));
    } else if let Some(running) = &state.running {
        let id = status
            .container_id
            .as_deref()
            .and_then(|id| id.strip_prefix(ID_SCHEME))
            .unwrap_or_default()
            .to_owned();
        let started_at = running.started_at.as_ref().map(|time| time.0);
        model.state = ContainerState::Ended(Ended {
            id,
            exit_code: EXIT_UNSEEN,
            reason: EndReason::Unknown,
            message: None,
            started_at,
            finished_at: now,
        });
    } else if let Some(last) = model.last.clone() {
        // It waited for its restart.
        model.state = ContainerState::Ended(last);
    }
}

fn run_again(model: &mut ContainerModel) {
    if let ContainerState::Ended(ended) = &model.state {
        model.last = Some(ended.clone());
        model.state = ContainerState::Waiting(Waiting {
            reason: WaitingReason::PodInitializing,
            message: None,
            retry_at: None,
            restarting: true,
        });
    }
}

fn ended_from(terminated: &ContainerStateTerminated, now: Timestamp) -> Ended {
    let reason = match terminated.reason.as_deref() {
        Some("Completed") => EndReason::Completed,
        Some("StartError") => EndReason::StartError,
        Some("Unknown") => EndReason::Unknown,
        _ => EndReason::Error,
    };
    Ended {
        id: terminated
            .container_id
            .as_deref()
            .and_then(|id| id.strip_prefix(ID_SCHEME))
            .unwrap_or_default()
            .to_owned(),
        exit_code: terminated.exit_code,
        reason,
        message: terminated.message.clone(),
        started_at: terminated.started_at.as_ref().map(|time| time.0),
        finished_at: terminated.finished_at.as_ref().map_or(now, |time| time.0),
    }
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
