//! By what a store finds objects besides their name. An index only makes a lookup fast; it never changes its answer.

use std::fmt;

use kube::Resource;

/// One thing that objects can be found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum IndexEntry {
    Label { label: String, value: String },
    Owner { uid: String },
}

impl IndexEntry {
    pub(super) fn matches<K: Resource>(&self, object: &K) -> bool {
        let meta = object.meta();
        match self {
            Self::Label { label, value } => {
                meta.labels.as_ref().and_then(|labels| labels.get(label)) == Some(value)
            }
            Self::Owner { uid } => meta
                .owner_references
                .iter()
                .flatten()
                .any(|owner| owner.uid == *uid),
        }
    }
}

pub(super) enum Index<K> {
    Label(String),
    Owner(std::marker::PhantomData<fn(&K)>),
}

impl<K: Resource> Index<K> {
    pub(super) fn keeps(&self, entry: &IndexEntry) -> bool {
        match (self, entry) {
            (Self::Label(kept), IndexEntry::Label { label, .. }) => kept == label,
            (Self::Owner(_), IndexEntry::Owner { .. }) => true,
            _ => false,
        }
    }

    pub(super) fn entries(&self, object: &K) -> Vec<IndexEntry> {
        let meta = object.meta();
        match self {
            Self::Label(label) => meta
                .labels
                .as_ref()
                .and_then(|labels| labels.get(label))
                .map(|value| IndexEntry::Label {
                    label: label.clone(),
                    value: value.clone(),
                })
                .into_iter()
                .collect(),
            Self::Owner(_) => meta
                .owner_references
                .iter()
                .flatten()
                .map(|owner| IndexEntry::Owner {
                    uid: owner.uid.clone(),
                })
                .collect(),
        }
    }
}

impl<K> fmt::Debug for Index<K> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label(label) => write!(formatter, "label {label}"),
            Self::Owner(_) => formatter.write_str("owner"),
        }
    }
}
