//! Services and their addresses, and EndpointSlices.

use std::net::Ipv4Addr;

use serde_json::{Map, Value, json};

use super::containers::{list, port_cause};
use super::{Admission, PLAIN, Strategy};
use crate::core::error::{Cause, Failure, Named, Outcome};
use crate::core::meta;

pub static SERVICE: Strategy = Strategy {
    default,
    create,
    update,
    validate,
    validate_update,
};
pub static ENDPOINT_SLICE: Strategy = Strategy {
    validate: validate_slice,
    default: default_slice,
    validate_update: validate_slice_update,
    ..PLAIN
};

const HEADLESS: &str = "None";
const PORTS: std::ops::RangeInclusive<i64> = 1..=65535;

fn kind_of(service: &Value) -> &str {
    meta::text(service, &["spec", "type"])
}

fn default(service: &mut Value) {
    let spec = meta::child(service, "spec");
    meta::default_text(spec, "type", "ClusterIP");
    meta::default_text(spec, "sessionAffinity", "None");
    if spec.get("type") != Some(&"ExternalName".into()) {
        meta::default_text(spec, "internalTrafficPolicy", "Cluster");
    }
    for port in spec
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let port = meta::object(port);
        meta::default_text(port, "protocol", "TCP");
        let number = port.get("port").cloned().unwrap_or_else(|| 0.into());
        match port.get("targetPort") {
            None | Some(Value::Null) => {
                port.insert("targetPort".to_owned(), number);
            }
            Some(target) if target == &Value::from(0) || target == &Value::from("") => {
                port.insert("targetPort".to_owned(), number);
            }
            Some(_) => {}
        }
    }
}

fn create(service: &mut Value, admission: &mut Admission<'_>) -> Outcome<()> {
    service["status"] = json!({"loadBalancer": {}});
    check_type(service)?;
    assign(service, admission)
}

/// An address once given stays, also for clients that send the Service without it.
fn update(service: &mut Value, old: &Value, admission: &mut Admission<'_>) -> Outcome<()> {
    check_type(service)?;
    if kind_of(service) == kind_of(old) && kind_of(service) != "ExternalName" {
        let spec = meta::child(service, "spec");
        for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(field) = meta::at(old, &["spec", key]) {
                meta::default(spec, key, field.clone());
                if spec.get(key) == Some(&"".into()) {
                    spec.insert(key.to_owned(), field.clone());
                }
            }
        }
        return Ok(());
    }
    assign(service, admission)
}

fn check_type(service: &Value) -> Outcome<()> {
    let kind = kind_of(service);
    if ["NodePort", "LoadBalancer"].contains(&kind) {
        return Err(Failure::not_implemented(format!(
            "this sandbox has no Services of type {kind}: every Service has an address that this machine reaches, use ClusterIP"
        )));
    }
    Ok(())
}

fn assign(service: &mut Value, admission: &mut Admission<'_>) -> Outcome<()> {
    if kind_of(service) == "ExternalName" {
        let spec = meta::child(service, "spec");
        for key in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            spec.shift_remove(key);
        }
        return Ok(());
    }
    let first_listed = meta::at(service, &["spec", "clusterIPs"])
        .and_then(Value::as_array)
        .and_then(|list| list.first())
        .and_then(Value::as_str);
    let asked = Some(meta::text(service, &["spec", "clusterIP"]))
        .filter(|address| !address.is_empty())
        .or(first_listed)
        .unwrap_or_default()
        .to_owned();
    let address = match asked.as_str() {
        HEADLESS => HEADLESS.to_owned(),
        "" => free_address(admission)
            .ok_or_else(|| Failure::internal("failed to allocate a serviceIP: range is full; delete Services that are not needed"))?
            .to_string(),
        _ => take_address(service, &asked, admission)?,
    };
    let spec = meta::child(service, "spec");
    set_address(spec, &address);
    Ok(())
}

fn set_address(spec: &mut Map<String, Value>, address: &str) {
    spec.insert("clusterIP".to_owned(), address.into());
    spec.insert("clusterIPs".to_owned(), json!([address]));
    meta::default(spec, "ipFamilies", json!(["IPv4"]));
    meta::default_text(spec, "ipFamilyPolicy", "SingleStack");
}

fn take_address(service: &Value, asked: &str, admission: &Admission<'_>) -> Outcome<String> {
    let config = &admission.state.config;
    let refuse = |why: &str| {
        let cause = Cause::invalid(
            "spec.clusterIPs",
            &json!([asked]),
            &format!("failed to allocate IP {asked}: {why}"),
        );
        Err(Failure::invalid(
            &Named {
                group: "",
                kind: "Service",
                name: meta::name(service),
            },
            vec![cause],
        ))
    };
    let Ok(address) = asked.parse::<Ipv4Addr>() else {
        let cause = Cause::invalid(
            "spec.clusterIPs[0]",
            &asked.into(),
            "must be a valid IPv4 address, or None",
        );
        return Err(Failure::invalid(
            &Named {
                group: "",
                kind: "Service",
                name: meta::name(service),
            },
            vec![cause],
        ));
    };
    if address < config.service_first || address > config.service_last {
        return refuse("the provided network does not match the current range");
    }
    if admission.state.service_at(address).is_some() {
        return refuse("provided IP is already allocated");
    }
    Ok(address.to_string())
}

/// A free address, from a random place on: an address just given back is not given to the next at once.
fn free_address(admission: &mut Admission<'_>) -> Option<Ipv4Addr> {
    let (first, last) = (
        u32::from(admission.state.config.service_first),
        u32::from(admission.state.config.service_last),
    );
    let size = u64::from(last.checked_sub(first)?) + 1;
    let start = u64::from(admission.rng.next_u32()) % size;
    (0..size).find_map(|offset| {
        let address = Ipv4Addr::from(first + u32::try_from((start + offset) % size).ok()?);
        admission
            .state
            .service_at(address)
            .is_none()
            .then_some(address)
    })
}

fn validate(service: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let kind = kind_of(service);
    if !["ClusterIP", "ExternalName", "NodePort", "LoadBalancer"].contains(&kind) {
        causes.push(Cause::not_supported(
            "spec.type",
            &kind.into(),
            &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        ));
    }
    let ports: Vec<&Value> = list(spec, "ports").collect();
    let is_headless = meta::text(spec, &["clusterIP"]) == HEADLESS;
    if ports.is_empty() && !is_headless && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    if kind == "ExternalName" && meta::text(spec, &["externalName"]).is_empty() {
        causes.push(Cause::required("spec.externalName", ""));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut numbers: Vec<(i64, &str)> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let name = meta::text(port, &["name"]);
        if name.is_empty() && ports.len() > 1 {
            causes.push(Cause::required(format!("spec.ports[{index}].name"), ""));
        } else if !name.is_empty() && names.contains(&name) {
            causes.push(Cause::duplicate(
                format!("spec.ports[{index}].name"),
                &name.into(),
            ));
        }
        names.push(name);
        let number = port.get("port").and_then(Value::as_i64).unwrap_or_default();
        if !PORTS.contains(&number) {
            causes.push(port_cause(format!("spec.ports[{index}].port"), number));
        }
        let protocol = meta::text(port, &["protocol"]);
        if !["TCP", "UDP", "SCTP"].contains(&protocol) {
            causes.push(Cause::not_supported(
                format!("spec.ports[{index}].protocol"),
                &protocol.into(),
                &["SCTP", "TCP", "UDP"],
            ));
        }
        if numbers.contains(&(number, protocol)) {
            causes.push(Cause::duplicate(
                format!("spec.ports[{index}]"),
                &json!({"port": number, "protocol": protocol}),
            ));
        }
        numbers.push((number, protocol));
    }
    causes
}

fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    let (after, before) = (
        meta::text(new, &["spec", "clusterIP"]),
        meta::text(old, &["spec", "clusterIP"]),
    );
    if kind_of(new) == kind_of(old) && !before.is_empty() && after != before {
        return vec![Cause::invalid(
            "spec.clusterIPs[0]",
            &json!([after]),
            "may not change once set",
        )];
    }
    Vec::new()
}

fn default_slice(slice: &mut Value) {
    for port in slice
        .get_mut("ports")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let port = meta::object(port);
        meta::default(port, "name", "");
        meta::default_text(port, "protocol", "TCP");
    }
}

fn validate_slice(slice: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let kind = meta::text(slice, &["addressType"]);
    if kind.is_empty() {
        causes.push(Cause::required("addressType", ""));
    } else if !["IPv4", "IPv6", "FQDN"].contains(&kind) {
        causes.push(Cause::not_supported(
            "addressType",
            &kind.into(),
            &["FQDN", "IPv4", "IPv6"],
        ));
    }
    for (index, endpoint) in list(slice, "endpoints").enumerate() {
        if list(endpoint, "addresses").next().is_none() {
            causes.push(Cause::required(
                format!("endpoints[{index}].addresses"),
                "must contain at least 1 address",
            ));
        }
        for (position, address) in list(endpoint, "addresses").enumerate() {
            if kind == "IPv4"
                && address
                    .as_str()
                    .is_none_or(|text| text.parse::<Ipv4Addr>().is_err())
            {
                causes.push(Cause::invalid(
                    format!("endpoints[{index}].addresses[{position}]"),
                    address,
                    "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ));
            }
        }
    }
    causes
}

fn validate_slice_update(new: &Value, old: &Value) -> Vec<Cause> {
    let (after, before) = (
        meta::text(new, &["addressType"]),
        meta::text(old, &["addressType"]),
    );
    if after == before {
        Vec::new()
    } else {
        vec![Cause::invalid(
            "addressType",
            &after.into(),
            "field is immutable",
        )]
    }
}
