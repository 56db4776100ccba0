//! The command line: what can be asked for, and what each word means. Nothing is done here.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// The most virtual nodes one sandbox makes; each has an address, a lease and a log endpoint of its own.
const NODES_MAX: i64 = 16;

#[derive(Parser)]
#[command(
    name = "geodb",
    version,
    about = "PostgreSQL + PostGIS databases on Kubernetes, or with no cluster at all"
)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Run the operator against a cluster
    Operator(OperatorArguments),
    /// Run inside an instance's pod (called by pods, not by people)
    #[command(subcommand)]
    Agent(AgentCommand),
    /// A Kubernetes API, a node and the operator in one process, for trying geodb and for CI
    Sandbox(SandboxArguments),
    /// Print the CustomResourceDefinitions as JSON, for `kubectl apply -f -`
    Crds,
}

#[derive(Args)]
pub struct OperatorArguments {
    /// The kubeconfig to use; without it KUBECONFIG, ~/.kube/config or the pod's own service account
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The PostgreSQL image of Databases that name none
    #[arg(
        long,
        value_name = "IMAGE",
        default_value = "postgis/postgis:15-3.3",
        env = "GEODB_DEFAULT_IMAGE"
    )]
    pub default_image: String,
    /// The image that carries this program; its agent is copied into every instance's pod
    #[arg(long, value_name = "IMAGE", default_value_t = default_agent_image(), env = "GEODB_AGENT_IMAGE")]
    pub agent_image: String,
}

#[derive(Subcommand)]
pub enum AgentCommand {
    /// PID 1 of an instance: make, configure and supervise its PostgreSQL
    Run,
    /// Copy this program into DIRECTORY, so that another image's container can run it
    Install { directory: PathBuf },
}

#[derive(Args)]
pub struct SandboxArguments {
    /// Keep everything in DIRECTORY and go on from there next time; without it a temporary directory that is removed at the end
    #[arg(long, value_name = "DIRECTORY")]
    pub data: Option<PathBuf>,
    /// How many virtual nodes run pods; without it as many as the data directory already has, or one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// Apply the objects in FILE, `-` for standard input; may be given several times
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Exit 0 once everything applied is Ready, or non-zero with the reason
    #[arg(long)]
    pub until_ready: bool,
    /// How long to wait for Ready, as in 90s or 5m
    #[arg(long, value_name = "T", default_value = "5m", value_parser = parse_duration)]
    pub timeout: Duration,
    /// Once everything is Ready: run COMMAND with KUBECONFIG and PG* set, stop everything, exit with its status
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// The image name under which the sandbox, and our registry, know this very version.
pub fn default_agent_image() -> String {
    format!("geodb:{}", env!("CARGO_PKG_VERSION"))
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let duration: jiff::SignedDuration = text
        .parse()
        .map_err(|_| "write a duration as in 90s, 5m or 1h30m".to_owned())?;
    match Duration::try_from(duration) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a duration is longer than nothing".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn sandbox(line: &[&str]) -> Result<SandboxArguments, clap::Error> {
        let words = ["geodb", "sandbox"].iter().chain(line);
        Arguments::try_parse_from(words).map(|arguments| match arguments.command {
            Command::Sandbox(arguments) => arguments,
            _ => unreachable!("the words say sandbox"),
        })
    }

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_command_keeps_its_own_options() {
        let arguments = sandbox(&[
            "-f",
            "a.yaml",
            "-f",
            "b.yaml",
            "--",
            "psql",
            "-c",
            "select 1",
            "--timeout",
            "x",
        ])
        .unwrap();
        assert_eq!(
            arguments.files,
            [PathBuf::from("a.yaml"), PathBuf::from("b.yaml")]
        );
        assert_eq!(
            arguments.command,
            ["psql", "-c", "select 1", "--timeout", "x"]
        );
        assert_eq!(arguments.timeout, Duration::from_secs(300));
        assert_eq!(arguments.nodes, None);
    }

    #[test]
    fn durations_are_what_people_write() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        for wrong in ["", "soon", "0s", "-5m", "5"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn nodes_are_bounded() {
        assert!(sandbox(&["--nodes", "0"]).is_err());
        assert!(sandbox(&["--nodes", "17"]).is_err());
        assert_eq!(sandbox(&["--nodes", "3"]).unwrap().nodes, Some(3));
    }
}
