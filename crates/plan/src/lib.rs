//! What the operator decides: a [`World`] in, a [`Decision`] out.
//!
//! Pure: no client, no clock, no randomness. The operator observes a World from its caches, calls [`decide`], and executes the steps;
//! a simulator can do the same and stop anywhere in between.

pub mod conditions;
mod decide;
mod deletion;
mod instances;
pub mod manifests;
mod report;
pub mod step;
pub mod world;

pub use decide::decide;
pub use report::{Trouble, explain};
pub use step::{
    Decision, DeleteReason, Event, EventKind, EventReason, PatchReason, Step, Target, TargetKind,
};
pub use world::{Claim, Config, Pod, Register, Seen, World};

#[cfg(test)]
mod tests;
