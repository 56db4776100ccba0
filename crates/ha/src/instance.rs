//! What one instance does next, from what it observes: its volume, the register, its PostgreSQL.
//!
//! [`decide`] is the whole behaviour of an agent as a pure function; the agent observes, asks, does that one step, and asks again.
//! So a crash between any two steps is only another observation. What it is not: an election. The first primary is chosen by the first
//! compare-and-swap; afterwards the same incarnation stays the leader, and what only a promotion could mend is refused with its reason.

mod words;

use crate::register::{Epoch, Incarnation, Record, Register, Timeline};

/// Where an instance can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    pub address: String,
    pub port: u16,
}

/// What is on the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Volume {
    /// No data, and there never was any for this incarnation.
    Empty,
    /// Data whose making was interrupted. It is in its own directory and never starts.
    HalfMade,
    /// This incarnation had data, and it is gone.
    Lost,
    Data(Data),
    /// Something that this incarnation did not make.
    Foreign(Foreign),
}

/// A complete data directory made by this incarnation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Data {
    pub system_identifier: String,
    pub kind: DataKind,
}

/// How the data starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// Read-write when started.
    Primary,
    /// In recovery when started (`standby.signal`).
    Standby,
}

/// Why a data directory is not ours to touch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("it was not made by geodb: there is no mark of an instance in it")]
    Unmarked,
    #[error("it belongs to {0}")]
    OtherInstance(String),
    #[error("it is not a complete data directory: {0}")]
    Incomplete(String),
    #[error(
        "it is of PostgreSQL {data}, and the programs in this image are of PostgreSQL {programs}"
    )]
    OtherVersion { data: String, programs: String },
    #[error("what the agent remembers about it is unreadable: {0}")]
    Memory(String),
}

/// What is known of the register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Knowledge {
    /// Never read since the agent started.
    Unknown,
    /// The Lease does not exist.
    Absent,
    /// The Lease exists, and its annotation is not a register.
    Unreadable(String),
    Read {
        register: Register,
        bootstrap: Bootstrap,
    },
}

/// Whether a new database may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bootstrap {
    Allowed,
    Forbidden,
}

/// What this instance's PostgreSQL does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Postgres {
    Stopped,
    /// Started, and not answering yet.
    Starting(Role),
    Primary(Primary),
    Replica {
        following: Upstream,
        streaming: Streaming,
    },
}

/// How PostgreSQL was started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    Primary,
    Replica { following: Upstream },
}

/// A primary that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Primary {
    pub contents: Contents,
    pub timeline: Timeline,
    pub version: String,
    pub endpoint: Endpoint,
}

/// Whether owner, database, extensions and the replication role are known to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contents {
    Unprepared,
    Prepared,
}

/// Whether the endpoint of the database is known to point here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    Unconfirmed,
    Confirmed,
}

/// Whether a replica receives the log of the one it follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streaming {
    Yes,
    No,
}

/// One look at everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Observed {
    pub me: Incarnation,
    /// Where this instance can be reached now; it changes with every pod.
    pub here: Upstream,
    pub volume: Volume,
    /// The last epoch in which this incarnation was made the primary, as it remembers on its volume.
    pub last_promoted: Epoch,
    pub register: Knowledge,
    pub postgres: Postgres,
}

/// The next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing to do until something changes.
    Wait(Waiting),
    /// Nothing to do because all is well.
    Serve(Serving),
    /// Remove what an interrupted initialisation or clone left.
    DiscardHalfMade,
    /// Forget the lost data: from now on this is another incarnation.
    RenewIncarnation,
    /// Take `epoch` in the register, if nobody else was faster.
    Claim {
        epoch: Epoch,
        why: ClaimReason,
    },
    /// Make the data directory of a new database.
    Initialise,
    /// Make the data directory from the leader's.
    Clone {
        from: Upstream,
        system_identifier: String,
    },
    /// Remember the epoch, then start. Clients are let in at once only if the record already names this instance.
    StartPrimary {
        epoch: Epoch,
        doors: Doors,
    },
    StartReplica {
        following: Upstream,
    },
    /// Make sure that the replication role, the owner, the database and its extensions are there.
    Prepare,
    /// Let clients in and say so in the register.
    Publish {
        epoch: Epoch,
    },
    /// Make the database's endpoint point here.
    PublishEndpoint,
    /// Receive the log from elsewhere.
    Follow {
        leader: Upstream,
    },
    /// Stop PostgreSQL at once: it must not go on as what it is.
    Stop(Refusal),
    /// Leave everything as it is until a person has decided.
    Refuse(Refusal),
}

/// Whether a primary lets clients in while it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doors {
    Open,
    Closed,
}

/// Why an epoch is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimReason {
    /// The database does not exist yet.
    NewDatabase,
    /// The register no longer knows of a promotion that this instance remembers.
    RegisterLost,
}

/// What a healthy instance is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serving {
    Primary,
    Replica,
}

/// What an instance waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    #[error(
        "the register has not been read yet: the Kubernetes API must answer once before anything starts"
    )]
    RegisterUnknown,
    #[error("the register (Lease) does not exist: the operator has to make it")]
    RegisterAbsent,
    #[error(
        "the register is unreadable: restore its annotation, or remove it so that the last primary publishes itself again"
    )]
    RegisterUnreadable,
    #[error(
        "the register has lost its content: the instance that was the primary has to publish itself again"
    )]
    RegisterEmptied,
    #[error("the register is empty and does not allow a new database to be made")]
    BootstrapForbidden,
    #[error("another instance makes the database and has not published it yet")]
    LeaderUnpublished,
    #[error("an election is open")]
    ElectionOpen,
    #[error(
        "this instance is named as the leader, but its volume has no data: bring the volume back, or restore a backup into a new Database"
    )]
    VolumeLost,
    #[error("PostgreSQL is starting")]
    PostgresStarting,
    #[error("this replica does not receive the leader's log")]
    NotStreaming,
    #[error(
        "this replica won an election, and promotion is not available in this version of geodb"
    )]
    PromotionUnavailable,
}

/// Why PostgreSQL must not run on this data. Nothing is changed on the volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "the data directory is foreign: {0}. It stays untouched; give this instance an empty volume, or its own"
    )]
    ForeignData(Foreign),
    #[error(
        "the data is of another database (system identifier {ours}, the register says {theirs}). It stays untouched; give this instance an empty volume, or its own"
    )]
    OtherDatabase { ours: String, theirs: String },
    #[error(
        "this instance was the primary and the register names another one. Its data may have diverged and stays untouched; delete the instance's claim and pod to clone it anew"
    )]
    Superseded,
    #[error(
        "the register names this instance as the primary, but its data is a replica's, and promotion is not available in this version of geodb"
    )]
    NotPromotable,
}

/// The next step of the instance that observed this.
#[must_use]
pub fn decide(observed: &Observed) -> Action {
    if let Volume::Foreign(foreign) = &observed.volume {
        return Action::Refuse(Refusal::ForeignData(foreign.clone()));
    }
    match &observed.postgres {
        Postgres::Stopped => match &observed.register {
            Knowledge::Unknown => Action::Wait(Waiting::RegisterUnknown),
            Knowledge::Absent => Action::Wait(Waiting::RegisterAbsent),
            Knowledge::Unreadable(_) => Action::Wait(Waiting::RegisterUnreadable),
            Knowledge::Read {
                register,
                bootstrap,
            } => match &observed.volume {
                Volume::Data(data) => with_data(observed, data, register, *bootstrap),
                _ => without_data(observed, register, *bootstrap),
            },
        },
        Postgres::Starting(Role::Primary) => match superseded(observed) {
            Some(refusal) => Action::Stop(refusal),
            None => Action::Wait(Waiting::PostgresStarting),
        },
        Postgres::Starting(Role::Replica { following }) => {
            let calm = Action::Wait(Waiting::PostgresStarting);
            replica(observed, following, calm)
        }
        Postgres::Replica {
            following,
            streaming,
        } => {
            let calm = match streaming {
                Streaming::Yes => Action::Serve(Serving::Replica),
                Streaming::No => Action::Wait(Waiting::NotStreaming),
            };
            replica(observed, following, calm)
        }
        Postgres::Primary(primary) => match superseded(observed) {
            Some(refusal) => Action::Stop(refusal),
            None => running_primary(observed, primary),
        },
    }
}

/// Nothing runs and there is nothing to run: make data, or say why not.
fn without_data(observed: &Observed, register: &Register, bootstrap: Bootstrap) -> Action {
    let lost = observed.volume == Volume::Lost || observed.last_promoted != Epoch::NONE;
    if register.epoch == Epoch::NONE {
        return match bootstrap {
            _ if lost => Action::Wait(Waiting::VolumeLost),
            Bootstrap::Allowed => Action::Claim {
                epoch: Epoch::FIRST,
                why: ClaimReason::NewDatabase,
            },
            Bootstrap::Forbidden => Action::Wait(Waiting::BootstrapForbidden),
        };
    }
    let instance = observed.me.instance();
    let named = |incarnation: Option<&Incarnation>| {
        incarnation.is_some_and(|named| named.instance() == instance)
    };
    if named(register.winner.as_ref())
        || named(register.record.as_ref().map(|record| &record.leader))
    {
        // Only the very first winner, before it has published anything, may begin with nothing.
        let first = register.epoch == Epoch::FIRST && register.record.is_none();
        return match observed.volume {
            Volume::HalfMade
                if first && register.winner.as_ref() == Some(&observed.me) && !lost =>
            {
                Action::DiscardHalfMade
            }
            Volume::Empty if first && register.winner.as_ref() == Some(&observed.me) && !lost => {
                Action::Initialise
            }
            _ => Action::Wait(Waiting::VolumeLost),
        };
    }
    match register.current_record() {
        None if register.winner.is_none() => Action::Wait(Waiting::ElectionOpen),
        None => Action::Wait(Waiting::LeaderUnpublished),
        Some(_) if lost => Action::RenewIncarnation,
        Some(_) if observed.volume == Volume::HalfMade => Action::DiscardHalfMade,
        Some(record) => Action::Clone {
            from: upstream(record),
            system_identifier: record.system_identifier.clone(),
        },
    }
}

/// Nothing runs, and there is data: start it as what the register says, or say why not.
fn with_data(
    observed: &Observed,
    data: &Data,
    register: &Register,
    bootstrap: Bootstrap,
) -> Action {
    if register.epoch == Epoch::NONE {
        let never_started = data.kind == DataKind::Primary && bootstrap == Bootstrap::Allowed;
        return match observed.last_promoted {
            // Made here for an epoch the register has forgotten before anything was published: it is as good as new.
            Epoch::NONE if never_started => Action::Claim {
                epoch: Epoch::FIRST,
                why: ClaimReason::NewDatabase,
            },
            Epoch::NONE => Action::Wait(Waiting::RegisterEmptied),
            last => Action::Claim {
                epoch: last.next(),
                why: ClaimReason::RegisterLost,
            },
        };
    }
    if let Some(refusal) = other_database(data, register) {
        return Action::Refuse(refusal);
    }
    if register.winner.as_ref() == Some(&observed.me) {
        return match data.kind {
            DataKind::Standby => Action::Refuse(Refusal::NotPromotable),
            DataKind::Primary if register.epoch < observed.last_promoted => Action::Claim {
                epoch: observed.last_promoted.next(),
                why: ClaimReason::RegisterLost,
            },
            DataKind::Primary => {
                let doors = if register.current_record().is_some() {
                    Doors::Open
                } else {
                    Doors::Closed
                };
                Action::StartPrimary {
                    epoch: register.epoch,
                    doors,
                }
            }
        };
    }
    if data.kind == DataKind::Primary || observed.last_promoted != Epoch::NONE {
        return Action::Refuse(Refusal::Superseded);
    }
    match register.current_record() {
        Some(record) => Action::StartReplica {
            following: upstream(record),
        },
        None if register.winner.is_none() => Action::Wait(Waiting::ElectionOpen),
        None => Action::Wait(Waiting::LeaderUnpublished),
    }
}

/// A replica starts or runs: follow the published leader; without news, `calm`.
fn replica(observed: &Observed, following: &Upstream, calm: Action) -> Action {
    let Knowledge::Read { register, .. } = &observed.register else {
        return calm;
    };
    if let Volume::Data(data) = &observed.volume
        && let Some(refusal) = other_database(data, register)
    {
        return Action::Stop(refusal);
    }
    if register.winner.as_ref() == Some(&observed.me) {
        return Action::Wait(Waiting::PromotionUnavailable);
    }
    match register.current_record() {
        Some(record) if upstream(record) != *following => Action::Follow {
            leader: upstream(record),
        },
        _ => calm,
    }
}

/// A primary runs and may go on: prepare it, publish it, keep what is published true.
fn running_primary(observed: &Observed, primary: &Primary) -> Action {
    // An outage of the API stops nothing that works; neither does the loss of the Lease.
    let Knowledge::Read { register, .. } = &observed.register else {
        return Action::Serve(Serving::Primary);
    };
    if register.epoch < observed.last_promoted {
        return Action::Claim {
            epoch: observed.last_promoted.next(),
            why: ClaimReason::RegisterLost,
        };
    }
    if primary.contents == Contents::Unprepared {
        return Action::Prepare;
    }
    match register.current_record() {
        Some(record) if tells_the_truth(record, observed, primary) => match primary.endpoint {
            Endpoint::Confirmed => Action::Serve(Serving::Primary),
            Endpoint::Unconfirmed => Action::PublishEndpoint,
        },
        _ => Action::Publish {
            epoch: register.epoch,
        },
    }
}

fn tells_the_truth(record: &Record, observed: &Observed, primary: &Primary) -> bool {
    upstream(record) == observed.here
        && record.version == primary.version
        && record.timeline == primary.timeline
}

/// Why a primary must not go on, if it must not: somebody else has, or may have, taken over.
fn superseded(observed: &Observed) -> Option<Refusal> {
    let Knowledge::Read { register, .. } = &observed.register else {
        return None;
    };
    if register.epoch == Epoch::NONE || register.winner.as_ref() == Some(&observed.me) {
        return None;
    }
    if let Volume::Data(data) = &observed.volume
        && let Some(refusal) = other_database(data, register)
    {
        return Some(refusal);
    }
    Some(Refusal::Superseded)
}

fn other_database(data: &Data, register: &Register) -> Option<Refusal> {
    let record = register.record.as_ref()?;
    let other = record.system_identifier != data.system_identifier;
    other.then(|| Refusal::OtherDatabase {
        ours: data.system_identifier.clone(),
        theirs: record.system_identifier.clone(),
    })
}

fn upstream(record: &Record) -> Upstream {
    Upstream {
        address: record.address.clone(),
        port: record.port,
    }
}

#[cfg(test)]
mod tests;
