//! `geodb agent`: what a pod's containers call. The work is in the crate `geodb-agent`.

use std::process::ExitCode;

use anyhow::{Context, Result};
use geodb_agent::Environment;

use crate::cli::AgentCommand;
use crate::logging;

/// Runs or installs the agent. Not async: the agent brings a runtime of its own, with one thread.
pub fn main(command: AgentCommand) -> Result<ExitCode> {
    logging::to_standard_error()?;
    match command {
        AgentCommand::Run => {
            let environment = Environment::from_process()
                .context("this is run by a pod that the operator made, not by hand")?;
            geodb_agent::run(environment)
        }
        AgentCommand::Install { directory } => {
            geodb_agent::install(&directory)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
