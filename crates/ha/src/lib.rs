//! The protocol between the agents, as values and pure functions: register, positions, and what one instance does next.
//!
//! - [`register`] is what the agents agree on: the document in the Lease, and the identities and positions in it.
//! - [`environment`] is what a pod hands to its agent: variables, paths, ports. The operator builds pods from the same constants.
//! - [`instance`] decides the next step of one instance from what it observes.
//!
//! What it is not: nothing here reads a clock, a file or the network, and there is no election yet beyond the choice of the first primary.

pub mod environment;
pub mod instance;
pub mod register;

pub use register::{Epoch, Incarnation, Lsn, Record, Register, RegisterError, Timeline};
