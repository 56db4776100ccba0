//! What a killed predecessor left: processes that are still dying, and files of pods that no longer exist.
//!
//! Two PostgreSQLs on one data directory would destroy it, and their lock files do not see across PID namespaces; so no container starts before the
//! last process of the previous sandbox is gone.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use tokio::time::Instant;

use super::limits::{LEFTOVER_DEADLINE, LEFTOVER_POLL};
use super::worker::remove_tree;

#[derive(Debug, thiserror::Error)]
pub enum LeftoverError {
    #[error(
        "processes of an earlier sandbox still run with this data directory (process ids {0:?}); end them, then start again"
    )]
    Processes(Vec<u32>),
    #[error("failed to read what an earlier sandbox left: {0}")]
    Read(#[from] io::Error),
    #[error("failed to list the pods: {0}")]
    List(#[source] Box<kube::Error>),
}

/// Waits for the predecessor's processes to be gone, then removes the files of pods that the API does not know.
pub async fn clear(client: &Client, data: &Path) -> Result<(), LeftoverError> {
    let (pods, logs) = (names(&data.join("pods"))?, names(&data.join("logs"))?);
    wait_for_processes(&pods).await?;
    if pods.is_empty() && logs.is_empty() {
        return Ok(());
    }
    // The directories were read first: whatever is made from now on is not among them.
    let listed = Api::<Pod>::all(client.clone())
        .list_metadata(&ListParams::default())
        .await
        .map_err(|error| LeftoverError::List(Box::new(error)))?;
    let known: BTreeSet<String> = listed.items.iter().filter_map(ResourceExt::uid).collect();
    for uid in pods.iter().filter(|uid| !known.contains(*uid)) {
        remove_tree(&data.join("pods").join(uid))?;
    }
    for name in logs.iter().filter(|name| {
        name.rsplit('_')
            .next()
            .is_none_or(|uid| !known.contains(uid))
    }) {
        remove_tree(&data.join("logs").join(name))?;
    }
    Ok(())
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

async fn wait_for_processes(uids: &[String]) -> Result<(), LeftoverError> {
    let deadline = Instant::now() + LEFTOVER_DEADLINE;
    loop {
        let processes = processes_of(uids)?;
        if processes.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(LeftoverError::Processes(processes));
        }
        tokio::time::sleep(LEFTOVER_POLL).await;
    }
}

/// Processes that have files of these pods mounted: every container has some.
fn processes_of(uids: &[String]) -> io::Result<Vec<u32>> {
    if uids.is_empty() {
        return Ok(Vec::new());
    }
    let needles: Vec<String> = uids.iter().map(|uid| format!("/pods/{uid}/")).collect();
    let processes = std::fs::read_dir("/proc")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |process: &u32| {
        // A process that ended meanwhile, or another user's, holds nothing of ours.
        let mounts =
            std::fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
        needles.iter().any(|needle| mounts.contains(needle))
    };
    Ok(processes.filter(holds).collect())
}
