//! Claims become directories, grow and go.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{Stage, eventually, from, gone};

fn claim(name: &str, class: Option<&str>) -> Value {
    let mut value = json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    if let Some(class) = class {
        value["spec"]["storageClassName"] = json!(class);
    }
    value
}

fn mounting(claim: &str) -> Value {
    json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]})
}

fn bound_size(claim: &PersistentVolumeClaim) -> Option<String> {
    let status = claim
        .status
        .as_ref()
        .filter(|status| status.phase.as_deref() == Some("Bound"))?;
    Some(status.capacity.as_ref()?.get("storage")?.0.clone())
}

async fn volume_of(stage: &Stage, name: &str) -> PersistentVolume {
    let claim: PersistentVolumeClaim = stage.api().get(name).await.expect("the claim");
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    volumes
        .get(&claim.spec.expect("a spec").volume_name.expect("a volume"))
        .await
        .expect("the volume")
}

fn directory(volume: &PersistentVolume) -> PathBuf {
    let spec = volume.spec.as_ref().expect("a spec");
    PathBuf::from(&spec.host_path.as_ref().expect("a host path").path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_lives_and_dies_with_its_directory() {
    let stage = Stage::new().await;
    let node = stage.node("oak").await;
    stage
        .create::<PersistentVolumeClaim>(claim("data", None))
        .await;
    assert!(
        stage
            .event("data", "WaitForFirstConsumer")
            .await
            .contains("first consumer")
    );
    stage.pod("p", mounting("data")).await;
    assert_eq!(stage.node_of("p").await, node);
    assert_eq!(stage.until("data", "is bound", bound_size).await, "1Gi");
    let found: PersistentVolumeClaim = stage.api().get("data").await.expect("the claim");
    assert_eq!(
        found.spec.expect("a spec").storage_class_name.as_deref(),
        Some("local")
    );
    let volume = volume_of(&stage, "data").await;
    let path = directory(&volume);
    let uid = found.metadata.uid.expect("a uid");
    assert_eq!(
        path,
        stage
            .data
            .path()
            .join("volumes")
            .join(&stage.namespace)
            .join(uid)
    );
    assert_eq!(
        std::fs::metadata(&path)
            .expect("there")
            .permissions()
            .mode()
            & 0o777,
        0o700
    );
    std::fs::write(path.join("PG_VERSION"), "15").expect("written");

    let larger = json!({"spec": {"resources": {"requests": {"storage": "3Gi"}}}});
    stage
        .api::<PersistentVolumeClaim>()
        .patch("data", &PatchParams::default(), &Patch::Merge(&larger))
        .await
        .expect("grown");
    stage
        .until("data", "has grown", |claim| {
            bound_size(claim).filter(|size| size == "3Gi")
        })
        .await;
    assert_eq!(
        volume_of(&stage, "data")
            .await
            .spec
            .expect("a spec")
            .capacity
            .expect("a capacity")["storage"]
            .0,
        "3Gi"
    );

    stage
        .api::<PersistentVolumeClaim>()
        .delete("data", &DeleteParams::default())
        .await
        .expect("deleted");
    let held: PersistentVolumeClaim = stage
        .api()
        .get("data")
        .await
        .expect("still there: a pod uses it");
    assert!(held.metadata.deletion_timestamp.is_some());
    assert!(path.join("PG_VERSION").exists());
    stage.end_pod("p").await;
    stage.until_gone::<PersistentVolumeClaim>("data").await;
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    let name = volume.metadata.name.expect("a name");
    eventually("the volume is gone", || async {
        gone(volumes.get_opt(&name).await.expect("an answer"))
    })
    .await;
    assert!(!path.exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retained_data_outlives_its_claim_and_can_be_taken_again() {
    let stage = Stage::new().await;
    stage.node("oak").await;
    let class = format!("kept-{}", stage.label);
    let classes: Api<StorageClass> = Api::all(stage.client.clone());
    let kept: StorageClass = from(
        json!({"metadata": {"name": class}, "provisioner": "geodb.imaginedata.com/directory",
        "volumeBindingMode": "Immediate", "reclaimPolicy": "Retain"}),
    );
    classes
        .create(&PostParams::default(), &kept)
        .await
        .expect("a class");
    stage
        .create::<PersistentVolumeClaim>(claim("data", Some(&class)))
        .await;
    stage
        .until("data", "is bound without a consumer", bound_size)
        .await;
    let volume = volume_of(&stage, "data").await;
    let (name, path) = (
        volume.metadata.name.clone().expect("a name"),
        directory(&volume),
    );
    std::fs::write(path.join("precious"), "x").expect("written");
    stage
        .api::<PersistentVolumeClaim>()
        .delete("data", &DeleteParams::default())
        .await
        .expect("deleted");
    stage.until_gone::<PersistentVolumeClaim>("data").await;
    let volumes: Api<PersistentVolume> = Api::all(stage.client.clone());
    let phase = |volume: PersistentVolume| volume.status.and_then(|status| status.phase);
    eventually("the volume is released", || async {
        phase(volumes.get(&name).await.expect("kept")).filter(|phase| phase == "Released")
    })
    .await;
    assert!(path.join("precious").exists());

    let free = json!({"spec": {"claimRef": null}});
    volumes
        .patch(&name, &PatchParams::default(), &Patch::Merge(&free))
        .await
        .expect("freed");
    let mut again = claim("again", Some(&class));
    again["spec"]["volumeName"] = json!(name);
    stage.create::<PersistentVolumeClaim>(again).await;
    stage.until("again", "is bound", bound_size).await;
    assert!(path.join("precious").exists());
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_cannot_be_served_says_why() {
    let stage = Stage::new().await;
    stage
        .create::<PersistentVolumeClaim>(claim("odd", Some("no-such-class")))
        .await;
    assert_eq!(
        stage.event("odd", "ProvisioningFailed").await,
        "storageclass.storage.k8s.io \"no-such-class\" not found"
    );
    stage.end().await;
}
