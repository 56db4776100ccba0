//! Stories about what a store believes, told by lists, watches and own writes out of step.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use super::{
    index::{Index, IndexEntry},
    state::{Hidden, Source, State},
};
use crate::{key::Key, version::Version};

fn object(name: &str, uid: &str, version: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            uid: Some(uid.into()),
            resource_version: Some(version.to_string()),
            labels: Some([("app".to_owned(), format!("app-{uid}"))].into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

fn listed(objects: Vec<ConfigMap>, at: u64) -> State<ConfigMap> {
    let mut state = State::new(vec![Index::Label("app".into())]);
    state.list_begins();
    for object in objects {
        state.list_item(object);
    }
    state.list_ends(Some(Version(at)));
    state
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

/// What the state holds: name, UID, version.
fn view(state: &State<ConfigMap>) -> Vec<(String, String, u64)> {
    let mut view: Vec<_> = state
        .iter()
        .map(|(key, object)| {
            let version = Version::of(object.as_ref()).map_or(0, |version| version.0);
            (
                key.name.clone(),
                object.metadata.uid.clone().unwrap_or_default(),
                version,
            )
        })
        .collect();
    view.sort();
    view
}

fn entry(name: &str, uid: &str, version: u64) -> (String, String, u64) {
    (name.into(), uid.into(), version)
}

#[test]
fn an_own_write_is_seen_at_once_and_its_echo_is_no_news() {
    let mut state = listed(vec![object("a", "u1", 5)], 10);
    let change = state.wrote(object("a", "u1", 12)).expect("it is newer");
    assert_eq!(change.source, Source::OwnWrite);
    assert!(
        state.watch_applied(object("a", "u1", 11)).is_none(),
        "a view older than our own write"
    );
    assert!(
        state.watch_applied(object("a", "u1", 12)).is_none(),
        "the echo"
    );
    assert!(
        state.watch_applied(object("a", "u1", 13)).is_some(),
        "somebody else's write after ours"
    );
    assert_eq!(view(&state), [entry("a", "u1", 13)]);
}

#[test]
fn an_own_create_survives_a_list_that_is_older_and_falls_to_one_that_is_newer() {
    let mut state = listed(vec![], 10);
    state.wrote(object("a", "u1", 12));
    state.list_begins();
    assert!(
        state.list_ends(Some(Version(11))).is_empty(),
        "the list was taken before our create"
    );
    assert_eq!(view(&state), [entry("a", "u1", 12)]);
    state.list_begins();
    let changes = state.list_ends(Some(Version(20)));
    assert!(
        changes.len() == 1 && changes[0].after.is_none(),
        "somebody deleted it between 12 and 20"
    );
    assert_eq!(view(&state), []);
}

#[test]
fn an_own_delete_hides_it_until_the_watch_confirms() {
    let mut state = listed(vec![object("a", "u1", 5)], 10);
    assert!(
        state
            .gone(&key("a"), "u1", Hidden::ForGood)
            .is_some_and(|change| change.after.is_none())
    );
    assert!(
        state.watch_applied(object("a", "u1", 9)).is_none(),
        "late news of what is gone"
    );
    assert!(
        state.watch_applied(object("a", "u2", 14)).is_some(),
        "made anew"
    );
    assert!(
        state.watch_deleted(&object("a", "u1", 13)).is_none(),
        "the confirmation concerns the old one"
    );
    assert_eq!(view(&state), [entry("a", "u2", 14)]);
}

#[test]
fn an_own_delete_survives_a_list_from_before_it() {
    let mut state = listed(vec![object("a", "u1", 5)], 10);
    state.gone(&key("a"), "u1", Hidden::ForGood);
    state.list_begins();
    state.list_item(object("a", "u1", 5));
    assert!(state.list_ends(Some(Version(11))).is_empty());
    assert_eq!(view(&state), []);
    assert!(state.watch_deleted(&object("a", "u1", 12)).is_none());
    state.list_begins();
    assert!(
        state.list_ends(Some(Version(12))).is_empty(),
        "and nothing is remembered for ever"
    );
}

#[test]
fn a_delete_of_another_incarnation_changes_nothing() {
    let mut state = listed(vec![object("a", "u2", 8)], 10);
    assert!(state.gone(&key("a"), "u1", Hidden::ForGood).is_none());
    assert!(state.gone(&key("b"), "u1", Hidden::ForGood).is_none());
    assert_eq!(view(&state), [entry("a", "u2", 8)]);
}

#[test]
fn a_list_tells_what_came_what_changed_and_what_went() {
    let mut state = listed(
        vec![
            object("same", "u1", 1),
            object("newer", "u2", 2),
            object("gone", "u3", 3),
        ],
        10,
    );
    state.list_begins();
    for item in [
        object("same", "u1", 1),
        object("newer", "u2", 12),
        object("came", "u4", 11),
    ] {
        state.list_item(item);
    }
    let mut told: Vec<_> = state
        .list_ends(Some(Version(20)))
        .into_iter()
        .map(|change| {
            (
                change.key.name,
                change.before.is_some(),
                change.after.is_some(),
            )
        })
        .collect();
    told.sort();
    let expected = [
        ("came", false, true),
        ("gone", true, false),
        ("newer", true, true),
    ];
    assert_eq!(
        told,
        expected.map(|(name, before, after)| (name.to_owned(), before, after))
    );
}

#[test]
fn a_failed_list_changes_nothing() {
    let mut state = listed(vec![object("a", "u1", 5)], 10);
    state.list_begins();
    state.list_item(object("b", "u2", 6));
    state.list_failed();
    assert!(state.list_ends(Some(Version(20))).is_empty());
    assert_eq!(view(&state), [entry("a", "u1", 5)]);
}

#[test]
fn the_high_water_only_rises() {
    let mut state = listed(vec![], 10);
    state.bookmark(Some(Version(30)));
    state.watch_applied(object("a", "u1", 20));
    state.bookmark(None);
    assert_eq!(state.high_water(), Some(Version(30)));
    state.wrote(object("a", "u1", 99));
    assert_eq!(
        state.high_water(),
        Some(Version(30)),
        "our own write says nothing about what else was seen"
    );
}

#[test]
fn versions_that_are_no_numbers_leave_everything_to_the_watch() {
    let mut state = listed(vec![], 10);
    let mut odd = object("a", "u1", 1);
    odd.metadata.resource_version = Some("abc".into());
    assert!(state.wrote(odd.clone()).is_none());
    assert!(state.watch_applied(odd.clone()).is_some());
    assert!(state.watch_deleted(&odd).is_some());
}

#[test]
fn indexes_follow_every_change() {
    let mut state = listed(vec![object("a", "u1", 5)], 10);
    let by = |state: &State<ConfigMap>, value: &str| {
        let entry = IndexEntry::Label {
            label: "app".into(),
            value: value.into(),
        };
        state.lookup(&entry).expect("the index is kept").len()
    };
    assert_eq!(by(&state, "app-u1"), 1);
    let mut moved = object("a", "u1", 11);
    moved.metadata.labels = Some([("app".to_owned(), "other".to_owned())].into());
    state.watch_applied(moved.clone());
    assert_eq!((by(&state, "app-u1"), by(&state, "other")), (0, 1));
    state.watch_deleted(&moved);
    assert_eq!(by(&state, "other"), 0);
    assert!(
        state
            .lookup(&IndexEntry::Owner { uid: "u".into() })
            .is_none(),
        "not kept, so not answered from"
    );
}

#[test]
fn what_left_the_scope_by_our_own_write_comes_back_only_newer() {
    let mut state = listed(vec![object("a", "u1", 5)], 10);
    state.gone(&key("a"), "u1", Hidden::UpTo(Version(12)));
    assert!(
        state.watch_applied(object("a", "u1", 11)).is_none(),
        "from before our write"
    );
    assert!(
        state.watch_deleted(&object("a", "u1", 12)).is_none(),
        "the watch says that it left"
    );
    assert!(
        state.watch_applied(object("a", "u1", 15)).is_some(),
        "it came back"
    );
    state.gone(&key("a"), "u1", Hidden::UpTo(Version(16)));
    assert!(
        state.watch_applied(object("a", "u1", 17)).is_some(),
        "also if its leaving was never told"
    );
}

#[test]
fn a_server_that_was_put_back_is_believed() {
    let mut state = listed(vec![object("a", "u1", 50), object("b", "u2", 60)], 100);
    state.gone(&key("b"), "u2", Hidden::ForGood);
    state.list_begins();
    for item in [object("b", "u2", 30), object("c", "u3", 31)] {
        state.list_item(item);
    }
    assert_eq!(state.list_ends(Some(Version(40))).len(), 3);
    assert_eq!(view(&state), [entry("b", "u2", 30), entry("c", "u3", 31)]);
    assert_eq!(state.high_water(), Some(Version(40)));
    assert!(state.watch_applied(object("b", "u2", 41)).is_some());
}
