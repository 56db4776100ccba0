//! Watches that feed the board: each applied object by name, the pods of each database, the warnings in its namespace.
//!
//! An ordinary client of the API: no polling, and a watch that ends is taken up again by kube's watcher.

use std::collections::BTreeSet;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Event as ClusterEvent, Pod};
use kube::api::DynamicObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::apply::{Applied, DEFAULT_NAMESPACE};
use super::board::Observation;
use super::readiness::Expectation;

/// Observations that wait to be shown. When it is full the watches wait: nothing is lost, the server buffers.
const OBSERVATIONS_MAX: usize = 256;

/// The reason of the Event that a kubelet records for a failed probe.
const PROBE_FAILED: &str = "Unhealthy";

/// Running watches; dropping it ends them.
pub struct Watching {
    pub observations: mpsc::Receiver<Observation>,
    _tasks: JoinSet<()>,
}

/// Starts the watches for everything that was applied.
pub fn start(client: &Client, applied: &[Applied]) -> Watching {
    let (sender, observations) = mpsc::channel(OBSERVATIONS_MAX);
    let mut tasks = JoinSet::new();
    let mut namespaces = BTreeSet::new();
    for (index, object) in applied.iter().enumerate() {
        if object.expectation == Expectation::Applied {
            continue;
        }
        tasks.spawn(forward(watch_object(client, index, object), sender.clone()));
        namespaces.insert(
            object
                .namespace
                .clone()
                .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
        );
        if object.is_database() {
            tasks.spawn(forward(watch_pods(client, index, object), sender.clone()));
        }
    }
    for namespace in namespaces {
        tasks.spawn(forward(watch_warnings(client, &namespace), sender.clone()));
    }
    Watching {
        observations,
        _tasks: tasks,
    }
}

/// Hands a watch's observations on until nobody listens.
async fn forward(
    observations: impl Stream<Item = Vec<Observation>>,
    sender: mpsc::Sender<Observation>,
) {
    let mut observations = std::pin::pin!(observations);
    while let Some(batch) = observations.next().await {
        for observation in batch {
            if sender.send(observation).await.is_err() {
                return;
            }
        }
    }
}

/// A watch's trouble is logged; the watcher backs off and takes up again, so it is not an observation.
fn logged<T>(result: Result<T, watcher::Error>) -> Option<T> {
    result
        .inspect_err(
            |error| tracing::warn!(%error, "a watch of the progress display was interrupted"),
        )
        .ok()
}

fn watch_object(
    client: &Client,
    index: usize,
    applied: &Applied,
) -> impl Stream<Item = Vec<Observation>> + use<> {
    let config =
        watcher::Config::default().fields(&format!("metadata.name={}", applied.document.name));
    let mut present = false;
    let mut listed = false;
    watcher(applied.api(client), config)
        .default_backoff()
        .filter_map(|result| async move { logged(result) })
        .map(move |event: Event<DynamicObject>| match event {
            Event::Init => {
                listed = false;
                Vec::new()
            }
            Event::InitApply(object) => {
                listed = true;
                present = true;
                seen(index, &object)
            }
            Event::Apply(object) => {
                present = true;
                seen(index, &object)
            }
            // A list without it: it went while the watch was away.
            Event::InitDone if present && !listed => vec![Observation::ObjectGone { index }],
            Event::InitDone => Vec::new(),
            Event::Delete(_) => {
                present = false;
                vec![Observation::ObjectGone { index }]
            }
        })
}

fn seen(index: usize, object: &DynamicObject) -> Vec<Observation> {
    value(object)
        .map(|object| Observation::Object { index, object })
        .into_iter()
        .collect()
}

fn value(object: &impl serde::Serialize) -> Option<Value> {
    serde_json::to_value(object)
        .inspect_err(|error| tracing::error!(%error, "an object of the server is not JSON"))
        .ok()
}

fn watch_pods(
    client: &Client,
    index: usize,
    applied: &Applied,
) -> impl Stream<Item = Vec<Observation>> + use<> {
    let namespace = applied.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = format!("{}={}", geodb_api::labels::DATABASE, applied.document.name);
    let mut known = BTreeSet::new();
    let mut listed = BTreeSet::new();
    watcher(pods, watcher::Config::default().labels(&selector))
        .default_backoff()
        .filter_map(|result| async move { logged(result) })
        .map(move |event| match event {
            Event::Init => {
                listed.clear();
                Vec::new()
            }
            Event::InitApply(pod) => {
                listed.insert(pod.name_any());
                pod_seen(index, &pod)
            }
            Event::InitDone => {
                let gone = known
                    .difference(&listed)
                    .map(|name: &String| Observation::PodGone {
                        index,
                        name: name.clone(),
                    })
                    .collect();
                known = std::mem::take(&mut listed);
                gone
            }
            Event::Apply(pod) => {
                known.insert(pod.name_any());
                pod_seen(index, &pod)
            }
            Event::Delete(pod) => {
                known.remove(&pod.name_any());
                vec![Observation::PodGone {
                    index,
                    name: pod.name_any(),
                }]
            }
        })
}

fn pod_seen(index: usize, pod: &Pod) -> Vec<Observation> {
    value(pod)
        .map(|object| Observation::Pod { index, object })
        .into_iter()
        .collect()
}

/// Warnings from now on; what lies in the namespace already was somebody else's news.
fn watch_warnings(
    client: &Client,
    namespace: &str,
) -> impl Stream<Item = Vec<Observation>> + use<> {
    let events: Api<ClusterEvent> = Api::namespaced(client.clone(), namespace);
    watcher(events, watcher::Config::default())
        .default_backoff()
        .inspect_err(|error| tracing::warn!(%error, "the watch for warnings was interrupted"))
        .filter_map(|result| async move { result.ok() })
        .map(|event| match event {
            Event::Apply(event) if is_news(&event) => {
                vec![Observation::Warning {
                    text: warning(&event),
                }]
            }
            _ => Vec::new(),
        })
}

/// A probe that fails while something starts is what the pod's row says already; everything else is news.
fn is_news(event: &ClusterEvent) -> bool {
    event.type_.as_deref() == Some("Warning") && event.reason.as_deref() != Some(PROBE_FAILED)
}

fn warning(event: &ClusterEvent) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    let about = &event.involved_object;
    format!(
        "{} {}: {} {}",
        part(&about.kind),
        part(&about.name),
        part(&event.reason),
        part(&event.message)
    )
}
