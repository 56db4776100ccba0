//! What a pod's volumes are and which files they hold: pure, from the pod and the objects it names.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Pod, Volume, VolumeProjection};

use super::environment::{Objects, References, field};
use super::limits::TOKEN_SECONDS;

/// Where programs look for their service account.
const SERVICE_ACCOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The volume that carries it when the API server has not added one.
pub const SERVICE_ACCOUNT_VOLUME: &str = "kube-api-access";
/// The ConfigMap with the cluster's CA, present in every namespace of a real cluster.
pub const ROOT_CA_CONFIG_MAP: &str = "kube-root-ca.crt";
const MODE_DEFAULT: u32 = 0o644;
const MODE_MASK: u32 = 0o777;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumePlan {
    pub name: String,
    pub source: VolumeSource,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeSource {
    EmptyDir,
    Files { parts: Vec<Part>, default_mode: u32 },
    Claim { name: String, read_only: bool },
}

/// One source of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Secret {
        name: String,
        items: Vec<Item>,
        optional: bool,
    },
    ConfigMap {
        name: String,
        items: Vec<Item>,
        optional: bool,
    },
    Downward {
        path: String,
        field: String,
        mode: Option<u32>,
    },
    Token {
        audience: Option<String>,
        seconds: i64,
        path: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub key: String,
    pub path: String,
    pub mode: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectedFile {
    pub path: PathBuf,
    pub mode: u32,
    pub content: Vec<u8>,
}

#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ProjectionError {
    #[error(
        "volume {volume:?} is of a kind the sandbox's node refuses ({why}); use emptyDir, configMap, secret, projected, downwardAPI or persistentVolumeClaim"
    )]
    Refused { volume: String, why: &'static str },
    #[error("MountVolume.SetUp failed for volume {volume:?} : {kind} {name:?} not found")]
    NoObject {
        volume: String,
        kind: &'static str,
        name: String,
    },
    #[error(
        "MountVolume.SetUp failed for volume {volume:?} : references non-existent {kind} key: {key}"
    )]
    NoKey {
        volume: String,
        kind: &'static str,
        key: String,
    },
    #[error(
        "MountVolume.SetUp failed for volume {volume:?} : field {field:?} is not known to the downward API"
    )]
    NoField { volume: String, field: String },
    #[error(
        "MountVolume.SetUp failed for volume {volume:?} : {path:?} is not a relative path within the volume"
    )]
    BadPath { volume: String, path: String },
    #[error("MountVolume.SetUp failed for volume {volume:?} : no token for path {path:?}")]
    NoToken { volume: String, path: String },
}

/// The pod's volumes, or why one of them cannot be.
pub fn plan(pod: &Pod) -> Result<Vec<VolumePlan>, ProjectionError> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    volumes
        .into_iter()
        .flatten()
        .map(|volume| {
            Ok(VolumePlan {
                name: volume.name.clone(),
                source: source(volume)?,
            })
        })
        .collect()
}

fn source(volume: &Volume) -> Result<VolumeSource, ProjectionError> {
    if volume.empty_dir.is_some() {
        return Ok(VolumeSource::EmptyDir);
    }
    if let Some(claim) = &volume.persistent_volume_claim {
        return Ok(VolumeSource::Claim {
            name: claim.claim_name.clone(),
            read_only: claim.read_only == Some(true),
        });
    }
    if let Some(secret) = &volume.secret {
        let part = Part::Secret {
            name: secret.secret_name.clone().unwrap_or_default(),
            items: items(secret.items.as_ref()),
            optional: secret.optional == Some(true),
        };
        return Ok(VolumeSource::Files {
            parts: vec![part],
            default_mode: mode(secret.default_mode).unwrap_or(MODE_DEFAULT),
        });
    }
    if let Some(map) = &volume.config_map {
        let part = Part::ConfigMap {
            name: map.name.clone(),
            items: items(map.items.as_ref()),
            optional: map.optional == Some(true),
        };
        return Ok(VolumeSource::Files {
            parts: vec![part],
            default_mode: mode(map.default_mode).unwrap_or(MODE_DEFAULT),
        });
    }
    if let Some(downward) = &volume.downward_api {
        let parts = downward
            .items
            .iter()
            .flatten()
            .map(|file| downward_part(&volume.name, file))
            .collect::<Result<_, _>>()?;
        return Ok(VolumeSource::Files {
            parts,
            default_mode: mode(downward.default_mode).unwrap_or(MODE_DEFAULT),
        });
    }
    if let Some(projected) = &volume.projected {
        let mut parts = Vec::new();
        for projection in projected.sources.iter().flatten() {
            parts.extend(projected_parts(&volume.name, projection)?);
        }
        return Ok(VolumeSource::Files {
            parts,
            default_mode: mode(projected.default_mode).unwrap_or(MODE_DEFAULT),
        });
    }
    let why = if volume.host_path.is_some() {
        "hostPath would give the pod files of this machine"
    } else {
        "unknown or without a source"
    };
    Err(ProjectionError::Refused {
        volume: volume.name.clone(),
        why,
    })
}

fn projected_parts(
    volume: &str,
    projection: &VolumeProjection,
) -> Result<Vec<Part>, ProjectionError> {
    let mut parts = Vec::new();
    if let Some(secret) = &projection.secret {
        parts.push(Part::Secret {
            name: secret.name.clone(),
            items: items(secret.items.as_ref()),
            optional: secret.optional == Some(true),
        });
    }
    if let Some(map) = &projection.config_map {
        parts.push(Part::ConfigMap {
            name: map.name.clone(),
            items: items(map.items.as_ref()),
            optional: map.optional == Some(true),
        });
    }
    if let Some(token) = &projection.service_account_token {
        parts.push(Part::Token {
            audience: token
                .audience
                .clone()
                .filter(|audience| !audience.is_empty()),
            seconds: token.expiration_seconds.unwrap_or(TOKEN_SECONDS),
            path: token.path.clone(),
        });
    }
    for file in projection
        .downward_api
        .iter()
        .flat_map(|downward| downward.items.iter().flatten())
    {
        parts.push(downward_part(volume, file)?);
    }
    if projection.cluster_trust_bundle.is_some() || projection.pod_certificate.is_some() {
        return Err(ProjectionError::Refused {
            volume: volume.to_owned(),
            why: "clusterTrustBundle and podCertificate are not projected here",
        });
    }
    Ok(parts)
}

fn downward_part(volume: &str, file: &DownwardAPIVolumeFile) -> Result<Part, ProjectionError> {
    match &file.field_ref {
        Some(reference) => Ok(Part::Downward {
            path: file.path.clone(),
            field: reference.field_path.clone(),
            mode: mode(file.mode),
        }),
        None => Err(ProjectionError::Refused {
            volume: volume.to_owned(),
            why: "resourceFieldRef needs resources, which are not enforced here",
        }),
    }
}

fn items(items: Option<&Vec<KeyToPath>>) -> Vec<Item> {
    items
        .into_iter()
        .flatten()
        .map(|item| Item {
            key: item.key.clone(),
            path: item.path.clone(),
            mode: mode(item.mode),
        })
        .collect()
}

fn mode(mode: Option<i32>) -> Option<u32> {
    mode.and_then(|mode| u32::try_from(mode).ok())
        .map(|mode| mode & MODE_MASK)
}

/// Whether some container has no service account's files and might want them.
pub fn lacks_service_account(pod: &Pod) -> bool {
    add_service_account(&mut pod.clone())
}

/// Adds the service account's files to a pod for which the API server has not: `true` if it was added to at least one container.
pub fn add_service_account(pod: &mut Pod) -> bool {
    let Some(spec) = &mut pod.spec else {
        return false;
    };
    if spec.automount_service_account_token == Some(false) {
        return false;
    }
    let mut added = false;
    for container in spec
        .init_containers
        .iter_mut()
        .flatten()
        .chain(&mut spec.containers)
    {
        let mounts = container.volume_mounts.get_or_insert_default();
        if mounts
            .iter()
            .all(|mount| mount.mount_path.trim_end_matches('/') != SERVICE_ACCOUNT_PATH)
        {
            mounts.push(k8s_openapi::api::core::v1::VolumeMount {
                name: SERVICE_ACCOUNT_VOLUME.to_owned(),
                mount_path: SERVICE_ACCOUNT_PATH.to_owned(),
                read_only: Some(true),
                ..Default::default()
            });
            added = true;
        }
    }
    if added {
        spec.volumes
            .get_or_insert_default()
            .push(service_account_volume());
    }
    added
}

fn service_account_volume() -> Volume {
    let volume = serde_json::json!({"name": SERVICE_ACCOUNT_VOLUME, "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": TOKEN_SECONDS}},
        {"configMap": {"name": ROOT_CA_CONFIG_MAP, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}});
    serde_json::from_value(volume).expect("the literal above is a volume")
}

/// The objects these volumes need.
pub fn references(volumes: &[VolumePlan]) -> References {
    let mut references = References::default();
    for volume in volumes {
        let VolumeSource::Files { parts, .. } = &volume.source else {
            continue;
        };
        for part in parts {
            match part {
                Part::Secret { name, .. } => references.secrets.insert(name.clone()),
                Part::ConfigMap { name, .. } => references.config_maps.insert(name.clone()),
                Part::Downward { .. } | Part::Token { .. } => false,
            };
        }
    }
    references
}

/// The files of one volume. `token` gives the token asked for by a part.
pub fn files(
    volume: &str,
    parts: &[Part],
    default_mode: u32,
    pod: &Pod,
    objects: &Objects,
    token: &dyn Fn(&Part) -> Option<String>,
) -> Result<Vec<ProjectedFile>, ProjectionError> {
    let mut files: Vec<ProjectedFile> = Vec::new();
    let mut add =
        |path: &str, mode: Option<u32>, content: Vec<u8>| -> Result<(), ProjectionError> {
            let path = safe(volume, path)?;
            // A later source wins over an earlier one, as in a real projected volume.
            files.retain(|file| file.path != path);
            files.push(ProjectedFile {
                path,
                mode: mode.unwrap_or(default_mode),
                content,
            });
            Ok(())
        };
    for part in parts {
        match part {
            Part::Secret {
                name,
                items,
                optional,
            } => {
                let data = secret_data(objects, name);
                keyed(volume, "secret", name, items, *optional, data, &mut add)?;
            }
            Part::ConfigMap {
                name,
                items,
                optional,
            } => {
                let data = config_map_data(objects, name);
                keyed(volume, "configmap", name, items, *optional, data, &mut add)?;
            }
            Part::Downward {
                path,
                field: name,
                mode,
            } => {
                let value = field(pod, None, name).ok_or_else(|| ProjectionError::NoField {
                    volume: volume.to_owned(),
                    field: name.clone(),
                })?;
                add(path, *mode, value.into_bytes())?;
            }
            Part::Token { path, .. } => {
                let token = token(part).ok_or_else(|| ProjectionError::NoToken {
                    volume: volume.to_owned(),
                    path: path.clone(),
                })?;
                add(path, None, token.into_bytes())?;
            }
        }
    }
    Ok(files)
}

type Data = Vec<(String, Vec<u8>)>;

fn secret_data(objects: &Objects, name: &str) -> Option<Data> {
    let secret = objects.secrets.get(name)?.as_ref()?;
    let pairs = secret.data.iter().flatten();
    Some(
        pairs
            .map(|(key, value)| (key.clone(), value.0.clone()))
            .collect(),
    )
}

fn config_map_data(objects: &Objects, name: &str) -> Option<Data> {
    let map = objects.config_maps.get(name)?.as_ref()?;
    let text = map
        .data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.clone().into_bytes()));
    let binary = map
        .binary_data
        .iter()
        .flatten()
        .map(|(key, value)| (key.clone(), value.0.clone()));
    Some(text.chain(binary).collect())
}

type Add<'a> = dyn FnMut(&str, Option<u32>, Vec<u8>) -> Result<(), ProjectionError> + 'a;

/// The keys of a Secret or ConfigMap as files: all of them, or those asked for.
fn keyed(
    volume: &str,
    kind: &'static str,
    name: &str,
    items: &[Item],
    optional: bool,
    data: Option<Data>,
    add: &mut Add<'_>,
) -> Result<(), ProjectionError> {
    let Some(data) = data else {
        return if optional {
            Ok(())
        } else {
            Err(ProjectionError::NoObject {
                volume: volume.to_owned(),
                kind,
                name: name.to_owned(),
            })
        };
    };
    if items.is_empty() {
        return data
            .into_iter()
            .try_for_each(|(key, value)| add(&key, None, value));
    }
    for item in items {
        match data.iter().find(|(key, _)| *key == item.key) {
            Some((_, value)) => add(&item.path, item.mode, value.clone())?,
            None if optional => {}
            None => {
                return Err(ProjectionError::NoKey {
                    volume: volume.to_owned(),
                    kind,
                    key: item.key.clone(),
                });
            }
        }
    }
    Ok(())
}

/// A path that stays within the volume and does not collide with the links the files are kept behind.
fn safe(volume: &str, path: &str) -> Result<PathBuf, ProjectionError> {
    let bad = || ProjectionError::BadPath {
        volume: volume.to_owned(),
        path: path.to_owned(),
    };
    let candidate = Path::new(path);
    let mut parts = candidate.components().peekable();
    if parts.peek().is_none()
        || path.starts_with("..")
        || parts.any(|part| !matches!(part, Component::Normal(_)))
    {
        return Err(bad());
    }
    Ok(candidate.to_owned())
}

#[cfg(test)]
#[path = "projection_tests.rs"]
mod tests;
