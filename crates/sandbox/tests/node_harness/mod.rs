//! One API server, one node and a namespace for one test, and the questions tests ask of them. Every wait has a deadline.

pub mod backend;
mod tls;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backend::Backend;
use geodb_sandbox::node::{Handle, ImageMap, Node, NodeConfig, PodAddresses, Shared};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Generous, because the machine may be busy with other tests; reached only by a failure.
const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(25);

pub struct Cluster {
    pub namespace: String,
    node: String,
    backend: Backend,
    directory: tempfile::TempDir,
    tls: tls::Tls,
    cancel: CancellationToken,
    handle: Option<Handle>,
}

pub async fn cluster() -> Cluster {
    let backend = Backend::start().await;
    let directory = tempfile::tempdir().expect("a temporary directory");
    let address = Ipv4Addr::new(127, backend.range, 1, 1);
    let mut cluster = Cluster {
        namespace: backend.namespace.clone(),
        node: format!("node-{}", backend.namespace),
        tls: tls::Tls::new(address),
        backend,
        directory,
        cancel: CancellationToken::new(),
        handle: None,
    };
    cluster.start_node().await;
    cluster
}

impl Cluster {
    async fn start_node(&mut self) {
        let hosts = self.data().join("hosts-file");
        std::fs::write(&hosts, "127.0.0.1 localhost\n").expect("written");
        let range = self.backend.range;
        self.cancel = CancellationToken::new();
        let config = NodeConfig {
            name: self.node.clone(),
            address: Ipv4Addr::new(127, range, 1, 1),
            shared: Shared::new(PodAddresses::of_range(range)),
            data: self.data().to_owned(),
            client: self.backend.client.clone(),
            images: ImageMap::of_this_machine(PathBuf::from("/usr/bin/true")),
            api_server: ("127.0.0.1".to_owned(), 6443),
            ca_pem: "the authority".to_owned(),
            tls: self.tls.server.clone(),
            hosts: Arc::new(move |_| Ok(hosts.clone())),
        };
        self.handle = Some(
            Node::start(config, self.cancel.clone())
                .await
                .expect("the node starts"),
        );
    }

    pub fn data(&self) -> &Path {
        self.directory.path()
    }

    /// Stops the node in order and starts it again with the same data.
    pub async fn restart_node(&mut self) {
        self.stop_node().await;
        self.start_node().await;
    }

    async fn stop_node(&mut self) {
        self.cancel.cancel();
        if let Some(handle) = self.handle.take() {
            tokio::time::timeout(DEADLINE, handle.stopped())
                .await
                .expect("the node stops in time");
        }
    }

    /// Stops everything and sees that nothing is left.
    pub async fn stop(mut self) {
        self.stop_node().await;
        let marker = self
            .data()
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert_eq!(
            processes_with(&marker),
            Vec::<u32>::new(),
            "no process is left"
        );
    }

    fn api(&self, version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match kind {
            "PersistentVolume" | "Node" => Api::all_with(self.backend.client.clone(), &resource),
            _ => Api::namespaced_with(self.backend.client.clone(), &self.namespace, &resource),
        }
    }

    pub async fn create(&self, version: &str, kind: &str, mut object: Value) -> Value {
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let created = self
            .api(version, kind)
            .create(&PostParams::default(), &object)
            .await
            .expect("created");
        serde_json::to_value(created).expect("JSON")
    }

    /// Creates a pod that is already assigned to the node. Most of the programs here ignore being asked to stop, as PID 1 does by default.
    pub async fn pod(&self, name: &str, mut spec: Value) {
        spec["nodeName"] = json!(self.node);
        spec["terminationGracePeriodSeconds"] =
            json!(spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(1));
        self.create(
            "v1",
            "Pod",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    pub async fn delete_pod(&self, name: &str) {
        self.api("v1", "Pod")
            .delete(name, &DeleteParams::default())
            .await
            .expect("deleted");
    }

    async fn get(&self, name: &str) -> Option<Value> {
        let pod = self
            .api("v1", "Pod")
            .get_opt(name)
            .await
            .expect("an answer");
        pod.map(|pod| serde_json::to_value(pod).expect("JSON"))
    }

    pub async fn until(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let pod = self.get(name).await.unwrap_or_default();
            if holds(&pod) {
                return pod;
            }
            assert!(
                Instant::now() < deadline,
                "pod {name}: waited in vain until {what}: {:#}",
                pod["status"]
            );
            tokio::time::sleep(POLL).await;
        }
    }

    pub async fn until_gone(&self, name: &str) {
        let deadline = Instant::now() + DEADLINE;
        while let Some(pod) = self.get(name).await {
            assert!(
                Instant::now() < deadline,
                "pod {name} does not go: {:#}",
                pod["status"]
            );
            tokio::time::sleep(POLL).await;
        }
    }

    async fn until_true(&self, what: &str, holds: impl Fn() -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds() {
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            tokio::time::sleep(POLL).await;
        }
    }

    pub async fn until_file(&self, path: &Path) {
        self.until_true(&format!("{} is there", path.display()), || path.exists())
            .await;
    }

    pub async fn until_lines(&self, path: &Path, lines: &[&str]) {
        self.until_true(
            &format!("{} has the lines {lines:?}", path.display()),
            || {
                std::fs::read_to_string(path)
                    .is_ok_and(|text| text.lines().eq(lines.iter().copied()))
            },
        )
        .await;
    }

    /// Nothing of the pod is on this machine any more.
    pub async fn until_left_nothing(&self, pod: &Value) {
        let uid = pod["metadata"]["uid"].as_str().expect("a UID").to_owned();
        let logs = || {
            std::fs::read_dir(self.data().join("logs"))
                .expect("read")
                .flatten()
                .any(|entry| entry.file_name().to_string_lossy().contains(&uid))
        };
        let pods = self.data().join("pods").join(&uid);
        self.until_true("the pod's directories are gone", || {
            !pods.exists() && !logs()
        })
        .await;
        self.until_true("the pod's processes are gone", || {
            processes_with(&uid).is_empty()
        })
        .await;
    }

    pub fn condition(&self, pod: &Value, kind: &str) -> String {
        let conditions = pod["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let found = conditions
            .iter()
            .find(|condition| condition["type"] == kind);
        found
            .and_then(|condition| condition["status"].as_str())
            .unwrap_or_default()
            .to_owned()
    }

    pub fn pod_volume(&self, pod: &Value, volume: &str) -> PathBuf {
        self.data()
            .join("pods")
            .join(pod["metadata"]["uid"].as_str().expect("a UID"))
            .join("volumes")
            .join(volume)
    }

    /// A claim bound to a directory, as the storage controller leaves them.
    pub async fn bound_claim(&self, name: &str) -> PathBuf {
        let path = self.data().join("volumes").join(&self.namespace).join(name);
        let volume = format!("{}-{name}", self.namespace);
        let claim = self
            .create("v1", "PersistentVolumeClaim", json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": volume,
                "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}}))
            .await;
        self.create("v1", "PersistentVolume", json!({"metadata": {"name": volume}, "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "hostPath": {"path": path}, "claimRef": {"name": name, "namespace": self.namespace, "uid": claim["metadata"]["uid"]}}}))
            .await;
        let status = kube::api::Patch::Merge(json!({"status": {"phase": "Bound"}}));
        self.api("v1", "PersistentVolumeClaim")
            .patch_status(name, &Default::default(), &status)
            .await
            .expect("bound");
        path
    }

    /// Reasons of the events about a pod, in order.
    async fn reasons(&self, pod: &str) -> Vec<String> {
        let parameters = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        let events = self
            .api("v1", "Event")
            .list(&parameters)
            .await
            .expect("listed");
        // Their names end in the time they were made, in hexadecimal digits of one length.
        let mut named: Vec<_> = events
            .items
            .into_iter()
            .map(|event| {
                (
                    event.metadata.name.unwrap_or_default(),
                    event.data["reason"].as_str().unwrap_or_default().to_owned(),
                )
            })
            .collect();
        named.sort();
        named.into_iter().map(|(_, reason)| reason).collect()
    }

    pub async fn until_events(&self, pod: &str, expected: &[&str]) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let reasons = self.reasons(pod).await;
            if reasons == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "events of {pod}: {reasons:?}, not {expected:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    pub async fn until_event(&self, pod: &str, reason: &str) {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let reasons = self.reasons(pod).await;
            if reasons.iter().any(|known| known == reason) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "no event {reason} of {pod}, only {reasons:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }

    pub fn writes(&self) -> u64 {
        self.backend.writes()
    }

    /// The kubelet's answer for a log: status and body.
    pub async fn log_answer(&self, pod: &str, container: &str, query: &str) -> (u16, String) {
        let kubelet: SocketAddr = self.handle.as_ref().expect("a running node").kubelet;
        let mut stream = self.tls.connect(kubelet).await;
        let request = format!(
            "GET /containerLogs/{}/{pod}/{container}?{query} HTTP/1.0\r\n\r\n",
            self.namespace
        );
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        // The end of the body is the end of the connection, which need not be a polite one.
        let _ = tokio::time::timeout(DEADLINE, stream.read_to_end(&mut answer))
            .await
            .expect("an answer in time");
        let answer = String::from_utf8(answer).expect("text");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split_whitespace()
            .nth(1)
            .and_then(|code| code.parse().ok())
            .expect("a status");
        (status, body.to_owned())
    }

    pub async fn log(&self, pod: &str, container: &str, query: &str) -> String {
        let (status, body) = self.log_answer(pod, container, query).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub async fn follow(&self, pod: &str, container: &str) -> String {
        self.log(pod, container, "follow=true").await
    }

    pub async fn until_log(&self, pod: &str, container: &str, line: &str) {
        let deadline = Instant::now() + DEADLINE;
        while !self
            .log(pod, container, "")
            .await
            .lines()
            .any(|known| known == line)
        {
            assert!(
                Instant::now() < deadline,
                "the log of {pod} has no line {line:?}"
            );
            tokio::time::sleep(POLL).await;
        }
    }
}

/// Living processes that have something mounted whose path contains `marker`.
fn processes_with(marker: &str) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc")
        .expect("read")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |process: &u32| {
        std::fs::read_to_string(format!("/proc/{process}/mountinfo"))
            .is_ok_and(|mounts| mounts.contains(marker))
    };
    processes.filter(holds).collect()
}
