//! The scheduler: gives every pending pod a node through `pods/binding`, or says why it cannot.
//!
//! It looks at readiness, cordons, taints, selectors, affinity, spreading and volumes. It does not look at resource requests (the
//! machine is what it is) and preempts nobody; `docs/sandbox.md` says so.

mod decide;
mod fit;

use std::collections::HashMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    Binding, Namespace, Node, ObjectReference, PersistentVolume, PersistentVolumeClaim, Pod,
    PodCondition,
};
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Status, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;

use super::cache::Cache;
use super::clock;
use super::record::{Recorder, Severity};
use super::worker::{Controller, Decision, Failure};
pub(crate) use decide::SELECTED_NODE;
use decide::{Action, SCHEDULER_NAME, Snapshot};

pub(crate) struct Scheduler {
    pub client: Client,
    pub recorder: Recorder,
    pub pods: Cache<Pod>,
    pub nodes: Cache<Node>,
    pub claims: Cache<PersistentVolumeClaim>,
    pub volumes: Cache<PersistentVolume>,
    pub classes: Cache<StorageClass>,
    pub namespaces: Cache<Namespace>,
    /// Nodes of pods we bound, until the watch shows them bound: two pods that exclude each other must not both see an empty node.
    pub assumed: Mutex<HashMap<String, String>>,
}

impl Scheduler {
    pub(crate) fn recorder(client: &Client) -> Recorder {
        Recorder::new(client.clone(), SCHEDULER_NAME)
    }

    fn snapshot(&self) -> Snapshot {
        let pods = self.pods.all();
        let mut assumed = self.assumed.lock();
        assumed.retain(|uid, _| {
            pods.iter().any(|pod| {
                pod.metadata.uid.as_ref() == Some(uid)
                    && pod
                        .spec
                        .as_ref()
                        .is_some_and(|spec| spec.node_name.is_none())
            })
        });
        Snapshot {
            pods,
            nodes: self.nodes.all(),
            claims: self.claims.all(),
            volumes: self.volumes.all(),
            classes: self.classes.all(),
            namespaces: self.namespaces.all(),
            assumed: assumed.clone(),
        }
    }

    async fn bind(&self, pod: &Pod, node: &str) -> Result<(), Failure> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: pod.metadata.namespace.clone(),
                // A pod of the same name made meanwhile must not inherit the decision.
                uid: Some(uid.clone()),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..Default::default()
            },
        };
        let api = self.pod_api(pod);
        self.assumed.lock().insert(uid.clone(), node.to_owned());
        let answer: Result<Status, kube::Error> = api
            .create_subresource("binding", &name, &PostParams::default(), &binding)
            .await;
        if let Err(error) = answer {
            self.assumed.lock().remove(&uid);
            return Err(error.into());
        }
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let message = format!("Successfully assigned {namespace}/{name} to {node}");
        self.recorder
            .record(pod, Severity::Normal, "Scheduled", &message)
            .await;
        Ok(())
    }

    async fn select(&self, claim: &PersistentVolumeClaim, node: &str) -> Result<(), Failure> {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(
            self.client.clone(),
            claim.metadata.namespace.as_deref().unwrap_or_default(),
        );
        let patch =
            json!({"metadata": {"uid": claim.metadata.uid, "annotations": {SELECTED_NODE: node}}});
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let answer = api
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.claims.overlay(answer);
        Ok(())
    }

    async fn report(&self, pod: &Pod, message: &str) -> Result<(), Failure> {
        let now = Time(clock::now());
        let mut conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let before = conditions
            .iter()
            .position(|condition| condition.type_ == "PodScheduled")
            .map(|at| conditions.remove(at));
        let since = before
            .filter(|before| before.status == "False")
            .and_then(|before| before.last_transition_time);
        conditions.push(PodCondition {
            type_: "PodScheduled".into(),
            status: "False".into(),
            reason: Some("Unschedulable".into()),
            message: Some(message.to_owned()),
            last_transition_time: Some(since.unwrap_or(now)),
            ..PodCondition::default()
        });
        // The version makes it a compare-and-swap: the list of conditions is replaced as a whole.
        let patch = json!({"metadata": {"resourceVersion": pod.metadata.resource_version}, "status": {"conditions": conditions}});
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let answer = self
            .pod_api(pod)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await?;
        self.recorder
            .record(pod, Severity::Warning, "FailedScheduling", message)
            .await;
        self.pods.overlay(answer);
        Ok(())
    }

    fn pod_api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(
            self.client.clone(),
            pod.metadata.namespace.as_deref().unwrap_or_default(),
        )
    }
}

impl Controller for Scheduler {
    const NAME: &'static str = "scheduler";
    type Action = Action;

    fn synced(&self) -> bool {
        self.pods.synced()
            && self.nodes.synced()
            && self.claims.synced()
            && self.volumes.synced()
            && self.classes.synced()
            && self.namespaces.synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        Decision::of(decide::decide(&self.snapshot()))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        match action {
            Action::SelectNode { claim, node } => self.select(claim, node).await,
            Action::Bind { pod, node } => self.bind(pod, node).await,
            Action::Report { pod, message } => self.report(pod, message).await,
        }
    }
}
