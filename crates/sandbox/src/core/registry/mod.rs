//! Which kinds are served: the table of built-in ones, and those that CustomResourceDefinitions add.

pub mod builtin;
mod fields;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::kind::{KindInfo, Source, Subresource};
use builtin::{ROWS, Row};

/// The storage identity of the kind that makes kinds.
pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
pub const NAMESPACES: &str = "namespaces";
pub const SERVICES: &str = "services";
pub const PODS: &str = "pods";
pub const SERVICE_ACCOUNTS: &str = "serviceaccounts";

/// Group, version, plural.
type Address = (String, String, String);

#[derive(Debug)]
pub struct Registry {
    kinds: BTreeMap<Address, Arc<KindInfo>>,
}

impl Registry {
    pub fn builtin() -> Registry {
        let mut registry = Registry {
            kinds: BTreeMap::new(),
        };
        for row in ROWS {
            registry.insert(Arc::new(builtin_kind(row)));
        }
        registry
    }

    pub fn kinds(&self) -> impl Iterator<Item = &Arc<KindInfo>> {
        self.kinds.values()
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<KindInfo>> {
        self.kinds
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub fn serves(&self, group: &str, version: &str) -> bool {
        self.kinds
            .values()
            .any(|kind| kind.group == group && kind.version == version)
    }

    fn insert(&mut self, kind: Arc<KindInfo>) {
        self.kinds.insert(
            (
                kind.group.clone(),
                kind.version.clone(),
                kind.plural.clone(),
            ),
            kind,
        );
    }

    /// Replaces what one CustomResourceDefinition serves; an empty list takes it away.
    pub fn replace_custom(&mut self, definition: &str, kinds: Vec<Arc<KindInfo>>) {
        self.kinds.retain(|_, kind| {
            kind.custom()
                .is_none_or(|custom| custom.definition != definition)
        });
        for kind in kinds {
            self.insert(kind);
        }
    }
}

/// The storage identity of a resource: its plural, qualified by its group.
pub fn resource_of(group: &str, plural: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

fn builtin_kind(row: &'static Row) -> KindInfo {
    let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    // Both groups' Events are one thing in storage.
    let resource = if row.plural == "events" {
        "events".to_owned()
    } else {
        resource_of(row.group, row.plural)
    };
    KindInfo {
        group: row.group.to_owned(),
        version: row.version.to_owned(),
        kind: row.kind.to_owned(),
        list_kind: format!("{}List", row.kind),
        plural: row.plural.to_owned(),
        singular: row.singular.to_owned(),
        short_names: owned(row.short_names),
        categories: owned(row.categories),
        scope: row.scope,
        resource: resource.into(),
        verbs: row.verbs,
        subresources: row
            .subresources
            .iter()
            .map(|name| subresource(name, row.group, row.version, row.kind))
            .collect(),
        columns: Vec::new(),
        schema: None,
        deprecation: None,
        source: Source::Builtin(row),
    }
}

/// A subresource by its name. The parent's group, version and kind are used for those that speak the parent's kind.
pub fn subresource(name: &'static str, group: &str, version: &str, kind: &str) -> Subresource {
    const READ_AND_CHANGE: &[&str] = &["get", "patch", "update"];
    const STREAM: &[&str] = &["create", "get"];
    let (group, version, kind, verbs) = match name {
        "scale" => ("autoscaling", "v1", "Scale", READ_AND_CHANGE),
        "eviction" => ("policy", "v1", "Eviction", &["create"][..]),
        "binding" => ("", "v1", "Binding", &["create"][..]),
        "token" => (
            "authentication.k8s.io",
            "v1",
            "TokenRequest",
            &["create"][..],
        ),
        "log" => (group, version, kind, &["get"][..]),
        "exec" => ("", "v1", "PodExecOptions", STREAM),
        "attach" => ("", "v1", "PodAttachOptions", STREAM),
        "portforward" => ("", "v1", "PodPortForwardOptions", STREAM),
        "finalize" => (group, version, kind, &["update"][..]),
        _ => (group, version, kind, READ_AND_CHANGE),
    };
    Subresource {
        name,
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        verbs,
    }
}
