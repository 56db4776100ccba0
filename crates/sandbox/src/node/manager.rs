//! The node itself: which pods are its own, and a worker for each.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::clock;
use super::container::host_directories;
use super::events::EventSink;
use super::kubelet::Endpoint;
use super::launch::NodeContext;
use super::leftovers;
use super::limits::{KUBELET_PORT, SHUTDOWN_SLACK, WORKER_QUEUE};
use super::logread::LogBook;
use super::registration::register;
use super::sources::Sources;
use super::volumes::VolumeKeeper;
use super::worker::{self, Order};
use super::{Handle, NodeConfig, StartError};

pub async fn start(config: NodeConfig, cancel: CancellationToken) -> Result<Handle, StartError> {
    let NodeConfig {
        name,
        address,
        shared,
        data,
        client,
        images,
        api_server,
        ca_pem,
        tls,
        hosts,
    } = config;
    make_directories(&data)?;
    let logs = LogBook::new(&data);
    let listen = SocketAddr::from((address, KUBELET_PORT));
    let endpoint = Endpoint::bind(address, KUBELET_PORT, tls, logs.clone())
        .await
        .map_err(|source| StartError::Listen {
            address: listen,
            source,
        })?;
    let kubelet = endpoint.address;
    shared
        .cleared
        .get_or_try_init(|| leftovers::clear(&client, &data))
        .await?;
    register(&client, &name, address, kubelet, clock::now())
        .await
        .map_err(|source| StartError::Register {
            name: name.clone(),
            source: Box::new(source),
        })?;
    let node: Arc<str> = Arc::from(name.as_str());
    let (events, event_writer) = EventSink::start(client.clone(), node.clone());
    let context = NodeContext {
        name: node,
        address,
        client: client.clone(),
        images,
        keeper: VolumeKeeper {
            data,
            sources: Sources::new(client, ca_pem),
            shared,
        },
        events,
        logs,
        hosts,
        host_directories: host_directories(),
        base_environment: service_environment(&api_server),
    };
    let task = tokio::spawn(async move {
        let serving = tokio::spawn(endpoint.serve(cancel.clone()));
        run(Arc::new(context), cancel).await;
        let _ = serving.await;
        // The last sink went with the context; what is queued is written, if the server still answers.
        let _ = tokio::time::timeout(SHUTDOWN_SLACK, event_writer).await;
    });
    Ok(Handle {
        name,
        kubelet,
        task,
    })
}

fn make_directories(data: &Path) -> Result<(), StartError> {
    if !data.is_absolute() {
        return Err(StartError::RelativeData(data.to_owned()));
    }
    let make = |name: &str| -> io::Result<()> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data.join(name))
    };
    ["pods", "logs", "volumes"]
        .into_iter()
        .try_for_each(make)
        .map_err(StartError::Directories)
}

/// What every container of a cluster finds about the API server.
fn service_environment((host, port): &(String, u16)) -> Vec<(String, String)> {
    let pairs = [
        ("KUBERNETES_SERVICE_HOST", host.clone()),
        ("KUBERNETES_SERVICE_PORT", port.to_string()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", port.to_string()),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// The workers of a node's pods, by the pods' UIDs.
struct Workers {
    context: Arc<NodeContext>,
    senders: BTreeMap<String, mpsc::Sender<Order>>,
    tasks: JoinSet<String>,
}

async fn run(context: Arc<NodeContext>, cancel: CancellationToken) {
    let mut workers = Workers {
        context: context.clone(),
        senders: BTreeMap::new(),
        tasks: JoinSet::new(),
    };
    let mut pods = pods_of(&context.client, &context.name);
    // During a first list, or a new one after a broken watch, what is not listed has vanished.
    let mut listed: BTreeSet<String> = BTreeSet::new();
    drop(context);
    loop {
        tokio::select! {
            () = cancel.cancelled() => break,
            Some(ended) = workers.tasks.join_next(), if !workers.tasks.is_empty() => workers.ended(ended),
            event = pods.next() => match event {
                Some(Ok(watcher::Event::Init)) => listed.clear(),
                Some(Ok(watcher::Event::InitApply(pod))) => {
                    listed.extend(pod.uid());
                    workers.apply(pod).await;
                }
                Some(Ok(watcher::Event::InitDone)) => workers.keep_only(&listed).await,
                Some(Ok(watcher::Event::Apply(pod))) => workers.apply(pod).await,
                Some(Ok(watcher::Event::Delete(pod))) => workers.order(&pod.uid().unwrap_or_default(), Order::Vanished).await,
                Some(Err(error)) => tracing::debug!(%error, "the watch of the node's pods broke; it goes on"),
                None => break,
            },
        }
    }
    workers.shut_down().await;
}

fn pods_of(
    client: &Client,
    node: &str,
) -> futures::stream::BoxStream<'static, watcher::Result<watcher::Event<Pod>>> {
    let api: Api<Pod> = Api::all(client.clone());
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    watcher(api, config)
        .default_backoff()
        .map_err(|error| error)
        .boxed()
}

impl Workers {
    async fn apply(&mut self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        match self.senders.get(&uid) {
            // A worker that has just ended does not take it; what it was about is over.
            Some(sender) => drop(sender.send(Order::Changed(Box::new(pod))).await),
            None => {
                let (sender, orders) = mpsc::channel(WORKER_QUEUE);
                self.senders.insert(uid.clone(), sender);
                let context = self.context.clone();
                self.tasks.spawn(async move {
                    worker::run(context, pod, orders).await;
                    uid
                });
            }
        }
    }

    async fn order(&mut self, uid: &str, order: Order) {
        if let Some(sender) = self.senders.get(uid) {
            let _ = sender.send(order).await;
        }
    }

    async fn keep_only(&mut self, listed: &BTreeSet<String>) {
        let vanished: Vec<String> = self
            .senders
            .keys()
            .filter(|uid| !listed.contains(*uid))
            .cloned()
            .collect();
        for uid in vanished {
            self.order(&uid, Order::Vanished).await;
        }
    }

    fn ended(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(uid) => drop(self.senders.remove(&uid)),
            Err(error) => {
                tracing::error!(%error, "a pod's worker failed; its containers were ended with it");
            }
        }
    }

    /// Every pod gets its grace; whoever is left then is ended with its worker.
    async fn shut_down(mut self) {
        for sender in self.senders.values() {
            let _ = sender.send(Order::Shutdown).await;
        }
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a pod's worker failed; its containers were ended with it");
            }
        }
    }
}
