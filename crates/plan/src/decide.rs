//! One pass: independent parts, each of which says what it wants done. None waits for another unless its header says so.

use std::collections::BTreeMap;

use geodb_api::names::{Credential, DATABASE_NAME_BYTES_MAX, Endpoint};
use jiff::Timestamp;

use crate::instances::{self, Fleet};
use crate::manifests;
use crate::report::{self, Trouble};
use crate::step::{Decision, Step};
use crate::world::{Seen, World};

pub fn decide(world: &World, now: Timestamp) -> Decision {
    if world.being_deleted() {
        return crate::deletion::decide(world, now);
    }
    let fleet = Fleet::of(world);
    if world.name().len() > DATABASE_NAME_BYTES_MAX {
        return report::decision(
            world,
            &fleet,
            Vec::new(),
            Vec::new(),
            &[Trouble::NameTooLong],
            now,
        );
    }
    // Nothing may exist for a Database whose deletion we would not notice.
    if !world.has_finalizer() {
        return report::decision(
            world,
            &fleet,
            vec![Step::AddFinalizer],
            Vec::new(),
            &[],
            now,
        );
    }
    let mut steps = Vec::new();
    steps.extend(register(world));
    steps.extend(credentials(&world.credentials));
    steps.extend(manifests::identity(world).into_iter().map(Step::Apply));
    steps.extend(
        Endpoint::ALL
            .iter()
            .map(|endpoint| Step::Apply(manifests::service(world, *endpoint))),
    );
    steps.extend(
        world
            .authority_pem
            .iter()
            .map(|pem| Step::Apply(manifests::connection(world, pem))),
    );
    let (fleet_steps, events) = instances::decide(world, &fleet);
    steps.extend(fleet_steps);
    let troubles = instances::troubles(world, &fleet);
    report::decision(world, &fleet, steps, events, &troubles, now)
}

/// The register is made once. Bootstrapping is allowed only while nothing of this database can exist yet.
fn register(world: &World) -> Option<Step> {
    let bootstrap_allowed = !world.was_initialised() && world.own_claims().next().is_none();
    match world.register {
        Seen::Absent => Some(Step::Create(manifests::register(world, bootstrap_allowed))),
        Seen::Unknown | Seen::Present(_) => None,
    }
}

/// The authority first: what it signs must be signed by the one that is stored, not by one that lost a race.
fn credentials(seen: &BTreeMap<Credential, Seen<()>>) -> Vec<Step> {
    let authority_stored = matches!(seen.get(&Credential::Authority), Some(Seen::Present(())));
    let may_be_made = |credential: &Credential| match credential {
        Credential::Authority | Credential::App => true,
        Credential::Server | Credential::Replication => authority_stored,
    };
    let absent = |credential: &Credential| matches!(seen.get(credential), Some(Seen::Absent));
    Credential::ALL
        .into_iter()
        .filter(absent)
        .filter(may_be_made)
        .map(Step::MakeCredential)
        .collect()
}
