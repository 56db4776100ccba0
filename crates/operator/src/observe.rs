//! The first part of a pass: from caches and a few reads by name to a `World`.

use std::collections::BTreeMap;

use geodb_api::labels;
use geodb_api::names::{self, Credential};
use geodb_api::v2::Database;
use geodb_ha::register::{REGISTER_ANNOTATION, Register};
use geodb_kit::Key;
use geodb_plan::{Claim, Config, Pod, Seen, World};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{self as core, PersistentVolumeClaim, Secret};
use kube::{Api, Client, ResourceExt};

use crate::caches::Caches;
use crate::credentials::Contents;

#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    #[error("failed to read the Secret {name}")]
    Secret { name: String, source: kube::Error },
    #[error("failed to read the Secret {name}: no answer in {} s", crate::limits::READ_DEADLINE.as_secs())]
    SecretTimeout { name: String },
}

/// Everything a decision needs, and the stored authority with its key if there is one. What cannot be read is `Unknown`, never `Absent`.
pub async fn observe(
    database: &Database,
    caches: &Caches,
    client: &Client,
    config: &Config,
) -> Result<(World, Option<Contents>), ObserveError> {
    let (name, namespace) = (
        database.name_any(),
        database.namespace().unwrap_or_default(),
    );
    let secrets = read_secrets(client, &namespace, &name).await?;
    let authority = secrets
        .get(&Credential::Authority)
        .and_then(Option::as_ref)
        .map(contents);
    let credentials = secrets
        .into_iter()
        .map(|(credential, secret)| (credential, seen(secret)))
        .collect();
    let pods = caches
        .pods
        .by_label(Some(&namespace), labels::DATABASE, &name);
    let claims = caches
        .claims
        .by_label(Some(&namespace), labels::DATABASE, &name);
    let register = caches
        .registers
        .get(&Key::new(namespace, names::register(&name)));
    let world = World {
        config: config.clone(),
        database: database.clone(),
        register: register.map_or(Seen::Absent, |lease| read_register(&lease)),
        credentials,
        authority_pem: authority
            .as_ref()
            .and_then(|authority| authority.get("tls.crt").cloned()),
        pods: pods.iter().map(|pod| view_pod(pod)).collect(),
        claims: claims.iter().map(|claim| view_claim(claim)).collect(),
    };
    Ok((world, authority))
}

fn seen(secret: Option<Secret>) -> Seen<()> {
    secret.map_or(Seen::Absent, |_| Seen::Present(()))
}

async fn read_secrets(
    client: &Client,
    namespace: &str,
    database: &str,
) -> Result<BTreeMap<Credential, Option<Secret>>, ObserveError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let reads = Credential::ALL.map(|credential| {
        let api = api.clone();
        async move {
            Ok((
                credential,
                read_secret(&api, credential.secret(database)).await?,
            ))
        }
    });
    futures::future::try_join_all(reads)
        .await
        .map(|all| all.into_iter().collect())
}

async fn read_secret(api: &Api<Secret>, name: String) -> Result<Option<Secret>, ObserveError> {
    match tokio::time::timeout(crate::limits::READ_DEADLINE, api.get_opt(&name)).await {
        Ok(Ok(secret)) => Ok(secret),
        Ok(Err(source)) => Err(ObserveError::Secret { name, source }),
        Err(_) => Err(ObserveError::SecretTimeout { name }),
    }
}

/// What is not text is left out, and so missed by whoever needs it.
fn contents(secret: &Secret) -> Contents {
    let data = secret.data.iter().flatten();
    let texts =
        data.map(|(key, value)| Some((key.clone(), String::from_utf8(value.0.clone()).ok()?)));
    texts.flatten().collect()
}

/// An unreadable register is `Unknown`: deciding on less than the agents know would be worse than waiting.
fn read_register(lease: &Lease) -> Seen<geodb_plan::Register> {
    let text = lease.annotations().get(REGISTER_ANNOTATION);
    match Register::from_lease(text.map(String::as_str)) {
        Ok(register) => Seen::Present(geodb_plan::Register {
            epoch: register.epoch.0,
            primary: register
                .record
                .as_ref()
                .map(|record| record.leader.instance().to_owned()),
            version: register
                .record
                .as_ref()
                .map(|record| record.version.clone()),
        }),
        Err(error) => {
            tracing::warn!(lease = lease.name_any(), %error, "the register does not parse");
            Seen::Unknown
        }
    }
}

fn label(labels: &BTreeMap<String, String>, name: &str) -> String {
    labels.get(name).cloned().unwrap_or_default()
}

fn view_pod(pod: &core::Pod) -> Pod {
    let status = pod.status.clone().unwrap_or_default();
    let phase = status.phase.as_deref().unwrap_or_default();
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let ready = conditions
        .iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    Pod {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        resource_version: pod.resource_version().unwrap_or_default(),
        database_uid: label(pod.labels(), labels::DATABASE_UID),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        ended: matches!(phase, "Failed" | "Succeeded"),
        ready,
        waiting_for: waiting_for(&status),
        role: pod.labels().get(labels::ROLE).cloned(),
    }
}

/// In a few words, from what the node reports; the first thing in the way.
fn waiting_for(status: &core::PodStatus) -> Option<String> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let unschedulable = conditions
        .iter()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unschedulable {
        return Some(format!(
            "a node: {}",
            condition.message.as_deref().unwrap_or("unschedulable")
        ));
    }
    let init = status.init_container_statuses.iter().flatten();
    let containers = status.container_statuses.iter().flatten();
    for container in init.chain(containers) {
        let state = container.state.clone().unwrap_or_default();
        if let Some(waiting) = state
            .waiting
            .filter(|waiting| waiting.reason.as_deref() != Some("PodInitializing"))
        {
            let reason = waiting.reason.unwrap_or_default();
            let message = waiting
                .message
                .map_or_else(String::new, |message| format!(": {message}"));
            return Some(format!("container {} ({reason}{message})", container.name));
        }
    }
    Some("PostgreSQL to be ready".to_owned())
}

fn view_claim(claim: &PersistentVolumeClaim) -> Claim {
    let requests = claim
        .spec
        .as_ref()
        .and_then(|spec| spec.resources.as_ref())
        .and_then(|resources| resources.requests.as_ref());
    let requested = requests
        .and_then(|requests| requests.get("storage"))
        .and_then(|quantity| quantity.0.parse().ok());
    Claim {
        name: claim.name_any(),
        uid: claim.uid().unwrap_or_default(),
        resource_version: claim.resource_version().unwrap_or_default(),
        database_uid: label(claim.labels(), labels::DATABASE_UID),
        terminating: claim.metadata.deletion_timestamp.is_some(),
        removal_requested: claim.annotations().contains_key(labels::REMOVAL),
        requested,
    }
}
