//! Which pod goes where. Pure: everything that matters is in the [`Snapshot`].

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;

use super::super::worker;
use super::fit::{self, Board, Unfit};

pub(crate) const SCHEDULER_NAME: &str = "default-scheduler";
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

#[derive(Debug, Default)]
pub(crate) struct Snapshot {
    pub pods: Vec<Arc<Pod>>,
    pub nodes: Vec<Arc<Node>>,
    pub claims: Vec<Arc<PersistentVolumeClaim>>,
    pub volumes: Vec<Arc<PersistentVolume>>,
    pub classes: Vec<Arc<StorageClass>>,
    pub namespaces: Vec<Arc<Namespace>>,
    /// Pods by UID that were promised a node which their object may not show yet.
    pub assumed: HashMap<String, String>,
}

#[derive(Debug)]
pub(crate) enum Action {
    /// Tells storage for which node an unbound claim is wanted; the pod is bound once its claims are.
    SelectNode {
        claim: Arc<PersistentVolumeClaim>,
        node: String,
    },
    Bind {
        pod: Arc<Pod>,
        node: String,
    },
    Report {
        pod: Arc<Pod>,
        message: String,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::SelectNode { claim, .. } => format!(
                "claim {:?} {:?}",
                claim.metadata.namespace, claim.metadata.name
            ),
            Action::Bind { pod, .. } => format!("bind {:?}", pod.metadata.uid),
            Action::Report { pod, message } => format!("report {:?} {message}", pod.metadata.uid),
        }
    }
}

pub(crate) fn decide(snapshot: &Snapshot) -> Vec<Action> {
    let mut board = board(snapshot);
    let mut pending: Vec<&Arc<Pod>> = snapshot
        .pods
        .iter()
        .filter(|pod| is_pending(pod, snapshot))
        .collect();
    pending.sort_by_key(|pod| {
        let priority = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.priority)
            .unwrap_or(0);
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (
            std::cmp::Reverse(priority),
            created,
            pod.metadata.namespace.clone(),
            pod.metadata.name.clone(),
        )
    });
    let mut actions = Vec::new();
    for pod in pending {
        match place(pod, snapshot, &board) {
            Ok(placement) => {
                board.placed.push((pod.as_ref(), placement.node.clone()));
                if placement.unbound.is_empty() {
                    actions.push(Action::Bind {
                        pod: pod.clone(),
                        node: placement.node,
                    });
                    continue;
                }
                for claim in placement.unbound {
                    if selected_node(&claim) != Some(placement.node.as_str()) {
                        actions.push(Action::SelectNode {
                            claim,
                            node: placement.node.clone(),
                        });
                    }
                }
            }
            Err(message) => {
                if !already_reported(pod, &message) {
                    actions.push(Action::Report {
                        pod: pod.clone(),
                        message,
                    });
                }
            }
        }
    }
    actions
}

fn board(snapshot: &Snapshot) -> Board<'_> {
    let placed = snapshot
        .pods
        .iter()
        .filter(|pod| !is_finished(pod))
        .filter_map(|pod| {
            let shown = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            let assumed = pod
                .metadata
                .uid
                .as_ref()
                .and_then(|uid| snapshot.assumed.get(uid).cloned());
            Some((pod.as_ref(), shown.or(assumed)?))
        });
    let namespaces = snapshot.namespaces.iter().map(|namespace| {
        (
            namespace.metadata.name.as_deref().unwrap_or_default(),
            namespace.metadata.labels.as_ref(),
        )
    });
    Board {
        nodes: snapshot
            .nodes
            .iter()
            .map(Arc::as_ref)
            .filter(|node| node.metadata.deletion_timestamp.is_none())
            .collect(),
        placed: placed.collect(),
        namespaces: namespaces.collect(),
    }
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_pending(pod: &Pod, snapshot: &Snapshot) -> bool {
    let Some(spec) = pod.spec.as_ref() else {
        return false;
    };
    let ours = spec
        .scheduler_name
        .as_deref()
        .is_none_or(|name| name.is_empty() || name == SCHEDULER_NAME);
    let gated = spec
        .scheduling_gates
        .as_ref()
        .is_some_and(|gates| !gates.is_empty());
    let assumed = pod
        .metadata
        .uid
        .as_ref()
        .is_some_and(|uid| snapshot.assumed.contains_key(uid));
    ours && !gated
        && !assumed
        && spec.node_name.as_deref().unwrap_or_default().is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && !is_finished(pod)
}

struct Placement {
    node: String,
    /// Claims that storage has to bind before the pod can be bound.
    unbound: Vec<Arc<PersistentVolumeClaim>>,
}

fn place(pod: &Pod, snapshot: &Snapshot, board: &Board<'_>) -> Result<Placement, String> {
    if board.nodes.is_empty() {
        return Err("no nodes available to schedule pods".to_owned());
    }
    let count = board.nodes.len();
    let claims = claims(pod, snapshot)
        .map_err(|reason| format!("0/{count} nodes are available: {reason}."))?;
    let mut reasons: BTreeMap<Unfit, usize> = BTreeMap::new();
    let mut best: Option<((bool, i64, i64), &str)> = None;
    let wanted = claims.unbound.iter().find_map(|claim| selected_node(claim));
    for node in &board.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match fit::fit(pod, node, &claims.volumes, board) {
            Err(unfit) => *reasons.entry(unfit).or_default() += 1,
            Ok(()) => {
                let (wishes, load) = fit::cost(pod, node, board);
                // Storage may already be at work for a node: stay with it while the pod fits there.
                let candidate = ((wanted != Some(name), wishes, load), name);
                if best.is_none_or(|best| candidate < best) {
                    best = Some(candidate);
                }
            }
        }
    }
    match best {
        Some((_, node)) => Ok(Placement {
            node: node.to_owned(),
            unbound: claims.unbound,
        }),
        None => Err(refusal(count, &reasons)),
    }
}

fn refusal(count: usize, reasons: &BTreeMap<Unfit, usize>) -> String {
    let mut lines: Vec<String> = reasons
        .iter()
        .map(|(unfit, nodes)| format!("{nodes} {unfit}"))
        .collect();
    lines.sort();
    format!("0/{count} nodes are available: {}.", lines.join(", "))
}

struct Claims<'a> {
    unbound: Vec<Arc<PersistentVolumeClaim>>,
    volumes: Vec<&'a PersistentVolume>,
}

fn claims<'a>(pod: &Pod, snapshot: &'a Snapshot) -> Result<Claims<'a>, String> {
    let mut found = Claims {
        unbound: Vec::new(),
        volumes: Vec::new(),
    };
    let volumes = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.volumes.as_deref())
        .unwrap_or_default();
    for source in volumes
        .iter()
        .filter_map(|volume| volume.persistent_volume_claim.as_ref())
    {
        let name = &source.claim_name;
        let claim = snapshot
            .claims
            .iter()
            .find(|claim| {
                claim.metadata.namespace == pod.metadata.namespace
                    && claim.metadata.name.as_ref() == Some(name)
            })
            .ok_or_else(|| format!("persistentvolumeclaim \"{name}\" not found"))?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
        }
        let phase = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let volume_name = claim
            .spec
            .as_ref()
            .and_then(|spec| spec.volume_name.as_ref());
        match (phase, volume_name) {
            (Some("Bound"), Some(volume_name)) => {
                let volume = snapshot
                    .volumes
                    .iter()
                    .find(|volume| volume.metadata.name.as_ref() == Some(volume_name));
                found.volumes.push(volume.ok_or_else(|| {
                    format!("persistentvolumeclaim \"{name}\" bound to non-existent persistentvolume \"{volume_name}\"")
                })?);
            }
            _ if waits_for_consumer(claim, snapshot) => found.unbound.push(claim.clone()),
            _ => return Err("pod has unbound immediate PersistentVolumeClaims".to_owned()),
        }
    }
    Ok(found)
}

fn waits_for_consumer(claim: &PersistentVolumeClaim, snapshot: &Snapshot) -> bool {
    let class = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.storage_class_name.as_deref());
    snapshot.classes.iter().any(|candidate| {
        candidate.metadata.name.as_deref() == class
            && candidate.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
    })
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim
        .metadata
        .annotations
        .as_ref()?
        .get(SELECTED_NODE)
        .map(String::as_str)
}

/// Saying the same thing twice would be a write at rest.
fn already_reported(pod: &Pod, message: &str) -> bool {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref())
        .unwrap_or_default();
    conditions.iter().any(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
            && condition.message.as_deref() == Some(message)
    })
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
