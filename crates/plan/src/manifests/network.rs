//! Services, and what a client has to know to use them.

use geodb_api::labels;
use geodb_api::names::{self, Endpoint};
use geodb_ha::environment::{DEFAULT_PORT, POSTGRES_PORT_NAME};
use serde_json::{Value, json};

use super::{ROLE_REPLICA, owned};
use crate::world::World;

/// `-rw` has no selector: its one endpoint is written by the leader's agent, so that it moves without us.
pub fn service(world: &World, endpoint: Endpoint) -> Value {
    let selector = match endpoint {
        Endpoint::ReadWrite => None,
        Endpoint::ReadOnly => {
            Some(json!({ labels::DATABASE: world.name(), labels::ROLE: ROLE_REPLICA }))
        }
        Endpoint::Read => Some(json!({ labels::DATABASE: world.name() })),
    };
    let mut spec = json!({
        "type": "ClusterIP",
        "ports": [{ "name": POSTGRES_PORT_NAME, "port": DEFAULT_PORT, "targetPort": DEFAULT_PORT, "protocol": "TCP" }],
    });
    if let Some(selector) = selector {
        spec["selector"] = selector;
    }
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": owned(world, &endpoint.service(world.name())), "spec": spec })
}

/// Connection details without secrets. The CA's certificate is public; it is all a client needs to verify the server.
pub fn connection(world: &World, authority_pem: &str) -> Value {
    let host = |endpoint: Endpoint| {
        format!(
            "{}.{}.svc",
            endpoint.service(world.name()),
            world.namespace()
        )
    };
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": owned(world, &names::connection(world.name())),
        "data": {
            "host": host(Endpoint::ReadWrite),
            "ro-host": host(Endpoint::ReadOnly),
            "r-host": host(Endpoint::Read),
            "port": DEFAULT_PORT.to_string(),
            "dbname": world.database.spec.database,
            "ca.crt": authority_pem,
        },
    })
}
