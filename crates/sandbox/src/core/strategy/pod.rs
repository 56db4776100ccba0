//! Pods: what admission adds, and what may change once a pod is there.

use serde_json::{Map, Value, json};

use super::containers::{default_spec, list, validate_spec};
use super::{Admission, Strategy, nothing_to_keep};
use crate::core::error::{Cause, Failure, Named, Outcome};
use crate::core::registry::SERVICE_ACCOUNTS;
use crate::core::{meta, metadata};

pub static POD: Strategy = Strategy {
    default,
    create,
    update: nothing_to_keep,
    validate,
    validate_update,
};

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// A little more than an hour: real servers add these seconds so that such tokens can be told from asked-for ones.
const TOKEN_SECONDS: i64 = 3607;
/// How long a pod stays on a node that is not ready or not reachable.
const TOLERATION_SECONDS: i64 = 300;
const ONLY_THESE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn default(pod: &mut Value) {
    let spec = meta::child(pod, "spec");
    default_spec(spec);
    meta::default(spec, "enableServiceLinks", true);
    for key in ["containers", "initContainers"] {
        for container in spec
            .get_mut(key)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            requests_from_limits(container);
        }
    }
}

/// What is limited and not asked for is asked for in full.
fn requests_from_limits(container: &mut Value) {
    let Some(limits) = meta::at(container, &["resources", "limits"])
        .and_then(Value::as_object)
        .cloned()
    else {
        return;
    };
    let resources = meta::child(container, "resources");
    let requests = meta::object(resources.entry("requests").or_insert_with(|| json!({})));
    for (name, quantity) in limits {
        requests.entry(name).or_insert(quantity);
    }
}

fn create(pod: &mut Value, admission: &mut Admission<'_>) -> Outcome<()> {
    let name = meta::name(pod).to_owned();
    let namespace = meta::namespace(pod).to_owned();
    set_priority(pod, &name, admission)?;
    set_service_account(pod, &name, &namespace, admission)?;
    tolerate(meta::child(pod, "spec"));
    let class = quality_class(pod);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
    Ok(())
}

fn forbidden(name: &str, why: &str) -> Box<Failure> {
    Failure::forbidden(
        &Named {
            group: "",
            kind: "pods",
            name,
        },
        why,
    )
}

fn set_priority(pod: &mut Value, name: &str, admission: &Admission<'_>) -> Outcome<()> {
    let class_name = meta::text(pod, &["spec", "priorityClassName"]).to_owned();
    let (priority, preemption) = if class_name.is_empty() {
        (0.into(), "PreemptLowerPriority".into())
    } else {
        let class = admission
            .state
            .get("priorityclasses.scheduling.k8s.io", "", &class_name);
        let class = class.ok_or_else(|| {
            forbidden(
                name,
                &format!("no PriorityClass with name {class_name} was found"),
            )
        })?;
        (
            class["value"].clone(),
            class
                .get("preemptionPolicy")
                .cloned()
                .unwrap_or_else(|| "PreemptLowerPriority".into()),
        )
    };
    let spec = meta::child(pod, "spec");
    spec.insert("priority".to_owned(), priority);
    meta::default(spec, "preemptionPolicy", preemption);
    Ok(())
}

/// The account, and the volume with its token, as admission adds them.
fn set_service_account(
    pod: &mut Value,
    name: &str,
    namespace: &str,
    admission: &mut Admission<'_>,
) -> Outcome<()> {
    let given = meta::text(pod, &["spec", "serviceAccountName"]);
    let account_name = if given.is_empty() { "default" } else { given }.to_owned();
    let account = admission
        .state
        .get(SERVICE_ACCOUNTS, namespace, &account_name)
        .cloned();
    let account = account.ok_or_else(|| {
        forbidden(name, &format!("error looking up service account {namespace}/{account_name}: serviceaccount {account_name:?} not found"))
    })?;
    let suffix = metadata::suffix(admission.rng);
    let spec = meta::child(pod, "spec");
    spec.insert(
        "serviceAccountName".to_owned(),
        account_name.as_str().into(),
    );
    spec.insert("serviceAccount".to_owned(), account_name.into());
    if spec.get("imagePullSecrets").is_none()
        && let Some(secrets) = account.get("imagePullSecrets")
    {
        spec.insert("imagePullSecrets".to_owned(), secrets.clone());
    }
    let automount = spec
        .get("automountServiceAccountToken")
        .or_else(|| account.get("automountServiceAccountToken"));
    if automount != Some(&Value::Bool(false)) {
        mount_token(spec, &format!("kube-api-access-{suffix}"));
    }
    Ok(())
}

fn mount_token(spec: &mut Map<String, Value>, volume_name: &str) {
    let mut is_needed = false;
    for key in ["initContainers", "containers"] {
        for container in spec
            .get_mut(key)
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if list(container, "volumeMounts")
                .any(|mount| meta::text(mount, &["mountPath"]) == TOKEN_PATH)
            {
                continue;
            }
            is_needed = true;
            let mounts = meta::object(container)
                .entry("volumeMounts")
                .or_insert_with(|| json!([]));
            if let Some(mounts) = mounts.as_array_mut() {
                mounts
                    .push(json!({"name": volume_name, "readOnly": true, "mountPath": TOKEN_PATH}));
            }
        }
    }
    if !is_needed {
        return;
    }
    let volume = json!({"name": volume_name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]}});
    if let Some(volumes) = spec
        .entry("volumes")
        .or_insert_with(|| json!([]))
        .as_array_mut()
    {
        volumes.push(volume);
    }
}

fn tolerate(spec: &mut Map<String, Value>) {
    let Some(tolerations) = spec
        .entry("tolerations")
        .or_insert_with(|| json!([]))
        .as_array_mut()
    else {
        return;
    };
    for key in [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ] {
        let covers = |toleration: &Value| {
            let found = meta::text(toleration, &["key"]);
            let effect = meta::text(toleration, &["effect"]);
            (found == key || found.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS}));
        }
    }
}

/// How a pod fares when memory is short: by what its containers ask for and are limited to.
fn quality_class(pod: &Value) -> &'static str {
    let spec = pod.get("spec").unwrap_or(&Value::Null);
    let containers: Vec<&Value> = list(spec, "containers")
        .chain(list(spec, "initContainers"))
        .collect();
    let amount = |container: &Value, which: &str, resource: &str| {
        meta::at(container, &["resources", which, resource]).cloned()
    };
    let mut any = false;
    let mut all = true;
    for container in containers {
        for resource in ["cpu", "memory"] {
            let (limit, request) = (
                amount(container, "limits", resource),
                amount(container, "requests", resource),
            );
            any |= limit.is_some() || request.is_some();
            all &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn validate(pod: &Value) -> Vec<Cause> {
    validate_spec(pod.get("spec").unwrap_or(&Value::Null), "spec")
}

fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let empty = json!({});
    let (mut after, before) = (
        new.get("spec").cloned().unwrap_or_else(|| json!({})),
        old.get("spec").unwrap_or(&empty),
    );
    for key in ["containers", "initContainers"] {
        let Some(containers) = after.get_mut(key).and_then(Value::as_array_mut) else {
            continue;
        };
        for (container, original) in containers.iter_mut().zip(list(before, key)) {
            restore(container, original, "image");
        }
    }
    restore(&mut after, before, "activeDeadlineSeconds");
    let kept = list(before, "tolerations")
        .all(|toleration| list(&after, "tolerations").any(|other| other == toleration));
    if kept {
        restore(&mut after, before, "tolerations");
    }
    let was_negative = before
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64)
        .is_some_and(|seconds| seconds < 0);
    if was_negative
        && after
            .get("terminationGracePeriodSeconds")
            .and_then(Value::as_i64)
            == Some(1)
    {
        restore(&mut after, before, "terminationGracePeriodSeconds");
    }
    if after == *before {
        Vec::new()
    } else {
        vec![Cause::forbidden("spec", ONLY_THESE)]
    }
}

/// Puts a field back that may change, so that what is left must be equal.
fn restore(value: &mut Value, original: &Value, key: &str) {
    let map = meta::object(value);
    match original.get(key) {
        Some(field) => map.insert(key.to_owned(), field.clone()),
        None => map.shift_remove(key),
    };
}
