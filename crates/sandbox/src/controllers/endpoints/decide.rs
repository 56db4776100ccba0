//! Which EndpointSlices a Service should have, from its selector and the pods. Pure.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::{selector, worker};

pub(crate) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(crate) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(crate) const MANAGER: &str = "endpointslice-controller.k8s.io";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Endpoints in one slice; what the API's own controller uses by default.
const ENDPOINTS_PER_SLICE: usize = 100;

#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub services: Vec<Arc<Service>>,
    pub pods: Vec<Arc<Pod>>,
    pub slices: Vec<Arc<EndpointSlice>>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Create {
        service: Arc<Service>,
        slice: Box<EndpointSlice>,
    },
    /// Replaces endpoints, ports and labels of a slice that is ours.
    Update {
        current: Arc<EndpointSlice>,
        slice: Box<EndpointSlice>,
    },
    Delete {
        slice: Arc<EndpointSlice>,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::Create { service, .. } => format!("create for {:?}", service.metadata.uid),
            Action::Update { current, .. } => format!("update {:?}", current.metadata.uid),
            Action::Delete { slice } => format!("delete {:?}", slice.metadata.uid),
        }
    }
}

pub(crate) fn decide(snapshot: &Snapshot) -> Vec<Action> {
    let mut ours: HashMap<(Option<&str>, &str), Vec<&Arc<EndpointSlice>>> = HashMap::new();
    for slice in snapshot
        .slices
        .iter()
        .filter(|slice| label(slice, MANAGED_BY) == Some(MANAGER))
    {
        if let Some(service) = label(slice, SERVICE_NAME) {
            ours.entry((slice.metadata.namespace.as_deref(), service))
                .or_default()
                .push(slice);
        }
    }
    let mut actions = Vec::new();
    for service in &snapshot.services {
        let name = service.metadata.name.as_deref().unwrap_or_default();
        let current = ours
            .remove(&(service.metadata.namespace.as_deref(), name))
            .unwrap_or_default();
        if service.metadata.deletion_timestamp.is_some() || selector_of(service).is_none() {
            continue;
        }
        reconcile(
            service,
            wanted(service, &snapshot.pods),
            current,
            &mut actions,
        );
    }
    // What is left belongs to Services that no longer exist.
    let leftovers = ours
        .into_values()
        .flatten()
        .filter(|slice| slice.metadata.deletion_timestamp.is_none());
    actions.extend(leftovers.map(|slice| Action::Delete {
        slice: slice.clone(),
    }));
    actions
}

fn label<'a>(slice: &'a EndpointSlice, key: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

fn selector_of(service: &Service) -> Option<&selector::Labels> {
    let spec = service.spec.as_ref()?;
    let external = spec.type_.as_deref() == Some("ExternalName");
    spec.selector
        .as_ref()
        .filter(|pairs| !external && !pairs.is_empty())
}

/// Slices are matched by their ports, so that an unchanged one is neither rewritten nor renamed.
fn reconcile(
    service: &Arc<Service>,
    wanted: Vec<EndpointSlice>,
    mut current: Vec<&Arc<EndpointSlice>>,
    actions: &mut Vec<Action>,
) {
    let mut homeless = Vec::new();
    for slice in wanted {
        match current
            .iter()
            .position(|candidate| candidate.ports == slice.ports && same_content(candidate, &slice))
        {
            Some(at) => drop(current.remove(at)),
            None => homeless.push(slice),
        }
    }
    for slice in homeless {
        let at = current
            .iter()
            .position(|candidate| candidate.ports == slice.ports)
            .or(if current.is_empty() { None } else { Some(0) });
        match at {
            Some(at) => actions.push(Action::Update {
                current: current.remove(at).clone(),
                slice: Box::new(slice),
            }),
            None => actions.push(Action::Create {
                service: service.clone(),
                slice: Box::new(slice),
            }),
        }
    }
    actions.extend(current.into_iter().map(|slice| Action::Delete {
        slice: slice.clone(),
    }));
}

fn same_content(current: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    let labels_there = wanted
        .metadata
        .labels
        .iter()
        .flatten()
        .all(|(key, value)| label(current, key) == Some(value));
    labels_there
        && current.endpoints == wanted.endpoints
        && current.metadata.deletion_timestamp.is_none()
}

fn wanted(service: &Service, pods: &[Arc<Pod>]) -> Vec<EndpointSlice> {
    let Some(pairs) = selector_of(service) else {
        return Vec::new();
    };
    let service_ports = service
        .spec
        .as_ref()
        .and_then(|spec| spec.ports.as_deref())
        .unwrap_or_default();
    // Pods may resolve a named port differently; each set of ports is its own slice.
    let mut groups: BTreeMap<String, (Vec<EndpointPort>, Vec<Endpoint>)> = BTreeMap::new();
    for pod in pods {
        let selected = pod.metadata.namespace == service.metadata.namespace
            && selector::matches_pairs(pairs, pod.metadata.labels.as_ref());
        let Some(endpoint) = selected.then(|| endpoint(service, pod)).flatten() else {
            continue;
        };
        let ports: Vec<EndpointPort> = service_ports
            .iter()
            .filter_map(|port| resolve(port, pod))
            .collect();
        let group = groups
            .entry(format!("{ports:?}"))
            .or_insert_with(|| (ports, Vec::new()));
        group.1.push(endpoint);
    }
    if groups.is_empty() {
        // An empty slice says: looked, and there is nobody.
        return vec![slice(service, Vec::new(), Vec::new())];
    }
    let mut slices = Vec::new();
    for (ports, mut endpoints) in groups.into_values() {
        endpoints.sort_by(|left, right| left.addresses.cmp(&right.addresses));
        for chunk in endpoints.chunks(ENDPOINTS_PER_SLICE) {
            slices.push(slice(service, ports.clone(), chunk.to_vec()));
        }
    }
    slices
}

fn slice(service: &Service, ports: Vec<EndpointPort>, endpoints: Vec<Endpoint>) -> EndpointSlice {
    let name = service.metadata.name.clone().unwrap_or_default();
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_NAME.to_owned(), name.clone());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    if is_headless(service) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{name}-")),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Service".to_owned(),
                name,
                uid: service.metadata.uid.clone().unwrap_or_default(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]),
            ..ObjectMeta::default()
        },
        address_type: "IPv4".to_owned(),
        endpoints,
        ports: if ports.is_empty() { None } else { Some(ports) },
    }
}

pub(crate) fn is_headless(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.as_deref())
        == Some("None")
}

/// A pod that has an address and has not ended. One that is being deleted stays, marked as terminating.
fn endpoint(service: &Service, pod: &Pod) -> Option<Endpoint> {
    let status = pod.status.as_ref()?;
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return None;
    }
    let address = status
        .pod_ip
        .clone()
        .filter(|address| !address.is_empty())?;
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let serving = status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let spec = service.spec.as_ref()?;
    let publish = spec.publish_not_ready_addresses == Some(true);
    let pod_spec = pod.spec.as_ref()?;
    let hostname = pod_spec
        .hostname
        .clone()
        .filter(|_| pod_spec.subdomain == service.metadata.name);
    Some(Endpoint {
        addresses: vec![address],
        conditions: Some(EndpointConditions {
            ready: Some(publish || (serving && !terminating)),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        hostname,
        node_name: pod_spec.node_name.clone(),
        target_ref: Some(ObjectReference {
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            ..ObjectReference::default()
        }),
        ..Endpoint::default()
    })
}

fn resolve(port: &ServicePort, pod: &Pod) -> Option<EndpointPort> {
    let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
    let number = match port.target_port.as_ref() {
        None => port.port,
        Some(IntOrString::Int(0)) => port.port,
        Some(IntOrString::Int(number)) => *number,
        Some(IntOrString::String(name)) => container_port(pod, name, &protocol)?,
    };
    Some(EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(number),
        protocol: Some(protocol),
        app_protocol: port.app_protocol.clone(),
    })
}

fn container_port(pod: &Pod, name: &str, protocol: &str) -> Option<i32> {
    let containers = pod
        .spec
        .as_ref()
        .map(|spec| spec.containers.as_slice())
        .unwrap_or_default();
    let mut ports = containers
        .iter()
        .flat_map(|container| container.ports.iter().flatten());
    let found = ports.find(|port| {
        port.name.as_deref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol
    });
    found.map(|port| port.container_port)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
