//! What all clones of a server share.

use std::sync::{Arc, Mutex};

use rand::rngs::StdRng;
use rustls::ClientConfig;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Clock;
use super::auth::Authenticator;
use super::hub::Hub;
use super::journal::Journal;
use super::kubeconfig::Kubeconfig;
use super::metrics::Metrics;
use super::pki::Pki;
use super::status::{Reason, Refusal};
use super::storage::DirectoryLock;
use crate::core::State;

/// What one request at a time may touch.
pub(super) struct Guarded {
    pub(super) state: State,
    pub(super) random: StdRng,
}

pub(super) struct Inner {
    pub(super) guarded: Mutex<Guarded>,
    pub(super) hub: Arc<Hub>,
    pub(super) journal: Journal,
    pub(super) metrics: Arc<Metrics>,
    pub(super) pki: Arc<Pki>,
    pub(super) authenticator: Authenticator,
    pub(super) node_tls: Arc<ClientConfig>,
    pub(super) clock: Clock,
    pub(super) kubeconfig: Kubeconfig,
    pub(super) range: u8,
    pub(super) in_flight: Semaphore,
    pub(super) stopping: CancellationToken,
    /// Last, so that it is given back after everything above is closed; or by `shutdown`, because clients may outlive it.
    pub(super) lock: Mutex<Option<DirectoryLock>>,
}

impl Inner {
    /// Runs with the state. A panic in there leaves it in an unknown shape: from then on every request is refused, none is guessed.
    pub(super) fn with_state<T>(&self, work: impl FnOnce(&mut Guarded) -> T) -> Result<T, Refusal> {
        match self.guarded.lock() {
            Ok(mut guarded) => Ok(work(&mut guarded)),
            Err(_) => Err(Refusal::new(
                Reason::InternalError,
                "the API server takes no more requests, restart it: an earlier request broke it (see its log)",
            )),
        }
    }
}
