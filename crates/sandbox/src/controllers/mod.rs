//! The few controllers a cluster needs, as ordinary API clients: they would run against a real API server just as well.
//!
//! Each is a pure `decide` over what the shared caches know, run by the loop in [`worker`] whenever something it watches changed.
//! Nothing is polled, and nothing is written while nothing changes. What they do not do is in `docs/sandbox.md`.

mod accounts;
mod cache;
mod clock;
mod endpoints;
mod garbage;
pub mod hosts;
mod jobs;
mod namespaces;
mod pod_garbage;
mod proxy;
mod quantity;
mod record;
mod scheduler;
mod selector;
mod storage;
mod worker;

use std::fmt::Debug;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service,
    ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use cache::Cache;
pub use proxy::ServiceRange;
use record::Recorder;
pub use storage::DEFAULT_CLASS_NAME;

/// The wait before the default class is tried again at start; the server may still be coming up.
const START_RETRY: Duration = Duration::from_millis(200);

/// What the controllers need to run.
#[derive(Clone)]
pub struct ControllersConfig {
    pub client: Client,
    /// The sandbox's data directory, absolute: volumes and hosts files live below it.
    pub data: PathBuf,
    /// The CA of the API server, PEM, published to every namespace.
    pub certificate_authority: String,
    /// Which addresses the Service proxy may listen on.
    pub services: ServiceRange,
}

/// Running controllers. They end when the token given to [`start`] is cancelled.
#[derive(Debug)]
pub struct Handle {
    cancel: CancellationToken,
    tasks: TaskTracker,
}

impl Handle {
    /// Waits until every task has ended; only ever true after cancellation.
    pub async fn ended(&self) {
        self.tasks.wait().await;
    }

    /// Cancels, and waits until listeners, connections and watches are closed.
    pub async fn stop(self) {
        self.cancel.cancel();
        self.tasks.wait().await;
    }
}

/// Every kind that is watched, once.
#[derive(Default)]
struct Caches {
    pods: Cache<Pod>,
    nodes: Cache<Node>,
    claims: Cache<PersistentVolumeClaim>,
    volumes: Cache<PersistentVolume>,
    classes: Cache<StorageClass>,
    services: Cache<Service>,
    slices: Cache<EndpointSlice>,
    namespaces: Cache<Namespace>,
    accounts: Cache<ServiceAccount>,
    authorities: Cache<ConfigMap>,
    jobs: Cache<Job>,
    definitions: Cache<CustomResourceDefinition>,
}

/// Starts all controllers. Returns at once; the controllers wait for the server by themselves.
#[allow(clippy::needless_pass_by_value)] // The controllers own what they are given; a caller clones what it keeps.
pub fn start(config: ControllersConfig, cancel: CancellationToken) -> Handle {
    let cancel = cancel.child_token();
    let starter = Starter {
        client: config.client.clone(),
        caches: Caches::default(),
        cancel: cancel.clone(),
        tasks: TaskTracker::new(),
    };
    starter.scheduling();
    starter.storage(&config);
    starter.networking(&config);
    starter.accounts(&config);
    starter.jobs();
    starter.cleaning();
    starter.watches();
    let tasks = starter.tasks;
    tasks.close();
    Handle { cancel, tasks }
}

struct Starter {
    client: Client,
    caches: Caches,
    cancel: CancellationToken,
    tasks: TaskTracker,
}

/// A nudge that comes whenever one of the caches changes.
macro_rules! nudged_by {
    ($($cache:expr),+ $(,)?) => {{
        let nudge = Arc::new(Notify::new());
        $($cache.subscribe(&nudge);)+
        nudge
    }};
}

impl Starter {
    fn run<C: worker::Controller>(&self, controller: C, nudge: Arc<Notify>) {
        self.tasks
            .spawn(worker::run(controller, nudge, self.cancel.clone()));
    }

    fn scheduling(&self) {
        let Caches {
            pods,
            nodes,
            claims,
            volumes,
            classes,
            namespaces,
            ..
        } = &self.caches;
        let nudge = nudged_by!(pods, nodes, claims, volumes, classes, namespaces);
        let scheduler = scheduler::Scheduler {
            client: self.client.clone(),
            recorder: scheduler::Scheduler::recorder(&self.client),
            pods: pods.clone(),
            nodes: nodes.clone(),
            claims: claims.clone(),
            volumes: volumes.clone(),
            classes: classes.clone(),
            namespaces: namespaces.clone(),
            assumed: parking_lot::Mutex::default(),
        };
        self.run(scheduler, nudge);
    }

    fn storage(&self, config: &ControllersConfig) {
        let Caches {
            pods,
            claims,
            volumes,
            classes,
            ..
        } = &self.caches;
        let nudge = nudged_by!(pods, claims, volumes, classes);
        let storage = storage::Storage {
            client: self.client.clone(),
            recorder: Recorder::new(self.client.clone(), "persistentvolume-controller"),
            volumes_root: config.data.join("volumes"),
            claims: claims.clone(),
            volumes: volumes.clone(),
            classes: classes.clone(),
            pods: pods.clone(),
            explained: parking_lot::Mutex::default(),
        };
        let (client, classes, cancel) = (self.client.clone(), classes.clone(), self.cancel.clone());
        self.tasks.spawn(async move {
            // Before there is a default class, every claim would look as if it had none to get.
            let Some(class) = cancel.run_until_cancelled(default_class(client)).await else {
                return;
            };
            classes.overlay(class);
            worker::run(storage, nudge, cancel).await;
        });
    }

    fn networking(&self, config: &ControllersConfig) {
        let Caches {
            pods,
            services,
            slices,
            namespaces,
            ..
        } = &self.caches;
        let endpoints = endpoints::Endpoints {
            client: self.client.clone(),
            services: services.clone(),
            pods: pods.clone(),
            slices: slices.clone(),
        };
        self.run(endpoints, nudged_by!(services, pods, slices));
        let proxy = proxy::Proxy {
            range: config.services,
            services: services.clone(),
            slices: slices.clone(),
            cancel: self.cancel.clone(),
            tasks: self.tasks.clone(),
            connections: Arc::new(Semaphore::new(proxy::CONNECTIONS_LIMIT)),
            frontends: parking_lot::Mutex::default(),
        };
        self.run(proxy, nudged_by!(services, slices));
        let hosts = hosts::Hosts {
            data: config.data.clone(),
            namespaces: namespaces.clone(),
            services: services.clone(),
            slices: slices.clone(),
            written: parking_lot::Mutex::new(hosts::left_behind(&config.data)),
        };
        self.run(hosts, nudged_by!(namespaces, services, slices));
    }

    fn accounts(&self, config: &ControllersConfig) {
        let Caches {
            namespaces,
            accounts,
            authorities,
            ..
        } = &self.caches;
        let nudge = nudged_by!(namespaces, accounts, authorities);
        let controller = accounts::Accounts {
            client: self.client.clone(),
            certificate_authority: config.certificate_authority.clone(),
            namespaces: namespaces.clone(),
            accounts: accounts.clone(),
            authorities: authorities.clone(),
        };
        self.run(controller, nudge);
    }

    fn jobs(&self) {
        let Caches { jobs, pods, .. } = &self.caches;
        let controller = jobs::Jobs {
            client: self.client.clone(),
            recorder: Recorder::new(self.client.clone(), "job-controller"),
            jobs: jobs.clone(),
            pods: pods.clone(),
        };
        self.run(controller, nudged_by!(jobs, pods));
    }

    fn cleaning(&self) {
        let Caches {
            pods,
            nodes,
            namespaces,
            definitions,
            ..
        } = &self.caches;
        let shared = garbage::Shared::default();
        let collector = garbage::Garbage {
            client: self.client.clone(),
            shared: shared.clone(),
        };
        self.run(collector, nudged_by!(shared));
        let emptier = namespaces::Namespaces {
            client: self.client.clone(),
            namespaces: namespaces.clone(),
            shared: shared.clone(),
        };
        self.run(emptier, nudged_by!(namespaces, shared));
        let pod_collector = pod_garbage::PodGarbage {
            client: self.client.clone(),
            pods: pods.clone(),
            nodes: nodes.clone(),
            missing_since: parking_lot::Mutex::default(),
        };
        self.run(pod_collector, nudged_by!(pods, nodes));
        let kinds = garbage::Kinds {
            client: self.client.clone(),
            shared,
            definitions: definitions.clone(),
            cancel: self.cancel.clone(),
            tasks: self.tasks.clone(),
        };
        self.tasks.spawn(kinds.run());
    }

    fn watches(&self) {
        let caches = &self.caches;
        self.watch(
            &caches.pods,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.claims,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.services,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.slices,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.accounts,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.nodes,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.volumes,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.classes,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.namespaces,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.jobs,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        self.watch(
            &caches.definitions,
            Api::all(self.client.clone()),
            watcher::Config::default(),
        );
        let only_authorities =
            watcher::Config::default().fields(&format!("metadata.name={}", accounts::ROOT_CA));
        self.watch(
            &caches.authorities,
            Api::all(self.client.clone()),
            only_authorities,
        );
    }

    fn watch<K>(&self, cache: &Cache<K>, api: Api<K>, config: watcher::Config)
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    {
        self.tasks
            .spawn(cache.clone().follow(api, config, self.cancel.clone()));
    }
}

async fn default_class(client: Client) -> StorageClass {
    loop {
        match storage::ensure_default_class(&client).await {
            Ok(class) => return class,
            Err(failure) => {
                tracing::warn!(%failure, "failed to make the default storage class, will retry");
            }
        }
        tokio::time::sleep(START_RETRY).await;
    }
}
