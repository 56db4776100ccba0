//! Watches: from where they start, and what they see.

use http::Method;
use serde_json::{Value, json};

use crate::{CONFIG_MAPS, Server, config_map, lines, request};

#[test]
fn starting_points() {
    let mut server = Server::new();
    let before = server.state.revision();
    for name in ["x1", "x2", "x3"] {
        server.post(CONFIG_MAPS, config_map(name)).created();
    }
    let current = server.state.revision();
    let added: Vec<String> = (1..=3)
        .map(|number| format!("ADDED x{number} {}", before + number))
        .collect();
    for query in [
        "",
        "&resourceVersion=0",
        &format!("&resourceVersion={before}"),
    ] {
        let watch = server.watch(&format!("{CONFIG_MAPS}?watch=true{query}"));
        assert_eq!(
            (lines(&watch.initial), watch.ends, watch.since),
            (added.clone(), false, current),
            "{query}"
        );
    }
    let middle = server.watch(&format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={}",
        before + 2
    ));
    assert_eq!(lines(&middle.initial), [format!("ADDED x3 {}", before + 3)]);
    let future = server.watch(&format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion=99999999"
    ));
    assert_eq!(
        (future.initial.len(), future.ends, future.since),
        (0, false, 99_999_999)
    );
    let streaming = server.watch(&format!("{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=336"));
    assert_eq!(lines(&streaming.initial)[..3], added);
    let last = &streaming.initial[3].object;
    assert_eq!(
        last["metadata"],
        json!({"resourceVersion": current.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}})
    );
    assert_eq!(
        (
            last["kind"].as_str(),
            streaming.bookmarks,
            streaming.timeout.map(|timeout| timeout.as_secs())
        ),
        (Some("ConfigMap"), true, Some(336))
    );
    let single = server.watch(&format!("{CONFIG_MAPS}/x2?watch=true"));
    assert_eq!(lines(&single.initial), [format!("ADDED x2 {}", before + 2)]);
}

#[test]
fn an_old_version_is_one_error_and_the_end() {
    let mut server = Server::new();
    server.post(CONFIG_MAPS, config_map("a")).created();
    let start = server.state.revision();
    server.post(CONFIG_MAPS, config_map("b")).created();
    server.state.compact(start);
    let watch = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=1"));
    assert!(watch.ends);
    let status = &watch.initial[0].object;
    assert_eq!(
        (
            lines(&watch.initial).len(),
            &status["code"],
            &status["reason"]
        ),
        (1, &json!(410), &json!("Expired"))
    );
    assert_eq!(
        status["message"],
        format!("too old resource version: 1 ({start})")
    );
    let edge = server.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={start}"));
    assert_eq!(
        (lines(&edge.initial).len(), edge.ends),
        (1, false),
        "the edge of the window still works"
    );
}

#[test]
fn history_is_bounded() {
    let mut server = Server::new();
    server.state.set_history_limit(3);
    for number in 0..10 {
        server
            .post(CONFIG_MAPS, config_map(&format!("m{number}")))
            .created();
    }
    let current = server.state.revision();
    assert!(
        server
            .watch(&format!(
                "{CONFIG_MAPS}?watch=true&resourceVersion={}",
                current - 4
            ))
            .ends
    );
    let kept = server.watch(&format!(
        "{CONFIG_MAPS}?watch=true&resourceVersion={}",
        current - 3
    ));
    assert_eq!(kept.initial.len(), 3);
}

#[test]
fn options_are_checked() {
    let mut server = Server::new();
    let list = |detail: &str| format!("ListOptions.meta.k8s.io \"\" is invalid: {detail}");
    let cases = [
        ("sendInitialEvents=true", 422, list("resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")),
        ("resourceVersionMatch=NotOlderThan", 422, list("resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")),
        (
            "sendInitialEvents=true&resourceVersionMatch=Exact",
            422,
            list("[resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]"),
        ),
        ("resourceVersion=abc", 500, "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".to_owned()),
    ];
    for (query, status, message) in cases {
        server
            .get(&format!("{CONFIG_MAPS}?watch=true&{query}"))
            .refused(status, &message);
    }
}

#[test]
fn selectors_turn_changes_into_what_they_mean_to_this_client() {
    let mut server = Server::new();
    let start = server.state.revision();
    let everything = server.watch(&format!("{CONFIG_MAPS}?watch=true"));
    let selecting = server.watch(&format!("{CONFIG_MAPS}?watch=true&labelSelector=on=yes"));
    let elsewhere = server.watch("/api/v1/namespaces/other/configmaps?watch=true");
    let labelled = |name: &str, on: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"on": on}}});
    server.post(CONFIG_MAPS, labelled("wa", "yes")).created();
    server.post(CONFIG_MAPS, labelled("wb", "no")).created();
    server
        .put(&format!("{CONFIG_MAPS}/wb"), labelled("wb", "yes"))
        .ok();
    server
        .put(&format!("{CONFIG_MAPS}/wa"), labelled("wa", "no"))
        .ok();
    server
        .delete(&format!("{CONFIG_MAPS}/wb"), Value::Null)
        .ok();
    server
        .delete(&format!("{CONFIG_MAPS}/wa"), Value::Null)
        .ok();
    let expected = |events: &[(&str, u64)]| -> Vec<String> {
        events
            .iter()
            .map(|(event, offset)| format!("{event} {}", start + offset))
            .collect()
    };
    assert_eq!(
        lines(&server.seen(&selecting)),
        expected(&[
            ("ADDED wa", 1),
            ("ADDED wb", 3),
            ("DELETED wa", 4),
            ("DELETED wb", 5)
        ])
    );
    assert_eq!(
        lines(&server.seen(&everything)),
        expected(&[
            ("ADDED wa", 1),
            ("ADDED wb", 2),
            ("MODIFIED wb", 3),
            ("MODIFIED wa", 4),
            ("DELETED wb", 5),
            ("DELETED wa", 6)
        ]),
        "a deletion has a version of its own"
    );
    assert!(server.seen(&elsewhere).is_empty());
    let bookmark = everything.filter.bookmark(42);
    assert_eq!(
        bookmark.object,
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": "42"}})
    );
}

#[test]
fn both_groups_watch_the_same_events() {
    let mut server = Server::new();
    let core_group = server.watch("/api/v1/events?watch=true");
    let events_group = server.watch("/apis/events.k8s.io/v1/namespaces/default/events?watch=true");
    let note = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e1", "namespace": "default"},
        "eventTime": "2026-11-15T20:06:00.123456Z", "regarding": {"kind": "Database", "name": "cities", "namespace": "default"},
        "note": "made", "reason": "Made", "type": "Normal", "reportingController": "geodb", "reportingInstance": "geodb-0", "action": "Making",
    });
    server
        .post("/apis/events.k8s.io/v1/namespaces/default/events", note)
        .created();
    let shown = &server.seen(&core_group)[0].object;
    assert_eq!(
        (
            &shown["apiVersion"],
            &shown["message"],
            &shown["involvedObject"]["name"]
        ),
        (&json!("v1"), &json!("made"), &json!("cities"))
    );
    let shown = &server.seen(&events_group)[0].object;
    assert_eq!(
        (
            &shown["apiVersion"],
            &shown["note"],
            &shown["regarding"]["name"]
        ),
        (&json!("events.k8s.io/v1"), &json!("made"), &json!("cities"))
    );
    let found = server
        .get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=cities")
        .ok();
    assert_eq!(found.body["items"].as_array().unwrap().len(), 1);
    let changed = server
        .merge("/api/v1/namespaces/default/events/e1", json!({"count": 2}))
        .ok();
    assert_eq!(changed.body["count"], 2);
    let read = server
        .get("/apis/events.k8s.io/v1/namespaces/default/events/e1")
        .ok();
    assert_eq!(
        (&read.body["deprecatedCount"], &read.body["eventTime"]),
        (&json!(2), &json!("2026-11-15T20:06:00.123456Z"))
    );
}

#[test]
fn tables_and_metadata_are_watched_too() {
    let mut server = Server::new();
    server.post(CONFIG_MAPS, config_map("a")).created();
    for (view, kind) in [
        ("Table", "Table"),
        ("PartialObjectMetadata", "PartialObjectMetadata"),
    ] {
        let mut asked = request(Method::GET, &format!("{CONFIG_MAPS}?watch=true"));
        asked.accept = format!("application/json;as={view};g=meta.k8s.io;v=v1");
        let geodb_sandbox::core::Response::Watch(watch) = server.handle(&asked) else {
            panic!("a watch")
        };
        assert_eq!(watch.initial[0].object["kind"], kind);
    }
}
