//! Owners, namespaces, and quiet.

use geodb_sandbox::controllers::hosts;
use k8s_openapi::api::core::v1::{
    ConfigMap, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Service, ServiceAccount,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::stage::{AUTHORITY, Stage, eventually, from, gone};

async fn map(stage: &Stage, name: &str, owners: Value) -> ConfigMap {
    stage
        .create(json!({"metadata": {"name": name, "ownerReferences": owners}}))
        .await
}

fn owned_by(owner: &ConfigMap) -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid().expect("a uid"), "blockOwnerDeletion": true}])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_after_their_owner_in_the_background() {
    let stage = Stage::new().await;
    let root = map(&stage, "root", json!([])).await;
    let branch = map(&stage, "branch", owned_by(&root)).await;
    map(&stage, "leaf", owned_by(&branch)).await;
    stage
        .api::<ConfigMap>()
        .delete("root", &DeleteParams::background())
        .await
        .expect("deleted");
    stage.until_gone::<ConfigMap>("branch").await;
    stage.until_gone::<ConfigMap>("leaf").await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_go_before_their_owner_in_the_foreground() {
    let stage = Stage::new().await;
    let root = map(&stage, "root", json!([])).await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"], "ownerReferences": owned_by(&root)}});
    stage.create::<ConfigMap>(held).await;
    stage
        .api::<ConfigMap>()
        .delete("root", &DeleteParams::foreground())
        .await
        .expect("deleted");
    stage
        .until::<ConfigMap, _>("held", "is being deleted", |map| {
            map.metadata.deletion_timestamp.clone()
        })
        .await;
    assert!(
        stage
            .api::<ConfigMap>()
            .get_opt("root")
            .await
            .expect("an answer")
            .is_some(),
        "the owner waits"
    );
    let free = kube::api::Patch::Merge(json!({"metadata": {"finalizers": []}}));
    stage
        .api::<ConfigMap>()
        .patch("held", &kube::api::PatchParams::default(), &free)
        .await
        .expect("freed");
    stage.until_gone::<ConfigMap>("root").await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orphans_stay() {
    let stage = Stage::new().await;
    let root = map(&stage, "root", json!([])).await;
    map(&stage, "leaf", owned_by(&root)).await;
    stage
        .api::<ConfigMap>()
        .delete("root", &DeleteParams::orphan())
        .await
        .expect("deleted");
    stage.until_gone::<ConfigMap>("root").await;
    stage
        .until::<ConfigMap, _>("leaf", "has no owner", |map| {
            map.owner_references().is_empty().then_some(())
        })
        .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kinds_that_appear_later_are_collected_too() {
    let stage = Stage::new().await;
    let group = format!("{}.example.com", stage.label);
    let definitions: Api<CustomResourceDefinition> = Api::all(stage.client.clone());
    let definition = from(
        json!({"metadata": {"name": format!("trees.{group}")}, "spec": {"group": group, "scope": "Namespaced",
        "names": {"plural": "trees", "singular": "tree", "kind": "Tree", "listKind": "TreeList"},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}}),
    );
    definitions
        .create(&PostParams::default(), &definition)
        .await
        .expect("a definition");
    let resource =
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(&group, "v1", "Tree"), "trees");
    let trees: Api<DynamicObject> =
        Api::namespaced_with(stage.client.clone(), &stage.namespace, &resource);
    let oak = eventually("trees are served", || async {
        trees
            .create(
                &PostParams::default(),
                &DynamicObject::new("oak", &resource),
            )
            .await
            .ok()
    })
    .await;
    let owner = json!([{"apiVersion": format!("{group}/v1"), "kind": "Tree", "name": "oak", "uid": oak.uid().expect("a uid")}]);
    map(&stage, "leaf", owner).await;
    trees
        .delete("oak", &DeleteParams::background())
        .await
        .expect("deleted");
    stage.until_gone::<ConfigMap>("leaf").await;
    definitions
        .delete(&format!("trees.{group}"), &DeleteParams::default())
        .await
        .expect("deleted");
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_is_furnished_and_emptied() {
    let stage = Stage::new().await;
    stage
        .until::<ServiceAccount, _>("default", "is there", |_| Some(()))
        .await;
    let authority = stage
        .until::<ConfigMap, _>("kube-root-ca.crt", "is there", |map| map.data.clone())
        .await;
    assert_eq!(authority["ca.crt"], AUTHORITY);
    let file = hosts::path(stage.data.path(), &stage.namespace);
    eventually("the hosts file", || async { file.exists().then_some(()) }).await;
    map(&stage, "mine", json!([])).await;
    stage.node("oak").await;
    stage.pod("p", json!({})).await;
    stage.node_of("p").await;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces
        .delete(&stage.namespace, &DeleteParams::default())
        .await
        .expect("deleted");
    stage
        .until::<Pod, _>("p", "is being deleted", |pod| {
            pod.metadata.deletion_timestamp.clone()
        })
        .await;
    assert!(
        stage
            .api::<ConfigMap>()
            .get_opt("mine")
            .await
            .expect("an answer")
            .is_some(),
        "what pods may need goes after them"
    );
    stage.end_pod("p").await;
    eventually("the namespace is gone", || async {
        gone(
            namespaces
                .get_opt(&stage.namespace)
                .await
                .expect("an answer"),
        )
    })
    .await;
    eventually("the hosts file is gone", || async {
        (!file.exists()).then_some(())
    })
    .await;
    stage.end().await;
}

/// Everybody is nudged by the marker namespace; only the two objects it needs may be written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_writes_without_need() {
    let stage = Stage::new().await;
    stage.node("oak").await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    stage.create::<PersistentVolumeClaim>(claim).await;
    stage.create::<Service>(json!({"metadata": {"name": "p"}, "spec": {"selector": {"app": "p"}, "ports": [{"port": 5432}]}})).await;
    stage
        .pod(
            "p",
            json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]}),
        )
        .await;
    stage.node_of("p").await;
    stage
        .report(
            "p",
            json!({"phase": "Running", "podIP": "127.71.2.1", "podIPs": [{"ip": "127.71.2.1"}],
        "conditions": [{"type": "Ready", "status": "True"}]}),
        )
        .await;
    let slices = stage.api::<EndpointSlice>();
    eventually("the slice has the pod", || async {
        let all = slices
            .list(&kube::api::ListParams::default())
            .await
            .expect("an answer");
        all.items
            .into_iter()
            .find(|slice| !slice.endpoints.is_empty())
    })
    .await;
    stage.event("p", "Scheduled").await;
    stage
        .until::<PersistentVolumeClaim, _>("data", "is bound", |claim| {
            claim
                .status
                .as_ref()?
                .phase
                .clone()
                .filter(|phase| phase == "Bound")
        })
        .await;
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    eventually("the volume is bound", || async {
        let all = volumes
            .list(&kube::api::ListParams::default())
            .await
            .expect("an answer");
        all.items.into_iter().find(|volume| {
            volume
                .status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Bound"))
        })
    })
    .await;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let all = namespaces
        .list(&kube::api::ListParams::default())
        .await
        .expect("an answer");
    for namespace in all {
        furnished(&stage, &namespace.name_any()).await;
    }
    let Some(before) = stage.connection.writes() else {
        return stage.end().await;
    };
    let marker = format!("marker-{}", stage.label);
    namespaces
        .create(
            &PostParams::default(),
            &from(json!({"metadata": {"name": marker}})),
        )
        .await
        .expect("a namespace");
    furnished(&stage, &marker).await;
    assert_eq!(stage.connection.writes(), Some(before + 3));
    stage.end().await;
}

async fn furnished(stage: &Stage, namespace: &str) {
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.client.clone(), namespace);
    let maps: Api<ConfigMap> = Api::namespaced(stage.client.clone(), namespace);
    eventually("an account", || async {
        accounts.get_opt("default").await.expect("an answer")
    })
    .await;
    eventually("an authority", || async {
        maps.get_opt("kube-root-ca.crt").await.expect("an answer")
    })
    .await;
}
