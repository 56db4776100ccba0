//! The EndpointSlice behind the read-write Service: written by the published leader, and only if it says something else.

use geodb_ha::environment::{POSTGRES_PORT_NAME, primary_endpoint_name};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::PostParams;
use kube::{Api, Client};

use crate::environment::Environment;
use crate::register::{ApiError, FIELD_MANAGER, request};

/// By this label Kubernetes finds the slices of a Service.
const SERVICE_LABEL: &str = "kubernetes.io/service-name";
/// By this label Kubernetes' own controller leaves it alone.
const MANAGED_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
const MANAGED_VALUE: &str = "agent.geodb.imaginedata.com";

/// Why the endpoint does not point here.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("failed to publish the read-write endpoint")]
    Api(#[from] ApiError),
    #[error("the EndpointSlice {0} belongs to something else; it is left alone until it is gone")]
    Foreign(String),
}

/// Makes the read-write endpoint point to this instance. Returns whether anything had to be written.
pub async fn publish(
    client: &Client,
    environment: &Environment,
    register: &Lease,
) -> Result<bool, EndpointError> {
    let api: Api<EndpointSlice> = Api::namespaced(client.clone(), &environment.namespace);
    let wanted = slice(environment, register);
    let name = primary_endpoint_name(&environment.database);
    let parameters = PostParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let Some(current) = request(api.get_opt(&name)).await? else {
        request(api.create(&parameters, &wanted)).await?;
        return Ok(true);
    };
    if owners(&current) != owners(&wanted) {
        return Err(EndpointError::Foreign(name));
    }
    match replacement(&current, wanted) {
        None => Ok(false),
        Some(next) => {
            request(api.replace(&name, &parameters, &next)).await?;
            Ok(true)
        }
    }
}

fn owners(slice: &EndpointSlice) -> Vec<&str> {
    let references = slice.metadata.owner_references.iter().flatten();
    references
        .map(|reference: &OwnerReference| reference.uid.as_str())
        .collect()
}

fn slice(environment: &Environment, register: &Lease) -> EndpointSlice {
    let name = primary_endpoint_name(&environment.database);
    let mut labels = register.metadata.labels.clone().unwrap_or_default();
    labels.insert(SERVICE_LABEL.to_owned(), name.clone());
    labels.insert(MANAGED_LABEL.to_owned(), MANAGED_VALUE.to_owned());
    let pod = ObjectReference {
        kind: Some("Pod".to_owned()),
        name: Some(environment.instance.clone()),
        namespace: Some(environment.namespace.clone()),
        ..ObjectReference::default()
    };
    EndpointSlice {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(environment.namespace.clone()),
            labels: Some(labels),
            owner_references: register.metadata.owner_references.clone(),
            ..ObjectMeta::default()
        },
        address_type: if environment.pod_ip.is_ipv4() {
            "IPv4"
        } else {
            "IPv6"
        }
        .to_owned(),
        endpoints: vec![Endpoint {
            addresses: vec![environment.pod_ip.to_string()],
            conditions: Some(EndpointConditions {
                ready: Some(true),
                serving: Some(true),
                terminating: Some(false),
            }),
            target_ref: Some(pod),
            ..Endpoint::default()
        }],
        ports: Some(vec![EndpointPort {
            name: Some(POSTGRES_PORT_NAME.to_owned()),
            port: Some(i32::from(environment.port)),
            protocol: Some("TCP".to_owned()),
            app_protocol: None,
        }]),
    }
}

/// What to write over `current`, if it does not already say what is wanted. Labels of others stay.
fn replacement(current: &EndpointSlice, wanted: EndpointSlice) -> Option<EndpointSlice> {
    let mut next = current.clone();
    next.metadata
        .labels
        .get_or_insert_default()
        .extend(wanted.metadata.labels.unwrap_or_default());
    next.metadata.owner_references = wanted.metadata.owner_references;
    next.address_type = wanted.address_type;
    next.endpoints = wanted.endpoints;
    next.ports = wanted.ports;
    (next != *current).then_some(next)
}

#[cfg(test)]
mod tests {
    use geodb_ha::environment as words;

    use super::*;

    fn environment(address: &str) -> Environment {
        Environment::from_variables(|name| {
            let value = match name {
                words::DATABASE => "lake",
                words::INSTANCE => "lake-2",
                words::NAMESPACE => "maps",
                words::POD_IP => address,
                words::APP_DATABASE => "shores",
                _ => return None,
            };
            Some(value.to_owned())
        })
        .unwrap()
    }

    fn register() -> Lease {
        serde_json::from_value(serde_json::json!({ "metadata": {
            "name": "lake",
            "labels": { "geodb.imaginedata.com/database": "lake" },
            "ownerReferences": [{ "apiVersion": "stable.imaginedata.com/v2", "kind": "Database", "name": "lake", "uid": "u1" }],
        }}))
        .unwrap()
    }

    #[test]
    fn the_slice_points_here_and_belongs_to_the_registers_owner() {
        let slice = slice(&environment("10.0.0.7"), &register());
        assert_eq!(slice.metadata.name.as_deref(), Some("lake-rw"));
        let labels = slice.metadata.labels.as_ref().unwrap();
        assert_eq!(
            (
                labels[SERVICE_LABEL].as_str(),
                labels["geodb.imaginedata.com/database"].as_str()
            ),
            ("lake-rw", "lake")
        );
        assert_eq!(owners(&slice), ["u1"]);
        assert_eq!(slice.endpoints[0].addresses, ["10.0.0.7"]);
    }

    #[test]
    fn nothing_is_written_when_nothing_differs() {
        let mut current = slice(&environment("10.0.0.7"), &register());
        current.metadata.resource_version = Some("9".into());
        current
            .metadata
            .labels
            .as_mut()
            .unwrap()
            .insert("theirs".into(), "kept".into());
        assert_eq!(
            replacement(&current, slice(&environment("10.0.0.7"), &register())),
            None
        );
        let moved = replacement(&current, slice(&environment("10.0.0.8"), &register())).unwrap();
        assert_eq!(moved.metadata.resource_version.as_deref(), Some("9"));
        assert_eq!(moved.metadata.labels.as_ref().unwrap()["theirs"], "kept");
        assert_eq!(moved.endpoints[0].addresses, ["10.0.0.8"]);
    }
}
