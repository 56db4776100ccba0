//! Refusals that `serve` makes itself, before or after `core`: who are you, not here, not like this.

use serde_json::{Value, json};

/// Why `serve` refuses. `core` has its own reasons for everything about objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    BadRequest,
    Conflict,
    InternalError,
    Invalid,
    NotFound,
    NotImplemented,
    RequestEntityTooLarge,
    ServiceUnavailable,
    Unauthorized,
    UnsupportedMediaType,
}

impl Reason {
    fn code(self) -> u16 {
        match self {
            Reason::BadRequest => 400,
            Reason::Unauthorized => 401,
            Reason::NotFound => 404,
            Reason::Conflict => 409,
            Reason::RequestEntityTooLarge => 413,
            Reason::UnsupportedMediaType => 415,
            Reason::Invalid => 422,
            Reason::InternalError => 500,
            Reason::NotImplemented => 501,
            Reason::ServiceUnavailable => 503,
        }
    }
}

/// A refusal as a client sees it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) body: Value,
}

impl Refusal {
    pub(super) fn new(reason: Reason, message: impl AsRef<str>) -> Self {
        let code = reason.code();
        let body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message.as_ref(),
            "reason": format!("{reason:?}"),
            "code": code,
        });
        Self { code, body }
    }

    pub(super) fn about(mut self, kind: &str, name: &str) -> Self {
        self.body["details"] = json!({"name": name, "kind": kind});
        self
    }

    pub(super) fn not_found(resource: &str, name: &str) -> Self {
        Self::new(Reason::NotFound, format!("{resource} {name:?} not found")).about(resource, name)
    }
}
