//! PostgreSQL starts or runs: what keeps it going, moves it or stops it.

use super::*;

/// `river-1.aaa` as a primary promoted in epoch 1 that answers at `here`.
fn primary(here: &str, register: Knowledge, contents: Contents, endpoint: Endpoint) -> Action {
    let primary = Primary {
        contents,
        timeline: Timeline(1),
        version: "15.18".into(),
        endpoint,
    };
    running(
        DataKind::Primary,
        1,
        here,
        register,
        Postgres::Primary(primary),
    )
}

fn running(
    kind: DataKind,
    last_promoted: u64,
    here: &str,
    register: Knowledge,
    postgres: Postgres,
) -> Action {
    decide(&Observed {
        me: name("river-1.aaa"),
        here: at(here),
        volume: data(kind),
        last_promoted: Epoch(last_promoted),
        register,
        postgres,
    })
}

#[test]
fn a_primary_prepares_then_publishes_then_serves() {
    use Contents::*;
    use Endpoint::*;
    let mine = || published(1, "river-1.aaa");
    let table = [
        (
            "10.0.0.1",
            won(1, "river-1.aaa"),
            Unprepared,
            Unconfirmed,
            Action::Prepare,
        ),
        (
            "10.0.0.1",
            won(1, "river-1.aaa"),
            Prepared,
            Unconfirmed,
            Action::Publish { epoch: Epoch(1) },
        ),
        (
            "10.0.0.1",
            mine(),
            Prepared,
            Unconfirmed,
            Action::PublishEndpoint,
        ),
        (
            "10.0.0.1",
            mine(),
            Prepared,
            Confirmed,
            Action::Serve(Serving::Primary),
        ),
        // The pod was replaced: the same leader, elsewhere.
        (
            "10.0.0.9",
            mine(),
            Prepared,
            Confirmed,
            Action::Publish { epoch: Epoch(1) },
        ),
        // The register was lost under a running primary, and then taken again.
        (
            "10.0.0.1",
            emptied(Bootstrap::Forbidden),
            Prepared,
            Confirmed,
            claim(2, ClaimReason::RegisterLost),
        ),
        (
            "10.0.0.1",
            won(2, "river-1.aaa"),
            Prepared,
            Confirmed,
            Action::Publish { epoch: Epoch(2) },
        ),
    ];
    for (here, register, contents, endpoint, expected) in table {
        let situation = format!("{here}, {register:?}, {contents:?}, {endpoint:?}");
        assert_eq!(
            primary(here, register, contents, endpoint),
            expected,
            "{situation}"
        );
    }
}

#[test]
fn a_version_or_timeline_that_changed_is_published() {
    for (version, timeline) in [("15.19", 1), ("15.18", 2)] {
        let primary = Primary {
            contents: Contents::Prepared,
            timeline: Timeline(timeline),
            version: version.into(),
            endpoint: Endpoint::Confirmed,
        };
        let action = running(
            DataKind::Primary,
            1,
            "10.0.0.1",
            published(1, "river-1.aaa"),
            Postgres::Primary(primary),
        );
        assert_eq!(action, Action::Publish { epoch: Epoch(1) });
    }
}

#[test]
fn losing_sight_of_the_register_stops_nothing_that_works() {
    for register in [
        Knowledge::Unknown,
        Knowledge::Absent,
        Knowledge::Unreadable("no JSON".into()),
    ] {
        let serving = primary(
            "10.0.0.1",
            register.clone(),
            Contents::Prepared,
            Endpoint::Confirmed,
        );
        assert_eq!(serving, Action::Serve(Serving::Primary));
        let replica = Postgres::Replica {
            following: at("10.0.0.2"),
            streaming: Streaming::Yes,
        };
        assert_eq!(
            running(DataKind::Standby, 0, "10.0.0.1", register, replica),
            Action::Serve(Serving::Replica)
        );
    }
}

#[test]
fn a_primary_stops_when_somebody_else_may_have_taken_over() {
    for register in [
        published(2, "river-2.bbb"),
        won(1, "river-2.bbb"),
        election(2, "river-1.aaa"),
        published(1, "river-1.old"),
    ] {
        let running_one = primary(
            "10.0.0.1",
            register.clone(),
            Contents::Prepared,
            Endpoint::Confirmed,
        );
        assert_eq!(
            running_one,
            Action::Stop(Refusal::Superseded),
            "{register:?}"
        );
        let starting = running(
            DataKind::Primary,
            1,
            "10.0.0.1",
            register.clone(),
            Postgres::Starting(Role::Primary),
        );
        assert_eq!(starting, Action::Stop(Refusal::Superseded), "{register:?}");
    }
}

#[test]
fn a_replica_follows_the_published_leader_wherever_it_is() {
    let here = at("10.0.0.3");
    let replica = |following: &str, streaming| Postgres::Replica {
        following: at(following),
        streaming,
    };
    let starting = |following: &str| {
        Postgres::Starting(Role::Replica {
            following: at(following),
        })
    };
    let leads = || published(1, "river-2.bbb");
    let follow = || Action::Follow {
        leader: at("10.0.0.2"),
    };
    let table = [
        (
            leads(),
            replica("10.0.0.2", Streaming::Yes),
            Action::Serve(Serving::Replica),
        ),
        (
            leads(),
            replica("10.0.0.2", Streaming::No),
            Action::Wait(Waiting::NotStreaming),
        ),
        (leads(), replica("10.0.0.9", Streaming::Yes), follow()),
        (leads(), replica("10.0.0.9", Streaming::No), follow()),
        (leads(), starting("10.0.0.9"), follow()),
        (
            leads(),
            starting("10.0.0.2"),
            Action::Wait(Waiting::PostgresStarting),
        ),
        // No news: go on.
        (
            emptied(Bootstrap::Forbidden),
            replica("10.0.0.2", Streaming::Yes),
            Action::Serve(Serving::Replica),
        ),
        (
            won(2, "river-2.bbb"),
            replica("10.0.0.2", Streaming::No),
            Action::Wait(Waiting::NotStreaming),
        ),
        (
            election(2, "river-2.bbb"),
            replica("10.0.0.2", Streaming::Yes),
            Action::Serve(Serving::Replica),
        ),
        (
            won(2, "river-1.aaa"),
            replica("10.0.0.2", Streaming::Yes),
            Action::Wait(Waiting::PromotionUnavailable),
        ),
    ];
    for (register, postgres, expected) in table {
        let situation = format!("{register:?}, {postgres:?}");
        assert_eq!(
            running(DataKind::Standby, 0, &here.address, register, postgres),
            expected,
            "{situation}"
        );
    }
}

#[test]
fn a_replica_stops_when_the_register_is_of_another_database() {
    let mut other = record(1, "river-2.bbb");
    other.system_identifier = THEIRS.into();
    let register = read(Register {
        epoch: Epoch(1),
        winner: Some(name("river-2.bbb")),
        record: Some(other),
    });
    let replica = Postgres::Replica {
        following: at("10.0.0.2"),
        streaming: Streaming::Yes,
    };
    let refusal = Refusal::OtherDatabase {
        ours: OURS.into(),
        theirs: THEIRS.into(),
    };
    assert_eq!(
        running(DataKind::Standby, 0, "10.0.0.1", register, replica),
        Action::Stop(refusal)
    );
}
