//! A pod's volumes on disk: made before its containers start, refreshed while they run, removed with the pod.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};
use kube::ResourceExt as _;

use super::bwrap::Mount;
use super::clock;
use super::files;
use super::limits::{TOKEN_RENEW_PERCENT, TOKEN_RETRY_SECONDS};
use super::projection::{self, Part, ProjectionError, VolumePlan, VolumeSource};
use super::shared::Shared;
use super::sources::{SourceError, Sources};

/// Only the user of the sandbox looks into what pods were given.
const PRIVATE: u32 = 0o700;

#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    #[error("Unable to attach or mount volumes: {0}")]
    Source(#[from] SourceError),
    #[error("failed to write volume {volume:?}: {source}")]
    Write { volume: String, source: io::Error },
    #[error("volume {volume:?} is the directory {} outside {}; the sandbox's node mounts only directories of its own", .path.display(), .root.display())]
    Outside {
        volume: String,
        path: PathBuf,
        root: PathBuf,
    },
    #[error("volume {volume:?} is still in use by pod {holder:?}, which is being stopped")]
    InUse { volume: String, holder: String },
    #[error("volume mount {mount:?} names a volume that the pod does not have")]
    NoVolume { mount: String },
    #[error("volume mount {mount:?} {why}")]
    BadMount { mount: String, why: &'static str },
}

/// The pod's volumes, ready to be bound.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    volumes: BTreeMap<String, PreparedVolume>,
    /// When the first token has to be renewed.
    pub renew_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct PreparedVolume {
    directory: PathBuf,
    read_only: bool,
}

/// The node's place for volumes.
#[derive(Clone)]
pub struct VolumeKeeper {
    pub data: PathBuf,
    pub sources: Sources,
    pub shared: Arc<Shared>,
}

impl VolumeKeeper {
    pub fn pod_directory(&self, uid: &str) -> PathBuf {
        self.data.join("pods").join(uid)
    }

    /// Makes every volume of the pod, or says what is missing.
    pub async fn prepare(&self, pod: &Pod) -> Result<Prepared, VolumeError> {
        let plans = projection::plan(pod)?;
        let mut prepared = Prepared::default();
        for plan in &plans {
            let directory = self.volume_directory(pod, &plan.name);
            let volume = match &plan.source {
                VolumeSource::EmptyDir => {
                    make_directory(&plan.name, &directory)?;
                    PreparedVolume {
                        directory,
                        read_only: false,
                    }
                }
                VolumeSource::Claim { name, read_only } => PreparedVolume {
                    directory: self.claim(pod, &plan.name, name).await?,
                    read_only: *read_only,
                },
                // Files change only through the API.
                VolumeSource::Files { .. } => PreparedVolume {
                    directory,
                    read_only: true,
                },
            };
            prepared.volumes.insert(plan.name.clone(), volume);
        }
        prepared.renew_at = self.refresh(pod, &plans).await?;
        Ok(prepared)
    }

    /// Writes the volumes that hold files again, with what the API says now; returns when the first token has to be renewed.
    pub async fn refresh_files(&self, pod: &Pod) -> Result<Option<Timestamp>, VolumeError> {
        self.refresh(pod, &projection::plan(pod)?).await
    }

    async fn refresh(
        &self,
        pod: &Pod,
        plans: &[VolumePlan],
    ) -> Result<Option<Timestamp>, VolumeError> {
        let objects = self
            .sources
            .objects(
                &pod.namespace().unwrap_or_default(),
                &projection::references(plans),
            )
            .await?;
        let mut renew_at: Option<Timestamp> = None;
        for plan in plans {
            let VolumeSource::Files {
                parts,
                default_mode,
            } = &plan.source
            else {
                continue;
            };
            let mut tokens: Vec<(&Part, String)> = Vec::new();
            for part in parts {
                let Part::Token {
                    audience, seconds, ..
                } = part
                else {
                    continue;
                };
                let (token, expires) = self
                    .sources
                    .token(pod, audience.as_deref(), *seconds)
                    .await?;
                let life = expires.duration_since(clock::now());
                let renew = clock::now()
                    + SignedDuration::from_secs(
                        (life.as_secs() * TOKEN_RENEW_PERCENT / 100).max(TOKEN_RETRY_SECONDS),
                    );
                renew_at = Some(renew_at.map_or(renew, |known| known.min(renew)));
                tokens.push((part, token));
            }
            let token = |part: &Part| {
                tokens
                    .iter()
                    .find(|(known, _)| *known == part)
                    .map(|(_, token)| token.clone())
            };
            let files = projection::files(&plan.name, parts, *default_mode, pod, &objects, &token)?;
            let directory = self.volume_directory(pod, &plan.name);
            let version = clock::now().as_nanosecond().to_string();
            make_directory(&plan.name, &directory)?;
            files::write(&directory, &files, &version).map_err(|source| VolumeError::Write {
                volume: plan.name.clone(),
                source,
            })?;
        }
        Ok(renew_at)
    }

    async fn claim(&self, pod: &Pod, volume: &str, claim: &str) -> Result<PathBuf, VolumeError> {
        let found = self
            .sources
            .claim(&pod.namespace().unwrap_or_default(), claim)
            .await?;
        let root = self.data.join("volumes");
        let plain = found
            .path
            .components()
            .skip(1)
            .all(|part| matches!(part, Component::Normal(_)));
        if !plain || !lies_within(&found.path, &root) {
            return Err(VolumeError::Outside {
                volume: volume.to_owned(),
                path: found.path,
                root,
            });
        }
        make_directory(volume, &found.path)?;
        let hold = self.shared.hold(
            &found.path,
            &pod.uid().unwrap_or_default(),
            &pod.name_any(),
            found.alone,
        );
        hold.map_err(|holder| VolumeError::InUse {
            volume: volume.to_owned(),
            holder,
        })?;
        Ok(found.path)
    }

    fn volume_directory(&self, pod: &Pod, volume: &str) -> PathBuf {
        self.pod_directory(&pod.uid().unwrap_or_default())
            .join("volumes")
            .join(volume)
    }
}

/// Whether `path` is below `root`, also where one of them goes through a link.
fn lies_within(path: &Path, root: &Path) -> bool {
    let below = |path: &Path, root: &Path| path != root && path.starts_with(root);
    below(path, root)
        || matches!((path.canonicalize(), root.canonicalize()), (Ok(path), Ok(root)) if below(&path, &root))
}

fn make_directory(volume: &str, path: &Path) -> Result<(), VolumeError> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE)
        .create(path)
        .map_err(|source| VolumeError::Write {
            volume: volume.to_owned(),
            source,
        })
}

impl Prepared {
    /// The mounts of one container.
    pub fn mounts(&self, container: &Container) -> Result<Vec<Mount>, VolumeError> {
        container
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| self.mount(mount))
            .collect()
    }

    fn mount(&self, mount: &VolumeMount) -> Result<Mount, VolumeError> {
        let volume = self
            .volumes
            .get(&mount.name)
            .ok_or_else(|| VolumeError::NoVolume {
                mount: mount.name.clone(),
            })?;
        let bad = |why: &'static str| VolumeError::BadMount {
            mount: mount.name.clone(),
            why,
        };
        let target = PathBuf::from(&mount.mount_path);
        if !target.is_absolute() || target.components().any(|part| part == Component::ParentDir) {
            return Err(bad("needs an absolute mountPath without '..'"));
        }
        if target == Path::new("/") {
            return Err(bad("cannot be the root of the container"));
        }
        if mount
            .sub_path_expr
            .as_ref()
            .is_some_and(|path| !path.is_empty())
        {
            return Err(bad(
                "uses subPathExpr, which the sandbox's node does not have; use subPath",
            ));
        }
        let source = match mount.sub_path.as_deref().filter(|path| !path.is_empty()) {
            None => volume.directory.clone(),
            Some(path) => sub_path(volume, path).map_err(bad)?,
        };
        Ok(Mount {
            source,
            target,
            read_only: volume.read_only || mount.read_only == Some(true),
        })
    }
}

/// A file or directory within a volume; made as a directory if it is not there, as a kubelet does. Links may not lead out.
fn sub_path(volume: &PreparedVolume, path: &str) -> Result<PathBuf, &'static str> {
    let relative = Path::new(path);
    if !relative
        .components()
        .all(|part| matches!(part, Component::Normal(_)))
    {
        return Err("needs a relative subPath without '..'");
    }
    let joined = volume.directory.join(relative);
    let root = volume
        .directory
        .canonicalize()
        .map_err(|_| "is in a volume that cannot be read")?;
    if !volume.read_only && joined.symlink_metadata().is_err() {
        let parent = joined
            .ancestors()
            .find(|ancestor| ancestor.exists())
            .and_then(|ancestor| ancestor.canonicalize().ok());
        if parent.is_none_or(|parent| !parent.starts_with(&root)) {
            return Err("has a subPath that leads out of its volume");
        }
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE)
            .create(&joined)
            .map_err(|_| "has a subPath that cannot be made")?;
    }
    let resolved = joined
        .canonicalize()
        .map_err(|_| "has a subPath that does not exist")?;
    if resolved.starts_with(&root) {
        Ok(resolved)
    } else {
        Err("has a subPath that leads out of its volume")
    }
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
