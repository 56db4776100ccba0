//! Who the agents are and what they may do: their register, their endpoint, nothing else.

use geodb_api::names::{self, Endpoint};
use serde_json::{Value, json};

use super::owned;
use crate::world::World;

/// ServiceAccount, Role and RoleBinding, in the order to apply them.
pub fn identity(world: &World) -> Vec<Value> {
    let name = names::identity(world.name());
    let account =
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": owned(world, &name) });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": owned(world, &name),
        "rules": [
            {
                "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"],
                "resourceNames": [names::register(world.name())],
                "verbs": ["get", "list", "watch", "update"],
            },
            {
                "apiGroups": ["discovery.k8s.io"],
                "resources": ["endpointslices"],
                "resourceNames": [Endpoint::ReadWrite.service(world.name())],
                "verbs": ["get", "update"],
            },
            // A name cannot restrict a creation: the API server does not know it yet when it decides.
            { "apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["create"] },
            // An EndpointSlice of a Service's endpoints may only be written by who may change those endpoints.
            { "apiGroups": [""], "resources": ["endpoints/restricted"], "verbs": ["create"] },
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": owned(world, &name),
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": world.namespace() }],
    });
    vec![account, role, binding]
}
