//! The entries of one priority: namespaces take turns, FIFO within a namespace. Knows order, not time.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use crate::key::Key;

#[derive(Debug, Default)]
pub(super) struct Lane {
    namespaces: BTreeMap<String, BTreeMap<u64, Key>>,
    /// Whose turn it was last.
    last: Option<String>,
}

impl Lane {
    pub(super) fn insert(&mut self, key: Key, ticket: u64) {
        self.namespaces
            .entry(key.namespace.clone())
            .or_default()
            .insert(ticket, key);
    }

    pub(super) fn remove(&mut self, key: &Key, ticket: u64) {
        if let Some(waiting) = self.namespaces.get_mut(&key.namespace) {
            waiting.remove(&ticket);
            if waiting.is_empty() {
                self.namespaces.remove(&key.namespace);
            }
        }
    }

    /// The first of the namespace after the one that was served last.
    pub(super) fn next(&mut self) -> Option<Key> {
        let following = match &self.last {
            Some(last) => self
                .namespaces
                .range::<String, _>((Excluded(last), Unbounded))
                .next(),
            None => None,
        };
        let (_, waiting) = following.or_else(|| self.namespaces.iter().next())?;
        waiting.values().next().cloned()
    }

    pub(super) fn served(&mut self, namespace: &str) {
        self.last = Some(namespace.to_owned());
    }
}
