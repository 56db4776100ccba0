//! Decisions in words: the same reason in the log, in the probes and in tests.

use super::{Action, ClaimReason, Refusal, Serving, Waiting};

impl Action {
    /// One word for machines to compare; stable between versions.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Action::Wait(waiting) => waiting.reason(),
            Action::Serve(Serving::Primary) => "Primary",
            Action::Serve(Serving::Replica) => "Replica",
            Action::DiscardHalfMade => "DiscardingHalfMadeData",
            Action::RenewIncarnation => "RenewingIncarnation",
            Action::Claim {
                why: ClaimReason::NewDatabase,
                ..
            } => "ClaimingNewDatabase",
            Action::Claim {
                why: ClaimReason::RegisterLost,
                ..
            } => "ReclaimingLostRegister",
            Action::Initialise => "Initialising",
            Action::Clone { .. } => "Cloning",
            Action::StartPrimary { .. } => "StartingPrimary",
            Action::StartReplica { .. } => "StartingReplica",
            Action::Prepare => "Preparing",
            Action::Publish { .. } => "Publishing",
            Action::PublishEndpoint => "PublishingEndpoint",
            Action::Follow { .. } => "FollowingLeader",
            Action::Stop(refusal) | Action::Refuse(refusal) => refusal.reason(),
        }
    }

    /// One sentence for people.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Action::Wait(waiting) => waiting.to_string(),
            Action::Serve(Serving::Primary) => "accepts writes and is published".to_owned(),
            Action::Serve(Serving::Replica) => "streams from the leader".to_owned(),
            Action::DiscardHalfMade => {
                "removes what an interrupted initialisation or clone left".to_owned()
            }
            Action::RenewIncarnation => {
                "begins anew: the data of this incarnation is gone and another instance leads"
                    .to_owned()
            }
            Action::Claim { epoch, .. } => {
                format!("writes itself into the register as the winner of epoch {epoch}")
            }
            Action::Initialise => "makes a new database".to_owned(),
            Action::Clone { from, .. } => {
                format!("clones the leader at {}:{}", from.address, from.port)
            }
            Action::StartPrimary { epoch, .. } => format!("starts as the primary of epoch {epoch}"),
            Action::StartReplica { following } => format!(
                "starts as a replica of {}:{}",
                following.address, following.port
            ),
            Action::Prepare => "makes the roles, the database and its extensions".to_owned(),
            Action::Publish { epoch } => format!("publishes itself as the leader of epoch {epoch}"),
            Action::PublishEndpoint => "makes the read-write endpoint point here".to_owned(),
            Action::Follow { leader } => {
                format!("turns to the leader at {}:{}", leader.address, leader.port)
            }
            Action::Stop(refusal) | Action::Refuse(refusal) => refusal.to_string(),
        }
    }
}

impl Waiting {
    fn reason(self) -> &'static str {
        match self {
            Waiting::RegisterUnknown => "RegisterUnknown",
            Waiting::RegisterAbsent => "RegisterAbsent",
            Waiting::RegisterUnreadable => "RegisterUnreadable",
            Waiting::RegisterEmptied => "RegisterEmptied",
            Waiting::BootstrapForbidden => "BootstrapForbidden",
            Waiting::LeaderUnpublished => "LeaderUnpublished",
            Waiting::ElectionOpen => "ElectionOpen",
            Waiting::VolumeLost => "VolumeLost",
            Waiting::PostgresStarting => "PostgresStarting",
            Waiting::NotStreaming => "NotStreaming",
            Waiting::PromotionUnavailable => "PromotionUnavailable",
        }
    }
}

impl Refusal {
    fn reason(&self) -> &'static str {
        match self {
            Refusal::ForeignData(_) => "ForeignData",
            Refusal::OtherDatabase { .. } => "OtherDatabase",
            Refusal::Superseded => "Superseded",
            Refusal::NotPromotable => "NotPromotable",
        }
    }
}
