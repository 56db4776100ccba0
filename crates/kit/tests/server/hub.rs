//! Stories about caches: that they follow the server, and never fall behind our own writes.

use crate::stage::{OWNER_LABEL, OWNER_UID, Stage, Trick, desired, until};
use geodb_kit::{
    Key,
    executor::{EffectKind, Step},
    hub::{Scope, WatchPhase},
};
use http::StatusCode;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test]
async fn a_store_follows_the_server() {
    let stage = Stage::new("follow").await;
    let api = stage.config_maps();
    api.create(&PostParams::default(), &stage.config_map("before", &[]))
        .await
        .expect("made");
    let maps = stage.hub.watch(
        Scope::<ConfigMap>::all()
            .namespace(&stage.namespace)
            .index_label(OWNER_LABEL),
    );
    stage.hub.synced().await;
    let key = |name: &str| Key::new(&stage.namespace, name);
    let found = maps
        .get(&key("before"))
        .expect("it was there before the watch");
    assert!(
        found.metadata.managed_fields.is_none(),
        "managedFields are not kept"
    );
    assert_eq!(maps.by_label(None, OWNER_LABEL, OWNER_UID).len(), 1);

    api.create(&PostParams::default(), &stage.config_map("after", &[]))
        .await
        .expect("made");
    until(&maps, "the new one is seen", |maps| {
        maps.get(&key("after")).is_some()
    })
    .await;
    assert_eq!(
        maps.by_label(Some(&stage.namespace), OWNER_LABEL, OWNER_UID)
            .len(),
        2
    );
    assert_eq!(
        maps.by_label(Some("elsewhere"), OWNER_LABEL, OWNER_UID)
            .len(),
        0
    );

    let relabel = Patch::Merge(json!({"metadata": {"labels": {OWNER_LABEL: "other"}}}));
    let patched = api
        .patch("after", &PatchParams::default(), &relabel)
        .await
        .expect("patched");
    until(&maps, "the label is seen", |maps| {
        maps.by_label(None, OWNER_LABEL, "other").len() == 1
    })
    .await;
    let version = patched
        .metadata
        .resource_version
        .and_then(|text| text.parse().ok())
        .expect("a number");
    assert!(
        maps.high_water()
            .is_some_and(|high_water| high_water.0 >= version)
    );

    api.delete("after", &DeleteParams::default())
        .await
        .expect("deleted");
    until(&maps, "the deletion is seen", |maps| {
        maps.get(&key("after")).is_none()
    })
    .await;
    assert_eq!(maps.by_label(None, OWNER_LABEL, "other").len(), 0);
}

#[tokio::test]
async fn a_scope_is_kept_also_for_own_writes() {
    let stage = Stage::new("scope").await;
    let selector = [(OWNER_LABEL, OWNER_UID)].into_iter().collect();
    let maps = stage.hub.watch(
        Scope::<ConfigMap>::all()
            .namespace(&stage.namespace)
            .labels(selector),
    );
    stage.hub.synced().await;
    let mut outside = stage.config_map("outside", &[]);
    outside.metadata.labels = None;
    stage
        .config_maps()
        .create(&PostParams::default(), &outside)
        .await
        .expect("made");
    let made = stage
        .executor
        .run(&Step::Create(desired(&stage.config_map("inside", &[]))))
        .await
        .expect("made");
    assert_eq!(
        maps.len(),
        1,
        "our own write is seen at once, and nothing else"
    );
    let object = made.object.expect("a create returns the object");
    let unlabel = Step::Patch {
        target: geodb_kit::executor::Target::of(&stage.config_map("inside", &[])),
        seen: geodb_kit::executor::Seen::of(&object).expect("it came from the server"),
        why: "leave the scope",
        patch: json!({"metadata": {"labels": {OWNER_LABEL: null}}}),
    };
    stage.executor.run(&unlabel).await.expect("patched");
    assert_eq!(maps.len(), 0, "our own write took it out of the scope");
}

#[tokio::test]
async fn own_writes_are_seen_though_the_watch_lags_and_its_late_news_changes_nothing() {
    let stage = Stage::new("lag").await;
    stage.faults.hold_watches();
    let maps = stage
        .hub
        .watch(Scope::<ConfigMap>::all().namespace(&stage.namespace));
    stage.hub.synced().await;
    let key = |name: &str| Key::new(&stage.namespace, name);
    for (name, value) in [("kept", "1"), ("kept", "2"), ("short-lived", "1")] {
        let step = Step::Apply(desired(&stage.config_map(name, &[("value", value)])));
        stage.executor.run(&step).await.expect("applied");
        let data = maps
            .get(&key(name))
            .expect("seen at once")
            .data
            .clone()
            .expect("data");
        assert_eq!(data["value"], value);
    }
    let doomed = maps.get(&key("short-lived")).expect("seen");
    let delete = Step::delete(doomed.as_ref()).expect("it came from the server");
    assert_eq!(
        stage.executor.run(&delete).await.expect("deleted").kind,
        EffectKind::Deleted
    );
    assert!(maps.get(&key("short-lived")).is_none());

    // Whatever the late watch tells, nobody may see an older value again.
    let heard: std::sync::Arc<parking_lot::Mutex<Vec<String>>> = std::sync::Arc::default();
    let ears = heard.clone();
    maps.listen(move |change| {
        let value = change
            .after
            .as_ref()
            .and_then(|map| map.data.as_ref())
            .and_then(|data| data.get("value"));
        ears.lock().push(format!(
            "{} {}",
            change.key.name,
            value.map_or("gone", String::as_str)
        ));
    });
    stage.faults.release_watches();
    let last = stage.config_map("last", &[]);
    stage
        .config_maps()
        .create(&PostParams::default(), &last)
        .await
        .expect("made by somebody else");
    until(&maps, "the watch has caught up", |maps| {
        maps.get(&key("last")).is_some()
    })
    .await;
    assert_eq!(
        *heard.lock(),
        ["kept 2", "last gone"],
        "the snapshot, and then only what is new"
    );
    assert_eq!(
        stage.faults.writes().len(),
        4,
        "{:?}",
        stage.faults.writes()
    );
}

#[tokio::test]
async fn a_watch_that_fails_says_so_and_comes_back() {
    let stage = Stage::new("fails").await;
    stage.faults.hold_watches();
    for _ in 0..2 {
        stage.faults.on_next_watch(Trick::Answer(
            StatusCode::INTERNAL_SERVER_ERROR,
            "InternalError",
        ));
    }
    let maps = stage
        .hub
        .watch(Scope::<ConfigMap>::all().namespace(&stage.namespace));
    stage.hub.synced().await;
    stage
        .config_maps()
        .create(&PostParams::default(), &stage.config_map("a", &[]))
        .await
        .expect("made");
    stage.faults.release_watches();
    until(&maps, "the watch is back", |maps| !maps.is_empty()).await;
    let health = stage.hub.health();
    assert_eq!(
        (health[0].kind.as_str(), health[0].errors, health[0].lists),
        ("ConfigMap", 2, 1),
        "{health:?}"
    );
    assert_eq!(
        (health[0].phase, health[0].last_error.as_ref()),
        (WatchPhase::Watching, None)
    );
}

#[tokio::test]
async fn a_version_that_is_too_old_means_a_new_list_that_tells_what_was_missed() {
    let stage = Stage::new("gone").await;
    let api = stage.config_maps();
    for name in ["stays", "goes"] {
        api.create(&PostParams::default(), &stage.config_map(name, &[]))
            .await
            .expect("made");
    }
    stage.faults.hold_watches();
    stage
        .faults
        .on_next_watch(Trick::Answer(StatusCode::GONE, "Expired"));
    let maps = stage
        .hub
        .watch(Scope::<ConfigMap>::all().namespace(&stage.namespace));
    stage.hub.synced().await;
    assert_eq!(maps.len(), 2);
    api.delete("goes", &DeleteParams::default())
        .await
        .expect("deleted");
    api.create(&PostParams::default(), &stage.config_map("comes", &[]))
        .await
        .expect("made");
    stage.faults.release_watches();
    let names = |maps: &geodb_kit::hub::Store<ConfigMap>| {
        maps.all()
            .iter()
            .filter_map(|map| map.metadata.name.clone())
            .filter(|name| name != "kube-root-ca.crt")
            .collect::<Vec<_>>()
    };
    until(&maps, "the list is taken in", |maps| {
        names(maps) == ["comes", "stays"]
    })
    .await;
    assert_eq!(stage.hub.health()[0].lists, 2);
    assert_eq!(
        stage.hub.health()[0].errors,
        0,
        "an old version is no error"
    );
}

#[tokio::test]
async fn a_hub_that_is_cancelled_ends_its_watches() {
    let stage = Stage::new("ends").await;
    let _maps = stage
        .hub
        .watch(Scope::<ConfigMap>::all().namespace(&stage.namespace));
    stage.hub.synced().await;
    stage.cancel.cancel();
    assert!(
        tokio::time::timeout(crate::stage::DEADLINE, stage.hub.stopped())
            .await
            .is_ok()
    );
    assert_eq!(stage.hub.health()[0].phase, WatchPhase::Stopped);
}
