//! Instances: which exist, which are missing, which have to go.
//!
//! An instance is a claim (its data) and a pod of the same name. A claim without a pod is a pod to be made; a claim that carries the
//! removal mark is an instance that leaves: first its pod, then, with the pod gone, the claim.

use std::collections::BTreeMap;

use geodb_api::names;
use geodb_api::quantity::StorageSize;
use geodb_api::v2::InstanceRole;

use crate::manifests;
use crate::report::Trouble;
use crate::step::{DeleteReason, Event, EventReason, PatchReason, Step, Target};
use crate::world::{Claim, Pod, Seen, World};

/// One instance as it is now. At least one of the two is there.
#[derive(Clone, Debug)]
pub struct Instance<'a> {
    pub serial: u32,
    pub claim: Option<&'a Claim>,
    pub pod: Option<&'a Pod>,
    pub state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Primary,
    Replica,
    /// Marked for removal.
    Leaving,
    /// Its claim is gone or going, by somebody else's hand.
    VolumeLost,
}

/// All instances of a database by name.
#[derive(Debug)]
pub struct Fleet<'a> {
    pub instances: BTreeMap<u32, Instance<'a>>,
    /// Largest serial that is or ever was in use, by us or by an earlier Database of this name.
    pub latest_serial: u32,
}

impl<'a> Fleet<'a> {
    pub fn of(world: &'a World) -> Self {
        let serial = |name: &str| names::serial(world.name(), name);
        let claims: BTreeMap<u32, &Claim> = world
            .own_claims()
            .filter_map(|claim| Some((serial(&claim.name)?, claim)))
            .collect();
        let pods: BTreeMap<u32, &Pod> = world
            .own_pods()
            .filter_map(|pod| Some((serial(&pod.name)?, pod)))
            .collect();
        let foreign = world
            .claims
            .iter()
            .map(|claim| &claim.name)
            .chain(world.pods.iter().map(|pod| &pod.name));
        let recorded = world
            .database
            .status
            .as_ref()
            .map_or(0, |status| status.latest_instance);
        let latest_serial = foreign
            .filter_map(|name| serial(name))
            .fold(recorded, u32::max);
        let serials = claims.keys().chain(pods.keys()).copied();
        let instances = serials
            .map(|serial| {
                let (claim, pod) = (claims.get(&serial).copied(), pods.get(&serial).copied());
                (
                    serial,
                    Instance {
                        serial,
                        claim,
                        pod,
                        state: state(world, serial, claim),
                    },
                )
            })
            .collect();
        Self {
            instances,
            latest_serial,
        }
    }

    /// Instances that count towards what was asked for.
    pub fn members(&self) -> impl Iterator<Item = &Instance<'a>> {
        self.instances
            .values()
            .filter(|instance| matches!(instance.state, State::Primary | State::Replica))
    }

    pub fn ready_members(&self) -> usize {
        self.members().filter(|instance| instance.ready()).count()
    }
}

impl Instance<'_> {
    pub fn ready(&self) -> bool {
        self.pod.is_some_and(|pod| pod.ready && !pod.terminating)
    }

    pub fn role(&self) -> InstanceRole {
        match self.state {
            State::Primary => InstanceRole::Primary,
            State::Replica => InstanceRole::Replica,
            State::Leaving | State::VolumeLost => InstanceRole::Leaving,
        }
    }

    /// What keeps it from being ready, for people.
    pub fn waiting_for(&self) -> Option<String> {
        match self.pod {
            _ if self.ready() => None,
            None => Some("its pod to be made".to_owned()),
            Some(pod) if pod.terminating => Some("its pod to stop".to_owned()),
            Some(pod) => Some(
                pod.waiting_for
                    .clone()
                    .unwrap_or_else(|| "its pod to be ready".to_owned()),
            ),
        }
    }
}

/// The primary keeps its place whatever happens to its claim: until there is a failover, its pod is the only way to the data.
fn state(world: &World, serial: u32, claim: Option<&Claim>) -> State {
    let is_primary = world.primary() == Some(names::instance(world.name(), serial).as_str());
    match claim {
        _ if is_primary => State::Primary,
        Some(claim) if claim.removal_requested => State::Leaving,
        Some(claim) if !claim.terminating => State::Replica,
        Some(_) | None => State::VolumeLost,
    }
}

pub fn decide(world: &World, fleet: &Fleet<'_>) -> (Vec<Step>, Vec<Event>) {
    let mut steps = Vec::new();
    let mut events = Vec::new();
    // Before the register is there an agent would have nobody to ask; before the Secrets a pod could not start.
    let register_known = matches!(world.register, Seen::Present(_));
    let credentials_known = names::Credential::ALL
        .iter()
        .all(|each| matches!(world.credentials.get(each), Some(Seen::Present(()))));
    if register_known && credentials_known {
        add(world, fleet, &mut steps, &mut events);
        repair(world, fleet, &mut steps, &mut events);
    }
    grow(world, fleet, &mut steps);
    label(world, fleet, &mut steps);
    mark_surplus(world, fleet, &mut steps, &mut events);
    remove(world, fleet, &mut steps);
    (steps, events)
}

/// Missing instances get new serials; names are never used twice.
fn add(world: &World, fleet: &Fleet<'_>, steps: &mut Vec<Step>, events: &mut Vec<Event>) {
    let wanted = world.database.spec.replicas as usize;
    let missing = wanted.saturating_sub(fleet.members().count());
    let first = fleet.latest_serial.saturating_add(1);
    for serial in (first..).take(missing) {
        let name = names::instance(world.name(), serial);
        steps.push(Step::Create(manifests::claim(
            world,
            serial,
            &volume_size(world, fleet),
        )));
        steps.push(Step::Create(manifests::pod(world, serial)));
        events.push(Event::normal(
            EventReason::InstanceCreated,
            format!("made volume and pod of instance {name}"),
        ));
    }
}

/// Members whose pod is gone get it back on the same volume; a pod that ended makes room first.
fn repair(world: &World, fleet: &Fleet<'_>, steps: &mut Vec<Step>, events: &mut Vec<Event>) {
    for instance in fleet.members() {
        match (instance.claim, instance.pod) {
            (Some(_), None) => {
                let name = names::instance(world.name(), instance.serial);
                steps.push(Step::Create(manifests::pod(world, instance.serial)));
                events.push(Event::normal(
                    EventReason::InstanceRestarted,
                    format!("made the pod of instance {name} again, on its volume"),
                ));
            }
            (_, Some(pod)) if pod.ended && !pod.terminating => {
                steps.push(delete_pod(pod, DeleteReason::Ended));
            }
            _ => {}
        }
    }
}

/// Volumes follow the size asked for upwards, each on its own, whatever state its instance is in.
fn grow(world: &World, fleet: &Fleet<'_>, steps: &mut Vec<Step>) {
    let wanted = &world.database.spec.storage.size;
    for instance in fleet.members() {
        let Some(claim) = instance.claim.filter(|claim| !claim.terminating) else {
            continue;
        };
        if claim
            .requested
            .as_ref()
            .is_some_and(|requested| requested < wanted)
        {
            steps.push(Step::Patch {
                target: Target::claim(claim),
                why: PatchReason::Grow,
                patch: manifests::claim_size(wanted),
            });
        }
    }
}

/// The role label follows the register; the services `-ro` and `-r` follow the label.
fn label(world: &World, fleet: &Fleet<'_>, steps: &mut Vec<Step>) {
    if world.primary().is_none() {
        return;
    }
    for instance in fleet.instances.values() {
        let Some(pod) = instance.pod.filter(|pod| !pod.terminating) else {
            continue;
        };
        let role = if instance.state == State::Primary {
            manifests::ROLE_PRIMARY
        } else {
            manifests::ROLE_REPLICA
        };
        if pod.role.as_deref() != Some(role) {
            steps.push(Step::Patch {
                target: Target::pod(pod),
                why: PatchReason::Role,
                patch: manifests::pod_role(role),
            });
        }
    }
}

/// Too many instances: mark those that have least to lose. Without a published primary nobody goes, for it could be any of them.
fn mark_surplus(world: &World, fleet: &Fleet<'_>, steps: &mut Vec<Step>, events: &mut Vec<Event>) {
    let wanted = world.database.spec.replicas as usize;
    let surplus = fleet.members().count().saturating_sub(wanted);
    if surplus == 0 || world.primary().is_none() {
        return;
    }
    let mut replicas: Vec<&Instance<'_>> = fleet
        .members()
        .filter(|instance| instance.state == State::Replica)
        .collect();
    replicas.sort_by_key(|instance| (instance.ready(), std::cmp::Reverse(instance.serial)));
    for instance in replicas.into_iter().take(surplus) {
        let Some(claim) = instance.claim else {
            continue;
        };
        let name = &claim.name;
        steps.push(Step::Patch {
            target: Target::claim(claim),
            why: PatchReason::Removal,
            patch: manifests::claim_removal(),
        });
        events.push(Event::normal(
            EventReason::InstanceLeaving,
            format!("instance {name} is leaving: {wanted} are asked for"),
        ));
    }
}

/// Instances that leave: the pod first; the claim only when no pod is left that could use it, and its serial is on record.
fn remove(world: &World, fleet: &Fleet<'_>, steps: &mut Vec<Step>) {
    let recorded = world
        .database
        .status
        .as_ref()
        .map_or(0, |status| status.latest_instance);
    for instance in fleet.instances.values() {
        let why = match instance.state {
            State::Primary | State::Replica => continue,
            State::Leaving => DeleteReason::Surplus,
            State::VolumeLost => DeleteReason::VolumeGone,
        };
        match (instance.pod, instance.claim) {
            (Some(pod), _) if !pod.terminating => steps.push(delete_pod(pod, why)),
            (None, Some(claim))
                if instance.state == State::Leaving
                    && !claim.terminating
                    && recorded >= instance.serial =>
            {
                steps.push(delete_claim(claim, why));
            }
            _ => {}
        }
    }
}

pub fn delete_pod(pod: &Pod, why: DeleteReason) -> Step {
    Step::Delete {
        target: Target::pod(pod),
        why,
    }
}

pub fn delete_claim(claim: &Claim, why: DeleteReason) -> Step {
    Step::Delete {
        target: Target::claim(claim),
        why,
    }
}

/// A new replica's volume is never smaller than its siblings': the data has to fit.
fn volume_size(world: &World, fleet: &Fleet<'_>) -> StorageSize {
    let siblings = fleet
        .members()
        .filter_map(|instance| instance.claim?.requested.clone());
    let largest = siblings.max();
    let asked = world.database.spec.storage.size.clone();
    largest.into_iter().fold(asked, StorageSize::max)
}

pub fn troubles(world: &World, fleet: &Fleet<'_>) -> Vec<Trouble> {
    let mut troubles = Vec::new();
    let asked = &world.database.spec.storage.size;
    let largest = fleet
        .members()
        .filter_map(|instance| instance.claim?.requested.clone())
        .max();
    if let Some(largest) = largest.filter(|largest| largest > asked) {
        troubles.push(Trouble::StorageCannotShrink {
            asked: asked.clone(),
            largest,
        });
    }
    if let Some(primary) = world.primary() {
        let serial = names::serial(world.name(), primary);
        let claim = serial
            .and_then(|serial| fleet.instances.get(&serial))
            .and_then(|instance| instance.claim);
        if claim.is_none_or(|claim| claim.terminating) {
            troubles.push(Trouble::PrimaryVolumeLost {
                primary: primary.to_owned(),
            });
        }
    }
    troubles
}
