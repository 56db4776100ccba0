//! What only a person can put right: said once, with the way out, and gone when its cause is.

use geodb_api::names::Credential;
use geodb_api::v2::{ConditionReason, ConditionType, Phase};

use super::simulated::{Cluster, Crash};
use super::{harbours, now, running};
use crate::report::Trouble;
use crate::step::{EventReason, Step};
use crate::world::{Register, Seen, World};

fn needs_human(world: &World) -> Option<ConditionReason> {
    let status = crate::decide(world, now()).status;
    let condition = status
        .conditions
        .into_iter()
        .find(|condition| condition.kind == ConditionType::NeedsHuman)?;
    (condition.status == geodb_api::v2::ConditionStatus::True).then_some(condition.reason)
}

#[test]
fn a_smaller_volume_is_refused_and_the_rest_goes_on() {
    let mut world = running(3);
    world.database.spec.storage.size = "1Gi".parse().expect("a size");
    world.pods.remove(1);
    assert_eq!(
        needs_human(&world),
        Some(ConditionReason::StorageCannotShrink)
    );
    let decision = crate::decide(&world, now());
    let makes_pod =
        |step: &Step| matches!(step, Step::Create(manifest) if manifest["kind"] == "Pod");
    assert!(
        decision.steps.iter().any(makes_pod),
        "a lost pod comes back all the same"
    );
    assert!(
        decision
            .events
            .iter()
            .any(|event| event.reason == EventReason::NeedsHuman
                && event.note.contains("2Gi or more"))
    );
    world.database.spec.storage.size = "2Gi".parse().expect("a size");
    assert_eq!(needs_human(&world), None);
}

#[test]
fn a_new_replica_of_a_grown_database_gets_a_volume_that_fits() {
    let mut world = running(2);
    world.claims[0].requested = Some("8Gi".parse().expect("a size"));
    world.database.spec.replicas = 3;
    let decision = crate::decide(&world, now());
    let sizes: Vec<_> = decision
        .steps
        .iter()
        .filter_map(|step| {
            if let Step::Create(manifest) = step {
                manifest["spec"]["resources"]["requests"]["storage"].as_str()
            } else {
                None
            }
        })
        .collect();
    assert_eq!(sizes, ["8Gi"]);
}

#[test]
fn volumes_grow_when_asked() {
    let mut cluster = Cluster::new(running(2));
    cluster.world.database.spec.storage.size = "5Gi".parse().expect("a size");
    cluster.settle(Crash::Never);
    let sizes: Vec<String> = cluster
        .world
        .claims
        .iter()
        .flat_map(|claim| claim.requested.iter().map(ToString::to_string))
        .collect();
    assert_eq!(sizes, ["5Gi", "5Gi"]);
}

#[test]
fn the_primary_s_pod_is_never_deleted_when_its_volume_is() {
    let mut world = running(3);
    world.claims[0].terminating = true;
    assert_eq!(
        needs_human(&world),
        Some(ConditionReason::PrimaryVolumeLost)
    );
    let decision = crate::decide(&world, now());
    assert!(
        !decision
            .steps
            .iter()
            .any(|step| matches!(step, Step::Delete { .. }))
    );
    assert_eq!(decision.status.phase, Some(Phase::NeedsHuman));
}

#[test]
fn a_replica_whose_volume_is_deleted_is_replaced_under_a_new_name() {
    let mut cluster = Cluster::new(running(3));
    cluster.world.claims.remove(1);
    cluster.settle(Crash::Never);
    assert_eq!(
        cluster.claim_names(),
        ["harbours-1", "harbours-3", "harbours-4"]
    );
    assert_eq!(cluster.pod_names(), cluster.claim_names());
}

#[test]
fn a_lost_register_is_made_again_without_leave_to_make_a_new_database() {
    let mut world = running(3);
    world.register = Seen::Absent;
    let decision = crate::decide(&world, now());
    let register = decision.steps.iter().find_map(|step| match step {
        Step::Create(manifest) if manifest["kind"] == "Lease" => Some(manifest),
        _ => None,
    });
    assert!(
        register.expect("a register")["metadata"]
            .get("annotations")
            .is_none()
    );
    // Volumes without a recorded epoch: something may be in them.
    world.database.status = None;
    let register = crate::decide(&world, now())
        .steps
        .into_iter()
        .find_map(|step| match step {
            Step::Create(manifest) if manifest["kind"] == "Lease" => Some(manifest),
            _ => None,
        });
    assert!(
        register.expect("a register")["metadata"]
            .get("annotations")
            .is_none()
    );
}

#[test]
fn the_epoch_and_the_primary_in_the_status_outlive_the_register() {
    let mut world = running(3);
    world.register = Seen::Present(Register::default());
    let status = crate::decide(&world, now()).status;
    assert_eq!(
        (status.epoch, status.primary.as_deref()),
        (1, Some("harbours-1"))
    );
}

#[test]
fn a_name_that_is_too_long_is_refused_before_anything_is_made() {
    let mut world = harbours(3);
    world.database.metadata.name = Some("h".repeat(51));
    assert_eq!(needs_human(&world), Some(ConditionReason::NameTooLong));
    assert_eq!(crate::decide(&world, now()).steps, []);
}

#[test]
fn an_object_of_somebody_else_is_named_in_the_status() {
    let mut status = crate::decide(&running(3), now()).status;
    let description = "Service harbours-rw".to_owned();
    crate::explain(&mut status, &Trouble::ForeignObject { description }, now());
    let condition = status
        .conditions
        .iter()
        .find(|condition| condition.kind == ConditionType::NeedsHuman);
    let condition = condition.expect("a condition");
    assert_eq!(condition.reason, ConditionReason::ForeignObject);
    assert!(
        condition
            .message
            .starts_with("Service harbours-rw exists and is not ours")
    );
    assert_eq!(status.phase, Some(Phase::NeedsHuman));
    let again = status.clone();
    crate::explain(
        &mut status,
        &Trouble::ForeignObject {
            description: "Service harbours-rw".to_owned(),
        },
        now(),
    );
    assert_eq!(status, again, "said twice is said once");
}

#[test]
fn certificates_wait_for_the_authority_that_is_stored() {
    let mut world = harbours(3);
    let made = |world: &World| -> Vec<Credential> {
        let steps = crate::decide(world, now()).steps.into_iter();
        steps
            .filter_map(|step| {
                if let Step::MakeCredential(credential) = step {
                    Some(credential)
                } else {
                    None
                }
            })
            .collect()
    };
    assert_eq!(made(&world), [Credential::Authority, Credential::App]);
    world
        .credentials
        .insert(Credential::Authority, Seen::Present(()));
    assert_eq!(
        made(&world),
        [Credential::Server, Credential::Replication, Credential::App]
    );
    world.credentials.insert(Credential::Server, Seen::Unknown);
    assert_eq!(made(&world), [Credential::Replication, Credential::App]);
}
