//! Stories about telling things once.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;

use super::{
    Note, Reporter, Weight, event_of,
    ledger::{Ledger, Verdict},
    name_of,
};
use crate::{clock::Moment, limits};

fn note(uid: &str, text: &str) -> Note {
    let object = ConfigMap {
        metadata: ObjectMeta {
            name: Some("cities".into()),
            namespace: Some("atlas".into()),
            uid: Some(uid.into()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    Note::about(&object, Weight::Normal, "Scaled", "Scale", text)
}

fn at(seconds: u64) -> Moment {
    Moment::START.after(Duration::from_secs(seconds))
}

#[test]
fn the_same_occurrence_is_told_once_however_often_a_pass_says_it() {
    let mut ledger = Ledger::new(0);
    assert_eq!(
        ledger.judge(&note("u1", "to 3"), at(0)),
        Verdict::Tell { name_suffix: 1 }
    );
    for hour in 0..100 {
        assert_eq!(
            ledger.judge(&note("u1", "to 3"), at(hour * 3_600)),
            Verdict::Known
        );
    }
    assert_eq!(
        ledger.judge(&note("u1", "to 4"), at(9)),
        Verdict::Tell { name_suffix: 2 }
    );
    assert_eq!(
        ledger.judge(&note("u2", "to 3"), at(9)),
        Verdict::Tell { name_suffix: 3 }
    );
}

#[test]
fn the_same_thing_happening_again_is_counted() {
    let mut ledger = Ledger::new(0);
    ledger.judge(&note("u1", "restarted").occurrence("pod-1"), at(0));
    let second = note("u1", "restarted").occurrence("pod-2");
    assert_eq!(
        ledger.judge(&second, at(1)),
        Verdict::Again {
            name_suffix: 1,
            count: 2
        }
    );
    assert_eq!(ledger.judge(&second, at(2)), Verdict::Known);
    let third = note("u1", "restarted").occurrence("pod-3");
    assert_eq!(
        ledger.judge(&third, at(3)),
        Verdict::Again {
            name_suffix: 1,
            count: 3
        }
    );
    assert_eq!(ledger.lost(&third), Verdict::Tell { name_suffix: 2 });
    let fourth = note("u1", "restarted").occurrence("pod-4");
    assert_eq!(
        ledger.judge(&fourth, at(4)),
        Verdict::Again {
            name_suffix: 2,
            count: 2
        }
    );
}

#[test]
fn an_object_that_talks_too_much_is_cut_off_and_heard_again_later() {
    let mut ledger = Ledger::new(0);
    let mut told = 0;
    for number in 0..1_000 {
        if ledger.judge(&note("u1", &format!("{number}")), at(0)) != Verdict::TooMany {
            told += 1;
        }
    }
    assert_eq!(told, limits::EVENTS_BURST);
    assert!(
        matches!(
            ledger.judge(&note("u2", "me too"), at(0)),
            Verdict::Tell { .. }
        ),
        "others are heard"
    );
    assert_eq!(ledger.judge(&note("u1", "more"), at(29)), Verdict::TooMany);
    assert!(matches!(
        ledger.judge(&note("u1", "more"), at(31)),
        Verdict::Tell { .. }
    ));
    assert_eq!(
        ledger.judge(&note("u1", "and more"), at(32)),
        Verdict::TooMany
    );
}

#[test]
fn what_could_not_be_sent_is_said_again() {
    let mut ledger = Ledger::new(0);
    ledger.judge(&note("u1", "to 3"), at(0));
    ledger.not_told(&note("u1", "to 3"));
    // Its Event may be there or not; counting on it finds out.
    assert!(matches!(
        ledger.judge(&note("u1", "to 3"), at(1)),
        Verdict::Again { name_suffix: 1, .. }
    ));
}

#[test]
fn memory_is_bounded() {
    let mut ledger = Ledger::new(0);
    for number in 0..limits::EVENTS_REMEMBERED_MAX * 2 {
        ledger.judge(
            &note(&format!("u{number}"), "x"),
            at(u64::try_from(number).expect("small") * 60),
        );
    }
    assert_eq!(
        ledger.remembered(),
        (limits::EVENTS_REMEMBERED_MAX, limits::EVENTS_REMEMBERED_MAX)
    );
    assert!(ledger.buckets() <= limits::EVENTS_REMEMBERED_MAX + 1);
}

#[test]
fn an_event_is_one_the_server_accepts() {
    let reporter = Reporter {
        controller: "example.com/kit".into(),
        instance: "kit-0".into(),
    };
    let mut long = note("u1", &"ä".repeat(2_000));
    long.regarding.name = Some("n".repeat(253));
    let event = event_of(&long, &reporter, 255, jiff::Timestamp::UNIX_EPOCH);
    assert!(
        event
            .note
            .as_ref()
            .is_some_and(|note| note.len() <= 1_024 && note.ends_with('…'))
    );
    assert!(name_of(&long, u64::MAX).len() <= 253);
    assert_eq!(event.metadata.namespace.as_deref(), Some("atlas"));
    assert_eq!(
        event
            .regarding
            .and_then(|regarding| regarding.kind)
            .as_deref(),
        Some("ConfigMap")
    );
    let mut cluster_wide = note("u1", "x");
    cluster_wide.regarding.namespace = None;
    let event = event_of(&cluster_wide, &reporter, 1, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(event.metadata.namespace.as_deref(), Some("default"));
}
