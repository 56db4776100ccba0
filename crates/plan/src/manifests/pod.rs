//! The pod of an instance: stock PostgreSQL image, our agent as PID 1, the volume, the Secrets it needs and no others.

use geodb_api::names::Credential;
use geodb_api::{labels, names};
use geodb_ha::environment as agent;
use serde_json::{Value, json};

use super::{ROLE_REPLICA, owned};
use crate::world::World;

/// User and group of PostgreSQL in the stock images.
const POSTGRES_USER: u32 = 999;

/// PostgreSQL shuts down cleanly within this, or is stopped; seconds.
const TERMINATION_GRACE_SECONDS: u32 = 30;

/// Path of our program in our own image.
const IMAGE_PROGRAM: &str = "/geodb";

/// How often the node asks; an instance that becomes ready is seen within a second.
const READINESS_PERIOD_SECONDS: u32 = 1;
/// The agent answers from memory, so a slow answer is an overloaded machine rather than a sick agent.
const PROBE_TIMEOUT_SECONDS: u32 = 3;
/// Half a minute without an answer: the agent hangs, and only a new container helps.
const LIVENESS_PERIOD_SECONDS: u32 = 10;

pub fn pod(world: &World, serial: u32) -> Value {
    let name = names::instance(world.name(), serial);
    let mut metadata = owned(world, &name);
    metadata["labels"][labels::INSTANCE] = json!(name);
    // An instance made while a primary is published can only be its replica.
    if world.primary().is_some_and(|primary| primary != name) {
        metadata["labels"][labels::ROLE] = json!(ROLE_REPLICA);
    }
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "serviceAccountName": names::identity(world.name()),
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
            "enableServiceLinks": false,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": POSTGRES_USER,
                "runAsGroup": POSTGRES_USER,
                "fsGroup": POSTGRES_USER,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "affinity": spread_over_nodes(world),
            "initContainers": [install_agent(world)],
            "containers": [postgres(world, &name)],
            "volumes": volumes(world, &name),
        },
    })
}

/// Merged into a pod when the register gives it another role.
pub fn pod_role(role: &str) -> Value {
    json!({ "metadata": { "labels": { labels::ROLE: role } } })
}

fn spread_over_nodes(world: &World) -> Value {
    json!({
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 100,
                "podAffinityTerm": {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": { "matchLabels": { labels::DATABASE: world.name() } },
                },
            }],
        },
    })
}

fn locked_down() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": { "drop": ["ALL"] },
    })
}

fn install_agent(world: &World) -> Value {
    json!({
        "name": "install-agent",
        "image": world.config.agent_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [IMAGE_PROGRAM, "agent", "install", agent::PROGRAM_DIRECTORY],
        "securityContext": locked_down(),
        "volumeMounts": [{ "name": "bin", "mountPath": agent::PROGRAM_DIRECTORY }],
    })
}

fn postgres(world: &World, name: &str) -> Value {
    let spec = &world.database.spec;
    json!({
        "name": "postgres",
        "image": world.image(),
        "imagePullPolicy": "IfNotPresent",
        "command": [agent::PROGRAM_PATH, "agent", "run"],
        "env": [
            { "name": agent::DATABASE, "value": world.name() },
            { "name": agent::INSTANCE, "value": name },
            { "name": agent::NAMESPACE, "value": world.namespace() },
            { "name": agent::POD_IP, "valueFrom": { "fieldRef": { "fieldPath": "status.podIP" } } },
            { "name": agent::PORT, "value": agent::DEFAULT_PORT.to_string() },
            { "name": agent::HEALTH_PORT, "value": agent::DEFAULT_HEALTH_PORT.to_string() },
            { "name": agent::APP_DATABASE, "value": spec.database },
            { "name": agent::EXTENSIONS, "value": "postgis" },
        ],
        "ports": [
            { "name": agent::POSTGRES_PORT_NAME, "containerPort": agent::DEFAULT_PORT, "protocol": "TCP" },
            { "name": agent::HEALTH_PORT_NAME, "containerPort": agent::DEFAULT_HEALTH_PORT, "protocol": "TCP" },
        ],
        "readinessProbe": probe(agent::READY_PATH, READINESS_PERIOD_SECONDS),
        "livenessProbe": probe(agent::LIVE_PATH, LIVENESS_PERIOD_SECONDS),
        "securityContext": locked_down(),
        "volumeMounts": [
            { "name": "data", "mountPath": agent::VOLUME_PATH },
            { "name": "run", "mountPath": agent::RUN_PATH },
            { "name": "tmp", "mountPath": agent::TMP_PATH },
            { "name": "bin", "mountPath": agent::PROGRAM_DIRECTORY, "readOnly": true },
            { "name": "server", "mountPath": agent::SERVER_SECRET_PATH, "readOnly": true },
            { "name": "replication", "mountPath": agent::REPLICATION_SECRET_PATH, "readOnly": true },
            { "name": "app", "mountPath": agent::APP_SECRET_PATH, "readOnly": true },
        ],
    })
}

fn probe(path: &str, period_seconds: u32) -> Value {
    json!({
        "httpGet": { "path": path, "port": agent::HEALTH_PORT_NAME, "scheme": "HTTP" },
        "periodSeconds": period_seconds,
        "timeoutSeconds": PROBE_TIMEOUT_SECONDS,
        "successThreshold": 1,
        "failureThreshold": 3,
    })
}

fn volumes(world: &World, name: &str) -> Value {
    let secret = |volume: &str, credential: Credential, keys: &[&str]| {
        let items: Vec<Value> = keys
            .iter()
            .map(|key| json!({ "key": key, "path": key }))
            .collect();
        json!({
            "name": volume,
            "secret": { "secretName": credential.secret(world.name()), "defaultMode": 0o440, "items": items },
        })
    };
    const TLS: [&str; 3] = ["tls.crt", "tls.key", "ca.crt"];
    json!([
        { "name": "data", "persistentVolumeClaim": { "claimName": name } },
        { "name": "run", "emptyDir": {} },
        { "name": "tmp", "emptyDir": {} },
        { "name": "bin", "emptyDir": {} },
        secret("server", Credential::Server, &TLS),
        secret("replication", Credential::Replication, &TLS),
        // The connection strings in this Secret are for clients; an instance needs the two words only.
        secret("app", Credential::App, &["username", "password"]),
    ])
}
