//! Defaults and checks of a pod's spec, alone or in a template.

use serde_json::{Map, Value, json};

use crate::core::error::Cause;
use crate::core::{meta, names};

/// Files of Secrets and ConfigMaps: `rw-r--r--`.
const FILE_MODE: i64 = 0o644;
const PORT_MAXIMUM: i64 = 65535;

pub fn list<'a>(spec: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    spec.get(key)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn list_mut<'a>(map: &'a mut Map<String, Value>, key: &str) -> impl Iterator<Item = &'a mut Value> {
    map.get_mut(key)
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// What holds for every pod spec, also inside a template.
pub fn default_spec(spec: &mut Map<String, Value>) {
    meta::default_text(spec, "restartPolicy", "Always");
    meta::default(spec, "terminationGracePeriodSeconds", 30);
    meta::default_text(spec, "dnsPolicy", "ClusterFirst");
    meta::default(spec, "securityContext", json!({}));
    meta::default_text(spec, "schedulerName", "default-scheduler");
    for key in ["containers", "initContainers"] {
        for container in list_mut(spec, key) {
            default_container(meta::object(container));
        }
    }
    for volume in list_mut(spec, "volumes") {
        default_volume(meta::object(volume));
    }
}

fn default_container(container: &mut Map<String, Value>) {
    meta::default(container, "resources", json!({}));
    meta::default_text(container, "terminationMessagePath", "/dev/termination-log");
    meta::default_text(container, "terminationMessagePolicy", "File");
    let policy = pull_policy(
        container
            .get("image")
            .and_then(Value::as_str)
            .unwrap_or_default(),
    );
    meta::default_text(container, "imagePullPolicy", policy);
    for port in list_mut(container, "ports") {
        meta::default_text(meta::object(port), "protocol", "TCP");
    }
    for variable in list_mut(container, "env") {
        if let Some(field) = variable
            .get_mut("valueFrom")
            .and_then(|source| source.get_mut("fieldRef"))
        {
            meta::default_text(meta::object(field), "apiVersion", "v1");
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(key) {
            default_probe(meta::object(probe));
        }
    }
    if let Some(hooks) = container.get_mut("lifecycle") {
        for key in ["postStart", "preStop"] {
            if let Some(request) = hooks.get_mut(key).and_then(|hook| hook.get_mut("httpGet")) {
                default_request(meta::object(request));
            }
        }
    }
}

/// Without a tag, or with `latest`, an image is pulled each time: nobody knows what it is today.
fn pull_policy(image: &str) -> &'static str {
    if image.contains('@') {
        return "IfNotPresent";
    }
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.split_once(':') {
        Some((_, tag)) if tag != "latest" => "IfNotPresent",
        _ => "Always",
    }
}

fn default_probe(probe: &mut Map<String, Value>) {
    for (key, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        if probe.get(key).and_then(Value::as_i64).unwrap_or_default() == 0 {
            probe.insert(key.to_owned(), value.into());
        }
    }
    if let Some(request) = probe.get_mut("httpGet") {
        default_request(meta::object(request));
    }
    if let Some(call) = probe.get_mut("grpc") {
        meta::default(meta::object(call), "service", "");
    }
}

fn default_request(request: &mut Map<String, Value>) {
    meta::default_text(request, "path", "/");
    meta::default_text(request, "scheme", "HTTP");
}

fn default_volume(volume: &mut Map<String, Value>) {
    const SOURCES_BESIDES_NAME: usize = 1;
    for key in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = volume.get_mut(key) else {
            continue;
        };
        let source = meta::object(source);
        meta::default(source, "defaultMode", FILE_MODE);
        default_downward(source);
        for part in list_mut(source, "sources") {
            if let Some(token) = part.get_mut("serviceAccountToken") {
                meta::default(meta::object(token), "expirationSeconds", 3600);
            }
            if let Some(downward) = part.get_mut("downwardAPI") {
                default_downward(meta::object(downward));
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        meta::default(meta::object(path), "type", "");
    }
    if volume.len() <= SOURCES_BESIDES_NAME {
        meta::default(volume, "emptyDir", json!({}));
    }
}

fn default_downward(source: &mut Map<String, Value>) {
    for item in list_mut(source, "items") {
        if let Some(field) = item.get_mut("fieldRef") {
            meta::default_text(meta::object(field), "apiVersion", "v1");
        }
    }
}

/// Checks of a pod spec; `field` is where it stands.
pub fn validate_spec(spec: &Value, field: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut volumes: Vec<&str> = Vec::new();
    for (index, volume) in list(spec, "volumes").enumerate() {
        let name = meta::text(volume, &["name"]);
        let place = format!("{field}.volumes[{index}].name");
        causes.extend(unique_label(name, &place, &volumes));
        volumes.push(name);
    }
    if list(spec, "containers").next().is_none() {
        causes.push(Cause::required(format!("{field}.containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for key in ["containers", "initContainers"] {
        for (index, container) in list(spec, key).enumerate() {
            let place = format!("{field}.{key}[{index}]");
            let name = meta::text(container, &["name"]);
            causes.extend(unique_label(name, &format!("{place}.name"), &seen));
            seen.push(name);
            causes.extend(validate_container(container, &place, &volumes));
        }
    }
    let policy = meta::text(spec, &["restartPolicy"]);
    if !["Always", "Never", "OnFailure"].contains(&policy) {
        causes.push(Cause::not_supported(
            format!("{field}.restartPolicy"),
            &policy.into(),
            &["Always", "OnFailure", "Never"],
        ));
    }
    let policy = meta::text(spec, &["dnsPolicy"]);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    if !policies.contains(&policy) {
        causes.push(Cause::not_supported(
            format!("{field}.dnsPolicy"),
            &policy.into(),
            &policies,
        ));
    }
    causes
}

fn unique_label(name: &str, place: &str, seen: &[&str]) -> Vec<Cause> {
    if name.is_empty() {
        return vec![Cause::required(place, "")];
    }
    let mut causes: Vec<Cause> = names::label(name)
        .iter()
        .map(|problem| Cause::invalid(place, &name.into(), problem))
        .collect();
    if seen.contains(&name) {
        causes.push(Cause::duplicate(place, &name.into()));
    }
    causes
}

fn validate_container(container: &Value, place: &str, volumes: &[&str]) -> Vec<Cause> {
    let mut causes = Vec::new();
    let image = meta::text(container, &["image"]);
    if image.is_empty() {
        causes.push(Cause::required(format!("{place}.image"), ""));
    } else if image.trim() != image {
        causes.push(Cause::invalid(
            format!("{place}.image"),
            &image.into(),
            "must not have leading or trailing whitespace",
        ));
    }
    for (index, port) in list(container, "ports").enumerate() {
        let number = port
            .get("containerPort")
            .and_then(Value::as_i64)
            .unwrap_or_default();
        let at = format!("{place}.ports[{index}].containerPort");
        if number == 0 {
            causes.push(Cause::required(at, ""));
        } else if !(1..=PORT_MAXIMUM).contains(&number) {
            causes.push(port_cause(at, number));
        }
    }
    let mut paths: Vec<&str> = Vec::new();
    for (index, mount) in list(container, "volumeMounts").enumerate() {
        let at = format!("{place}.volumeMounts[{index}]");
        let name = meta::text(mount, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{at}.name"), ""));
        } else if !volumes.contains(&name) {
            causes.push(Cause::new(
                crate::core::error::CauseReason::NotFound,
                format!("{at}.name"),
                format!("Not found: {name:?}"),
            ));
        }
        let path = meta::text(mount, &["mountPath"]);
        if path.is_empty() {
            causes.push(Cause::required(format!("{at}.mountPath"), ""));
        } else if paths.contains(&path) {
            causes.push(Cause::invalid(
                format!("{at}.mountPath"),
                &path.into(),
                "must be unique",
            ));
        }
        paths.push(path);
    }
    for (index, variable) in list(container, "env").enumerate() {
        if meta::text(variable, &["name"]).is_empty() {
            causes.push(Cause::required(format!("{place}.env[{index}].name"), ""));
        }
        let has_value = !meta::text(variable, &["value"]).is_empty();
        if has_value
            && variable
                .get("valueFrom")
                .is_some_and(|source| !source.is_null())
        {
            causes.push(Cause::invalid(
                format!("{place}.env[{index}].valueFrom"),
                &"".into(),
                "may not be specified when `value` is not empty",
            ));
        }
    }
    causes
}

pub fn port_cause(place: String, number: i64) -> Cause {
    Cause::invalid(
        place,
        &number.into(),
        &format!("must be between 1 and {PORT_MAXIMUM}, inclusive"),
    )
}
