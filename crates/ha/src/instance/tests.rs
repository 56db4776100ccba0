//! What an instance does, as tables: every kind of volume against every kind of register, and PostgreSQL in every state.

mod running;
mod stopped;

use super::*;
use crate::register::Lsn;

const OURS: &str = "7000000000000000001";
const THEIRS: &str = "7000000000000000002";

fn name(text: &str) -> Incarnation {
    text.parse().unwrap()
}

fn at(address: &str) -> Upstream {
    Upstream {
        address: address.into(),
        port: 5432,
    }
}

fn record(epoch: u64, leader: &str) -> Record {
    Record {
        epoch: Epoch(epoch),
        leader: name(leader),
        voters: Default::default(),
        w: 0,
        timeline: Timeline(1),
        switch_lsn: Lsn(0),
        address: if leader.starts_with("river-1") {
            "10.0.0.1"
        } else {
            "10.0.0.2"
        }
        .into(),
        port: 5432,
        system_identifier: OURS.into(),
        version: "15.18".into(),
    }
}

fn read(register: Register) -> Knowledge {
    Knowledge::Read {
        register,
        bootstrap: Bootstrap::Forbidden,
    }
}

fn emptied(bootstrap: Bootstrap) -> Knowledge {
    Knowledge::Read {
        register: Register::default(),
        bootstrap,
    }
}

fn won(epoch: u64, winner: &str) -> Knowledge {
    Knowledge::Read {
        register: Register {
            epoch: Epoch(epoch),
            winner: Some(name(winner)),
            record: None,
        },
        bootstrap: Bootstrap::Allowed,
    }
}

fn published(epoch: u64, leader: &str) -> Knowledge {
    read(Register {
        epoch: Epoch(epoch),
        winner: Some(name(leader)),
        record: Some(record(epoch, leader)),
    })
}

fn election(epoch: u64, old: &str) -> Knowledge {
    read(Register {
        epoch: Epoch(epoch),
        winner: None,
        record: Some(record(epoch - 1, old)),
    })
}

fn data(kind: DataKind) -> Volume {
    Volume::Data(Data {
        system_identifier: OURS.into(),
        kind,
    })
}

/// `river-1.aaa`, with nothing running.
fn stopped(volume: Volume, last_promoted: u64, register: Knowledge) -> Action {
    decide(&Observed {
        me: name("river-1.aaa"),
        here: at("10.0.0.1"),
        volume,
        last_promoted: Epoch(last_promoted),
        register,
        postgres: Postgres::Stopped,
    })
}

fn claim(epoch: u64, why: ClaimReason) -> Action {
    Action::Claim {
        epoch: Epoch(epoch),
        why,
    }
}

fn clone() -> Action {
    Action::Clone {
        from: at("10.0.0.2"),
        system_identifier: OURS.into(),
    }
}
