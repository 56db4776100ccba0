//! Pods get nodes, or a reason.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::stage::Stage;

fn apart() -> Value {
    json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}]}}})
}

fn scheduled(pod: &Pod, wanted: &str) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let found = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == wanted)?;
    Some(format!(
        "{} {}",
        found.reason.clone().unwrap_or_default(),
        found.message.clone().unwrap_or_default()
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unschedulable_pod_says_why_and_is_placed_when_a_node_comes() {
    let stage = Stage::new().await;
    let first = stage.node("oak").await;
    stage.pod("one", apart()).await;
    assert_eq!(stage.node_of("one").await, first);
    stage
        .until::<Pod, _>("one", "is told to be scheduled", |pod| {
            scheduled(pod, "True")
        })
        .await;
    assert!(
        stage
            .event("one", "Scheduled")
            .await
            .ends_with(&format!("to {first}"))
    );
    stage.pod("two", apart()).await;
    let reason = stage
        .until::<Pod, _>("two", "is unschedulable", |pod| scheduled(pod, "False"))
        .await;
    assert!(reason.starts_with("Unschedulable 0/"), "{reason}");
    assert!(
        reason.contains("1 node(s) didn't match pod anti-affinity rules"),
        "{reason}"
    );
    assert!(
        stage
            .event("two", "FailedScheduling")
            .await
            .contains("anti-affinity")
    );
    let second = stage.node("elm").await;
    assert_eq!(stage.node_of("two").await, second);
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_node_that_is_gone_are_removed() {
    let stage = Stage::new().await;
    let node = stage.node("oak").await;
    stage.pod("p", json!({})).await;
    stage.node_of("p").await;
    let nodes: Api<Node> = Api::all(stage.client.clone());
    nodes
        .delete(&node, &DeleteParams::default())
        .await
        .expect("deleted");
    stage.until_gone::<Pod>("p").await;
    stage.end().await;
}
