//! Parameters of writes, checked in one place.

use crate::core::decode::FieldValidation;
use crate::core::error::{Cause, Failure, Named, Outcome};
use crate::core::fields::Writer;
use crate::core::limits;
use crate::core::request::Request;

/// The name of a field manager that says nothing about itself.
const UNKNOWN_MANAGER: &str = "unknown";

#[derive(Clone, Debug)]
pub struct WriteOptions {
    /// Everything happens but the write.
    pub dry_run: bool,
    pub manager: String,
    pub validation: FieldValidation,
    /// `status`, `scale`, …; empty for the object itself.
    pub subresource: &'static str,
}

impl WriteOptions {
    /// `options` is the kind that messages name: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
    pub fn of(request: &Request, options: &'static str) -> Outcome<WriteOptions> {
        let validation = FieldValidation::of(request, options)?;
        let given = request.parameter("fieldManager").unwrap_or_default();
        if given.len() > limits::FIELD_MANAGER_BYTES {
            return Err(invalid(
                options,
                Cause::too_long("fieldManager", limits::FIELD_MANAGER_BYTES),
            ));
        }
        if let Some(character) = given.chars().find(|character| character.is_control()) {
            let detail = format!("should only contain printable characters, found {character:?}");
            return Err(invalid(
                options,
                Cause::invalid("fieldManager", &given.into(), &detail),
            ));
        }
        Ok(WriteOptions {
            dry_run: dry_run(request, options)?,
            manager: manager(request, given),
            validation,
            subresource: "",
        })
    }

    pub fn at(self, subresource: &'static str) -> WriteOptions {
        WriteOptions {
            subresource,
            ..self
        }
    }

    pub fn writer(&self, now: jiff::Timestamp) -> Writer<'_> {
        Writer {
            manager: &self.manager,
            subresource: self.subresource,
            now,
        }
    }
}

/// Everything, or nothing: there is no other dry run.
pub fn dry_run(request: &Request, options: &'static str) -> Outcome<bool> {
    match request.parameter("dryRun") {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(invalid(
            options,
            Cause::not_supported("dryRun", &vec![other].into(), &["All"]),
        )),
    }
}

pub fn invalid(options: &'static str, cause: Cause) -> Box<Failure> {
    Failure::invalid(
        &Named {
            group: "meta.k8s.io",
            kind: options,
            name: "",
        },
        vec![cause],
    )
}

fn manager(request: &Request, given: &str) -> String {
    if !given.is_empty() {
        return given.to_owned();
    }
    let agent = request.user_agent.split('/').next().unwrap_or_default();
    let mut end = agent.len().min(limits::FIELD_MANAGER_BYTES);
    while !agent.is_char_boundary(end) {
        end -= 1;
    }
    let agent: String = agent[..end]
        .chars()
        .filter(|character| !character.is_control())
        .collect();
    if agent.is_empty() {
        UNKNOWN_MANAGER.to_owned()
    } else {
        agent
    }
}
