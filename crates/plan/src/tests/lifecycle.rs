//! The life of a database, undisturbed and with the operator killed after every step.

use geodb_api::v2::{ConditionType, OnDelete, Phase};

use super::simulated::{Cluster, Crash};
use super::{harbours, now, running};
use crate::conditions::holds;
use crate::step::{DeleteReason, EventReason, Step, TargetKind};
use crate::world::Seen;

fn phase(cluster: &Cluster) -> Option<Phase> {
    cluster
        .world
        .database
        .status
        .as_ref()
        .and_then(|status| status.phase)
}

/// Runs `scenario` undisturbed, then once for each step of each pass with the operator dying right there. `check` sees every end state.
fn with_a_crash_after_every_step(
    scenario: impl Fn(&mut Cluster, Crash) -> Vec<usize>,
    start: impl Fn() -> Cluster,
    check: impl Fn(&Cluster),
) {
    let mut reference = start();
    let counts = scenario(&mut reference, Crash::Never);
    check(&reference);
    let mut sites = 0;
    for (pass, count) in counts.iter().enumerate() {
        for steps in 0..=*count {
            let mut cluster = start();
            scenario(&mut cluster, Crash::After { pass, steps });
            check(&cluster);
            sites += 1;
        }
    }
    assert!(
        sites > 5,
        "a scenario with {sites} crash sites tests nothing"
    );
}

#[test]
fn creation_ends_in_three_ready_instances_wherever_the_operator_dies() {
    with_a_crash_after_every_step(
        |cluster, crash| cluster.settle(crash),
        || {
            let mut world = harbours(3);
            world.database.metadata.finalizers = None;
            Cluster::new(world)
        },
        |cluster| {
            assert_eq!(phase(cluster), Some(Phase::Ready));
            assert_eq!(
                cluster.claim_names(),
                ["harbours-1", "harbours-2", "harbours-3"]
            );
            assert_eq!(cluster.pod_names(), cluster.claim_names());
            let roles: Vec<_> = cluster
                .world
                .pods
                .iter()
                .map(|pod| pod.role.as_deref())
                .collect();
            assert_eq!(roles, [Some("primary"), Some("replica"), Some("replica")]);
        },
    );
}

#[test]
fn scaling_down_spares_the_primary_wherever_the_operator_dies() {
    with_a_crash_after_every_step(
        |cluster, crash| cluster.settle(crash),
        || {
            let mut world = running(4);
            world.database.spec.replicas = 2;
            // The primary has the largest serial: the one that goes first otherwise.
            if let Seen::Present(register) = &mut world.register {
                register.primary = Some("harbours-4".to_owned());
            }
            Cluster::new(world)
        },
        |cluster| {
            assert_eq!(phase(cluster), Some(Phase::Ready));
            assert_eq!(cluster.claim_names(), ["harbours-1", "harbours-4"]);
            assert_eq!(cluster.pod_names(), cluster.claim_names());
        },
    );
}

#[test]
fn instance_numbers_are_never_used_twice() {
    let mut cluster = Cluster::new(harbours(3));
    for replicas in [3, 4, 2, 5, 1, 3] {
        cluster.scale(replicas);
        cluster.settle(Crash::Never);
        assert_eq!(phase(&cluster), Some(Phase::Ready), "{replicas}");
        assert_eq!(cluster.claim_names().len(), replicas as usize);
    }
    // 3, then 4; down to 2; 5 to 7; down to 1; 8 and 9.
    assert_eq!(cluster.claims_made.len(), 9);
}

#[test]
fn a_lost_pod_comes_back_on_its_volume() {
    for serial in [1, 2] {
        let mut cluster = Cluster::new(running(3));
        cluster.lose_pod(serial);
        let decision = crate::decide(&cluster.world, now());
        assert!(
            decision
                .events
                .iter()
                .any(|event| event.reason == EventReason::InstanceRestarted)
        );
        assert_eq!(decision.status.phase, Some(Phase::Degraded));
        cluster.settle(Crash::Never);
        assert_eq!(phase(&cluster), Some(Phase::Ready));
        assert!(cluster.claims_made.is_empty(), "no new volume is needed");
    }
}

#[test]
fn deletion_keeps_the_volumes_unless_told_to_discard_them_wherever_the_operator_dies() {
    for (policy, kept) in [
        (OnDelete::Snapshot, 3),
        (OnDelete::Retain, 3),
        (OnDelete::Discard, 0),
    ] {
        with_a_crash_after_every_step(
            |cluster, crash| cluster.settle(crash),
            || {
                let mut cluster = Cluster::new(running(3));
                cluster.world.database.spec.on_delete = policy;
                cluster.delete();
                cluster
            },
            |cluster| {
                assert!(!cluster.world.has_finalizer());
                assert!(cluster.world.pods.is_empty());
                assert_eq!(cluster.world.claims.len(), kept, "{policy:?}");
            },
        );
    }
}

#[test]
fn a_database_of_the_same_name_does_not_touch_the_volumes_an_earlier_one_left() {
    let mut world = harbours(2);
    for mut claim in running(3).claims {
        claim.database_uid = "somebody-else".to_owned();
        world.claims.push(claim);
    }
    let mut cluster = Cluster::new(world);
    cluster.settle(Crash::Never);
    assert_eq!(
        cluster.claim_names(),
        [
            "harbours-1",
            "harbours-2",
            "harbours-3",
            "harbours-4",
            "harbours-5"
        ]
    );
    assert_eq!(cluster.pod_names(), ["harbours-4", "harbours-5"]);
}

#[test]
fn at_rest_nothing_is_left_to_do() {
    let mut cluster = Cluster::new(running(3));
    cluster.settle(Crash::Never);
    let decision = crate::decide(&cluster.world, now() + jiff::SignedDuration::from_hours(10));
    let changing = |step: &&Step| !matches!(step, Step::Apply(_));
    assert_eq!(decision.steps.iter().filter(changing).count(), 0);
    assert_eq!(Some(decision.status), cluster.world.database.status);
    assert_eq!(decision.events, []);
}

#[test]
fn the_claim_of_a_leaving_instance_waits_for_its_number_to_be_on_record() {
    let mut world = running(3);
    world.claims[2].removal_requested = true;
    world.pods.remove(2);
    world.database.spec.replicas = 2;
    let deletes = |world: &crate::World| {
        let steps = crate::decide(world, now()).steps;
        steps
            .into_iter()
            .filter(|step| matches!(step, Step::Delete { target, .. } if target.kind == TargetKind::Claim))
            .count()
    };
    assert_eq!(deletes(&world), 1);
    if let Some(status) = &mut world.database.status {
        status.latest_instance = 2;
    }
    assert_eq!(deletes(&world), 0);
}

#[test]
fn nobody_is_scaled_away_while_the_primary_is_unknown() {
    let mut world = running(4);
    world.database.spec.replicas = 1;
    world.register = Seen::Unknown;
    let decision = crate::decide(&world, now());
    assert!(
        !decision
            .steps
            .iter()
            .any(|step| matches!(step, Step::Delete { .. }))
    );
    assert!(
        !decision
            .events
            .iter()
            .any(|event| event.reason == EventReason::InstanceLeaving)
    );
}

#[test]
fn a_pod_that_ended_makes_room_first() {
    let mut world = running(3);
    world.pods[1].ended = true;
    world.pods[1].ready = false;
    let deletes: Vec<DeleteReason> = crate::decide(&world, now())
        .steps
        .into_iter()
        .filter_map(|step| {
            if let Step::Delete { why, .. } = step {
                Some(why)
            } else {
                None
            }
        })
        .collect();
    assert_eq!(deletes, [DeleteReason::Ended]);
}

#[test]
fn ready_means_every_instance() {
    let mut world = running(3);
    world.pods[2].ready = false;
    world.pods[2].waiting_for = Some("streaming from harbours-1".to_owned());
    let status = crate::decide(&world, now()).status;
    assert_eq!(status.ready.as_deref(), Some("2/3"));
    assert!(!holds(&status.conditions, ConditionType::Ready));
    assert!(holds(&status.conditions, ConditionType::Degraded));
    assert_eq!(
        status.instances[2].waiting_for.as_deref(),
        Some("streaming from harbours-1")
    );
}

/// A database that was still being made called itself degraded as soon as its primary was known.
#[test]
fn a_database_that_was_never_complete_is_being_created() {
    let mut world = running(3);
    world.database.status = None;
    for pod in &mut world.pods {
        pod.ready = false;
    }
    let status = crate::decide(&world, now()).status;
    assert_eq!(status.phase, Some(Phase::Creating));
    assert!(!holds(&status.conditions, ConditionType::Degraded));
    world.database.status = Some(status);
    world.pods[0].ready = true;
    assert_eq!(
        crate::decide(&world, now()).status.phase,
        Some(Phase::Creating)
    );
}

#[test]
fn scaling_is_not_called_degraded_while_it_lasts() {
    let mut world = running(3);
    world.database.spec.replicas = 4;
    let status = crate::decide(&world, now()).status;
    assert_eq!(status.phase, Some(Phase::Scaling));
    world.database.status = Some(status);
    world.claims.push(super::claim(4));
    let mut pod = super::pod(4, "replica");
    pod.ready = false;
    world.pods.push(pod);
    let status = crate::decide(&world, now()).status;
    assert_eq!(status.phase, Some(Phase::Scaling));
    assert!(!holds(&status.conditions, ConditionType::Degraded));
}
