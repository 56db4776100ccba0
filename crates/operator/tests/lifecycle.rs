//! The operator against the sandbox's API server, in one process and in virtual time. Agents and nodes are played: nothing here runs PostgreSQL.

use std::time::Duration;

use geodb_api::labels;
use geodb_api::v2::{Database, Phase};
use geodb_ha::register::REGISTER_ANNOTATION;
use geodb_operator::OperatorConfig;
use geodb_sandbox::serve::{Server, ServerConfig};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// Virtual time: long enough for anything, and over at once when nothing happens.
const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(50);

struct Stage {
    server: Server,
    client: Client,
    cancel: CancellationToken,
    operator: tokio::task::JoinHandle<()>,
}

impl Stage {
    async fn set() -> Self {
        let server = Server::start(ServerConfig::memory()).expect("a server");
        let client = server.client();
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in geodb_api::crds() {
            definitions
                .create(&PostParams::default(), &crd)
                .await
                .expect("the CRD is accepted");
        }
        let cancel = CancellationToken::new();
        let config = OperatorConfig {
            client: client.clone(),
            default_image: "example/postgis:15-3.3".to_owned(),
            agent_image: "geodb:test".to_owned(),
        };
        let operator = tokio::spawn(geodb_operator::run(config, cancel.clone()));
        Self {
            server,
            client,
            cancel,
            operator,
        }
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::default_namespaced(self.client.clone())
    }

    async fn create(&self, name: &str, replicas: u32, on_delete: &str) {
        let database: Database = serde_json::from_value(json!({
            "apiVersion": "stable.imaginedata.com/v2",
            "kind": "Database",
            "metadata": { "name": name },
            "spec": { "replicas": replicas, "storage": { "size": "1Gi" }, "onDelete": on_delete },
        }))
        .expect("a Database");
        self.api()
            .create(&PostParams::default(), &database)
            .await
            .expect("created");
    }

    async fn pods(&self) -> Vec<Pod> {
        self.api()
            .list(&ListParams::default())
            .await
            .expect("pods")
            .items
    }

    async fn claim_names(&self) -> Vec<String> {
        let claims: Vec<PersistentVolumeClaim> = self
            .api()
            .list(&ListParams::default())
            .await
            .expect("claims")
            .items;
        claims.iter().map(ResourceExt::name_any).collect()
    }

    /// Plays the first agent: it wins the register and publishes itself.
    async fn publish(&self, database: &str, primary: &str) {
        let incarnation = format!("{primary}.abc123");
        let register = json!({
            "epoch": 1, "winner": incarnation,
            "record": {
                "epoch": 1, "leader": incarnation, "voters": [], "w": 0, "timeline": 1, "switchLsn": "0/0",
                "address": "127.0.0.1", "port": 5432, "systemIdentifier": "7", "version": "15.18",
            },
        });
        let patch =
            json!({ "metadata": { "annotations": { REGISTER_ANNOTATION: register.to_string() } } });
        let leases: Api<Lease> = self.api();
        leases
            .patch(database, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("published");
    }

    /// Plays the node: every pod that is not ending becomes ready, every pod that is ending ends.
    async fn play_node(&self) {
        let pods: Api<Pod> = self.api();
        for pod in self.pods().await {
            if pod.metadata.deletion_timestamp.is_some() {
                let now = DeleteParams {
                    grace_period_seconds: Some(0),
                    ..DeleteParams::default()
                };
                pods.delete(&pod.name_any(), &now).await.expect("ended");
                continue;
            }
            let status = json!({ "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] } });
            pods.patch_status(
                &pod.name_any(),
                &PatchParams::default(),
                &Patch::Merge(&status),
            )
            .await
            .expect("ready");
        }
    }

    async fn until<F: AsyncFn() -> bool>(&self, what: &str, holds: F) {
        let waiting = async {
            while !holds().await {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        };
        tokio::time::timeout(DEADLINE, waiting)
            .await
            .unwrap_or_else(|_| panic!("not in time: {what}"));
    }

    async fn phase(&self, name: &str) -> Option<Phase> {
        let database: Database = self.api().get(name).await.expect("a Database");
        database.status.and_then(|status| status.phase)
    }

    async fn running(&self, name: &str, replicas: u32) {
        self.create(name, replicas, "Discard").await;
        self.until("pods", async || {
            self.pods().await.len() == replicas as usize
        })
        .await;
        self.publish(name, &format!("{name}-1")).await;
        self.until("ready", async || {
            self.play_node().await;
            self.phase(name).await == Some(Phase::Ready)
        })
        .await;
    }

    async fn until_gone(&self, name: &str) {
        let databases: Api<Database> = self.api();
        self.until("gone", async || {
            self.play_node().await;
            databases.get_opt(name).await.expect("an answer").is_none()
        })
        .await;
    }

    async fn end(self) {
        self.cancel.cancel();
        self.operator
            .await
            .expect("the operator ends without a panic");
        self.server.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_database_is_made_and_ten_hours_at_rest_write_nothing() {
    let stage = Stage::set().await;
    stage.running("harbours", 3).await;
    let pods = stage.pods().await;
    stage
        .until("role labels", async || {
            let pods = stage.pods().await;
            pods.iter()
                .all(|pod| pod.labels().contains_key(labels::ROLE))
        })
        .await;
    assert_eq!(pods.len(), 3);
    let services: Vec<Service> = stage
        .api()
        .list(&ListParams::default())
        .await
        .expect("services")
        .items;
    let names: Vec<String> = services
        .iter()
        .map(ResourceExt::name_any)
        .filter(|name| name.starts_with("harbours"))
        .collect();
    assert_eq!(names, ["harbours-r", "harbours-ro", "harbours-rw"]);
    let secret: Secret = stage.api().get("harbours-app").await.expect("credentials");
    assert!(secret.data.is_some_and(|data| data.contains_key("uri")));
    // Events are told in the background: let the last of them go out first.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = stage.server.writes();
    tokio::time::sleep(Duration::from_secs(10 * 3600)).await;
    assert_eq!(stage.server.writes(), before, "writes at rest");
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn scaling_follows_the_spec_and_spares_the_primary() {
    let stage = Stage::set().await;
    stage.running("harbours", 3).await;
    for replicas in [4, 1] {
        let patch = json!({ "spec": { "replicas": replicas } });
        let databases: Api<Database> = stage.api();
        databases
            .patch("harbours", &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("scaled");
        stage
            .until("the new number of instances", async || {
                stage.play_node().await;
                stage.claim_names().await.len() == replicas
                    && stage.phase("harbours").await == Some(Phase::Ready)
            })
            .await;
    }
    assert_eq!(stage.claim_names().await, ["harbours-1"]);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_discarded_database_takes_its_volumes_with_it_and_a_kept_one_does_not() {
    let stage = Stage::set().await;
    stage.running("harbours", 2).await;
    let databases: Api<Database> = stage.api();
    databases
        .delete("harbours", &DeleteParams::default())
        .await
        .expect("deleting");
    stage.until_gone("harbours").await;
    assert!(stage.claim_names().await.is_empty());

    stage.create("lagoons", 2, "Retain").await;
    stage
        .until("pods", async || stage.pods().await.len() == 2)
        .await;
    databases
        .delete("lagoons", &DeleteParams::default())
        .await
        .expect("deleting");
    stage.until_gone("lagoons").await;
    assert_eq!(stage.claim_names().await, ["lagoons-1", "lagoons-2"]);
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn somebody_else_s_object_is_left_alone_and_named() {
    let stage = Stage::set().await;
    let foreign: Service = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "harbours-rw" },
        "spec": { "ports": [{ "port": 80 }] },
    }))
    .expect("a Service");
    let services: Api<Service> = stage.api();
    services
        .create(&PostParams::default(), &foreign)
        .await
        .expect("created");
    stage.create("harbours", 1, "Discard").await;
    stage
        .until("the trouble is named", async || {
            stage.phase("harbours").await == Some(Phase::NeedsHuman)
        })
        .await;
    let database: Database = stage.api().get("harbours").await.expect("a Database");
    let conditions = database.status.expect("a status").conditions;
    assert!(
        conditions.iter().any(|condition| condition
            .message
            .contains("harbours-rw exists and is not ours")),
        "{conditions:?}"
    );
    assert!(
        services
            .get("harbours-rw")
            .await
            .expect("still there")
            .labels()
            .is_empty()
    );
    // The rest of the database is made all the same.
    stage
        .until("the pod", async || stage.pods().await.len() == 1)
        .await;
    services
        .delete("harbours-rw", &DeleteParams::default())
        .await
        .expect("out of the way");
    stage
        .until("it heals by itself", async || {
            stage.phase("harbours").await == Some(Phase::Creating)
        })
        .await;
    stage.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_starts_again_changes_nothing() {
    let stage = Stage::set().await;
    stage.running("harbours", 3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    stage.cancel.cancel();
    stage.operator.await.expect("ended");
    let before = stage.server.writes();
    let cancel = CancellationToken::new();
    let config = OperatorConfig {
        client: stage.client.clone(),
        default_image: "example/postgis:15-3.3".to_owned(),
        agent_image: "geodb:other".to_owned(),
    };
    let again = tokio::spawn(geodb_operator::run(config, cancel.clone()));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(
        stage.server.writes(),
        before,
        "a restart, even of another version, is no reason to write"
    );
    cancel.cancel();
    again.await.expect("ended");
    stage.server.shutdown().await;
}
