//! The API server around `core`: a tower service, HTTP and TLS, who may ask, and what survives the process.
//!
//! [`Server::start`] loads the state; [`Server::client`] is a client in this process, [`listen`] opens it to kubectl. It is not where
//! objects are understood: that is `core`. And it starts no controller and no node: they are clients.

mod accounts;
pub mod auth;
mod body;
mod bootstrap;
mod clock;
mod files;
mod hub;
mod inner;
mod journal;
mod kubeconfig;
mod listen;
mod metrics;
mod node;
pub mod pki;
pub mod range;
mod service;
mod status;
pub mod storage;
pub mod token;
mod watch;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::core::State;
use crate::core::state::{Config, LoadError};
use auth::Authenticator;
pub use clock::Clock;
use hub::Hub;
use inner::{Guarded, Inner};
use journal::Journal;
pub use kubeconfig::Kubeconfig;
pub use listen::{ListenError, Listening, listen};
use metrics::Metrics;
pub use metrics::{RequestCount, RequestLabels};
use pki::{Pki, PkiError};
pub use service::ApiService;
use service::Trust;
use storage::file::FileStorage;
use storage::{DirectoryLock, Loaded, StorageError};

/// Requests worked on at once; more wait their turn. What is queued for storage is bounded by it. A cluster allows about as many.
const IN_FLIGHT_LIMIT: usize = 600;
/// The name the API server shows to nodes.
const NODE_CLIENT_NAME: &str = "kube-apiserver-kubelet-client";
/// The range of a server that does not listen.
const UNCLAIMED_RANGE: u8 = 64;

#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where state, keys and the kubeconfig are kept; `None` keeps everything in memory.
    pub data: Option<PathBuf>,
    /// The N of `127.N.0.0/16`, from [`range::claim`].
    pub range: u8,
    pub clock: Clock,
    /// For names and UIDs that come out the same each time; `None` is random.
    pub seed: Option<u64>,
}

impl ServerConfig {
    /// For tests that need no network: nothing is kept, nothing listens.
    pub fn memory() -> Self {
        Self {
            data: None,
            range: UNCLAIMED_RANGE,
            clock: Clock::system(),
            seed: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("failed to load the stored objects")]
    Load(#[from] LoadError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("failed to write the kubeconfig into {path}; check its permissions and the free space")]
    Kubeconfig { path: PathBuf, source: io::Error },
    #[error("failed to start the thread that writes to storage")]
    Thread(#[source] io::Error),
    #[error("failed to make the objects every cluster has: {0}; this is a bug of the server")]
    Bootstrap(String),
}

/// The API server. Clones are the same server; it lives until [`Server::shutdown`], or until the last clone and client is gone.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

impl Server {
    /// Loads what `config.data` holds, or begins anew, and is ready to answer.
    pub fn start(config: ServerConfig) -> Result<Self, StartError> {
        let ServerConfig {
            data,
            range,
            clock,
            seed,
        } = config;
        let now = clock.now();
        let mut random = seed.map_or_else(StdRng::from_os_rng, StdRng::seed_from_u64);
        // Keys are never made from a seed that somebody can know.
        let mut secret = StdRng::from_os_rng();
        let lock = data.as_deref().map(DirectoryLock::take).transpose()?;
        let pki = Arc::new(Pki::open(
            data.as_deref().map(|data| data.join("pki")).as_deref(),
            now,
            &mut secret,
        )?);
        let mut kubeconfig = Kubeconfig::new(range::api_address(range), &pki);
        let (storage, loaded) = match &data {
            None => (None, Loaded::default()),
            Some(data) => {
                let (storage, loaded) = FileStorage::open(data)?;
                kubeconfig
                    .save(data)
                    .map_err(|source| StartError::Kubeconfig {
                        path: data.clone(),
                        source,
                    })?;
                (Some(storage), loaded)
            }
        };
        let state = load(range, loaded)?;
        let mut guarded = Guarded {
            state,
            random: StdRng::from_rng(&mut random),
        };
        let hub = Arc::new(Hub::new(guarded.state.revision()));
        let revision = guarded.state.revision();
        let first = bootstrap::run(&mut guarded, now).map_err(StartError::Bootstrap)?;
        let journal = match storage {
            None => Journal::memory(Arc::clone(&hub), revision),
            Some(storage) => Journal::storage(Arc::clone(&hub), revision, Box::new(storage))
                .map_err(StartError::Thread)?,
        };
        journal.append(first);
        let mut digest_secret = [0_u8; 32];
        secret.fill_bytes(&mut digest_secret);
        let inner = Inner {
            authenticator: Authenticator::new(&pki, &digest_secret),
            node_tls: Arc::new(pki.client_config(NODE_CLIENT_NAME)?),
            guarded: Mutex::new(guarded),
            hub,
            journal,
            metrics: Arc::new(Metrics::default()),
            pki,
            clock,
            kubeconfig,
            range,
            in_flight: Semaphore::new(IN_FLIGHT_LIMIT),
            stopping: CancellationToken::new(),
            lock: Mutex::new(lock),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// A client in this process, as the administrator. Needs a tokio runtime.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }

    /// The same as a tower service, for layers between client and server.
    pub fn service(&self) -> ApiService {
        ApiService::new(self.inner(), Trust::Administrator)
    }

    /// How kubectl connects, once [`listen`] is called.
    pub fn kubeconfig(&self) -> &Kubeconfig {
        &self.inner.kubeconfig
    }

    pub fn pki(&self) -> &Arc<Pki> {
        &self.inner.pki
    }

    /// The N of `127.N.0.0/16`.
    pub fn range(&self) -> u8 {
        self.inner.range
    }

    /// Where the API server is, or will be.
    pub fn address(&self) -> SocketAddr {
        range::api_address(self.inner.range)
    }

    /// The requests answered so far: the numbers of `/metrics`, as data.
    pub fn requests(&self) -> Vec<RequestCount> {
        self.inner.metrics.requests()
    }

    /// How many requests asked for a change so far, whoever sent them and whatever became of them.
    pub fn writes(&self) -> u64 {
        self.requests()
            .iter()
            .filter(|request| request.labels.is_write())
            .map(|request| request.count)
            .sum()
    }

    /// Watches that are open now.
    pub fn watches(&self) -> u64 {
        self.inner.metrics.watches()
    }

    /// Takes no more requests, ends watches and listeners, and closes storage. Everything acknowledged is on disk when it returns.
    pub async fn shutdown(&self) {
        self.inner.stopping.cancel();
        self.inner.in_flight.close();
        self.inner.hub.close();
        let inner = self.inner();
        let closed = tokio::task::spawn_blocking(move || {
            // It joins a thread that may be in the middle of a sync; only then the directory is free for another server.
            inner.journal.close();
            drop(inner.lock.lock().map(|mut lock| lock.take()));
        });
        if closed.await.is_err() {
            tracing::error!(
                "failed to wait for the journal; the next start loads what was acknowledged"
            );
        }
    }

    fn inner(&self) -> Arc<Inner> {
        Arc::clone(&self.inner)
    }
}

impl Drop for Inner {
    /// Without this the file could still be open when the directory's lock is given back.
    fn drop(&mut self) {
        self.journal.close();
    }
}

fn load(range: u8, loaded: Loaded) -> Result<State, LoadError> {
    let config = Config {
        service_first: Ipv4Addr::new(127, range, 128, 1),
        service_last: Ipv4Addr::new(127, range, 255, 254),
    };
    let Loaded { revision, objects } = loaded;
    if revision == 0 && objects.is_empty() {
        return Ok(State::new(config));
    }
    State::load(
        config,
        objects
            .into_iter()
            .map(|object| (object.resource, object.value)),
        revision,
    )
}
