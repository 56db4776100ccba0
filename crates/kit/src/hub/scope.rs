//! Which objects of a kind a watch is about, what is kept of them, and by what they are found.

use kube::{
    Api, Client, Resource, ResourceExt,
    core::{NamespaceResourceScope, Selector, SelectorExt},
};

use super::index::Index;

/// Built up step by step: `Scope::all().labels(selector).index_label("app")`.
pub struct Scope<K> {
    pub(super) bounds: Bounds,
    pub(super) indexes: Vec<Index<K>>,
    pub(super) project: Option<fn(&mut K)>,
    pub(super) api: fn(Client, Option<&str>) -> Api<K>,
}

/// The part of a scope that does not depend on the kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounds {
    pub(super) namespace: Option<String>,
    pub(super) labels: Option<Selector>,
    pub(super) fields: Option<String>,
}

impl Bounds {
    /// Would the server send us this object? `None` if only the server can tell.
    pub(super) fn contain<K: Resource>(&self, object: &K) -> Option<bool> {
        let meta = object.meta();
        if self.namespace.is_some() && self.namespace != meta.namespace {
            return Some(false);
        }
        if let Some(selector) = &self.labels
            && !selector.matches(object.labels())
        {
            return Some(false);
        }
        if self.fields.is_some() {
            None
        } else {
            Some(true)
        }
    }

    pub(super) fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(namespace) = &self.namespace {
            parts.push(format!("namespace {namespace}"));
        }
        if let Some(labels) = &self.labels {
            parts.push(format!("labels {labels}"));
        }
        if let Some(fields) = &self.fields {
            parts.push(format!("fields {fields}"));
        }
        if parts.is_empty() {
            "all".to_owned()
        } else {
            parts.join(", ")
        }
    }
}

impl<K: Resource<DynamicType = ()>> Scope<K> {
    /// Every object of the kind, in every namespace.
    pub fn all() -> Self {
        Self {
            bounds: Bounds::default(),
            indexes: Vec::new(),
            project: None,
            api: |client, _| Api::all(client),
        }
    }

    #[must_use]
    pub fn labels(mut self, selector: Selector) -> Self {
        self.bounds.labels = Some(selector);
        self
    }

    /// As the API takes it: `spec.nodeName=a,metadata.name=b`. Which fields work depends on the kind.
    #[must_use]
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.bounds.fields = Some(selector.into());
        self
    }

    /// Makes `by_label` with this label fast.
    #[must_use]
    pub fn index_label(mut self, label: impl Into<String>) -> Self {
        self.indexes.push(Index::Label(label.into()));
        self
    }

    /// Makes `by_owner` fast.
    #[must_use]
    pub fn index_owner(mut self) -> Self {
        self.indexes.push(Index::Owner(std::marker::PhantomData));
        self
    }

    /// Drops from each object what is not used, to save memory. (managedFields are always dropped.) The executor reads
    /// objects of such a kind afresh before it compares them, because the cache no longer knows all of them.
    #[must_use]
    pub fn project(mut self, project: fn(&mut K)) -> Self {
        self.project = Some(project);
        self
    }
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> Scope<K> {
    /// One namespace only; needs no permission beyond it.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.bounds.namespace = Some(namespace.into());
        self.api = |client, namespace| match namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::all(client),
        };
        self
    }
}
