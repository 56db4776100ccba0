//! What is particular to a built-in kind: its defaults, what the server adds on creation, what it checks, what may not change.
//!
//! A strategy is a row of functions over JSON; the pipeline in `verbs` is the same for all kinds. What a real server checks and a strategy
//! does not is listed in `docs/sandbox.md`.

pub mod config;
pub mod containers;
pub mod definition;
pub mod event;
pub mod namespace;
pub mod pod;
mod quantity;
pub mod rbac;
pub mod service;
pub mod storage;
pub mod workload;

use rand::RngCore;
use serde_json::Value;

use super::error::{Cause, Outcome};
use super::state::State;

/// What a strategy may look at when it completes an object.
pub struct Admission<'a> {
    pub state: &'a State,
    pub rng: &'a mut dyn RngCore,
    pub now: jiff::Timestamp,
}

#[derive(Debug)]
pub struct Strategy {
    /// Fills in what is absent, on every write.
    pub default: fn(&mut Value),
    /// What the server itself sets when an object is created: after defaults, before validation.
    pub create: fn(&mut Value, &mut Admission<'_>) -> Outcome<()>,
    /// The same when it is changed: new, old.
    pub update: fn(&mut Value, &Value, &mut Admission<'_>) -> Outcome<()>,
    pub validate: fn(&Value) -> Vec<Cause>,
    /// New, old. Not called for status writes.
    pub validate_update: fn(&Value, &Value) -> Vec<Cause>,
}

/// A kind about which there is nothing particular.
pub const PLAIN: Strategy = Strategy {
    default: no_defaults,
    create: nothing_to_add,
    update: nothing_to_keep,
    validate: accept,
    validate_update: accept_change,
};

pub(crate) fn no_defaults(_: &mut Value) {}

pub(crate) fn nothing_to_add(_: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    Ok(())
}

pub(crate) fn nothing_to_keep(_: &mut Value, _: &Value, _: &mut Admission<'_>) -> Outcome<()> {
    Ok(())
}

pub(crate) fn accept(_: &Value) -> Vec<Cause> {
    Vec::new()
}

pub(crate) fn accept_change(_: &Value, _: &Value) -> Vec<Cause> {
    Vec::new()
}
