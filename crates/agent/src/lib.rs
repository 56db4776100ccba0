//! PID 1 of an instance's pod: makes, configures, supervises and watches over one PostgreSQL.
//!
//! The agent observes (volume, register, PostgreSQL), asks [`geodb_ha::instance::decide`] for the next step, does that one step, and
//! looks again. Modules by what they touch: [`volume`] the claim, [`postgres`] the programs and the server, [`register`] and [`endpoint`]
//! the Kubernetes API, [`processes`] the children, [`health`] the probes; [`supervisor`] is the loop.
//!
//! What it is not: it holds no policy of its own (that is in `geodb-ha`), and it does not fail over yet.

mod backoff;
mod endpoint;
mod environment;
mod files;
mod health;
mod install;
mod limits;
mod postgres;
mod processes;
mod register;
mod supervisor;
mod volume;

use std::process::ExitCode;

use anyhow::Context;

pub use environment::{Environment, EnvironmentError};
pub use install::install;

/// Runs the agent until it is told to stop. Builds its own runtime: call it from a thread without one.
pub fn run(environment: Environment) -> anyhow::Result<ExitCode> {
    // One thread: the agent waits for most of its life, and each further thread costs memory that its budget does not have.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(limits::BLOCKING_THREADS_MAX)
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(supervisor::run(environment))
}
