//! What the nodes of one machine share: the pods' addresses, and which pod uses which claim's directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::addresses::PodAddresses;

#[derive(Debug)]
pub struct Shared {
    pub addresses: PodAddresses,
    /// Set once the first node has cleared what an earlier sandbox left; before that no container starts.
    pub(super) cleared: OnceCell<()>,
    holders: Mutex<BTreeMap<PathBuf, Vec<Holder>>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Holder {
    uid: String,
    name: String,
    /// It has been told to stop, or its object is gone.
    leaving: bool,
}

impl Shared {
    pub fn new(addresses: PodAddresses) -> Arc<Self> {
        Arc::new(Self {
            addresses,
            cleared: OnceCell::new(),
            holders: Mutex::new(BTreeMap::new()),
        })
    }

    /// Takes a claim's directory for a pod. Refused, with the other pod's name, while a pod that is on its way out still has it: its processes may
    /// still write, and nothing else would keep two PostgreSQLs in separate namespaces apart.
    pub fn hold(&self, directory: &Path, uid: &str, name: &str, alone: bool) -> Result<(), String> {
        let mut holders = self.holders.lock();
        let list = holders.entry(directory.to_owned()).or_default();
        if let Some(other) = list
            .iter()
            .find(|holder| holder.uid != uid && (holder.leaving || alone))
        {
            return Err(other.name.clone());
        }
        if list.iter().all(|holder| holder.uid != uid) {
            list.push(Holder {
                uid: uid.to_owned(),
                name: name.to_owned(),
                leaving: false,
            });
        }
        Ok(())
    }

    pub fn leaving(&self, uid: &str) {
        for holder in self
            .holders
            .lock()
            .values_mut()
            .flatten()
            .filter(|holder| holder.uid == uid)
        {
            holder.leaving = true;
        }
    }

    pub fn release(&self, uid: &str) {
        self.holders.lock().retain(|_, list| {
            list.retain(|holder| holder.uid != uid);
            !list.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_free_for_the_next_pod_only_when_the_leaving_one_is_gone() {
        let shared = Shared::new(PodAddresses::of_range(9));
        let path = Path::new("/volumes/a");
        assert_eq!(shared.hold(path, "old", "pod-old", false), Ok(()));
        assert_eq!(shared.hold(path, "friend", "pod-friend", false), Ok(()));
        shared.leaving("old");
        assert_eq!(
            shared.hold(path, "new", "pod-new", false),
            Err("pod-old".to_owned())
        );
        shared.release("old");
        assert_eq!(shared.hold(path, "new", "pod-new", false), Ok(()));
        assert_eq!(
            shared.hold(path, "other", "pod-other", true),
            Err("pod-friend".to_owned())
        );
    }
}
