//! Pods nobody can end any more: on a node that no longer exists, or deleted before they had one.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;

use super::cache::Cache;
use super::clock;
use super::worker::{self, Controller, Decision, Failure};

/// How long a node must be missing before its pods are given up: long enough for a node that registers anew, much shorter than a
/// cluster's 40 s, because here a node that is not registered has no processes.
const NODE_GONE_AFTER: SignedDuration = SignedDuration::from_secs(5);

pub(super) struct PodGarbage {
    pub client: Client,
    pub pods: Cache<Pod>,
    pub nodes: Cache<Node>,
    /// When a node with pods was first found missing.
    pub missing_since: Mutex<HashMap<String, Timestamp>>,
}

#[derive(Debug)]
pub(super) enum Action {
    /// Fails and removes a pod whose node is gone, once the server confirms it.
    NodeGone {
        pod: Arc<Pod>,
        node: String,
    },
    NeverScheduled {
        pod: Arc<Pod>,
    },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::NodeGone { pod, .. } | Action::NeverScheduled { pod } => {
                format!("{:?}", pod.metadata.uid)
            }
        }
    }
}

fn decide(
    pods: &[Arc<Pod>],
    nodes: &[Arc<Node>],
    missing_since: &mut HashMap<String, Timestamp>,
    now: Timestamp,
) -> Decision<Action> {
    let mut decision = Decision::of(Vec::new());
    let exists = |name: &str| {
        nodes
            .iter()
            .any(|node| node.metadata.name.as_deref() == Some(name))
    };
    let node_of = |pod: &Arc<Pod>| {
        pod.spec
            .as_ref()
            .and_then(|spec| spec.node_name.clone())
            .filter(|name| !name.is_empty())
    };
    missing_since.retain(|name, _| {
        !exists(name) && pods.iter().any(|pod| node_of(pod).as_ref() == Some(name))
    });
    for pod in pods {
        match node_of(pod) {
            None if pod.metadata.deletion_timestamp.is_some() => decision
                .actions
                .push(Action::NeverScheduled { pod: pod.clone() }),
            Some(node) if !exists(&node) => {
                let since = *missing_since.entry(node.clone()).or_insert(now);
                let due = since
                    .saturating_add(NODE_GONE_AFTER)
                    .unwrap_or(Timestamp::MAX);
                if due <= now {
                    decision.actions.push(Action::NodeGone {
                        pod: pod.clone(),
                        node,
                    });
                } else {
                    decision.wake_up = [decision.wake_up, Some(due)].into_iter().flatten().min();
                }
            }
            _ => {}
        }
    }
    decision
}

impl PodGarbage {
    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(
            self.client.clone(),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }

    async fn node_gone(&self, pod: &Pod, node: &str) -> Result<(), Failure> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        if nodes.get_opt(node).await?.is_some() {
            return Err(Failure::Conflict(format!(
                "the node {node} is there after all"
            )));
        }
        let status = pod.status.clone().unwrap_or_default();
        if !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            let mut conditions = status.conditions.unwrap_or_default();
            conditions.retain(|condition| condition.type_ != "DisruptionTarget");
            conditions.push(PodCondition {
                type_: "DisruptionTarget".to_owned(),
                status: "True".to_owned(),
                reason: Some("DeletionByPodGC".to_owned()),
                message: Some("PodGC: node no longer exists".to_owned()),
                last_transition_time: Some(Time(clock::now())),
                ..PodCondition::default()
            });
            let patch = json!({
                "metadata": {"resourceVersion": pod.metadata.resource_version},
                "status": {"phase": "Failed", "conditions": conditions},
            });
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            self.api(pod)
                .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await?;
        }
        self.delete_now(pod).await
    }

    async fn delete_now(&self, pod: &Pod) -> Result<(), Failure> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let preconditions = Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        };
        self.api(pod)
            .delete(
                name,
                &DeleteParams::default()
                    .grace_period(0)
                    .preconditions(preconditions),
            )
            .await?;
        Ok(())
    }
}

impl Controller for PodGarbage {
    const NAME: &'static str = "pod-garbage";
    type Action = Action;

    fn synced(&self) -> bool {
        self.pods.synced() && self.nodes.synced()
    }

    fn decide(&self, now: Timestamp) -> Decision<Action> {
        decide(
            &self.pods.all(),
            &self.nodes.all(),
            &mut self.missing_since.lock(),
            now,
        )
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::NodeGone { pod, node } => self.node_gone(pod, node).await,
            Action::NeverScheduled { pod } => self.delete_now(pod).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(node: Option<&str>, deleting: bool) -> Arc<Pod> {
        let mut value = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [], "nodeName": node}});
        if deleting {
            value["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(value).expect("a pod"))
    }

    #[test]
    fn pods_of_a_missing_node_are_given_up_after_a_while() {
        let start = Timestamp::UNIX_EPOCH;
        let mut missing = HashMap::new();
        let pods = [pod(Some("oak"), false)];
        let first = decide(&pods, &[], &mut missing, start);
        assert!(first.actions.is_empty());
        assert_eq!(first.wake_up, Some(start + NODE_GONE_AFTER));
        let later = decide(&pods, &[], &mut missing, start + NODE_GONE_AFTER);
        assert!(matches!(
            later.actions.as_slice(),
            [Action::NodeGone { .. }]
        ));
        let node: Arc<Node> =
            Arc::new(serde_json::from_value(json!({"metadata": {"name": "oak"}})).expect("a node"));
        let back = decide(&pods, &[node], &mut missing, start + NODE_GONE_AFTER);
        assert!(back.actions.is_empty() && back.wake_up.is_none());
        assert!(missing.is_empty(), "the next absence starts anew");
    }

    #[test]
    fn a_pod_deleted_before_it_had_a_node_goes_at_once() {
        let decision = decide(
            &[pod(None, true), pod(None, false)],
            &[],
            &mut HashMap::new(),
            Timestamp::UNIX_EPOCH,
        );
        assert!(matches!(
            decision.actions.as_slice(),
            [Action::NeverScheduled { .. }]
        ));
    }
}
