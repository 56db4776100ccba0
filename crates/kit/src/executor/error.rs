//! Why a step failed, and who must act.

use std::time::Duration;

use serde::Serialize;
use thiserror::Error;

use super::step::{Ours, Target};

/// Who must act after an error. Also what a runner does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Who {
    /// Nobody: it goes away by itself. Try again after a backoff.
    Transient,
    /// The operator: the world is not what it saw. Look again.
    Conflict,
    /// A person: a foreign object in the way, a missing permission, a full quota.
    User,
    /// The operator's author: the server will never accept this.
    Bug,
}

#[derive(Debug, Error)]
pub enum StepError {
    #[error("failed to {verb} {target}: no answer in {} s; it may have happened or not", deadline.as_secs())]
    Timeout {
        verb: &'static str,
        target: Target,
        deadline: Duration,
    },
    #[error(
        "failed to {verb} {target}: the API server could not be asked; it may have happened or not"
    )]
    Unreachable {
        verb: &'static str,
        target: Target,
        source: Box<kube::Error>,
    },
    #[error("failed to {verb} {target}: the server is too busy or not ready: {message}")]
    Busy {
        verb: &'static str,
        target: Target,
        message: String,
    },
    #[error("failed to {verb} {target}: it changed since it was looked at: {message}")]
    Conflict {
        verb: &'static str,
        target: Target,
        message: String,
    },
    #[error("failed to {verb} {target}: the one there is still being deleted")]
    StillDeleting { verb: &'static str, target: Target },
    #[error(
        "failed to {verb} {target}: there is one already and it is not ours (it lacks {ours}); \
         it is left alone: rename or remove it to go on"
    )]
    Foreign {
        verb: &'static str,
        target: Target,
        ours: Ours,
    },
    #[error(
        "failed to {verb} {target}: not allowed: {message}; grant the permission or raise the quota"
    )]
    Forbidden {
        verb: &'static str,
        target: Target,
        message: String,
    },
    #[error("failed to {verb} {target}: the server does not accept it ({reason}): {message}")]
    Rejected {
        verb: &'static str,
        target: Target,
        reason: String,
        message: String,
    },
}

impl StepError {
    pub fn who(&self) -> Who {
        match self {
            Self::Timeout { .. }
            | Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::StillDeleting { .. } => Who::Transient,
            Self::Conflict { .. } => Who::Conflict,
            Self::Foreign { .. } | Self::Forbidden { .. } => Who::User,
            Self::Rejected { .. } => Who::Bug,
        }
    }

    pub fn target(&self) -> &Target {
        match self {
            Self::Timeout { target, .. }
            | Self::Unreachable { target, .. }
            | Self::Busy { target, .. }
            | Self::Conflict { target, .. }
            | Self::StillDeleting { target, .. }
            | Self::Foreign { target, .. }
            | Self::Forbidden { target, .. }
            | Self::Rejected { target, .. } => target,
        }
    }

    /// One word, the same in logs, metrics and conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "Timeout",
            Self::Unreachable { .. } => "Unreachable",
            Self::Busy { .. } => "ServerBusy",
            Self::Conflict { .. } => "Conflict",
            Self::StillDeleting { .. } => "StillDeleting",
            Self::Foreign { .. } => "ForeignObject",
            Self::Forbidden { .. } => "Forbidden",
            Self::Rejected { .. } => "Rejected",
        }
    }

    /// Sorts what the client returned. "Not found" is a conflict here: where it is fine, the caller has looked already.
    pub(super) fn from_kube(verb: &'static str, target: &Target, error: kube::Error) -> Self {
        let target = target.clone();
        let status = match error {
            kube::Error::Api(status) => status,
            // Any other error means that there was no readable answer.
            source => {
                return Self::Unreachable {
                    verb,
                    target,
                    source: Box::new(source),
                };
            }
        };
        let message = status.message.clone();
        // A patch that names another UID is answered with 422 and not 409, because to the server the UID is a field.
        let other_uid = status.details.as_ref().is_some_and(|details| {
            !details.causes.is_empty()
                && details
                    .causes
                    .iter()
                    .all(|cause| cause.field == "metadata.uid")
        });
        match status.code {
            404 | 409 => Self::Conflict {
                verb,
                target,
                message,
            },
            422 if other_uid => Self::Conflict {
                verb,
                target,
                message,
            },
            401 | 403 => Self::Forbidden {
                verb,
                target,
                message,
            },
            408 | 429 | 500..=599 => Self::Busy {
                verb,
                target,
                message,
            },
            _ => Self::Rejected {
                verb,
                target,
                reason: status.reason.clone(),
                message,
            },
        }
    }
}
