//! `geodb operator`: the operator against a cluster, until it is told to stop.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use geodb_operator::OperatorConfig;
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::cli::OperatorArguments;
use crate::logging;

pub async fn main(arguments: OperatorArguments) -> Result<ExitCode> {
    logging::to_standard_error()?;
    let OperatorArguments {
        kubeconfig,
        default_image,
        agent_image,
    } = arguments;
    let config = configuration(kubeconfig.as_deref()).await?;
    let client = geodb_kit::client(config).context("failed to make a client for the cluster")?;
    let version = client
        .apiserver_version()
        .await
        .context("failed to reach the API server")?;
    tracing::info!(server = version.git_version, "connected");

    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let operator = geodb_operator::run(
        OperatorConfig {
            client,
            default_image,
            agent_image,
        },
        cancel,
    );
    let signals = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    };
    let mut operator = std::pin::pin!(operator);
    // Whichever ends first: a signal lets the pass that is under way finish, an operator that ends by itself is an error.
    tokio::select! {
        () = &mut operator => anyhow::bail!("the operator ended by itself; its log says why"),
        () = signals => operator.await,
    }
    Ok(ExitCode::SUCCESS)
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<Config> {
    let Some(path) = kubeconfig else {
        return Config::infer()
            .await
            .context("no cluster found: give --kubeconfig FILE, set KUBECONFIG, or run in a pod with a service account");
    };
    let kubeconfig = Kubeconfig::read_from(path)
        .with_context(|| format!("failed to read {}", path.display()))?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .with_context(|| format!("{} names no usable cluster", path.display()))
}
