//! Refusals as the `Status` objects a real API server answers with. The one place where they are made.

use serde_json::{Map, Value, json};

use super::limits;
use super::response::Response;

pub type Outcome<T> = Result<T, Box<Failure>>;

/// `reason` of a `Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    AlreadyExists,
    BadRequest,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotAcceptable,
    NotFound,
    NotImplemented,
    RequestEntityTooLarge,
    Timeout,
    TooManyRequests,
    UnsupportedMediaType,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::AlreadyExists => "AlreadyExists",
            Reason::BadRequest => "BadRequest",
            Reason::Conflict => "Conflict",
            Reason::Expired => "Expired",
            Reason::Forbidden => "Forbidden",
            Reason::Invalid => "Invalid",
            Reason::MethodNotAllowed => "MethodNotAllowed",
            Reason::NotAcceptable => "NotAcceptable",
            Reason::NotFound => "NotFound",
            Reason::NotImplemented => "NotImplemented",
            Reason::RequestEntityTooLarge => "RequestEntityTooLarge",
            Reason::Timeout => "Timeout",
            Reason::TooManyRequests => "TooManyRequests",
            Reason::UnsupportedMediaType => "UnsupportedMediaType",
        }
    }
}

/// Why one field was refused. The text is both the machine's `reason` and, in [`Cause`]'s message, the person's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CauseReason {
    Duplicate,
    FieldManagerConflict,
    Forbidden,
    Invalid,
    NamespaceTerminating,
    NotFound,
    NotSupported,
    Required,
    ResourceVersionTooLarge,
    TooLong,
    TooMany,
    TypeInvalid,
    /// The cause of an eviction that a disruption budget does not allow.
    DisruptionBudget,
}

impl CauseReason {
    fn as_str(self) -> &'static str {
        match self {
            CauseReason::Duplicate => "FieldValueDuplicate",
            CauseReason::FieldManagerConflict => "FieldManagerConflict",
            CauseReason::Forbidden => "FieldValueForbidden",
            CauseReason::Invalid => "FieldValueInvalid",
            CauseReason::NamespaceTerminating => "NamespaceTerminating",
            CauseReason::NotFound => "FieldValueNotFound",
            CauseReason::NotSupported => "FieldValueNotSupported",
            CauseReason::Required => "FieldValueRequired",
            CauseReason::ResourceVersionTooLarge => "ResourceVersionTooLarge",
            CauseReason::TooLong => "FieldValueTooLong",
            CauseReason::TooMany => "FieldValueTooMany",
            CauseReason::TypeInvalid => "FieldValueTypeInvalid",
            CauseReason::DisruptionBudget => "DisruptionBudget",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    pub reason: CauseReason,
    pub field: String,
    pub message: String,
}

impl Cause {
    pub fn new(reason: CauseReason, field: impl Into<String>, message: impl Into<String>) -> Cause {
        Cause {
            reason,
            field: field.into(),
            message: message.into(),
        }
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Cause {
        let message = if detail.is_empty() {
            "Required value".to_owned()
        } else {
            format!("Required value: {detail}")
        };
        Cause::new(CauseReason::Required, field, message)
    }

    /// `value` is shown as JSON, as a real server shows strings, numbers and composites.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
        Cause::new(
            CauseReason::Invalid,
            field,
            format!("Invalid value: {value}: {detail}"),
        )
    }

    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
        Cause::new(
            CauseReason::TypeInvalid,
            field,
            format!("Invalid value: {value}: {detail}"),
        )
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
        Cause::new(
            CauseReason::Forbidden,
            field,
            format!("Forbidden: {detail}"),
        )
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
        Cause::new(
            CauseReason::Duplicate,
            field,
            format!("Duplicate value: {value}"),
        )
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Cause {
        let words: Vec<String> = supported.iter().map(|word| format!("{word:?}")).collect();
        Cause::new(
            CauseReason::NotSupported,
            field,
            format!(
                "Unsupported value: {value}: supported values: {}",
                words.join(", ")
            ),
        )
    }

    pub fn too_long(field: impl Into<String>, maximum: usize) -> Cause {
        Cause::new(
            CauseReason::TooLong,
            field,
            format!("Too long: may not be more than {maximum} bytes"),
        )
    }

    pub fn too_many(field: impl Into<String>, actual: usize, maximum: u64) -> Cause {
        let noun = if maximum == 1 { "item" } else { "items" };
        Cause::new(
            CauseReason::TooMany,
            field,
            format!("Too many: {actual}: must have at most {maximum} {noun}"),
        )
    }

    fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("reason".into(), self.reason.as_str().into());
        object.insert("message".into(), self.message.as_str().into());
        if !self.field.is_empty() {
            object.insert("field".into(), self.field.as_str().into());
        }
        Value::Object(object)
    }
}

/// What a refusal is about. Empty fields are left out, as the API does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    pub name: String,
    pub group: String,
    pub kind: String,
    pub uid: String,
    pub causes: Vec<Cause>,
    pub retry_after_seconds: u32,
}

impl Details {
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        for (key, value) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !value.is_empty() {
                object.insert(key.into(), value.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            object.insert(
                "causes".into(),
                self.causes.iter().map(Cause::to_json).collect(),
            );
        }
        if self.retry_after_seconds > 0 {
            object.insert("retryAfterSeconds".into(), self.retry_after_seconds.into());
        }
        Value::Object(object)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Failure {
    pub code: u16,
    pub reason: Option<Reason>,
    pub message: String,
    pub details: Option<Details>,
    /// A new token with which an expired list may go on, inconsistently.
    pub continue_token: Option<String>,
}

impl Failure {
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Box<Failure> {
        Box::new(Failure {
            code,
            reason: Some(reason),
            message: message.into(),
            details: None,
            continue_token: None,
        })
    }

    fn about(code: u16, reason: Reason, message: String, details: Details) -> Box<Failure> {
        Box::new(Failure {
            code,
            reason: Some(reason),
            message,
            details: Some(details),
            continue_token: None,
        })
    }

    pub fn bad_request(message: impl Into<String>) -> Box<Failure> {
        Failure::new(400, Reason::BadRequest, message)
    }

    /// A 500 with no reason, which is how a real server answers some of its clients' mistakes.
    pub fn internal(message: impl Into<String>) -> Box<Failure> {
        Box::new(Failure {
            code: 500,
            reason: None,
            message: message.into(),
            details: None,
            continue_token: None,
        })
    }

    pub fn not_found(target: &Named<'_>) -> Box<Failure> {
        Failure::about(
            404,
            Reason::NotFound,
            format!("{} {:?} not found", target.qualified(), target.name),
            target.details(),
        )
    }

    pub fn unknown_resource() -> Box<Failure> {
        Failure::about(
            404,
            Reason::NotFound,
            "the server could not find the requested resource".into(),
            Details::default(),
        )
    }

    pub fn already_exists(target: &Named<'_>) -> Box<Failure> {
        Failure::about(
            409,
            Reason::AlreadyExists,
            format!("{} {:?} already exists", target.qualified(), target.name),
            target.details(),
        )
    }

    pub fn conflict(target: &Named<'_>, why: &str) -> Box<Failure> {
        let message = format!(
            "Operation cannot be fulfilled on {} {:?}: {why}",
            target.qualified(),
            target.name
        );
        Failure::about(409, Reason::Conflict, message, target.details())
    }

    pub fn modified(target: &Named<'_>) -> Box<Failure> {
        Failure::conflict(
            target,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(target: &Named<'_>, why: &str) -> Box<Failure> {
        let message = if target.name.is_empty() {
            format!("{} is forbidden: {why}", target.qualified())
        } else {
            format!(
                "{} {:?} is forbidden: {why}",
                target.qualified(),
                target.name
            )
        };
        Failure::about(403, Reason::Forbidden, message, target.details())
    }

    pub fn method_not_allowed() -> Box<Failure> {
        let message = "the server does not allow this method on the requested resource".into();
        Failure::about(405, Reason::MethodNotAllowed, message, Details::default())
    }

    /// Real servers can do it, this one says loudly that it cannot.
    pub fn not_implemented(message: impl Into<String>) -> Box<Failure> {
        Failure::new(501, Reason::NotImplemented, message)
    }

    pub fn too_large_version(asked: u64, current: u64) -> Box<Failure> {
        let cause = Cause::new(
            CauseReason::ResourceVersionTooLarge,
            "",
            "Too large resource version",
        );
        let details = Details {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..Details::default()
        };
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Failure::about(504, Reason::Timeout, message, details)
    }

    pub fn with_details(mut self: Box<Failure>, details: Details) -> Box<Failure> {
        self.details = Some(details);
        self
    }

    /// `target.kind` is a kind here (`ConfigMap`), not a resource.
    pub fn invalid(target: &Named<'_>, mut causes: Vec<Cause>) -> Box<Failure> {
        causes.truncate(limits::CAUSES);
        let mut lines: Vec<String> = Vec::with_capacity(causes.len());
        for cause in &causes {
            let line = format!("{}: {}", cause.field, cause.message);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        let list = if lines.len() == 1 {
            lines.remove(0)
        } else {
            format!("[{}]", lines.join(", "))
        };
        let message = format!(
            "{} {:?} is invalid: {list}",
            target.qualified(),
            target.name
        );
        Failure::about(
            422,
            Reason::Invalid,
            message,
            Details {
                causes,
                ..target.details()
            },
        )
    }

    pub fn status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.as_str().into());
        }
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure", "message": self.message});
        if let Some(reason) = self.reason {
            status["reason"] = reason.as_str().into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_json();
        }
        status["code"] = self.code.into();
        status
    }

    pub fn response(&self, warnings: Vec<String>) -> Response {
        Response::Json {
            status: self.code,
            body: self.status(),
            warnings,
        }
    }
}

/// What a message names: a resource (`deployments.apps "d"`) or a kind (`Deployment.apps "d"`), and an object of it.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    pub group: &'a str,
    pub kind: &'a str,
    pub name: &'a str,
}

impl Named<'_> {
    fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.kind.to_owned()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    fn details(&self) -> Details {
        Details {
            name: self.name.to_owned(),
            group: self.group.to_owned(),
            kind: self.kind.to_owned(),
            ..Details::default()
        }
    }
}
