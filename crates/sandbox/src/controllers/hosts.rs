//! `/etc/hosts` of the pods: one file per namespace with the names of all Services.
//!
//! The node binds the file into its pods, so it is rewritten in place, keeping its inode. Names of the own namespace come with their
//! short form first. This stands for a cluster's DNS; wildcard and reverse names do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;

use super::cache::Cache;
use super::worker::{self, Controller, Decision, Failure};
use super::{endpoints, proxy};

/// Pods run as any user and must be able to read it.
const MODE_FILE: u32 = 0o644;
/// The files' directory is looked at by the sandbox alone; pods see the bound file only.
const MODE_DIRECTORY: u32 = 0o700;
const LOCALHOST: &str = "127.0.0.1 localhost\n";

/// Where the hosts file of a namespace's pods is.
pub fn path(data: &Path, namespace: &str) -> PathBuf {
    data.join("hosts").join(namespace)
}

/// Makes sure the file exists, so that a pod can be started with it bound. What is in it already stays.
///
/// # Errors
/// If the name cannot be a file's name, or the file cannot be made.
pub fn ensure(data: &Path, namespace: &str) -> io::Result<PathBuf> {
    let path = checked(data, namespace)?;
    make_directory(&path)?;
    match OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(MODE_FILE)
        .open(&path)
    {
        // Whatever the controller writes begins with the same line, so it does not matter who of us two is later.
        Ok(file) => file.write_all_at(LOCALHOST.as_bytes(), 0)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    Ok(path)
}

fn make_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().unwrap_or(path);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(MODE_DIRECTORY)
        .create(directory)
}

/// What the files of an earlier start hold: those of namespaces that went meanwhile have to go, too.
pub(super) fn left_behind(data: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(data.join("hosts")) else {
        return BTreeMap::new();
    };
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        Some((name, fs::read_to_string(entry.path()).ok()?))
    };
    entries.flatten().filter_map(read).collect()
}

fn checked(data: &Path, namespace: &str) -> io::Result<PathBuf> {
    let safe = !namespace.is_empty()
        && namespace
            .chars()
            .all(|character| character.is_ascii_alphanumeric() || character == '-');
    if !safe {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{namespace:?} is no name of a namespace"),
        ));
    }
    Ok(path(data, namespace))
}

/// Replaces the content in one write. A reader in between sees the old lines or the new ones, at worst with empty lines after them.
fn write(path: &Path, content: &str) -> io::Result<()> {
    make_directory(path)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(MODE_FILE)
        .open(path)?;
    let mut old = String::new();
    if (&file).read_to_string(&mut old).is_ok() && old == content {
        return Ok(());
    }
    let old_length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut padded = content.to_owned();
    padded.extend(std::iter::repeat_n(
        '\n',
        old_length.saturating_sub(content.len()),
    ));
    file.write_all_at(padded.as_bytes(), 0)?;
    file.set_len(content.len() as u64)
}

/// Services and slices as lines of a hosts file, seen from `namespace`.
fn render(namespace: &str, services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> String {
    let mut own = String::new();
    let mut others = String::new();
    for service in services {
        let (Some(name), Some(its_namespace)) = (
            service.metadata.name.as_deref(),
            service.metadata.namespace.as_deref(),
        ) else {
            continue;
        };
        let is_own = its_namespace == namespace;
        let text = if is_own { &mut own } else { &mut others };
        for (address, host) in addresses(service, slices) {
            let full = match host {
                Some(host) => format!("{host}.{name}"),
                None => name.to_owned(),
            };
            let short = if is_own {
                format!("{full} ")
            } else {
                String::new()
            };
            let qualified = format!("{full}.{its_namespace}");
            let _ = writeln!(
                text,
                "{address} {short}{qualified} {qualified}.svc {qualified}.svc.cluster.local"
            );
        }
    }
    format!("{LOCALHOST}{own}{others}")
}

/// A Service's own address, or, without one, those of its ready endpoints, also under their host names.
fn addresses(service: &Service, slices: &[Arc<EndpointSlice>]) -> Vec<(String, Option<String>)> {
    if let Some(address) = proxy::cluster_address(service) {
        return vec![(address.to_string(), None)];
    }
    if !endpoints::is_headless(service) {
        return Vec::new();
    }
    let mut found = BTreeSet::new();
    for endpoint in slices
        .iter()
        .filter(|slice| proxy::belongs(slice, service))
        .flat_map(|slice| slice.endpoints.iter())
    {
        if !proxy::is_ready(endpoint) {
            continue;
        }
        for address in &endpoint.addresses {
            found.insert((address.clone(), None));
            if let Some(host) = &endpoint.hostname {
                found.insert((address.clone(), Some(host.clone())));
            }
        }
    }
    found.into_iter().collect()
}

pub(super) struct Hosts {
    pub data: PathBuf,
    pub namespaces: Cache<Namespace>,
    pub services: Cache<Service>,
    pub slices: Cache<EndpointSlice>,
    /// What each file holds, as far as we wrote it.
    pub written: parking_lot::Mutex<BTreeMap<String, String>>,
}

#[derive(Debug)]
pub(super) enum Action {
    Write { namespace: String, content: String },
    Remove { namespace: String },
}

impl worker::Action for Action {
    fn key(&self) -> String {
        match self {
            Action::Write { namespace, .. } | Action::Remove { namespace } => namespace.clone(),
        }
    }
}

fn decide(wanted: BTreeMap<String, String>, written: &BTreeMap<String, String>) -> Vec<Action> {
    let gone = written
        .keys()
        .filter(|namespace| !wanted.contains_key(*namespace));
    let mut actions: Vec<Action> = gone
        .map(|namespace| Action::Remove {
            namespace: namespace.clone(),
        })
        .collect();
    let changed = wanted
        .into_iter()
        .filter(|(namespace, content)| written.get(namespace) != Some(content));
    actions.extend(changed.map(|(namespace, content)| Action::Write { namespace, content }));
    actions
}

impl Controller for Hosts {
    const NAME: &'static str = "hosts";
    type Action = Action;

    fn synced(&self) -> bool {
        self.namespaces.synced() && self.services.synced() && self.slices.synced()
    }

    fn decide(&self, _now: Timestamp) -> Decision<Action> {
        let (services, slices) = (self.services.all(), self.slices.all());
        let names = self
            .namespaces
            .all()
            .into_iter()
            .filter_map(|namespace| namespace.metadata.name.clone());
        let wanted = names.map(|name| {
            let content = render(&name, &services, &slices);
            (name, content)
        });
        Decision::of(decide(wanted.collect(), &self.written.lock()))
    }

    async fn act(&self, action: &Action) -> Result<(), Failure> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source| Failure::Files { what, source }
        };
        match action {
            Action::Write { namespace, content } => {
                let path = checked(&self.data, namespace).map_err(failed("name a hosts file"))?;
                write(&path, content).map_err(failed("write a hosts file"))?;
                self.written
                    .lock()
                    .insert(namespace.clone(), content.clone());
            }
            Action::Remove { namespace } => {
                let path = checked(&self.data, namespace).map_err(failed("name a hosts file"))?;
                match fs::remove_file(path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(failed("remove a hosts file")(error));
                    }
                    _ => {}
                }
                self.written.lock().remove(namespace);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::MetadataExt;

    fn service(namespace: &str, name: &str, ip: &str) -> Arc<Service> {
        let value =
            json!({"metadata": {"name": name, "namespace": namespace}, "spec": {"clusterIP": ip}});
        Arc::new(serde_json::from_value(value).expect("a service"))
    }

    #[test]
    fn own_services_have_short_names_and_come_first() {
        let services = [
            service("ash", "db", "127.71.128.1"),
            service("grove", "db", "127.71.128.2"),
        ];
        assert_eq!(
            render("grove", &services, &[]),
            "127.0.0.1 localhost\n\
             127.71.128.2 db db.grove db.grove.svc db.grove.svc.cluster.local\n\
             127.71.128.1 db.ash db.ash.svc db.ash.svc.cluster.local\n"
        );
    }

    #[test]
    fn headless_services_name_their_ready_endpoints() {
        let slice = json!({"metadata": {"name": "x", "namespace": "grove", "labels": {"kubernetes.io/service-name": "db"}},
            "addressType": "IPv4", "endpoints": [
                {"addresses": ["127.71.2.1"], "hostname": "one"},
                {"addresses": ["127.71.2.2"], "conditions": {"ready": false}}]});
        let slices = [Arc::new(serde_json::from_value(slice).expect("a slice"))];
        let text = render("grove", &[service("grove", "db", "None")], &slices);
        assert!(text.contains("127.71.2.1 db db.grove "), "{text}");
        assert!(text.contains("127.71.2.1 one.db one.db.grove "), "{text}");
        assert!(!text.contains("127.71.2.2"), "{text}");
    }

    #[test]
    fn the_file_keeps_its_inode_when_it_shrinks_and_grows() {
        let data = tempfile::tempdir().expect("a directory");
        let path = ensure(data.path(), "grove").expect("made");
        assert_eq!(fs::read_to_string(&path).expect("read"), LOCALHOST);
        let inode = fs::metadata(&path).expect("there").ino();
        for content in [
            "127.0.0.1 localhost\n127.71.128.1 a\n127.71.128.2 b\n",
            "127.0.0.1 localhost\n",
        ] {
            write(&path, content).expect("written");
            assert_eq!(fs::read_to_string(&path).expect("read"), content);
            assert_eq!(fs::metadata(&path).expect("there").ino(), inode);
        }
        write(&path, "kept\n").expect("written");
        ensure(data.path(), "grove").expect("there already");
        assert_eq!(fs::read_to_string(&path).expect("read"), "kept\n");
    }

    #[test]
    fn files_of_namespaces_that_went_while_we_were_away_go() {
        let data = tempfile::tempdir().expect("a directory");
        assert!(
            left_behind(data.path()).is_empty(),
            "nothing was ever written"
        );
        ensure(data.path(), "went").expect("made");
        ensure(data.path(), "stays").expect("made");
        let wanted = BTreeMap::from([("stays".to_owned(), LOCALHOST.to_owned())]);
        let actions = decide(wanted, &left_behind(data.path()));
        assert!(
            matches!(actions.as_slice(), [Action::Remove { namespace }] if namespace == "went"),
            "{actions:?}"
        );
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let data = tempfile::tempdir().expect("a directory");
        for name in ["..", "a/b", "", "."] {
            assert_eq!(
                ensure(data.path(), name).expect_err("refused").kind(),
                io::ErrorKind::InvalidInput,
                "{name}"
            );
        }
    }
}
