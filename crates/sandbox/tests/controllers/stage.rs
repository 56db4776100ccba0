//! What every test needs: a server, the controllers, a namespace, nodes, and a way to wait for something to become true.

use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

use geodb_sandbox::controllers::{self, ControllersConfig, Handle, ServiceRange};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Namespace, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::connect::Connection;

/// Far beyond what anything here takes, even on a busy machine; a test that waits this long has failed.
const DEADLINE: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(15);
pub const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nfor tests\n-----END CERTIFICATE-----\n";

pub struct Stage {
    pub connection: Connection,
    pub client: Client,
    pub data: tempfile::TempDir,
    pub namespace: String,
    /// Pods of this test go to nodes of this test, whoever else uses the server.
    pub label: String,
    handle: Handle,
}

impl Stage {
    pub async fn new() -> Stage {
        let connection = Connection::open();
        let client = connection.client();
        let data = tempfile::tempdir().expect("a directory");
        let config = ControllersConfig {
            client: client.clone(),
            data: data.path().to_owned(),
            certificate_authority: AUTHORITY.to_owned(),
            services: ServiceRange {
                number: connection.range(),
            },
        };
        let handle = controllers::start(config, CancellationToken::new());
        let label = format!("t{:08x}", rand::random::<u32>());
        let namespace = format!("grove-{label}");
        let stage = Stage {
            connection,
            client,
            data,
            namespace,
            label,
            handle,
        };
        let namespaces: Api<Namespace> = Api::all(stage.client.clone());
        let object = from(json!({"metadata": {"name": stage.namespace}}));
        namespaces
            .create(&PostParams::default(), &object)
            .await
            .expect("a namespace");
        // Pods are refused before their account is there, as in a cluster.
        stage
            .until::<ServiceAccount, _>("default", "is there", |_| Some(()))
            .await;
        stage
    }

    /// Ends everything the test started.
    pub async fn end(self) {
        tokio::time::timeout(DEADLINE, self.handle.stop())
            .await
            .expect("the controllers end");
        self.connection.close().await;
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create<K>(&self, value: Value) -> K
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Serialize
            + Debug,
    {
        self.api()
            .create(&PostParams::default(), &from(value))
            .await
            .expect("created")
    }

    /// Registers a node that is ready.
    pub async fn node(&self, name: &str) -> String {
        let name = format!("{name}-{}", self.label);
        let nodes: Api<Node> = Api::all(self.client.clone());
        let labels = json!({"kubernetes.io/hostname": name, "test": self.label});
        let node = from(json!({"metadata": {"name": name, "labels": labels}}));
        nodes
            .create(&PostParams::default(), &node)
            .await
            .expect("a node");
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        nodes
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&ready))
            .await
            .expect("ready");
        name
    }

    /// Creates a pod that goes to this test's nodes.
    pub async fn pod(&self, name: &str, mut spec: Value) -> Pod {
        spec["nodeSelector"] = json!({"test": self.label});
        spec["automountServiceAccountToken"] = json!(false);
        if spec["containers"].is_null() {
            spec["containers"] = json!([{"name": "main", "image": "debian:12"}]);
        }
        self.create(json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}))
            .await
    }

    /// What the node would report.
    pub async fn report(&self, pod: &str, status: Value) -> Pod {
        let patch = json!({"status": status});
        self.api::<Pod>()
            .patch_status(pod, &PatchParams::default(), &Patch::Merge(&patch))
            .await
            .expect("reported")
    }

    pub async fn node_of(&self, pod: &str) -> String {
        self.until::<Pod, _>(pod, "has a node", |pod| {
            pod.spec.as_ref()?.node_name.clone()
        })
        .await
    }

    /// Removes a pod as its node does when its processes have ended.
    pub async fn end_pod(&self, pod: &str) {
        self.api::<Pod>()
            .delete(pod, &DeleteParams::default().grace_period(0))
            .await
            .expect("deleted");
    }

    /// Waits until the object is there and `look` finds what it looks for.
    pub async fn until<K, T>(&self, name: &str, what: &str, look: impl Fn(&K) -> Option<T>) -> T
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = self.api();
        eventually(&format!("{name} {what}"), || async {
            look(&api.get_opt(name).await.expect("an answer")?)
        })
        .await
    }

    pub async fn until_gone<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + DeserializeOwned
            + Debug,
    {
        let api: Api<K> = self.api();
        eventually(&format!("{name} is gone"), || async {
            gone(api.get_opt(name).await.expect("an answer"))
        })
        .await;
    }

    /// Waits for an event about an object, and returns its message.
    pub async fn event(&self, about: &str, reason: &str) -> String {
        let events: Api<Event> = self.api();
        eventually(&format!("{reason} about {about}"), || async {
            let all = events
                .list(&ListParams::default())
                .await
                .expect("an answer")
                .items;
            let found = all.into_iter().find(|event| {
                event.involved_object.name.as_deref() == Some(about)
                    && event.reason.as_deref() == Some(reason)
            });
            found?.message
        })
        .await
    }
}

pub fn gone<K>(found: Option<K>) -> Option<()> {
    found.is_none().then_some(())
}

pub fn from<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// Waits for a condition, with a deadline.
pub async fn eventually<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let found = tokio::time::timeout(DEADLINE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    });
    found
        .await
        .unwrap_or_else(|_| panic!("not in time: {what}"))
}
