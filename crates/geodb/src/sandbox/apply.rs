//! Applies documents to the API server, as `kubectl apply --server-side` does: by discovery, with a field manager of our own.
//!
//! Knows no kind by name but the CustomResourceDefinition, whose own kind is served only a moment after it was applied.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersion, GroupVersionKind};
use kube::discovery::{self, Scope};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Client, ResourceExt};

use super::documents::Document;
use super::readiness::Expectation;

/// Owner of the fields that files set. A later start applies the same fields under the same name.
const FIELD_MANAGER: &str = "geodb-sandbox";
/// Objects without a namespace go where kubectl would put them.
pub const DEFAULT_NAMESPACE: &str = "default";
/// A server makes a new kind available within moments; longer means that its definition was refused, and the definition's status says why.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// An object that the server has accepted.
#[derive(Clone, Debug)]
pub struct Applied {
    pub document: Document,
    pub resource: ApiResource,
    /// None for kinds that have no namespace.
    pub namespace: Option<String>,
    pub outcome: Outcome,
    pub expectation: Expectation,
}

impl Applied {
    /// The API to watch or read this object's kind with.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }

    pub fn is_database(&self) -> bool {
        self.resource.group == geodb_api::GROUP && self.resource.kind == "Database"
    }
}

/// What applying meant for the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Created,
    /// It was there and differed; the file's fields hold now.
    SetToFile,
    Unchanged,
}

/// Applies one document.
pub async fn apply(client: &Client, document: Document) -> Result<Applied> {
    let context = format!("{}: {} was not applied", document.origin, document.title());
    apply_document(client, document).await.context(context)
}

async fn apply_document(client: &Client, document: Document) -> Result<Applied> {
    let (resource, scope) = discover(client, &document).await?;
    let namespace = match (scope, &document.namespace) {
        (Scope::Cluster, Some(namespace)) => bail!(
            "{} has no namespaces, but metadata.namespace is {namespace}; remove it",
            document.kind
        ),
        (Scope::Cluster, None) => None,
        (Scope::Namespaced, Some(namespace)) => Some(namespace.clone()),
        (Scope::Namespaced, None) => Some(DEFAULT_NAMESPACE.to_owned()),
    };
    let mut applied = Applied {
        document,
        resource,
        namespace,
        outcome: Outcome::Unchanged,
        expectation: Expectation::Applied,
    };
    let api = applied.api(client);
    let name = applied.document.name.clone();
    let before = api
        .get_metadata_opt(&name)
        .await
        .map_err(said)?
        .and_then(|object| object.resource_version());
    let parameters = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        force: true,
        ..PatchParams::default()
    }
    .validation_strict();
    let after = api
        .patch(&name, &parameters, &Patch::Apply(&applied.document.content))
        .await
        .map_err(said)?;
    applied.outcome = match before {
        None => Outcome::Created,
        Some(version) if Some(&version) == after.metadata.resource_version.as_ref() => {
            Outcome::Unchanged
        }
        Some(_) => Outcome::SetToFile,
    };
    if is_definition(&applied.resource) {
        await_established(client, &name).await?;
    }
    applied.expectation = expectation(client, &applied.resource).await?;
    Ok(applied)
}

/// The server's own words, without the layers that carried them.
pub fn said(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("the server refused: {}", status.message),
        other => anyhow::Error::new(other),
    }
}

async fn discover(client: &Client, document: &Document) -> Result<(ApiResource, Scope)> {
    let version: GroupVersion = document.api_version.parse().map_err(|_| {
        anyhow!(
            "apiVersion {:?} is not of the form GROUP/VERSION",
            document.api_version
        )
    })?;
    let kind = GroupVersionKind::gvk(&version.group, &version.version, &document.kind);
    match discovery::pinned_kind(client, &kind).await {
        Ok((resource, capabilities)) => Ok((resource, capabilities.scope)),
        Err(kube::Error::Discovery(_)) => Err(unknown_kind(document)),
        Err(kube::Error::Api(status)) if status.code == 404 => Err(unknown_kind(document)),
        Err(error) => Err(said(error)),
    }
}

fn unknown_kind(document: &Document) -> anyhow::Error {
    anyhow!(
        "the server has no kind {} in {}: check both for a typing error; a custom resource's definition has to stand before it",
        document.kind,
        document.api_version
    )
}

fn is_definition(resource: &ApiResource) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.kind == "CustomResourceDefinition"
}

/// Waits until the kind that a definition defines is served.
pub async fn await_established(client: &Client, name: &str) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let established = await_condition(definitions, name, conditions::is_crd_established());
    match tokio::time::timeout(ESTABLISHED_WITHIN, established).await {
        Ok(result) => result
            .map(|_| ())
            .with_context(|| format!("failed to watch the definition {name}")),
        Err(_) => bail!(
            "the server does not serve {name} after {} s; its status says why",
            ESTABLISHED_WITHIN.as_secs()
        ),
    }
}

/// What to expect of a kind: for a custom one its definition says whether it reports conditions.
async fn expectation(client: &Client, resource: &ApiResource) -> Result<Expectation> {
    if let Some(known) = Expectation::of_built_in(&resource.group, &resource.kind) {
        return Ok(known);
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = format!("{}.{}", resource.plural, resource.group);
    let definition = definitions.get_opt(&name).await.map_err(said)?;
    Ok(definition.map_or(Expectation::Applied, |definition| {
        Expectation::of_definition(&definition, &resource.version)
    }))
}
