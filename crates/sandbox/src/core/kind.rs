//! What the server knows about one served kind: its names, where it lives, what may be done with it.
//!
//! One `KindInfo` per group, version and plural. Several may share one storage identity (`resource`): the versions of a custom resource,
//! and Events, which two groups serve in two shapes.

use std::sync::Arc;

use serde_json::Value;

use super::crd::CustomKind;
use super::error::Named;
use super::registry::builtin::Row;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// A path below an object that is served, with the kind it speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subresource {
    pub name: &'static str,
    /// Group, version, kind of its documents; the parent's own if it is the same.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: &'static [&'static str],
}

/// A column of `kubectl get`, from a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrinterColumn {
    pub name: String,
    pub kind: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub json_path: String,
}

#[derive(Debug)]
pub struct KindInfo {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub scope: Scope,
    /// The identity in storage: `configmaps`, `databases.stable.imaginedata.com`.
    pub resource: Arc<str>,
    pub verbs: &'static [&'static str],
    pub subresources: Vec<Subresource>,
    /// Of a custom resource; empty for built-in kinds, whose columns `present` knows.
    pub columns: Vec<PrinterColumn>,
    /// The `openAPIV3Schema` of a custom resource's version.
    pub schema: Option<Arc<Value>>,
    /// What a client of a deprecated version is told.
    pub deprecation: Option<String>,
    pub(crate) source: Source,
}

/// Where a kind's behaviour comes from.
#[derive(Debug)]
pub(crate) enum Source {
    Builtin(&'static Row),
    Custom(Arc<CustomKind>),
}

impl KindInfo {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn is_custom(&self) -> bool {
        matches!(self.source, Source::Custom(_))
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources
            .iter()
            .find(|subresource| subresource.name == name)
    }

    /// For messages that name the resource: `configmaps "a"`.
    pub(crate) fn resource_named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named {
            group: &self.group,
            kind: &self.plural,
            name,
        }
    }

    /// For messages that name the kind: `ConfigMap "a"`.
    pub(crate) fn kind_named<'a>(&'a self, name: &'a str) -> Named<'a> {
        Named {
            group: &self.group,
            kind: &self.kind,
            name,
        }
    }

    pub(crate) fn row(&self) -> Option<&'static Row> {
        match &self.source {
            Source::Builtin(row) => Some(row),
            Source::Custom(_) => None,
        }
    }

    pub(crate) fn custom(&self) -> Option<&Arc<CustomKind>> {
        match &self.source {
            Source::Builtin(_) => None,
            Source::Custom(custom) => Some(custom),
        }
    }
}
