//! The Node object: written once when the node starts. There are no heartbeats, so that a sandbox at rest writes nothing; nobody here judges a node
//! by its silence.

use std::net::{Ipv4Addr, SocketAddr};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::limits::PODS_PER_NODE;

const HTTP_CONFLICT: u16 = 409;
/// Memory a node reports when the machine does not say, in KiB.
const MEMORY_UNKNOWN_KIB: u64 = 1024 * 1024;

/// What a machine says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFacts {
    pub processors: usize,
    pub memory_kib: u64,
    pub kernel: String,
    pub system: String,
    pub machine_id: String,
}

impl MachineFacts {
    pub fn of_this_machine() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let memory = read("/proc/meminfo").lines().find_map(|line| {
            line.strip_prefix("MemTotal:")?
                .trim()
                .strip_suffix(" kB")?
                .trim()
                .parse()
                .ok()
        });
        let system = read("/etc/os-release").lines().find_map(|line| {
            line.strip_prefix("PRETTY_NAME=")
                .map(|name| name.trim_matches('"').to_owned())
        });
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_kib: memory.unwrap_or(MEMORY_UNKNOWN_KIB),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            system: system.unwrap_or_else(|| "Linux".to_owned()),
            machine_id: read("/etc/machine-id").trim().to_owned(),
        }
    }
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn labels(name: &str) -> Value {
    json!({"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture()})
}

fn status(
    name: &str,
    address: Ipv4Addr,
    kubelet: SocketAddr,
    facts: &MachineFacts,
    now: Timestamp,
) -> Value {
    let resources = json!({"cpu": facts.processors.to_string(), "memory": format!("{}Ki", facts.memory_kib), "pods": PODS_PER_NODE.to_string()});
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let condition = |kind: &str, holds: bool, reason: &str, message: &str| json!({"type": kind, "status": if holds { "True" } else { "False" }, "reason": reason, "message": message, "lastHeartbeatTime": now, "lastTransitionTime": now});
    json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}],
        "capacity": resources,
        "allocatable": resources,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
        "conditions": [
            condition("MemoryPressure", false, "KubeletHasSufficientMemory", "memory is not watched by the sandbox's node"),
            condition("DiskPressure", false, "KubeletHasNoDiskPressure", "the disk is not watched by the sandbox's node"),
            condition("PIDPressure", false, "KubeletHasSufficientPID", "processes are not counted by the sandbox's node"),
            condition("Ready", true, "KubeletReady", "the sandbox's node runs pods"),
        ],
        "nodeInfo": {
            "architecture": architecture(), "bootID": "", "containerRuntimeVersion": "bubblewrap://host", "kernelVersion": facts.kernel,
            "kubeProxyVersion": "", "kubeletVersion": concat!("v", env!("CARGO_PKG_VERSION"), "-geodb-sandbox"), "machineID": facts.machine_id,
            "operatingSystem": "linux", "osImage": facts.system, "systemUUID": "",
        },
    })
}

/// Makes the Node object say what this node is.
pub async fn register(
    client: &Client,
    name: &str,
    address: Ipv4Addr,
    kubelet: SocketAddr,
    now: Timestamp,
) -> kube::Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels(name)}});
    let object: Node = serde_json::from_value(node.clone()).map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &object).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == HTTP_CONFLICT => {
            nodes
                .patch(name, &PatchParams::default(), &Patch::Merge(node))
                .await?;
        }
        Err(error) => return Err(error),
    }
    let status = status(
        name,
        address,
        kubelet,
        &MachineFacts::of_this_machine(),
        now,
    );
    nodes
        .patch_status(
            name,
            &PatchParams::default(),
            &Patch::Merge(json!({"status": status})),
        )
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_object_is_a_node() {
        let facts = MachineFacts {
            processors: 3,
            memory_kib: 7,
            kernel: "k".to_owned(),
            system: "s".to_owned(),
            machine_id: "m".to_owned(),
        };
        let address = Ipv4Addr::new(127, 9, 1, 1);
        let status = status(
            "alpha",
            address,
            SocketAddr::from((address, 10250)),
            &facts,
            Timestamp::UNIX_EPOCH,
        );
        let node: Node = serde_json::from_value(
            json!({"metadata": {"name": "alpha", "labels": labels("alpha")}, "status": status}),
        )
        .expect("a Node");
        let status = node.status.expect("a status");
        assert_eq!(status.capacity.expect("capacity")["memory"].0, "7Ki");
        assert_eq!(
            status
                .daemon_endpoints
                .and_then(|endpoints| endpoints.kubelet_endpoint)
                .map(|endpoint| endpoint.port),
            Some(10250)
        );
        assert!(
            status
                .conditions
                .expect("conditions")
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True")
        );
    }
}
