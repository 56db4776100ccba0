//! Starts the parts of a sandbox in order and stops them in the opposite one. All decisions are theirs; here is only the order.
//!
//! Everything but the API server is its client, as on a cluster. A part that ends by itself breaks the sandbox, and the sandbox says so.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use geodb_operator::OperatorConfig;
use geodb_sandbox::controllers::{self, ControllersConfig, ServiceRange, hosts};
use geodb_sandbox::node::{self, ImageMap, Node, NodeConfig, PodAddresses, Shared};
use geodb_sandbox::serve::pki::ClientCertificates;
use geodb_sandbox::serve::{self, Clock, Listening, Server, ServerConfig, range};
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::apply::{await_established, said};
use super::display::Display;
use crate::cli::default_agent_image;

/// Who owns the fields of the definitions that come with this program.
const FIELD_MANAGER: &str = "geodb-crds";
/// An operator that is told to stop finishes the call it is in; longer, and it is left behind: it keeps no state.
const OPERATOR_STOPS_WITHIN: Duration = Duration::from_secs(5);

const NODE_NAME_PREFIX: &str = "node-";

/// What to start.
pub struct Plan {
    /// Absolute.
    pub data: PathBuf,
    /// None: as many as there were.
    pub nodes: Option<u16>,
    /// The image of Databases that name none: what this machine has.
    pub default_image: String,
}

/// The running parts; each is there once it was started.
#[derive(Default)]
pub struct Composition {
    server: Option<Server>,
    listening: Option<Listening>,
    controllers: Option<controllers::Handle>,
    nodes: Option<Nodes>,
    operator: Option<Operator>,
}

struct Nodes {
    cancel: CancellationToken,
    handles: Vec<node::Handle>,
}

struct Operator {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Composition {
    /// Starts everything; what was started before an error, or before the caller lost interest, is stopped by [`Composition::stop`].
    pub async fn start(&mut self, plan: &Plan, display: &Display) -> Result<()> {
        let server = self.start_server(&plan.data)?;
        display.say(&format!("API server: https://{}", server.address()));
        let client = server.client();
        distrust_pods(&client).await?;
        self.start_controllers(plan, &server);
        let nodes = node_count(&client, plan.nodes).await?;
        self.start_nodes(plan, &server, nodes).await?;
        display.say(&format!("nodes: {nodes}"));
        install_definitions(&client).await?;
        self.start_operator(plan, client);
        Ok(())
    }

    fn start_server(&mut self, data: &Path) -> Result<Server> {
        let (range, listener) = range::claim(Some(data))?;
        let server = Server::start(ServerConfig {
            data: Some(data.to_owned()),
            range,
            clock: Clock::system(),
            seed: None,
        })
        .context("failed to start the API server")?;
        self.server = Some(server.clone());
        self.listening = Some(
            serve::listen(&server, listener).context("failed to open the API server to kubectl")?,
        );
        Ok(server)
    }

    fn start_controllers(&mut self, plan: &Plan, server: &Server) {
        let config = ControllersConfig {
            client: server.client(),
            data: plan.data.clone(),
            certificate_authority: server.pki().authority_pem().to_owned(),
            services: ServiceRange {
                number: server.range(),
            },
        };
        self.controllers = Some(controllers::start(config, CancellationToken::new()));
    }

    async fn start_nodes(&mut self, plan: &Plan, server: &Server, count: u16) -> Result<()> {
        let shared = Shared::new(PodAddresses::of_range(server.range()));
        let program = std::env::current_exe().context("failed to find this program's own file")?;
        let images = ImageMap::of_this_machine(program);
        let nodes = self.nodes.insert(Nodes {
            cancel: CancellationToken::new(),
            handles: Vec::new(),
        });
        for number in 1..=count {
            let config = node_config(plan, server, number, Arc::clone(&shared), images.clone())?;
            let handle = Node::start(config, nodes.cancel.clone())
                .await
                .with_context(|| format!("failed to start node {number}"))?;
            nodes.handles.push(handle);
        }
        Ok(())
    }

    fn start_operator(&mut self, plan: &Plan, client: Client) {
        let cancel = CancellationToken::new();
        let config = OperatorConfig {
            client,
            default_image: plan.default_image.clone(),
            agent_image: default_agent_image(),
        };
        let task = tokio::spawn(geodb_operator::run(config, cancel.clone()));
        self.operator = Some(Operator { cancel, task });
    }

    /// The administrator's client.
    pub fn client(&self) -> Result<Client> {
        Ok(self.running_server()?.client())
    }

    /// Where kubectl's configuration is.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        let path = self.running_server()?.kubeconfig().path();
        Ok(path
            .context("the API server keeps no kubeconfig")?
            .to_owned())
    }

    fn running_server(&self) -> Result<&Server> {
        self.server
            .as_ref()
            .context("the API server was not started")
    }

    /// Waits until a part ends that should not have.
    pub async fn broken(&mut self) -> anyhow::Error {
        match &mut self.operator {
            Some(operator) => match (&mut operator.task).await {
                Ok(()) => anyhow!("the operator ended by itself"),
                Err(error) => anyhow!("the operator failed: {error}"),
            },
            None => std::future::pending().await,
        }
    }

    /// Stops in the opposite order: nobody reacts to what the next one does to its objects, and the server is there to the end.
    pub async fn stop(&mut self) {
        if let Some(Operator { cancel, mut task }) = self.operator.take() {
            cancel.cancel();
            if !task.is_finished()
                && tokio::time::timeout(OPERATOR_STOPS_WITHIN, &mut task)
                    .await
                    .is_err()
            {
                tracing::warn!("the operator did not stop in time");
                task.abort();
            }
        }
        if let Some(Nodes { cancel, handles }) = self.nodes.take() {
            cancel.cancel();
            futures::future::join_all(handles.into_iter().map(node::Handle::stopped)).await;
        }
        if let Some(controllers) = self.controllers.take() {
            controllers.stop().await;
        }
        if let Some(server) = self.server.take() {
            server.shutdown().await;
        }
        if let Some(listening) = self.listening.take() {
            listening.ended().await;
        }
    }
}

/// Our kinds, before anybody watches them.
async fn install_definitions(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    for definition in geodb_api::crds() {
        let name = definition.name_any();
        api.patch(&name, &parameters, &Patch::Apply(&definition))
            .await
            .map_err(said)
            .with_context(|| format!("failed to install the definition {name}"))?;
        await_established(client, &name).await?;
    }
    Ok(())
}

fn node_name(number: u16) -> String {
    format!("{NODE_NAME_PREFIX}{number}")
}

fn node_config(
    plan: &Plan,
    server: &Server,
    number: u16,
    shared: Arc<Shared>,
    images: ImageMap,
) -> Result<NodeConfig> {
    let host = u8::try_from(number).context("there are more nodes than addresses for them")?;
    let address = Ipv4Addr::new(127, server.range(), 1, host);
    let tls = server
        .pki()
        .server_config(&[address.to_string()], ClientCertificates::Required)
        .context("failed to make the node's certificate")?;
    let data = plan.data.clone();
    Ok(NodeConfig {
        name: node_name(number),
        address,
        shared,
        data: plan.data.clone(),
        client: server.client(),
        images,
        api_server: (server.address().ip().to_string(), server.address().port()),
        ca_pem: server.pki().authority_pem().to_owned(),
        tls: Arc::new(tls),
        hosts: Arc::new(move |namespace| hosts::ensure(&data, namespace)),
    })
}

/// How many nodes to start. Fewer than the data directory has would leave pods on nodes that are gone.
async fn node_count(client: &Client, asked: Option<u16>) -> Result<u16> {
    let nodes: Api<NodeObject> = Api::all(client.clone());
    let list = nodes
        .list(&ListParams::default())
        .await
        .map_err(said)
        .context("failed to list the nodes")?;
    let numbers = list.iter().filter_map(|node| {
        node.name_any()
            .strip_prefix(NODE_NAME_PREFIX)?
            .parse::<u16>()
            .ok()
    });
    let there = numbers.max().unwrap_or(0);
    match asked {
        Some(asked) if asked < there => Err(anyhow!(
            "this data directory has pods on {there} nodes; run it with --nodes {there} or more, or without --nodes"
        )),
        Some(asked) => Ok(asked),
        None => Ok(there.max(1)),
    }
}

/// While no node runs, no pod is ready, whatever the last sandbox wrote. In a cluster the node controller says so when a node is lost;
/// here it is said before anybody can believe what is no longer true.
async fn distrust_pods(client: &Client) -> Result<()> {
    let all: Api<Pod> = Api::all(client.clone());
    let pods = all
        .list(&ListParams::default())
        .await
        .map_err(said)
        .context("failed to list the pods")?;
    for pod in pods.iter().filter(|pod| says_ready(pod)) {
        let namespace = pod.namespace().unwrap_or_default();
        let api: Api<Pod> = Api::namespaced(client.clone(), &namespace);
        let condition = json!({"type": "Ready", "status": "False", "reason": "NodeNotReady"});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        api.patch_status(&pod.name_any(), &PatchParams::default(), &patch)
            .await
            .map_err(said)
            .with_context(|| format!("failed to mark pod {} as not ready", pod.name_any()))?;
    }
    Ok(())
}

fn says_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
