//! Nothing runs: what the volume and the register make of it.

use super::*;

#[test]
fn nothing_starts_before_the_register_was_read() {
    for volume in [
        Volume::Empty,
        Volume::HalfMade,
        Volume::Lost,
        data(DataKind::Primary),
        data(DataKind::Standby),
    ] {
        for last in [0, 1] {
            assert_eq!(
                stopped(volume.clone(), last, Knowledge::Unknown),
                Action::Wait(Waiting::RegisterUnknown)
            );
            assert_eq!(
                stopped(volume.clone(), last, Knowledge::Absent),
                Action::Wait(Waiting::RegisterAbsent)
            );
            let unreadable = Knowledge::Unreadable("no JSON".into());
            assert_eq!(
                stopped(volume.clone(), last, unreadable),
                Action::Wait(Waiting::RegisterUnreadable)
            );
        }
    }
}

#[test]
fn an_empty_volume_makes_a_database_only_where_that_is_allowed_and_won() {
    use Waiting::*;
    let wait = Action::Wait;
    let table = [
        (
            emptied(Bootstrap::Allowed),
            claim(1, ClaimReason::NewDatabase),
            claim(1, ClaimReason::NewDatabase),
            wait(VolumeLost),
        ),
        (
            emptied(Bootstrap::Forbidden),
            wait(BootstrapForbidden),
            wait(BootstrapForbidden),
            wait(VolumeLost),
        ),
        // I won and nothing is published: the only place where data is made from nothing.
        (
            won(1, "river-1.aaa"),
            Action::Initialise,
            Action::DiscardHalfMade,
            wait(VolumeLost),
        ),
        // The volume of the winner was lost before it published.
        (
            won(1, "river-1.old"),
            wait(VolumeLost),
            wait(VolumeLost),
            wait(VolumeLost),
        ),
        // The CAS was lost to another.
        (
            won(1, "river-2.bbb"),
            wait(LeaderUnpublished),
            wait(LeaderUnpublished),
            wait(LeaderUnpublished),
        ),
        // A later epoch is never begun with nothing.
        (
            won(2, "river-1.aaa"),
            wait(VolumeLost),
            wait(VolumeLost),
            wait(VolumeLost),
        ),
        (
            published(1, "river-2.bbb"),
            clone(),
            Action::DiscardHalfMade,
            Action::RenewIncarnation,
        ),
        (
            published(7, "river-2.bbb"),
            clone(),
            Action::DiscardHalfMade,
            Action::RenewIncarnation,
        ),
        // The recorded leader comes back with an empty volume: it must not make a new database, nor clone from itself.
        (
            published(1, "river-1.aaa"),
            wait(VolumeLost),
            wait(VolumeLost),
            wait(VolumeLost),
        ),
        (
            published(1, "river-1.old"),
            wait(VolumeLost),
            wait(VolumeLost),
            wait(VolumeLost),
        ),
        (
            election(2, "river-2.bbb"),
            wait(ElectionOpen),
            wait(ElectionOpen),
            wait(ElectionOpen),
        ),
        (
            election(2, "river-1.aaa"),
            wait(VolumeLost),
            wait(VolumeLost),
            wait(VolumeLost),
        ),
    ];
    for (register, empty, half_made, lost) in table {
        assert_eq!(
            stopped(Volume::Empty, 0, register.clone()),
            empty,
            "empty, {register:?}"
        );
        assert_eq!(
            stopped(Volume::HalfMade, 0, register.clone()),
            half_made,
            "half-made, {register:?}"
        );
        assert_eq!(
            stopped(Volume::Lost, 0, register.clone()),
            lost,
            "lost, {register:?}"
        );
    }
}

#[test]
fn an_incarnation_that_was_promoted_and_has_no_data_never_begins_anew() {
    for volume in [Volume::Empty, Volume::HalfMade] {
        for register in [
            emptied(Bootstrap::Allowed),
            won(1, "river-1.aaa"),
            published(1, "river-1.aaa"),
        ] {
            assert_eq!(
                stopped(volume.clone(), 1, register),
                Action::Wait(Waiting::VolumeLost)
            );
        }
        assert_eq!(
            stopped(volume, 1, published(2, "river-2.bbb")),
            Action::RenewIncarnation
        );
    }
}

#[test]
fn data_starts_as_what_the_register_says_or_not_at_all() {
    use Waiting::*;
    let (wait, refuse) = (Action::Wait, Action::Refuse);
    let start = |epoch, doors| Action::StartPrimary {
        epoch: Epoch(epoch),
        doors,
    };
    let follow = || Action::StartReplica {
        following: at("10.0.0.2"),
    };
    let table = [
        // Register deleted and made anew, empty: who was promoted publishes itself again, above what it remembers.
        (
            DataKind::Primary,
            1,
            emptied(Bootstrap::Forbidden),
            claim(2, ClaimReason::RegisterLost),
        ),
        (
            DataKind::Primary,
            4,
            emptied(Bootstrap::Allowed),
            claim(5, ClaimReason::RegisterLost),
        ),
        (
            DataKind::Standby,
            0,
            emptied(Bootstrap::Forbidden),
            wait(RegisterEmptied),
        ),
        (
            DataKind::Standby,
            0,
            emptied(Bootstrap::Allowed),
            wait(RegisterEmptied),
        ),
        // Initialised, never started, and the register lost in between.
        (
            DataKind::Primary,
            0,
            emptied(Bootstrap::Allowed),
            claim(1, ClaimReason::NewDatabase),
        ),
        (
            DataKind::Primary,
            0,
            emptied(Bootstrap::Forbidden),
            wait(RegisterEmptied),
        ),
        // A register put back to an older state.
        (
            DataKind::Primary,
            3,
            published(1, "river-1.aaa"),
            claim(4, ClaimReason::RegisterLost),
        ),
        // The winner: doors stay shut until it has published.
        (
            DataKind::Primary,
            0,
            won(1, "river-1.aaa"),
            start(1, Doors::Closed),
        ),
        (
            DataKind::Primary,
            1,
            won(1, "river-1.aaa"),
            start(1, Doors::Closed),
        ),
        (
            DataKind::Primary,
            1,
            won(2, "river-1.aaa"),
            start(2, Doors::Closed),
        ),
        (
            DataKind::Primary,
            1,
            published(1, "river-1.aaa"),
            start(1, Doors::Open),
        ),
        (
            DataKind::Standby,
            0,
            published(1, "river-1.aaa"),
            refuse(Refusal::NotPromotable),
        ),
        // Another leads.
        (DataKind::Standby, 0, published(1, "river-2.bbb"), follow()),
        (
            DataKind::Standby,
            0,
            won(1, "river-2.bbb"),
            wait(LeaderUnpublished),
        ),
        (
            DataKind::Standby,
            0,
            election(2, "river-2.bbb"),
            wait(ElectionOpen),
        ),
        (
            DataKind::Primary,
            1,
            published(2, "river-2.bbb"),
            refuse(Refusal::Superseded),
        ),
        (
            DataKind::Primary,
            0,
            published(1, "river-2.bbb"),
            refuse(Refusal::Superseded),
        ),
        (
            DataKind::Standby,
            1,
            published(2, "river-2.bbb"),
            refuse(Refusal::Superseded),
        ),
        (
            DataKind::Primary,
            1,
            election(2, "river-1.aaa"),
            refuse(Refusal::Superseded),
        ),
        // The volume of another life of this instance is not this life's.
        (
            DataKind::Primary,
            1,
            published(1, "river-1.old"),
            refuse(Refusal::Superseded),
        ),
    ];
    for (kind, last_promoted, register, expected) in table {
        let situation = format!("{kind:?}, promoted in {last_promoted}, {register:?}");
        assert_eq!(
            stopped(data(kind), last_promoted, register),
            expected,
            "{situation}"
        );
    }
}

#[test]
fn foreign_data_is_refused_whatever_the_register_says() {
    let foreign = Foreign::OtherInstance("lake-3.fff".into());
    for register in [
        Knowledge::Unknown,
        emptied(Bootstrap::Allowed),
        won(1, "river-1.aaa"),
        published(1, "river-2.bbb"),
    ] {
        let refused = Action::Refuse(Refusal::ForeignData(foreign.clone()));
        assert_eq!(
            stopped(Volume::Foreign(foreign.clone()), 0, register),
            refused
        );
    }
}

#[test]
fn data_of_another_database_is_refused_even_if_it_carries_our_name() {
    for kind in [DataKind::Primary, DataKind::Standby] {
        for register in [
            published(1, "river-1.aaa"),
            published(1, "river-2.bbb"),
            election(2, "river-2.bbb"),
        ] {
            let volume = Volume::Data(Data {
                system_identifier: THEIRS.into(),
                kind,
            });
            let refused = Refusal::OtherDatabase {
                ours: THEIRS.into(),
                theirs: OURS.into(),
            };
            assert_eq!(stopped(volume, 0, register), Action::Refuse(refused));
        }
    }
}
