//! Deletion, in order: the pods stop, the volumes go or stay as the policy says, and only then the finalizer goes.

use geodb_api::v2::OnDelete;
use jiff::Timestamp;

use crate::instances::{self, Fleet};
use crate::report;
use crate::step::{Decision, DeleteReason, Event, EventReason, Step};
use crate::world::World;

pub fn decide(world: &World, now: Timestamp) -> Decision {
    let fleet = Fleet::of(world);
    if !world.has_finalizer() {
        // Ours is gone already; somebody else's holds it. Nothing of ours is left to do.
        return report::deleting(world, &fleet, Vec::new(), Vec::new(), now);
    }
    let pods: Vec<_> = world.own_pods().collect();
    if !pods.is_empty() {
        let stopping = pods.into_iter().filter(|pod| !pod.terminating);
        let steps = stopping
            .map(|pod| instances::delete_pod(pod, DeleteReason::DatabaseDeleted))
            .collect();
        return report::deleting(world, &fleet, steps, Vec::new(), now);
    }
    let (steps, events) = volumes(world);
    report::deleting(world, &fleet, steps, events, now)
}

/// No pod is left. Claims marked for removal were given up before; the policy speaks for the rest.
fn volumes(world: &World) -> (Vec<Step>, Vec<Event>) {
    let policy = world.database.spec.on_delete;
    let discarded: Vec<_> = world
        .own_claims()
        .filter(|claim| policy == OnDelete::Discard || claim.removal_requested)
        .collect();
    if !discarded.is_empty() {
        let live = discarded.into_iter().filter(|claim| !claim.terminating);
        return (
            live.map(|claim| instances::delete_claim(claim, DeleteReason::DatabaseDeleted))
                .collect(),
            Vec::new(),
        );
    }
    let kept: Vec<&str> = world
        .own_claims()
        .map(|claim| claim.name.as_str())
        .collect();
    let event = match policy {
        _ if kept.is_empty() => Event::normal(
            EventReason::VolumesDeleted,
            "all volumes are gone, as onDelete: Discard asks".to_owned(),
        ),
        OnDelete::Snapshot => Event::warning(
            EventReason::VolumesKept,
            format!(
                "kept the volumes {}: onDelete: Snapshot needs a final backup, and this version makes none yet; delete them by hand when you need them no more",
                kept.join(", ")
            ),
        ),
        OnDelete::Retain | OnDelete::Discard => Event::normal(
            EventReason::VolumesKept,
            format!(
                "kept the volumes {}, as onDelete: Retain asks",
                kept.join(", ")
            ),
        ),
    };
    (vec![Step::RemoveFinalizer], vec![event])
}
