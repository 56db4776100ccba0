//! Reading what pods refer to from the API: Secrets, ConfigMaps, claims and tokens.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt as _};

use super::environment::{Objects, References};
use super::limits::API_REQUEST_DEADLINE;
use super::projection::ROOT_CA_CONFIG_MAP;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("failed to read {what}: {source}")]
    Api {
        what: String,
        source: Box<kube::Error>,
    },
    #[error("failed to read {what}: no answer within {} s", .after.as_secs())]
    Deadline { what: String, after: Duration },
    #[error("persistentvolumeclaim {0:?} not found")]
    NoClaim(String),
    #[error("persistentvolumeclaim {0:?} is not bound to a volume yet")]
    Unbound(String),
    #[error("persistentvolumeclaim {0:?} is being deleted")]
    ClaimDeleted(String),
    #[error(
        "persistentvolume {0:?} is not a directory of this machine (spec.hostPath or spec.local); the sandbox's node mounts nothing else"
    )]
    NotADirectory(String),
    #[error("failed to get a token for service account {account:?}: {source}")]
    Token {
        account: String,
        source: Box<kube::Error>,
    },
    #[error("the API server answered a request for a token of service account {0:?} without one")]
    EmptyToken(String),
}

/// A claim's directory and how it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimDirectory {
    pub path: PathBuf,
    /// ReadWriteOncePod: nobody else may have it.
    pub alone: bool,
}

#[derive(Clone)]
pub struct Sources {
    client: Client,
    root_ca: String,
}

impl Sources {
    pub fn new(client: Client, root_ca: String) -> Self {
        Self { client, root_ca }
    }

    /// Reads the objects that are referred to; one that does not exist is `None`.
    pub async fn objects(
        &self,
        namespace: &str,
        references: &References,
    ) -> Result<Objects, SourceError> {
        let mut objects = Objects::default();
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        for name in &references.secrets {
            let secret = within(format!("secret {name:?}"), secrets.get_opt(name)).await?;
            objects.secrets.insert(name.clone(), secret);
        }
        let config_maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
        for name in &references.config_maps {
            let mut map = within(format!("configmap {name:?}"), config_maps.get_opt(name)).await?;
            if map.is_none() && name == ROOT_CA_CONFIG_MAP {
                // A cluster has it in every namespace; the node knows what would be in it.
                map = Some(ConfigMap {
                    data: Some([("ca.crt".to_owned(), self.root_ca.clone())].into()),
                    ..ConfigMap::default()
                });
            }
            objects.config_maps.insert(name.clone(), map);
        }
        Ok(objects)
    }

    pub async fn claim(&self, namespace: &str, name: &str) -> Result<ClaimDirectory, SourceError> {
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), namespace);
        let claim = within(
            format!("persistentvolumeclaim {name:?}"),
            claims.get_opt(name),
        )
        .await?
        .ok_or_else(|| SourceError::NoClaim(name.to_owned()))?;
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(SourceError::ClaimDeleted(name.to_owned()));
        }
        let bound = claim
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            == Some("Bound");
        let spec = claim.spec.unwrap_or_default();
        let volume = spec
            .volume_name
            .filter(|volume| bound && !volume.is_empty())
            .ok_or_else(|| SourceError::Unbound(name.to_owned()))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let object = within(
            format!("persistentvolume {volume:?}"),
            volumes.get_opt(&volume),
        )
        .await?
        .ok_or_else(|| SourceError::Unbound(name.to_owned()))?;
        let source = object.spec.unwrap_or_default();
        let path = source
            .host_path
            .map(|host| host.path)
            .or(source.local.map(|local| local.path));
        let path = PathBuf::from(path.ok_or(SourceError::NotADirectory(volume))?);
        let alone = spec
            .access_modes
            .iter()
            .flatten()
            .any(|mode| mode == "ReadWriteOncePod");
        Ok(ClaimDirectory { path, alone })
    }

    /// Whether the pod's service account wants its token mounted; `false` also for an account that does not exist and that nobody named.
    pub async fn mounts_service_account(&self, pod: &Pod) -> Result<bool, SourceError> {
        let name = account(pod);
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let object = within(format!("serviceaccount {name:?}"), accounts.get_opt(&name)).await?;
        let asked = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.automount_service_account_token)
            == Some(true);
        Ok(match object {
            Some(object) => asked || object.automount_service_account_token != Some(false),
            None => name != "default",
        })
    }

    /// A token bound to the pod, and when it expires.
    pub async fn token(
        &self,
        pod: &Pod,
        audience: Option<&str>,
        seconds: i64,
    ) -> Result<(String, jiff::Timestamp), SourceError> {
        let name = account(pod);
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            uid: pod.metadata.uid.clone(),
        };
        let spec = TokenRequestSpec {
            audiences: audience.into_iter().map(str::to_owned).collect(),
            expiration_seconds: Some(seconds),
            bound_object_ref: Some(bound),
        };
        let accounts: Api<ServiceAccount> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let request = TokenRequest {
            spec,
            ..TokenRequest::default()
        };
        let answer = tokio::time::timeout(
            API_REQUEST_DEADLINE,
            accounts.create_token_request(&name, &PostParams::default(), &request),
        )
        .await;
        let answer = answer.map_err(|_| SourceError::Deadline {
            what: format!("a token of {name:?}"),
            after: API_REQUEST_DEADLINE,
        })?;
        let answer = answer.map_err(|source| SourceError::Token {
            account: name.clone(),
            source: Box::new(source),
        })?;
        let status = answer
            .status
            .filter(|status| !status.token.is_empty())
            .ok_or(SourceError::EmptyToken(name))?;
        Ok((status.token, status.expiration_timestamp.0))
    }
}

fn account(pod: &Pod) -> String {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "default".to_owned())
}

async fn within<T>(
    what: String,
    request: impl Future<Output = kube::Result<T>>,
) -> Result<T, SourceError> {
    match tokio::time::timeout(API_REQUEST_DEADLINE, request).await {
        Ok(answer) => answer.map_err(|source| SourceError::Api {
            what,
            source: Box::new(source),
        }),
        Err(_) => Err(SourceError::Deadline {
            what,
            after: API_REQUEST_DEADLINE,
        }),
    }
}
