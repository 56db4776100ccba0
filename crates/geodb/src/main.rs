//! The geodb binary: one program that is the operator, the agent and the sandbox, so that a cluster needs one image and a laptop one file.
//!
//! Here are the command line, logging and the composition of the parts; what they do is in their crates.

mod agent;
mod cli;
mod logging;
mod operator;
mod sandbox;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use cli::{Arguments, Command};

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            // The whole chain, because the last cause is usually what the reader can act on.
            eprintln!("geodb: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    match arguments.command {
        Command::Crds => {
            print_crds()?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Agent(command) => agent::main(command),
        Command::Operator(arguments) => runtime()?.block_on(operator::main(arguments)),
        Command::Sandbox(arguments) => {
            let runtime = runtime()?;
            let code = runtime.block_on(Box::pin(sandbox::main(arguments)));
            // A reader blocked on standard input must not keep a finished sandbox from exiting.
            runtime.shutdown_background();
            code
        }
    }
}

/// Every CRD as one JSON list: `geodb crds | kubectl apply -f -`. The YAML for reading is in deploy/crds.
fn print_crds() -> Result<()> {
    let items = serde_json::to_value(geodb_api::crds()).context("failed to serialize the CRDs")?;
    let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
    let text = serde_json::to_string_pretty(&list).context("failed to serialize the CRDs")?;
    println!("{text}");
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    // kube and tokio-postgres both bring rustls; the process says once which cryptography it uses. An error means it was already said.
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("failed to start the async runtime")
}
