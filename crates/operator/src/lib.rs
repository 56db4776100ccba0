//! Controllers: observe, decide, act, report. What to do is decided in `geodb-plan`; how to do it safely is the kit's.

mod caches;
mod controller;
mod credentials;
mod limits;
mod observe;
mod translate;

use std::sync::Arc;

use geodb_api::labels;
use geodb_kit::events::{Recorder, Reporter};
use geodb_kit::executor::{Executor, ExecutorConfig};
use geodb_kit::hub::Hub;
use geodb_kit::operator::Driver;
use geodb_kit::runner::{Runner, RunnerConfig, by_label};
use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::controller::DatabaseController;

/// Under this name the API server knows which fields are ours.
const FIELD_MANAGER: &str = "geodb";

#[derive(Clone)]
pub struct OperatorConfig {
    /// Without hidden retries: see [`geodb_kit::client`].
    pub client: Client,
    /// For Databases that name no image.
    pub default_image: String,
    /// The image that brings the agent into the pods: our own.
    pub agent_image: String,
}

/// Runs until cancelled. It keeps no state of its own: killing it loses nothing.
pub async fn run(config: OperatorConfig, cancel: CancellationToken) {
    let OperatorConfig {
        client,
        default_image,
        agent_image,
    } = config;
    let hub = Hub::new(client.clone(), cancel.clone());
    let caches = Caches::watch(&hub);
    let executor = Executor::new(
        client.clone(),
        hub.barrier(),
        ExecutorConfig::new(FIELD_MANAGER, labels::MEANT),
    );
    let recorder = Recorder::start(client.clone(), reporter(), cancel.clone());
    let runner = {
        let (databases, pods, claims) = (
            caches.databases.clone(),
            caches.pods.clone(),
            caches.claims.clone(),
        );
        let (registers, services) = (caches.registers.clone(), caches.services.clone());
        let (config_maps, accounts) = (caches.config_maps.clone(), caches.service_accounts.clone());
        let (roles, bindings) = (caches.roles.clone(), caches.role_bindings.clone());
        let config = geodb_plan::Config {
            default_image,
            agent_image,
        };
        let controller = DatabaseController {
            client,
            caches,
            config,
        };
        let driver = Driver::new(controller, Arc::new(executor)).with_recorder(recorder);
        let runner = Runner::new(driver, RunnerConfig::default());
        runner.primary(&databases);
        runner.related(&pods, by_label(labels::DATABASE));
        runner.related(&claims, by_label(labels::DATABASE));
        runner.related(&registers, by_label(labels::DATABASE));
        runner.related(&services, by_label(labels::DATABASE));
        runner.related(&config_maps, by_label(labels::DATABASE));
        runner.related(&accounts, by_label(labels::DATABASE));
        runner.related(&roles, by_label(labels::DATABASE));
        runner.related(&bindings, by_label(labels::DATABASE));
        runner
    };
    tokio::select! {
        () = hub.synced() => {}
        () = cancel.cancelled() => {}
    }
    tracing::info!("operator runs");
    runner.run(cancel).await;
    hub.stopped().await;
}

/// In a pod the host name is the pod's; that is what an Event should name.
fn reporter() -> Reporter {
    let instance = std::env::var("HOSTNAME").unwrap_or_else(|_| FIELD_MANAGER.to_owned());
    Reporter {
        controller: "imaginedata.com/geodb".to_owned(),
        instance,
    }
}
