//! Where logs go. `GEODB_LOG` filters them as `RUST_LOG` does elsewhere (`GEODB_LOG=geodb_operator=debug`).

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

const VARIABLE: &str = "GEODB_LOG";
/// Our own crates tell what they do; libraries only what is wrong.
const DEFAULT: &str =
    "warn,geodb=info,geodb_agent=info,geodb_kit=info,geodb_operator=info,geodb_sandbox=info";

fn filter() -> Result<EnvFilter> {
    match std::env::var(VARIABLE) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text).with_context(|| {
            format!("{VARIABLE}={text:?} is not a log filter; write for example {VARIABLE}=debug")
        }),
        _ => EnvFilter::try_new(DEFAULT).context("the default log filter is not valid"),
    }
}

/// For the operator and the agent: lines on standard error, where a container's runtime collects them.
pub fn to_standard_error() -> Result<()> {
    tracing_subscriber::fmt()
        .with_env_filter(filter()?)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .try_init()
        .map_err(|error| anyhow::anyhow!("failed to start logging: {error}"))
}

/// For the sandbox: appended to a file, so that the terminal belongs to the progress display.
pub fn to_file(path: &Path) -> Result<()> {
    let filter = filter()?;
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| format!("failed to open the log file {}", path.display()))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_writer(Arc::new(file))
        .try_init()
        .map_err(|error| anyhow::anyhow!("failed to start logging: {error}"))
}
