//! From a pod's container to a running one: everything that has to be looked up, checked and written before bubblewrap is started.

use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::{Client, ResourceExt as _};

use super::bwrap::{Bubble, HostDirectory, Mount, steers_the_loader};
use super::container::{self, RunningContainer};
use super::environment::{self, Place, Variables};
use super::events::{EventSink, Reason};
use super::images::{Image, ImageMap};
use super::logread::LogBook;
use super::logs::LogWriter;
use super::model::{Slot, Stage, WaitingReason};
use super::probes::Inside;
use super::support::{self, Identity};
use super::volumes::{Prepared, VolumeKeeper};

/// Longest name the kernel takes for a host.
const HOSTNAME_BYTES: usize = 63;
/// Where a program leaves its last words when the container does not say.
const TERMINATION_PATH: &str = "/dev/termination-log";

/// Gives the hosts file of a namespace, which is bound at `/etc/hosts` and later rewritten in place.
pub type HostsFiles = Arc<dyn Fn(&str) -> io::Result<PathBuf> + Send + Sync>;

/// What all pods of a node share.
pub struct NodeContext {
    pub name: Arc<str>,
    pub address: Ipv4Addr,
    pub client: Client,
    pub images: ImageMap,
    pub keeper: VolumeKeeper,
    pub events: EventSink,
    pub logs: LogBook,
    pub hosts: HostsFiles,
    pub host_directories: Vec<HostDirectory>,
    /// `KUBERNETES_SERVICE_HOST` and its relatives.
    pub base_environment: Vec<(String, String)>,
}

/// A container that could not be started, in the words of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchError {
    pub reason: WaitingReason,
    pub message: String,
}

impl LaunchError {
    #[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
    fn configuration(error: impl ToString) -> Self {
        Self {
            reason: WaitingReason::CreateContainerConfigError,
            message: error.to_string(),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "made for map_err")]
    fn creation(error: impl ToString) -> Self {
        Self {
            reason: WaitingReason::CreateContainerError,
            message: error.to_string(),
        }
    }
}

/// A container that runs.
pub struct Launched {
    pub id: String,
    pub container: RunningContainer,
    pub inside: Inside,
    pub termination_message: PathBuf,
}

/// The container of a slot.
pub fn container_of(pod: &Pod, slot: Slot) -> Option<&Container> {
    let spec = pod.spec.as_ref()?;
    match slot.stage {
        Stage::Init => spec.init_containers.as_ref()?.get(slot.index),
        Stage::Main => spec.containers.get(slot.index),
    }
}

/// Starts one container of a pod.
pub async fn launch(
    context: &NodeContext,
    pod: &Pod,
    slot: Slot,
    attempt: u32,
    prepared: &Prepared,
    place: Place,
) -> Result<Launched, LaunchError> {
    let container = container_of(pod, slot)
        .ok_or_else(|| LaunchError::configuration("the pod no longer has this container"))?;
    if let Some(refusal) = support::refusal(pod, container) {
        return Err(LaunchError::configuration(refusal));
    }
    let image = resolve_image(context, pod, container, attempt)?;
    let objects = context
        .keeper
        .sources
        .objects(
            &pod.namespace().unwrap_or_default(),
            &environment::references(container),
        )
        .await
        .map_err(LaunchError::configuration)?;
    let identity =
        support::identity(pod, container, image.user).map_err(LaunchError::configuration)?;
    let base = base_environment(context, pod, identity);
    let variables = environment::resolve(pod, container, &image, &base, place, &objects)
        .map_err(LaunchError::configuration)?;
    let files = write_files(context, pod, container, attempt, identity).map_err(|error| {
        LaunchError::creation(format!("failed to write the container's files: {error}"))
    })?;
    let bubble = bubble(
        context, pod, container, &image, &variables, prepared, &files,
    )?;
    let log = open_log(context, pod, container, attempt)?;
    let tell = |reason: Reason, text: String| {
        context
            .events
            .tell(pod, Some(&container.name), reason, text);
    };
    tell(
        Reason::Created,
        format!("Created container: {}", container.name),
    );
    let running = container::start(&bubble, &variables, log)
        .await
        .map_err(LaunchError::creation)?;
    tell(
        Reason::Started,
        format!("Started container {}", container.name),
    );
    let inside = Inside {
        process: running.process(),
        variables,
        directory: bubble.working_directory,
    };
    Ok(Launched {
        id: uuid::Uuid::new_v4().simple().to_string(),
        container: running,
        inside,
        termination_message: files.termination,
    })
}

fn resolve_image(
    context: &NodeContext,
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> Result<Image, LaunchError> {
    let reference = container.image.as_deref().unwrap_or_default();
    let resolved = context.images.resolve(reference);
    let image = resolved.map_err(|error| LaunchError {
        reason: WaitingReason::ErrImagePull,
        message: error.to_string(),
    })?;
    if attempt == 0 {
        let text = format!("Container image {reference:?} is mapped to this machine's programs");
        context
            .events
            .tell(pod, Some(&container.name), Reason::Pulled, text);
    }
    Ok(image)
}

/// The log of this run; of earlier ones only the last is kept.
fn open_log(
    context: &NodeContext,
    pod: &Pod,
    container: &Container,
    attempt: u32,
) -> Result<LogWriter, LaunchError> {
    let path = context.logs.path(pod, &container.name, attempt);
    context
        .logs
        .forget_before(pod, &container.name, attempt.saturating_sub(1));
    let log = LogWriter::create(&path).map_err(|error| {
        LaunchError::creation(format!("failed to create the container's log: {error}"))
    })?;
    context.logs.register(path, log.progress());
    Ok(log)
}

fn base_environment(context: &NodeContext, pod: &Pod, identity: Identity) -> Vec<(String, String)> {
    let mut base = context.base_environment.clone();
    base.push(("HOME".to_owned(), support::home(identity).to_owned()));
    base.push(("HOSTNAME".to_owned(), hostname(pod)));
    base
}

fn hostname(pod: &Pod) -> String {
    let name = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.hostname.clone())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| pod.name_any());
    name.chars()
        .take(HOSTNAME_BYTES)
        .collect::<String>()
        .trim_end_matches(['-', '.'])
        .to_owned()
}

/// Files the node makes for a container.
struct ContainerFiles {
    identity: Identity,
    passwd: PathBuf,
    group: PathBuf,
    hosts: PathBuf,
    termination: PathBuf,
}

fn write_files(
    context: &NodeContext,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    identity: Identity,
) -> io::Result<ContainerFiles> {
    let directory = context
        .keeper
        .pod_directory(&pod.uid().unwrap_or_default())
        .join("containers")
        .join(&container.name);
    std::fs::create_dir_all(&directory)?;
    let (passwd, group) = support::accounts(identity);
    let files = ContainerFiles {
        identity,
        passwd: directory.join("passwd"),
        group: directory.join("group"),
        hosts: (context.hosts)(&pod.namespace().unwrap_or_default())?,
        termination: directory.join(format!("{attempt}.message")),
    };
    std::fs::write(&files.passwd, passwd)?;
    std::fs::write(&files.group, group)?;
    std::fs::write(&files.termination, "")?;
    Ok(files)
}

fn bubble(
    context: &NodeContext,
    pod: &Pod,
    container: &Container,
    image: &Image,
    variables: &Variables,
    prepared: &Prepared,
    files: &ContainerFiles,
) -> Result<Bubble, LaunchError> {
    let mut mounts: Vec<Mount> = image
        .binds
        .iter()
        .map(|(source, target)| Mount {
            source: source.clone(),
            target: target.clone(),
            read_only: true,
        })
        .collect();
    for (source, target) in [
        (&files.passwd, "/etc/passwd"),
        (&files.group, "/etc/group"),
        (&files.hosts, "/etc/hosts"),
    ] {
        mounts.push(Mount {
            source: source.clone(),
            target: target.into(),
            read_only: true,
        });
    }
    let termination = container
        .termination_message_path
        .as_deref()
        .filter(|path| Path::new(path).is_absolute())
        .unwrap_or(TERMINATION_PATH);
    mounts.push(Mount {
        source: files.termination.clone(),
        target: termination.into(),
        read_only: false,
    });
    mounts.extend(
        prepared
            .mounts(container)
            .map_err(LaunchError::configuration)?,
    );
    Ok(Bubble {
        user: files.identity.user,
        group: files.identity.group,
        hostname: hostname(pod),
        host_directories: context.host_directories.clone(),
        read_only_root: container
            .security_context
            .as_ref()
            .and_then(|context| context.read_only_root_filesystem)
            == Some(true),
        mounts,
        working_directory: container
            .working_dir
            .as_deref()
            .filter(|directory| !directory.is_empty())
            .unwrap_or("/")
            .into(),
        inner_environment: variables
            .iter()
            .filter(|(name, _)| steers_the_loader(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        command: environment::command(container, image, variables)
            .map_err(LaunchError::creation)?,
    })
}
