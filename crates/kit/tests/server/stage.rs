//! Where the kit's stories play: an API server with a namespace of their own, and a layer in between that can lose answers, hold
//! watches back and count. The server is the sandbox's, in this process; with `GEODB_TEST_KUBECONFIG` it is a real one, and every
//! story must come out the same.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use geodb_kit::{
    executor::{Desired, Executor, ExecutorConfig, Ours},
    hub::{Hub, Store},
};
use geodb_sandbox::serve::{Server, ServerConfig};
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, PostParams},
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Nothing in these stories takes long; this is for machines that are busy.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub const MEANT: &str = "kit.example/meant";
pub const OWNER_UID: &str = "0b5e3c1e-1111-4222-8333-000000000001";
pub const OWNER_LABEL: &str = "kit.example/owner";

type Fault = Box<dyn FnOnce() -> Trick + Send>;

/// What is done to one request.
pub enum Trick {
    /// The server does it, and its answer is lost.
    LoseAnswer,
    /// The server never sees it.
    Answer(StatusCode, &'static str),
    /// Nobody ever answers.
    Hang,
}

/// The layer between client and server.
#[derive(Default)]
pub struct Faults {
    next_write: Mutex<Option<Fault>>,
    next_watch: Mutex<Vec<Trick>>,
    watches_held: AtomicBool,
    watches_released: Notify,
    writes: Mutex<Vec<String>>,
    reads: AtomicUsize,
}

impl Faults {
    pub fn on_next_write(&self, trick: Trick) {
        *self.next_write.lock() = Some(Box::new(move || trick));
    }

    pub fn on_next_watch(&self, trick: Trick) {
        self.next_watch.lock().push(trick);
    }

    /// Watches that begin from now on hear nothing until they are released.
    pub fn hold_watches(&self) {
        self.watches_held.store(true, Ordering::SeqCst);
    }

    pub fn release_watches(&self) {
        self.watches_held.store(false, Ordering::SeqCst);
        self.watches_released.notify_waiters();
    }

    /// The write requests so far, as "METHOD path".
    pub fn writes(&self) -> Vec<String> {
        self.writes.lock().clone()
    }

    /// The reads so far, watches not counted.
    pub fn reads(&self) -> usize {
        self.reads.load(Ordering::SeqCst)
    }

    async fn handle(
        &self,
        server: Client,
        request: Request<Body>,
    ) -> Result<Response<Body>, kube::Error> {
        let watch = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let trick = if watch {
            loop {
                let released = self.watches_released.notified();
                if !self.watches_held.load(Ordering::SeqCst) {
                    break;
                }
                released.await;
            }
            self.next_watch.lock().pop()
        } else if request.method() == Method::GET {
            self.reads.fetch_add(1, Ordering::SeqCst);
            None
        } else {
            self.writes
                .lock()
                .push(format!("{} {}", request.method(), request.uri().path()));
            self.next_write.lock().take().map(|fault| fault())
        };
        match trick {
            None => server.send(request).await,
            Some(Trick::Hang) => std::future::pending().await,
            Some(Trick::LoseAnswer) => {
                server.send(request).await?;
                Err(kube::Error::Service(
                    "the connection broke before the answer".into(),
                ))
            }
            Some(Trick::Answer(code, reason)) => {
                let status = serde_json::json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": code.as_u16(), "reason": reason, "message": "as the test asked",
                });
                let body = Body::from(status.to_string().into_bytes());
                Ok(Response::builder()
                    .status(code)
                    .body(body)
                    .expect("a status and a body make a response"))
            }
        }
    }
}

pub struct Stage {
    /// Straight to the server, for what other people do.
    pub others: Client,
    pub namespace: String,
    pub faults: Arc<Faults>,
    pub hub: Hub,
    pub executor: Arc<Executor>,
    pub cancel: CancellationToken,
    _server: Option<Server>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Stage {
    pub async fn new(namespace: &str) -> Self {
        let (server, others) = server().await;
        let namespace = format!("{namespace}-{:08x}", rand::random::<u32>());
        let made = Namespace {
            metadata: ObjectMeta {
                name: Some(namespace.clone()),
                ..ObjectMeta::default()
            },
            ..Namespace::default()
        };
        Api::all(others.clone())
            .create(&PostParams::default(), &made)
            .await
            .expect("the namespace is made");
        let faults = Arc::new(Faults::default());
        let client = faulty(others.clone(), faults.clone(), &namespace);
        let cancel = CancellationToken::new();
        let hub = Hub::new(client.clone(), cancel.clone());
        let config = ExecutorConfig {
            call_deadline: Duration::from_secs(5),
            ..ExecutorConfig::new("kit-tests", MEANT)
        };
        let executor = Arc::new(Executor::new(client, hub.barrier(), config));
        Self {
            others,
            namespace,
            faults,
            hub,
            executor,
            cancel,
            _server: server,
        }
    }

    pub fn config_map(&self, name: &str, data: &[(&str, &str)]) -> ConfigMap {
        ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.into()),
                namespace: Some(self.namespace.clone()),
                labels: Some([(OWNER_LABEL.to_owned(), OWNER_UID.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(
                data.iter()
                    .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                    .collect(),
            ),
            ..ConfigMap::default()
        }
    }

    pub fn config_maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.others.clone(), &self.namespace)
    }
}

pub fn desired<K: Resource<DynamicType = ()> + serde::Serialize>(object: &K) -> Desired {
    Desired::new(object, Ours::label(OWNER_LABEL, OWNER_UID)).expect("the object carries its label")
}

/// Waits until the store is as it should be.
pub async fn until<K: Resource + Send + Sync + 'static>(
    store: &Store<K>,
    what: &str,
    is: impl Fn(&Store<K>) -> bool,
) {
    let mut changes = store.subscribe();
    let wait = async {
        while !is(store) {
            changes.next().await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, wait).await.is_ok(),
        "waited in vain until {what}"
    );
}

fn faulty(server: Client, faults: Arc<Faults>, namespace: &str) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, faults) = (server.clone(), faults.clone());
        async move { faults.handle(server, request).await }
    });
    Client::new(service, namespace)
}

async fn server() -> (Option<Server>, Client) {
    if let Ok(path) = std::env::var("GEODB_TEST_KUBECONFIG") {
        let kubeconfig =
            Kubeconfig::read_from(path).expect("GEODB_TEST_KUBECONFIG names a kubeconfig");
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let client = geodb_kit::client(config.expect("the kubeconfig is complete"))
            .expect("it makes a client");
        return (None, client);
    }
    let server = Server::start(ServerConfig::memory()).expect("the sandbox's server starts");
    let client = server.client();
    (Some(server), client)
}
