//! Jobs, CronJobs, Deployments, ReplicaSets, StatefulSets, PodDisruptionBudgets.

use serde_json::{Map, Value, json};

use super::containers::{default_spec, validate_spec};
use super::{Admission, PLAIN, Strategy};
use crate::core::error::{Cause, Outcome};
use crate::core::meta;

pub static DEPLOYMENT: Strategy = Strategy {
    default: default_deployment,
    create: empty_status,
    validate: validate_selected,
    validate_update: selector_stays,
    ..PLAIN
};
pub static REPLICA_SET: Strategy = Strategy {
    default: default_replica_set,
    create: no_replicas,
    validate: validate_selected,
    validate_update: selector_stays,
    ..PLAIN
};
pub static STATEFUL_SET: Strategy = Strategy {
    default: default_stateful_set,
    create: none_available,
    validate: validate_selected,
    validate_update: selector_stays,
    ..PLAIN
};
pub static JOB: Strategy = Strategy {
    default: default_job,
    create: create_job,
    validate: validate_job,
    validate_update: validate_job_update,
    ..PLAIN
};
pub static CRON_JOB: Strategy = Strategy {
    default: default_cron_job,
    create: empty_status,
    validate: validate_cron_job,
    ..PLAIN
};
pub static DISRUPTION_BUDGET: Strategy = Strategy {
    create: create_budget,
    validate: validate_budget,
    ..PLAIN
};

fn default_template(spec: &mut Map<String, Value>) {
    let template = meta::object(spec.entry("template").or_insert_with(|| json!({})));
    default_spec(meta::object(
        template.entry("spec").or_insert_with(|| json!({})),
    ));
}

fn default_deployment(deployment: &mut Value) {
    let spec = meta::child(deployment, "spec");
    meta::default(spec, "replicas", 1);
    meta::default(spec, "revisionHistoryLimit", 10);
    meta::default(spec, "progressDeadlineSeconds", 600);
    let strategy = meta::object(spec.entry("strategy").or_insert_with(|| json!({})));
    meta::default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type") == Some(&"RollingUpdate".into()) {
        let rolling = meta::object(strategy.entry("rollingUpdate").or_insert_with(|| json!({})));
        meta::default(rolling, "maxUnavailable", "25%");
        meta::default(rolling, "maxSurge", "25%");
    }
    default_template(spec);
}

fn default_replica_set(set: &mut Value) {
    let spec = meta::child(set, "spec");
    meta::default(spec, "replicas", 1);
    default_template(spec);
}

fn default_stateful_set(set: &mut Value) {
    let spec = meta::child(set, "spec");
    meta::default(spec, "replicas", 1);
    meta::default(spec, "revisionHistoryLimit", 10);
    meta::default_text(spec, "podManagementPolicy", "OrderedReady");
    meta::default(
        spec,
        "persistentVolumeClaimRetentionPolicy",
        json!({"whenDeleted": "Retain", "whenScaled": "Retain"}),
    );
    let strategy = meta::object(spec.entry("updateStrategy").or_insert_with(|| json!({})));
    meta::default_text(strategy, "type", "RollingUpdate");
    if strategy.get("type") == Some(&"RollingUpdate".into()) {
        meta::default(
            meta::object(strategy.entry("rollingUpdate").or_insert_with(|| json!({}))),
            "partition",
            0,
        );
    }
    default_template(spec);
}

fn default_job_spec(spec: &mut Map<String, Value>) {
    let is_indexed_by_parallelism = spec.get("parallelism").is_some();
    if !is_indexed_by_parallelism {
        meta::default(spec, "completions", 1);
    }
    meta::default(spec, "parallelism", 1);
    meta::default(spec, "backoffLimit", 6);
    meta::default_text(spec, "completionMode", "NonIndexed");
    meta::default(spec, "suspend", false);
    meta::default(spec, "manualSelector", false);
    meta::default_text(spec, "podReplacementPolicy", "TerminatingOrFailed");
    default_template(spec);
}

fn default_job(job: &mut Value) {
    default_job_spec(meta::child(job, "spec"));
}

fn default_cron_job(job: &mut Value) {
    let spec = meta::child(job, "spec");
    meta::default_text(spec, "concurrencyPolicy", "Allow");
    meta::default(spec, "suspend", false);
    meta::default(spec, "successfulJobsHistoryLimit", 3);
    meta::default(spec, "failedJobsHistoryLimit", 1);
    let template = meta::object(spec.entry("jobTemplate").or_insert_with(|| json!({})));
    default_template(meta::object(
        template.entry("spec").or_insert_with(|| json!({})),
    ));
}

fn empty_status(object: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    object["status"] = json!({});
    Ok(())
}

fn no_replicas(object: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    object["status"] = json!({"replicas": 0});
    Ok(())
}

fn none_available(object: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    object["status"] = json!({"replicas": 0, "availableReplicas": 0});
    Ok(())
}

fn create_budget(budget: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    budget["status"] = json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
    Ok(())
}

/// A Job finds its pods by labels that no other Job can have.
fn create_job(job: &mut Value, _: &mut Admission<'_>) -> Outcome<()> {
    job["status"] = json!({});
    if meta::at(job, &["spec", "manualSelector"]) == Some(&Value::Bool(true)) {
        return Ok(());
    }
    let (name, uid) = (meta::name(job).to_owned(), meta::uid(job).to_owned());
    let labels = [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ];
    let spec = meta::child(job, "spec");
    spec.insert(
        "selector".to_owned(),
        json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}),
    );
    let template = meta::object(spec.entry("template").or_insert_with(|| json!({})));
    let metadata = meta::object(template.entry("metadata").or_insert_with(|| json!({})));
    let template_labels = meta::object(metadata.entry("labels").or_insert_with(|| json!({})));
    for (key, value) in labels {
        template_labels.insert(key.to_owned(), value.as_str().into());
    }
    let own_labels = meta::object(
        meta::metadata(job)
            .entry("labels")
            .or_insert_with(|| json!({})),
    );
    for (key, value) in labels {
        own_labels.insert(key.to_owned(), value.as_str().into());
    }
    Ok(())
}

fn template_causes(spec: &Value, field: &str) -> Vec<Cause> {
    let empty = json!({});
    validate_spec(
        meta::at(spec, &["template", "spec"]).unwrap_or(&empty),
        &format!("{field}.template.spec"),
    )
}

fn is_empty_selector(selector: Option<&Value>) -> bool {
    selector.is_none_or(|selector| {
        let has = |key: &str| {
            selector.get(key).is_some_and(|part| {
                part.as_object().is_some_and(|map| !map.is_empty())
                    || part.as_array().is_some_and(|list| !list.is_empty())
            })
        };
        !has("matchLabels") && !has("matchExpressions")
    })
}

fn validate_selected(object: &Value) -> Vec<Cause> {
    let spec = object.get("spec").unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    if spec
        .get("replicas")
        .and_then(Value::as_i64)
        .is_some_and(|replicas| replicas < 0)
    {
        causes.push(Cause::invalid(
            "spec.replicas",
            &spec["replicas"],
            "must be greater than or equal to 0",
        ));
    }
    if spec.get("selector").is_none() {
        causes.push(Cause::required("spec.selector", ""));
    } else if is_empty_selector(spec.get("selector")) {
        causes.push(Cause::invalid(
            "spec.selector",
            &spec["selector"],
            "empty selector is invalid for deployment",
        ));
    }
    let labels = meta::at(spec, &["template", "metadata", "labels"])
        .cloned()
        .unwrap_or_else(|| json!({}));
    let wanted = meta::at(spec, &["selector", "matchLabels"]).and_then(Value::as_object);
    let matches = wanted
        .into_iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    if !matches {
        causes.push(Cause::invalid(
            "spec.template.metadata.labels",
            &labels,
            "`selector` does not match template `labels`",
        ));
    }
    causes.extend(template_causes(spec, "spec"));
    causes
}

fn selector_stays(new: &Value, old: &Value) -> Vec<Cause> {
    stays(new, old, &["spec", "selector"])
}

fn stays(new: &Value, old: &Value, path: &[&str]) -> Vec<Cause> {
    let (after, before) = (meta::at(new, path), meta::at(old, path));
    if after == before {
        Vec::new()
    } else {
        vec![Cause::invalid(
            path.join("."),
            after.unwrap_or(&Value::Null),
            "field is immutable",
        )]
    }
}

fn validate_job(job: &Value) -> Vec<Cause> {
    let spec = job.get("spec").unwrap_or(&Value::Null);
    let mut causes = Vec::new();
    for key in [
        "parallelism",
        "completions",
        "backoffLimit",
        "activeDeadlineSeconds",
        "ttlSecondsAfterFinished",
    ] {
        if let Some(value) = spec.get(key)
            && value.as_i64().is_some_and(|number| number < 0)
        {
            causes.push(Cause::invalid(
                format!("spec.{key}"),
                value,
                "must be greater than or equal to 0",
            ));
        }
    }
    if spec.get("selector").is_none() {
        causes.push(Cause::required("spec.selector", ""));
    }
    causes.extend(template_causes(spec, "spec"));
    causes.extend(restart_causes(spec, "spec"));
    causes
}

/// A Job's pods end. The default of other pods, `Always`, counts as if nothing had been said.
fn restart_causes(spec: &Value, field: &str) -> Option<Cause> {
    let place = format!("{field}.template.spec.restartPolicy");
    match meta::text(spec, &["template", "spec", "restartPolicy"]) {
        "OnFailure" | "Never" => None,
        "Always" => Some(Cause::required(
            place,
            "valid values: \"OnFailure\", \"Never\"",
        )),
        other => Some(Cause::not_supported(
            place,
            &other.into(),
            &["OnFailure", "Never"],
        )),
    }
}

fn validate_job_update(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for path in [
        &["spec", "completions"][..],
        &["spec", "selector"],
        &["spec", "template"],
        &["spec", "completionMode"],
    ] {
        causes.extend(stays(new, old, path));
    }
    causes
}

fn validate_cron_job(job: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if meta::text(job, &["spec", "schedule"]).is_empty() {
        causes.push(Cause::required("spec.schedule", ""));
    }
    let policy = meta::text(job, &["spec", "concurrencyPolicy"]);
    if !["Allow", "Forbid", "Replace"].contains(&policy) {
        causes.push(Cause::not_supported(
            "spec.concurrencyPolicy",
            &policy.into(),
            &["Allow", "Forbid", "Replace"],
        ));
    }
    let spec = meta::at(job, &["spec", "jobTemplate", "spec"]).unwrap_or(&Value::Null);
    causes.extend(template_causes(spec, "spec.jobTemplate.spec"));
    causes.extend(restart_causes(spec, "spec.jobTemplate.spec"));
    causes
}

fn validate_budget(budget: &Value) -> Vec<Cause> {
    let given = |key: &str| meta::at(budget, &["spec", key]).is_some();
    if given("minAvailable") && given("maxUnavailable") {
        let spec = budget.get("spec").unwrap_or(&Value::Null);
        return vec![Cause::invalid(
            "spec",
            spec,
            "minAvailable and maxUnavailable cannot be both set",
        )];
    }
    Vec::new()
}
