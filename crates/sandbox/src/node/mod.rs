//! A node: it runs the pods that are assigned to it as real processes of this machine.
//!
//! An ordinary API client: it registers a Node object, watches the pods with its name, and runs each as a state machine ([`machine`], pure) driven by a
//! task ([`worker`]). Containers are bubblewrap processes ([`bwrap`], [`container`]), volumes are directories ([`volumes`]), logs are files that the
//! kubelet's endpoint serves ([`kubelet`]).
//!
//! What it is not: a container runtime. Images are programs of this machine, there are no cgroups (limits are not enforced, and being out of memory cannot be told
//! from any other kill), and what it does not do is refused by name ([`support`]).

mod addresses;
pub mod bwrap;
mod clock;
pub mod container;
mod doing;
pub mod environment;
mod events;
mod files;
mod images;
mod kubelet;
mod launch;
mod leftovers;
mod limits;
mod logread;
pub mod logs;
pub mod machine;
mod manager;
pub mod model;
mod preflight;
mod probes;
mod projection;
mod registration;
mod shared;
mod sources;
pub mod spawner;
pub mod status;
mod step;
mod support;
mod volumes;
mod worker;
mod writer;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use addresses::PodAddresses;
pub use images::{Image, ImageError, ImageMap};
pub use launch::HostsFiles;
pub use limits::KUBELET_PORT;
pub use preflight::{Missing, preflight};
pub use shared::Shared;

/// What a node needs to run.
pub struct NodeConfig {
    pub name: String,
    /// The node's own address, of which the kubelet's endpoint listens on [`KUBELET_PORT`].
    pub address: Ipv4Addr,
    /// What all nodes of one sandbox share.
    pub shared: Arc<Shared>,
    /// The sandbox's data directory, absolute: pods, volumes and logs live below it.
    pub data: PathBuf,
    pub client: Client,
    pub images: ImageMap,
    /// Where pods find the API server.
    pub api_server: (String, u16),
    /// The API server's CA, PEM.
    pub ca_pem: String,
    /// The kubelet endpoint's certificate, key and the CA its clients must come from.
    pub tls: Arc<rustls::ServerConfig>,
    pub hosts: HostsFiles,
}

/// The node could not be started; nothing of it runs.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the node's data directory {} has to be an absolute path", .0.display())]
    RelativeData(PathBuf),
    #[error("failed to make the node's directories: {0}")]
    Directories(#[source] io::Error),
    #[error(
        "failed to listen on {address}: {source}; is another sandbox using this address range?"
    )]
    Listen {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("failed to clear what an earlier sandbox left: {0}")]
    Leftovers(#[from] leftovers::LeftoverError),
    #[error("failed to register node {name:?}: {source}")]
    Register {
        name: String,
        source: Box<kube::Error>,
    },
}

/// A running node.
#[derive(Debug)]
pub struct Handle {
    pub name: String,
    /// Where the kubelet's endpoint listens.
    pub kubelet: SocketAddr,
    task: JoinHandle<()>,
}

impl Handle {
    /// Waits until the node has stopped: after its token was cancelled, once every pod has ended within its grace.
    pub async fn stopped(self) {
        if let Err(error) = self.task.await {
            tracing::error!(node = self.name, %error, "the node did not stop in order");
        }
    }
}

/// Pods as processes; see [`Node::start`].
pub struct Node;

impl Node {
    /// Starts a node; it runs until `cancel` is cancelled, then stops its pods (their objects stay) and ends.
    pub async fn start(
        config: NodeConfig,
        cancel: CancellationToken,
    ) -> Result<Handle, StartError> {
        manager::start(config, cancel).await
    }
}
