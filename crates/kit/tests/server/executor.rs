//! Stories about steps: what they do to the server, and what they do when an answer is lost or somebody else was faster.

use std::time::Duration;

use crate::stage::{MEANT, OWNER_LABEL, OWNER_UID, Stage, Trick, desired};
use geodb_kit::{
    executor::{EffectKind, Executor, ExecutorConfig, Seen, Step, StepError, Target, Who},
    finalizer,
    hub::Scope,
    status,
};
use http::StatusCode;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::json;

#[tokio::test]
async fn apply_makes_it_changes_it_and_otherwise_writes_nothing() {
    let stage = Stage::new("apply").await;
    let maps = stage.config_maps();
    let apply = |data: &[(&str, &str)]| Step::Apply(desired(&stage.config_map("a", data)));

    let step = apply(&[("one", "1"), ("two", "2")]);
    assert_eq!(
        stage.executor.run(&step).await.expect("made").kind,
        EffectKind::Created
    );
    assert_eq!(
        stage.executor.run(&step).await.expect("there").kind,
        EffectKind::Unchanged
    );
    assert_eq!(
        stage.faults.writes().len(),
        1,
        "{:?}",
        stage.faults.writes()
    );

    let step = apply(&[("one", "1")]);
    assert_eq!(
        stage.executor.run(&step).await.expect("changed").kind,
        EffectKind::Changed
    );
    let live = maps.get("a").await.expect("there");
    assert_eq!(
        live.data,
        Some([("one".to_owned(), "1".to_owned())].into()),
        "what we no longer mean is taken back"
    );

    let theirs = Patch::Merge(
        json!({"data": {"one": "drift", "more": "theirs"}, "metadata": {"labels": {"x": "y"}}}),
    );
    maps.patch("a", &PatchParams::default(), &theirs)
        .await
        .expect("somebody else patches");
    assert_eq!(
        stage.executor.run(&step).await.expect("repaired").kind,
        EffectKind::Changed
    );
    let live = maps.get("a").await.expect("there");
    let data = live.data.expect("it has data");
    assert_eq!(
        (data["one"].as_str(), data["more"].as_str()),
        ("1", "theirs"),
        "ours is repaired, theirs is left"
    );
    assert_eq!(
        stage.executor.run(&step).await.expect("there").kind,
        EffectKind::Unchanged
    );
    assert!(live.metadata.annotations.expect("it is marked")[MEANT].starts_with("v1:"));
}

#[tokio::test]
async fn what_the_server_rewrites_is_not_written_again() {
    let stage = Stage::new("rewrite").await;
    let claim = PersistentVolumeClaim {
        metadata: stage.config_map("data", &[]).metadata,
        spec: serde_json::from_value(json!({
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}},
        }))
        .expect("a claim's spec"),
        ..PersistentVolumeClaim::default()
    };
    let step = Step::Apply(desired(&claim));
    assert_eq!(
        stage.executor.run(&step).await.expect("made").kind,
        EffectKind::Created
    );
    assert_eq!(
        stage.executor.run(&step).await.expect("there").kind,
        EffectKind::Unchanged
    );
    assert_eq!(
        stage.faults.writes().len(),
        1,
        "{:?}",
        stage.faults.writes()
    );
}

#[tokio::test]
async fn foreign_objects_are_named_and_left_alone() {
    let stage = Stage::new("foreign").await;
    let mut theirs = stage.config_map("a", &[("their", "data")]);
    theirs.metadata.labels = None;
    let before = stage
        .config_maps()
        .create(&PostParams::default(), &theirs)
        .await
        .expect("theirs is made");
    // One executor has no cache of the kind, the other has one that does not contain theirs.
    for cached in [false, true] {
        if cached {
            let selector = [(OWNER_LABEL, OWNER_UID)].into_iter().collect();
            stage.hub.watch(Scope::<ConfigMap>::all().labels(selector));
            stage.hub.synced().await;
        }
        let ours = desired(&stage.config_map("a", &[("our", "data")]));
        for step in [Step::Create(ours.clone()), Step::Apply(ours)] {
            let error = stage.executor.run(&step).await.expect_err("it is not ours");
            assert!(matches!(error, StepError::Foreign { .. }), "{error:?}");
            assert_eq!(error.who(), Who::User);
            assert!(
                error
                    .to_string()
                    .contains(&format!("ConfigMap {}/a", stage.namespace)),
                "{error}"
            );
        }
    }
    let after = stage.config_maps().get("a").await.expect("still there");
    assert_eq!(before, after);
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_is_found_again() {
    let stage = Stage::new("lost").await;
    let step = Step::Create(desired(&stage.config_map("a", &[("password", "first")])));
    stage.faults.on_next_write(Trick::LoseAnswer);
    let error = stage
        .executor
        .run(&step)
        .await
        .expect_err("the answer was lost");
    assert!(matches!(error, StepError::Unreachable { .. }), "{error:?}");
    assert_eq!(error.who(), Who::Transient);
    let again = Step::Create(desired(&stage.config_map("a", &[("password", "second")])));
    let effect = stage
        .executor
        .run(&again)
        .await
        .expect("it is there and ours");
    assert_eq!(effect.kind, EffectKind::AlreadyThere);
    let live = stage.config_maps().get("a").await.expect("there");
    assert_eq!(
        live.data.expect("data")["password"],
        "first",
        "a create never changes what is there"
    );
}

#[tokio::test]
async fn an_apply_whose_answer_was_lost_while_the_cache_lags_is_found_again() {
    let stage = Stage::new("lostapply").await;
    stage.faults.hold_watches();
    let maps = stage
        .hub
        .watch(Scope::<ConfigMap>::all().namespace(&stage.namespace));
    stage.hub.synced().await;
    let step = Step::Apply(desired(&stage.config_map("a", &[("one", "1")])));
    stage.faults.on_next_write(Trick::LoseAnswer);
    stage
        .executor
        .run(&step)
        .await
        .expect_err("the answer was lost");
    assert!(
        maps.get(&geodb_kit::Key::new(&stage.namespace, "a"))
            .is_none(),
        "the cache knows nothing of it"
    );
    let effect = stage
        .executor
        .run(&step)
        .await
        .expect("it is there, ours and as meant");
    assert_eq!(effect.kind, EffectKind::Unchanged);
    assert!(
        maps.get(&geodb_kit::Key::new(&stage.namespace, "a"))
            .is_some(),
        "and now the cache knows"
    );
}

#[tokio::test]
async fn a_delete_is_about_one_incarnation_in_one_version() {
    let stage = Stage::new("delete").await;
    let object = stage.config_map("a", &[]);
    let first = stage
        .config_maps()
        .create(&PostParams::default(), &object)
        .await
        .expect("made");
    let step = Step::delete(&first).expect("it came from the server");

    stage
        .config_maps()
        .patch(
            "a",
            &PatchParams::default(),
            &Patch::Merge(json!({"data": {"k": "v"}})),
        )
        .await
        .expect("changed");
    let error = stage
        .executor
        .run(&step)
        .await
        .expect_err("it is another version");
    assert!(matches!(error, StepError::Conflict { .. }), "{error:?}");
    assert_eq!(error.who(), Who::Conflict);

    stage
        .config_maps()
        .delete("a", &DeleteParams::default())
        .await
        .expect("deleted by somebody else");
    assert_eq!(
        stage.executor.run(&step).await.expect("gone").kind,
        EffectKind::AlreadyGone
    );

    let second = stage
        .config_maps()
        .create(&PostParams::default(), &object)
        .await
        .expect("made anew");
    let error = stage
        .executor
        .run(&step)
        .await
        .expect_err("it is another incarnation");
    assert!(matches!(error, StepError::Conflict { .. }), "{error:?}");
    let step = Step::delete(&second).expect("it came from the server");
    assert_eq!(
        stage.executor.run(&step).await.expect("deleted").kind,
        EffectKind::Deleted
    );
    assert!(
        stage
            .config_maps()
            .get_opt("a")
            .await
            .expect("answered")
            .is_none()
    );
}

#[tokio::test]
async fn a_finalizer_holds_a_deletion_until_its_duty_is_done() {
    const DUTY: &str = "kit.example/duty";
    let stage = Stage::new("finalizer").await;
    let maps = stage
        .hub
        .watch(Scope::<ConfigMap>::all().namespace(&stage.namespace));
    stage.hub.synced().await;
    let made = stage
        .config_maps()
        .create(&PostParams::default(), &stage.config_map("a", &[]))
        .await
        .expect("made");
    let key = geodb_kit::Key::of(&made);
    crate::stage::until(&maps, "the object is seen", |maps| maps.get(&key).is_some()).await;

    let live = maps.get(&key).expect("seen");
    let add = finalizer::add(live.as_ref(), DUTY).expect("it is not there yet");
    stage.executor.run(&add).await.expect("added");
    let live = maps.get(&key).expect("our own write is seen at once");
    assert!(finalizer::has(live.as_ref(), DUTY) && finalizer::add(live.as_ref(), DUTY).is_none());

    let delete = Step::delete(live.as_ref()).expect("it came from the server");
    assert_eq!(
        stage.executor.run(&delete).await.expect("asked for").kind,
        EffectKind::Deleting
    );
    let live = maps.get(&key).expect("it is still there");
    assert!(live.metadata.deletion_timestamp.is_some());
    let error = stage
        .executor
        .run(&Step::Apply(desired(&stage.config_map("a", &[]))))
        .await;
    assert!(
        matches!(error, Err(StepError::StillDeleting { .. })),
        "{error:?}"
    );

    let remove = finalizer::remove(live.as_ref(), DUTY).expect("it is there");
    stage.executor.run(&remove).await.expect("removed");
    assert!(
        maps.get(&key).is_none(),
        "the last finalizer went, and the object with it"
    );
    assert!(
        stage
            .config_maps()
            .get_opt("a")
            .await
            .expect("answered")
            .is_none()
    );
}

#[tokio::test]
async fn a_patch_is_about_one_incarnation_in_one_version() {
    let stage = Stage::new("patch").await;
    let made = stage
        .config_maps()
        .create(&PostParams::default(), &stage.config_map("a", &[]))
        .await
        .expect("made");
    let seen = Seen::of(&made).expect("it came from the server");
    let patch = |seen: &Seen| Step::Patch {
        target: Target::of(&made),
        seen: seen.clone(),
        why: "test",
        patch: json!({"metadata": {"labels": {"role": "primary"}}}),
    };
    for wrong in [
        Seen {
            resource_version: "1".into(),
            ..seen.clone()
        },
        Seen {
            uid: "0b5e3c1e-1111-4222-8333-000000000009".into(),
            ..seen.clone()
        },
    ] {
        let error = stage
            .executor
            .run(&patch(&wrong))
            .await
            .expect_err("not what was seen");
        assert!(
            matches!(error, StepError::Conflict { .. }),
            "{wrong:?}: {error:?}"
        );
    }
    assert_eq!(
        stage
            .executor
            .run(&patch(&seen))
            .await
            .expect("patched")
            .kind,
        EffectKind::Changed
    );
    let live = stage.config_maps().get("a").await.expect("there");
    assert_eq!(live.metadata.labels.expect("labels")["role"], "primary");
}

#[tokio::test]
async fn a_status_is_written_once_and_never_over_a_newer_object() {
    let stage = Stage::new("status").await;
    let services: Api<Service> = Api::namespaced(stage.others.clone(), &stage.namespace);
    let service = Service {
        metadata: ObjectMeta {
            name: Some("a".into()),
            namespace: Some(stage.namespace.clone()),
            ..ObjectMeta::default()
        },
        spec: serde_json::from_value(json!({"ports": [{"port": 80}]})).expect("a service's spec"),
        ..Service::default()
    };
    let made = services
        .create(&PostParams::default(), &service)
        .await
        .expect("made");
    let condition = |time: &str| {
        json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Up", "message": "", "lastTransitionTime": time}],
               "loadBalancer": {}})
    };
    let report = |live: &Service, time: &str| {
        let live = serde_json::to_value(live).expect("it serialises");
        status::report(&Target::of(&made), &live, &condition(time)).expect("it makes sense")
    };
    let step = report(&made, "2026-01-01T00:00:00Z").expect("it says something new");
    assert_eq!(
        stage.executor.run(&step).await.expect("written").kind,
        EffectKind::Changed
    );
    let live = services.get("a").await.expect("there");
    assert_eq!(
        live.status
            .as_ref()
            .and_then(|status| status.conditions.as_ref())
            .map(Vec::len),
        Some(1)
    );
    assert_eq!(
        report(&live, "2026-02-02T00:00:00Z"),
        None,
        "only the time differs"
    );
    let error = stage
        .executor
        .run(&step)
        .await
        .expect_err("the object has moved on");
    assert!(matches!(error, StepError::Conflict { .. }), "{error:?}");
}

#[tokio::test]
async fn one_step_is_one_request_even_when_the_server_is_busy() {
    let stage = Stage::new("busy").await;
    let step = Step::Create(desired(&stage.config_map("a", &[])));
    for (code, reason) in [
        (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
        (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
    ] {
        stage.faults.on_next_write(Trick::Answer(code, reason));
        let error = stage.executor.run(&step).await.expect_err("it is busy");
        assert!(matches!(error, StepError::Busy { .. }), "{error:?}");
        assert_eq!(error.who(), Who::Transient);
    }
    assert_eq!(stage.faults.writes().len(), 2);
    stage
        .faults
        .on_next_write(Trick::Answer(StatusCode::FORBIDDEN, "Forbidden"));
    assert_eq!(
        stage
            .executor
            .run(&step)
            .await
            .expect_err("not allowed")
            .who(),
        Who::User
    );
    stage
        .faults
        .on_next_write(Trick::Answer(StatusCode::UNPROCESSABLE_ENTITY, "Invalid"));
    assert_eq!(
        stage
            .executor
            .run(&step)
            .await
            .expect_err("not accepted")
            .who(),
        Who::Bug
    );
}

#[tokio::test]
async fn a_call_that_is_never_answered_ends_at_its_deadline() {
    let stage = Stage::new("hang").await;
    let config = ExecutorConfig {
        call_deadline: Duration::from_millis(50),
        ..ExecutorConfig::new("kit-tests", MEANT)
    };
    let hasty = Executor::new(stage.hub.client(), stage.hub.barrier(), config);
    stage.faults.on_next_write(Trick::Hang);
    let error = hasty
        .run(&Step::Create(desired(&stage.config_map("a", &[]))))
        .await
        .expect_err("nobody answers");
    assert!(matches!(error, StepError::Timeout { .. }), "{error:?}");
}
