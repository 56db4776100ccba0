//! A Kubernetes API in one process, and what turns it into a place where pods run with no cluster.
//!
//! - [`core`] is pure: one table-driven pipeline over JSON values, no clock, no randomness, no IO of its own.
//! - [`present`] is pure: what clients see of it (discovery, tables, OpenAPI).
//! - [`serve`] wraps `core` as a tower service, speaks HTTP and TLS, authenticates, stores.
//! - [`controllers`] and [`node`] are ordinary API clients: they would run against a real API server just as well.
//!
//! What it is not: Kubernetes in Rust. A behaviour is what a real API server does, or it is refused loudly; see `docs/sandbox.md`.

pub mod controllers;
pub mod core;
pub mod node;
pub mod present;
pub mod serve;
