//! From a decision to API calls: the plan's steps in the kit's words, with the same preconditions.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use geodb_api::labels;
use geodb_api::names::Credential;
use geodb_api::v2::Database;
use geodb_kit::Key;
use geodb_kit::executor::{Desired, Ours, Seen, Step as Call, Target};
use geodb_kit::finalizer;
use geodb_kit::operator::Part;
use geodb_plan::{Step, TargetKind, World, manifests};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::ApiResource;
use serde_json::{Value, json};

use crate::credentials::Contents;

/// Each step becomes a part of its own: one that fails stops no other.
pub fn parts(
    world: &World,
    steps: &[Step],
    material: &BTreeMap<Credential, Contents>,
) -> Vec<Part> {
    let calls = steps.iter().filter_map(|step| call(world, step, material));
    calls
        .map(|(name, call)| Part {
            name,
            steps: vec![call],
        })
        .collect()
}

fn call(
    world: &World,
    step: &Step,
    material: &BTreeMap<Credential, Contents>,
) -> Option<(&'static str, Call)> {
    let database: &Database = &world.database;
    match step {
        Step::AddFinalizer => Some(("finalizer", finalizer::add(database, labels::FINALIZER)?)),
        Step::RemoveFinalizer => {
            Some(("finalizer", finalizer::remove(database, labels::FINALIZER)?))
        }
        Step::MakeCredential(credential) => {
            let manifest = secret(world, *credential, material.get(credential)?);
            Some(("credentials", Call::Create(desired(world, &manifest)?)))
        }
        Step::Create(manifest) => Some(("objects", Call::Create(desired(world, manifest)?))),
        Step::Apply(manifest) => Some(("objects", Call::Apply(desired(world, manifest)?))),
        Step::Patch { target, why, patch } => {
            let (target, seen) = exactly(world, target);
            Some((
                "changes",
                Call::Patch {
                    target,
                    seen,
                    why: why.as_str(),
                    patch: patch.clone(),
                },
            ))
        }
        Step::Delete { target, .. } => {
            let (target, seen) = exactly(world, target);
            Some((
                "removals",
                Call::Delete {
                    target,
                    seen,
                    grace_period_seconds: None,
                },
            ))
        }
    }
}

/// Nothing that we build can fail here; if it does, it is our mistake and not the user's.
fn desired(world: &World, manifest: &Value) -> Option<Desired> {
    let kind = manifest["kind"].as_str().unwrap_or_default();
    let name = manifest["metadata"]["name"].as_str().unwrap_or_default();
    let Some(resource) = resource(kind) else {
        tracing::error!(
            kind,
            name,
            "a manifest of a kind that the operator does not know; this is a bug"
        );
        return None;
    };
    let target = Target::new(resource, Key::new(world.namespace(), name));
    // A claim has no owner reference, so that the garbage collector never decides about data.
    let ours = match kind {
        "PersistentVolumeClaim" => Ours::label(labels::DATABASE_UID, world.uid()),
        _ => Ours::owner(world.uid()),
    };
    match Desired::from_json(target, manifest.clone(), ours) {
        Ok(desired) => Some(desired),
        Err(error) => {
            tracing::error!(kind, name, %error, "a manifest that cannot be sent; this is a bug");
            None
        }
    }
}

fn exactly(world: &World, target: &geodb_plan::Target) -> (Target, Seen) {
    let resource = match target.kind {
        TargetKind::Pod => ApiResource::erase::<Pod>(&()),
        TargetKind::Claim => ApiResource::erase::<PersistentVolumeClaim>(&()),
    };
    let seen = Seen {
        uid: target.uid.clone(),
        resource_version: target.resource_version.clone(),
    };
    (
        Target::new(resource, Key::new(world.namespace(), &target.name)),
        seen,
    )
}

fn resource(kind: &str) -> Option<ApiResource> {
    let resource = match kind {
        "ConfigMap" => ApiResource::erase::<ConfigMap>(&()),
        "Lease" => ApiResource::erase::<Lease>(&()),
        "PersistentVolumeClaim" => ApiResource::erase::<PersistentVolumeClaim>(&()),
        "Pod" => ApiResource::erase::<Pod>(&()),
        "Role" => ApiResource::erase::<Role>(&()),
        "RoleBinding" => ApiResource::erase::<RoleBinding>(&()),
        "Secret" => ApiResource::erase::<Secret>(&()),
        "Service" => ApiResource::erase::<Service>(&()),
        "ServiceAccount" => ApiResource::erase::<ServiceAccount>(&()),
        _ => return None,
    };
    Some(resource)
}

fn secret(world: &World, credential: Credential, contents: &Contents) -> Value {
    let data: BTreeMap<&str, String> = contents
        .iter()
        .map(|(key, value)| (key.as_str(), STANDARD.encode(value)))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": manifests::owned(world, &credential.secret(world.name())),
        "data": data,
    })
}
