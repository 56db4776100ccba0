//! Sets of field paths: who owns what. A path goes through fields, list items by key, list items by value, and list items by index.
//! A set may hold a field and, independently, fields below it. Not a description of values; that is `typed`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::schema::Type;
use crate::value::{OrderedValue, spell};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathElement {
    /// A field of an object, or a key of a map.
    Field(String),
    /// The item of a list whose key fields have these values; sorted by name.
    Key(Vec<(String, OrderedValue)>),
    /// The item of a set that has this value.
    Value(OrderedValue),
    /// The item at this position.
    Index(i64),
}

impl PathElement {
    /// The step into a field.
    #[must_use]
    pub fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Key(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", spell(&value.0)))
                    .collect();
                write!(formatter, "[{}]", fields.join(","))
            }
            Self::Value(value) => write!(formatter, "[={}]", spell(&value.0)),
            Self::Index(index) => write!(formatter, "[{index}]"),
        }
    }
}

/// A path from the root of an object.
pub type Path = Vec<PathElement>;

/// How the server writes a path, as in `.spec.ports[port=80,protocol="TCP"].name`.
#[must_use]
pub fn path_text(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

/// A set of paths. The root itself is never a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet {
    pub(crate) members: BTreeSet<PathElement>,
    /// Never holds an empty set.
    pub(crate) children: BTreeMap<PathElement, FieldSet>,
}

impl FieldSet {
    /// A set of paths through fields only, for the fixed sets of the server.
    #[must_use]
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(
                &path
                    .iter()
                    .map(|name| PathElement::field(name))
                    .collect::<Vec<_>>(),
            );
        }
        set
    }

    /// Adds a path; its parents do not become members.
    pub fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => match self.children.get_mut(first) {
                Some(child) => child.insert(rest),
                None => self.children.entry(first.clone()).or_default().insert(rest),
            },
        }
    }

    /// Whether nothing is in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    /// Whether exactly this path is in it.
    #[must_use]
    pub fn has(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self
                .children
                .get(first)
                .is_some_and(|child| child.has(rest)),
        }
    }

    /// What is below one step.
    #[must_use]
    pub fn below(&self, element: &PathElement) -> Option<&Self> {
        self.children.get(element)
    }

    /// All paths: at each level its members first, then what is below.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.collect_paths(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect_paths(&self, prefix: &mut Path, paths: &mut Vec<Path>) {
        for member in &self.members {
            prefix.push(member.clone());
            paths.push(prefix.clone());
            prefix.pop();
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect_paths(prefix, paths);
            prefix.pop();
        }
    }

    /// What is in either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            let merged = match result.children.get(element) {
                Some(own) => own.union(child),
                None => child.clone(),
            };
            result.children.insert(element.clone(), merged);
        }
        result
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let members = self.members.intersection(&other.members).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            let common = child.intersection(other.children.get(element)?);
            (!common.is_empty()).then(|| (element.clone(), common))
        });
        Self {
            members,
            children: children.collect(),
        }
    }

    /// What is in this one only. A member of `other` takes nothing below itself away.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            let rest = other
                .children
                .get(element)
                .map_or_else(|| child.clone(), |taken| child.difference(taken));
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members,
            children: children.collect(),
        }
    }

    /// What is in this one only, where a member of `other` takes everything below itself away.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        let members = self.members.difference(&other.members).cloned().collect();
        let children = self.children.iter().filter_map(|(element, child)| {
            if other.members.contains(element) {
                return None;
            }
            let rest = other
                .children
                .get(element)
                .map_or_else(|| child.clone(), |taken| child.recursive_difference(taken));
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members,
            children: children.collect(),
        }
    }

    /// The set with every declared field that has something below it as a member too. Owning `.spec.replicas` then counts as holding
    /// `.spec`, which sets from `typed` leave out; keys of maps and list items are not declared fields and are left as they are.
    #[must_use]
    pub(crate) fn with_declared_parents(&self, kind: Option<Type<'_>>) -> Self {
        let mut result = Self {
            members: self.members.clone(),
            children: BTreeMap::new(),
        };
        for (element, child) in &self.children {
            let mut below = None;
            match element {
                PathElement::Field(name) => {
                    if let Some(map) = kind.and_then(Type::map) {
                        if map.is_declared(name) {
                            result.members.insert(element.clone());
                        }
                        below = map.field_type(name);
                    }
                }
                PathElement::Key(_) => below = kind.and_then(Type::list).map(|list| list.element()),
                PathElement::Value(_) | PathElement::Index(_) => {}
            }
            result
                .children
                .insert(element.clone(), child.with_declared_parents(below));
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(paths: &[&str]) -> FieldSet {
        let mut set = FieldSet::default();
        for path in paths {
            set.insert(&path.split('.').map(PathElement::field).collect::<Vec<_>>());
        }
        set
    }

    #[test]
    fn a_parent_and_its_child_are_independent_members() {
        let both = set(&["a", "a.b"]);
        assert_eq!(both.difference(&set(&["a"])), set(&["a.b"]));
        assert_eq!(both.difference(&set(&["a.b"])), set(&["a"]));
        assert_eq!(both.recursive_difference(&set(&["a"])), FieldSet::default());
        assert_eq!(both.intersection(&set(&["a.b", "c"])), set(&["a.b"]));
        assert_eq!(set(&["a"]).union(&set(&["a.b"])), both);
    }

    #[test]
    fn paths_are_spelled_like_the_server_does() {
        let key = PathElement::Key(vec![
            ("port".to_owned(), OrderedValue(80.into())),
            ("protocol".to_owned(), OrderedValue("TCP".into())),
        ]);
        let path = [
            PathElement::field("spec"),
            PathElement::field("ports"),
            key,
            PathElement::field("name"),
        ];
        assert_eq!(
            path_text(&path),
            r#".spec.ports[port=80,protocol="TCP"].name"#
        );
        let path = [
            PathElement::field("finalizers"),
            PathElement::Value(OrderedValue("x/y".into())),
        ];
        assert_eq!(path_text(&path), r#".finalizers[="x/y"]"#);
    }
}
