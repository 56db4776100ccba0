//! What the status says: phase, conditions, instances, and the Events that tell of a turn.

use geodb_api::labels;
use geodb_api::names::Endpoint;
use geodb_api::quantity::StorageSize;
use geodb_api::v2::{
    ConditionReason, ConditionType, DatabaseStatus, Endpoints, InstanceStatus, Phase,
};
use jiff::Timestamp;

use crate::conditions::{self, Verdict};
use crate::instances::{Fleet, Instance, State};
use crate::step::{Decision, Event, EventReason, Step};
use crate::world::World;

/// What only a person can put right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    NameTooLong,
    StorageCannotShrink {
        asked: StorageSize,
        largest: StorageSize,
    },
    PrimaryVolumeLost {
        primary: String,
    },
    ForeignObject {
        description: String,
    },
}

impl Trouble {
    pub fn reason(&self) -> ConditionReason {
        match self {
            Self::NameTooLong => ConditionReason::NameTooLong,
            Self::StorageCannotShrink { .. } => ConditionReason::StorageCannotShrink,
            Self::PrimaryVolumeLost { .. } => ConditionReason::PrimaryVolumeLost,
            Self::ForeignObject { .. } => ConditionReason::ForeignObject,
        }
    }

    /// What is wrong, and the way out.
    pub fn message(&self) -> String {
        match self {
            Self::NameTooLong => format!(
                "the name is longer than {} bytes, and names derived from it would not be valid: make a Database with a shorter name",
                geodb_api::names::DATABASE_NAME_BYTES_MAX
            ),
            Self::StorageCannotShrink { asked, largest } => {
                format!(
                    "volumes cannot shrink: {asked} is asked for, {largest} is in use; set spec.storage.size to {largest} or more"
                )
            }
            Self::PrimaryVolumeLost { primary } => format!(
                "the volume of the primary {primary} is deleted or being deleted, and this version does not fail over: \
                 do not delete its pod; copy the data out with pg_dump, or bring the claim {primary} back"
            ),
            Self::ForeignObject { description } => {
                format!(
                    "{description} exists and is not ours: delete or rename it, or use another name for the Database"
                )
            }
        }
    }
}

pub fn decision(
    world: &World,
    fleet: &Fleet<'_>,
    steps: Vec<Step>,
    mut events: Vec<Event>,
    troubles: &[Trouble],
    now: Timestamp,
) -> Decision {
    let verdicts = verdicts(world, fleet, troubles);
    let phase = phase(world, fleet, troubles);
    let status = status(world, fleet, phase, verdicts, &steps, now);
    events.extend(turns(world, &status, troubles));
    Decision {
        steps,
        status,
        events,
    }
}

pub fn deleting(
    world: &World,
    fleet: &Fleet<'_>,
    steps: Vec<Step>,
    events: Vec<Event>,
    now: Timestamp,
) -> Decision {
    let message = format!("{} pods are still to stop", world.own_pods().count());
    let verdicts = vec![
        Verdict::new(
            ConditionType::Ready,
            false,
            ConditionReason::Deleting,
            "the Database is being deleted",
        ),
        Verdict::new(
            ConditionType::Progressing,
            true,
            ConditionReason::Deleting,
            message,
        ),
    ];
    let status = status(world, fleet, Phase::Deleting, verdicts, &steps, now);
    Decision {
        steps,
        status,
        events,
    }
}

/// What came up while the steps ran: the status as decided, with NeedsHuman on top.
pub fn explain(status: &mut DatabaseStatus, trouble: &Trouble, now: Timestamp) {
    let verdict = Verdict::new(
        ConditionType::NeedsHuman,
        true,
        trouble.reason(),
        trouble.message(),
    );
    let said = conditions::merge(
        &status.conditions,
        vec![verdict],
        status.observed_generation,
        now,
    );
    status
        .conditions
        .retain(|condition| condition.kind != ConditionType::NeedsHuman);
    status.conditions.extend(said);
    status.phase = Some(Phase::NeedsHuman);
}

fn primary<'a, 'w>(fleet: &'a Fleet<'w>) -> Option<&'a Instance<'w>> {
    fleet
        .members()
        .find(|instance| instance.state == State::Primary)
}

fn primary_ready(fleet: &Fleet<'_>) -> bool {
    primary(fleet).is_some_and(Instance::ready)
}

fn leaving(fleet: &Fleet<'_>) -> usize {
    fleet.instances.len() - fleet.members().count()
}

fn complete(world: &World, fleet: &Fleet<'_>) -> bool {
    let wanted = world.database.spec.replicas as usize;
    primary_ready(fleet) && fleet.members().count() == wanted && fleet.ready_members() == wanted
}

fn phase(world: &World, fleet: &Fleet<'_>, troubles: &[Trouble]) -> Phase {
    let before = previous(world).and_then(|status| status.phase);
    let was_ready = !matches!(before, None | Some(Phase::Creating));
    if !troubles.is_empty() {
        Phase::NeedsHuman
    } else if complete(world, fleet) && leaving(fleet) == 0 {
        Phase::Ready
    } else if !was_ready || world.primary().is_none() {
        Phase::Creating
    } else if !primary_ready(fleet) || !is_resizing(world, fleet) {
        Phase::Degraded
    } else {
        Phase::Scaling
    }
}

/// The number of instances was changed and is not reached yet; what is missing then is new, not lost.
fn is_resizing(world: &World, fleet: &Fleet<'_>) -> bool {
    let asked = world.database.spec.replicas;
    let asked_before = previous(world)
        .and_then(|status| status.ready.as_deref())
        .and_then(|ready| ready.split_once('/'))
        .map(|(_, asked)| asked.to_owned());
    let changed = asked_before.is_some_and(|before| before != asked.to_string());
    let was_scaling = previous(world).is_some_and(|status| status.phase == Some(Phase::Scaling));
    changed || was_scaling || leaving(fleet) > 0
}

fn verdicts(world: &World, fleet: &Fleet<'_>, troubles: &[Trouble]) -> Vec<Verdict> {
    vec![
        ready(world, fleet),
        progressing(world, fleet),
        degraded(world, fleet, troubles),
        needs_human(troubles),
    ]
}

/// "2 of 3 instances are ready".
fn tally(world: &World, fleet: &Fleet<'_>) -> String {
    let (ready, wanted) = (fleet.ready_members(), world.database.spec.replicas);
    format!("{ready} of {wanted} instances are ready")
}

fn ready(world: &World, fleet: &Fleet<'_>) -> Verdict {
    let works = || format!("accepts writes; {}", tally(world, fleet));
    let (reason, message) = match (world.primary(), primary_ready(fleet)) {
        (None, _) => (
            ConditionReason::AwaitingFirstPrimary,
            "no primary has published itself yet".to_owned(),
        ),
        (Some(name), false) => {
            let message = format!("the primary {name} is not ready{}", waiting(primary(fleet)));
            (ConditionReason::PrimaryNotReady, message)
        }
        (Some(_), true) if complete(world, fleet) => (ConditionReason::AllInstancesReady, works()),
        (Some(_), true) => (ConditionReason::ReplicasNotReady, works()),
    };
    Verdict::new(
        ConditionType::Ready,
        complete(world, fleet),
        reason,
        message,
    )
}

fn progressing(world: &World, fleet: &Fleet<'_>) -> Verdict {
    let wanted = world.database.spec.replicas as usize;
    let (ready, members, leaving) = (
        fleet.ready_members(),
        fleet.members().count(),
        leaving(fleet),
    );
    let (holds, reason, message) = if members < wanted {
        let message = format!("{members} of {wanted} instances exist");
        (true, ConditionReason::AddingInstances, message)
    } else if members > wanted || leaving > 0 {
        let message = format!("{} instances are leaving", leaving + (members - wanted));
        (true, ConditionReason::RemovingInstances, message)
    } else if world.primary().is_none() {
        let message = "the first instance makes the database".to_owned();
        (true, ConditionReason::AwaitingFirstPrimary, message)
    } else if ready < wanted {
        let message = format!("{} instances are not ready yet", wanted - ready);
        (true, ConditionReason::ReplicasNotReady, message)
    } else {
        (
            false,
            ConditionReason::AsAsked,
            "everything asked for is there".to_owned(),
        )
    };
    Verdict::new(ConditionType::Progressing, holds, reason, message)
}

fn degraded(world: &World, fleet: &Fleet<'_>, troubles: &[Trouble]) -> Verdict {
    let (holds, reason, message) = match phase(world, fleet, troubles) {
        Phase::Degraded if primary_ready(fleet) => {
            (true, ConditionReason::ReplicasNotReady, tally(world, fleet))
        }
        Phase::Degraded => (
            true,
            ConditionReason::PrimaryNotReady,
            "writes are not possible now".to_owned(),
        ),
        _ => (
            false,
            ConditionReason::AsAsked,
            "nothing that was there is away".to_owned(),
        ),
    };
    Verdict::new(ConditionType::Degraded, holds, reason, message)
}

fn needs_human(troubles: &[Trouble]) -> Verdict {
    let (holds, reason, message) = match troubles.first() {
        Some(trouble) => (true, trouble.reason(), trouble.message()),
        None => (
            false,
            ConditionReason::AsAsked,
            "nothing needs a person".to_owned(),
        ),
    };
    Verdict::new(ConditionType::NeedsHuman, holds, reason, message)
}

fn waiting(instance: Option<&Instance<'_>>) -> String {
    let waiting_for = instance.and_then(Instance::waiting_for);
    waiting_for.map_or_else(String::new, |what| format!("; it waits for {what}"))
}

fn previous(world: &World) -> Option<&DatabaseStatus> {
    world.database.status.as_ref()
}

fn status(
    world: &World,
    fleet: &Fleet<'_>,
    phase: Phase,
    verdicts: Vec<Verdict>,
    steps: &[Step],
    now: Timestamp,
) -> DatabaseStatus {
    let before = previous(world).cloned().unwrap_or_default();
    let register = world.register.present().cloned().unwrap_or_default();
    let service = |endpoint: Endpoint| {
        format!(
            "{}.{}.svc",
            endpoint.service(world.name()),
            world.namespace()
        )
    };
    DatabaseStatus {
        observed_generation: world.generation(),
        phase: Some(phase),
        ready: Some(format!(
            "{}/{}",
            fleet.ready_members(),
            world.database.spec.replicas
        )),
        primary: register.primary.or_else(|| before.primary.clone()),
        version: register.version.or_else(|| before.version.clone()),
        epoch: register.epoch.max(before.epoch),
        latest_instance: fleet.latest_serial.saturating_add(new_instances(steps)),
        replicas: u32::try_from(fleet.members().count()).unwrap_or(u32::MAX),
        selector: Some(format!("{}={}", labels::DATABASE, world.name())),
        endpoints: Some(Endpoints {
            read_write: service(Endpoint::ReadWrite),
            read_only: service(Endpoint::ReadOnly),
            read: service(Endpoint::Read),
        }),
        instances: fleet
            .instances
            .values()
            .map(|instance| instance_status(world, instance))
            .collect(),
        conditions: conditions::merge(&before.conditions, verdicts, world.generation(), now),
    }
}

/// Serials given out by these very steps count as used, whether or not the steps succeed.
fn new_instances(steps: &[Step]) -> u32 {
    let is_claim = |step: &&Step| matches!(step, Step::Create(manifest) if manifest["kind"] == "PersistentVolumeClaim");
    u32::try_from(steps.iter().filter(is_claim).count()).unwrap_or(u32::MAX)
}

fn instance_status(world: &World, instance: &Instance<'_>) -> InstanceStatus {
    InstanceStatus {
        name: geodb_api::names::instance(world.name(), instance.serial),
        role: instance.role(),
        ready: instance.ready(),
        waiting_for: instance.waiting_for(),
    }
}

/// Events are told when something turns, never again while it stays so.
fn turns(world: &World, status: &DatabaseStatus, troubles: &[Trouble]) -> Vec<Event> {
    let before = previous(world).cloned().unwrap_or_default();
    let mut events = Vec::new();
    if status.primary != before.primary
        && let Some(primary) = &status.primary
    {
        events.push(Event::normal(
            EventReason::PrimaryPublished,
            format!("{primary} is the primary, epoch {}", status.epoch),
        ));
    }
    if status.phase != before.phase {
        let ready = status.ready.as_deref().unwrap_or_default();
        match status.phase {
            Some(Phase::Ready) => events.push(Event::normal(
                EventReason::Ready,
                format!("{ready} instances are ready"),
            )),
            Some(Phase::Degraded) => events.push(Event::warning(
                EventReason::Degraded,
                format!("{ready} instances are ready"),
            )),
            _ => {}
        }
    }
    if let Some(trouble) = troubles.first()
        && !conditions::holds(&before.conditions, ConditionType::NeedsHuman)
    {
        events.push(Event::warning(EventReason::NeedsHuman, trouble.message()));
    }
    events
}
