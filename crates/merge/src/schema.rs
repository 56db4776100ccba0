//! What the types of an object are, as far as merging needs to know: which lists have keys, which maps are one value, which fields exist.
//! Built from OpenAPI v3 definitions (`schema/load.rs`). Not a validator of values: no formats, ranges, or required fields.

mod load;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

pub use load::{Definitions, SchemaError};

/// The type of a whole object, with everything it refers to.
#[derive(Clone, Debug)]
pub struct Schema {
    nodes: Arc<Vec<Node>>,
    root: NodeId,
    /// The real server keeps objects of this kind in Go structs: unset fields have a zero value and null means unset.
    pub(crate) is_structured: bool,
    pub(crate) endpoints: Endpoints,
}

/// What the endpoints of a kind do not let a client write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Endpoints {
    /// The main endpoint ignores `status`, and there is a `/status`.
    pub has_status: bool,
    /// What `/status` ignores.
    pub status_ignores: &'static [&'static [&'static str]],
}

/// The place of a node in its schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(usize);

/// One type. Several of the three are set where the value decides.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub scalar: Option<Scalar>,
    pub list: Option<List>,
    pub map: Option<Map>,
    /// Null is a value here, and not just another way to say nothing.
    pub is_nullable: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Number,
    String,
    Boolean,
    /// Any scalar: quantities, times, int-or-string.
    Any,
}

#[derive(Clone, Debug)]
pub(crate) struct List {
    pub relation: ListRelation,
    pub element: NodeId,
}

/// How the items of a list relate to those of another version of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListRelation {
    /// The list is one value.
    Atomic,
    /// Items are scalars and are found by value.
    Set,
    /// Items are objects and are found by these fields.
    Keyed(Vec<String>),
}

/// A struct (declared fields), a map (an element type), or both.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub fields: BTreeMap<String, Field>,
    /// The type of fields that are not declared; without one they are errors.
    pub element: Option<NodeId>,
    /// The whole map is one value.
    pub is_atomic: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub node: NodeId,
    pub default: Option<Value>,
    pub patch: PatchStrategy,
    /// Written by the server even when nothing was set.
    pub is_always_written: bool,
}

/// How strategic merge treats a field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PatchStrategy {
    /// Lists are merged instead of replaced.
    pub merges: bool,
    /// Maps are replaced instead of merged.
    pub replaces: bool,
    /// The field that identifies an item of a merged list.
    pub merge_key: Option<String>,
}

impl Schema {
    /// The type of the object itself.
    pub(crate) fn root(&self) -> Type<'_> {
        Type {
            nodes: &self.nodes,
            id: self.root,
        }
    }

    /// Whether objects of this type have a `/status` endpoint; the main endpoint then never owns `status`, and that one nothing else.
    #[must_use]
    pub fn with_status_subresource(mut self, has_status: bool) -> Self {
        self.endpoints.has_status = has_status;
        self
    }

    /// Whether strategic merge patch is defined for this type: only for built-in kinds, a real server answers 415 for custom ones.
    #[must_use]
    pub fn supports_strategic_merge(&self) -> bool {
        self.is_structured
    }
}

/// A node together with its schema, so that one can walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Type<'a> {
    nodes: &'a [Node],
    id: NodeId,
}

/// What a value is, according to its type.
#[derive(Clone, Copy)]
pub(crate) enum Shape<'a> {
    Scalar(Scalar),
    List(ListType<'a>),
    Map(MapType<'a>),
}

impl Shape<'_> {
    /// Whether both are scalars, lists, or maps. Of one and the same type, so nothing else can differ.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl<'a> Type<'a> {
    fn node(self) -> &'a Node {
        // A `NodeId` is only made by the loader, for the node it has just pushed or reserved.
        &self.nodes[self.id.0]
    }

    fn at(self, id: NodeId) -> Self {
        Self {
            nodes: self.nodes,
            id,
        }
    }

    pub fn map(self) -> Option<MapType<'a>> {
        self.node()
            .map
            .as_ref()
            .map(|map| MapType { owner: self, map })
    }

    pub fn list(self) -> Option<ListType<'a>> {
        self.node()
            .list
            .as_ref()
            .map(|list| ListType { owner: self, list })
    }

    /// The alternative that fits the value; for null, absent and ill-typed values the first of map, scalar, list.
    pub fn shape(self, value: Option<&Value>) -> Shape<'a> {
        let node = self.node();
        let fitting = match value {
            Some(Value::Object(_)) => self.map().map(Shape::Map),
            Some(Value::Array(_)) => self.list().map(Shape::List),
            Some(Value::Null) | None => None,
            Some(_) => node.scalar.map(Shape::Scalar),
        };
        fitting
            .or_else(|| self.map().map(Shape::Map))
            .or_else(|| node.scalar.map(Shape::Scalar))
            .or_else(|| self.list().map(Shape::List))
            .unwrap_or(Shape::Scalar(Scalar::Any))
    }

    pub fn is_nullable(self) -> bool {
        self.node().is_nullable
    }

    /// Whether any JSON value is welcome here, so that nothing below may be touched.
    pub fn is_untyped(self) -> bool {
        let node = self.node();
        node.scalar.is_some() && node.list.is_some() && node.map.is_some()
    }
}

#[derive(Clone, Copy)]
pub(crate) struct ListType<'a> {
    owner: Type<'a>,
    list: &'a List,
}

impl<'a> ListType<'a> {
    pub fn relation(&self) -> &'a ListRelation {
        &self.list.relation
    }

    pub fn is_atomic(&self) -> bool {
        self.list.relation == ListRelation::Atomic
    }

    pub fn element(&self) -> Type<'a> {
        self.owner.at(self.list.element)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct MapType<'a> {
    owner: Type<'a>,
    map: &'a Map,
}

impl<'a> MapType<'a> {
    pub fn is_atomic(&self) -> bool {
        self.map.is_atomic
    }

    pub fn is_declared(&self, name: &str) -> bool {
        self.map.fields.contains_key(name)
    }

    /// Has no declared fields: its keys are data, not structure.
    pub fn is_plain_map(&self) -> bool {
        self.map.fields.is_empty()
    }

    pub fn declared(&self) -> impl Iterator<Item = (&'a str, &'a Field, Type<'a>)> + use<'a> {
        let owner = self.owner;
        self.map
            .fields
            .iter()
            .map(move |(name, field)| (name.as_str(), field, owner.at(field.node)))
    }

    pub fn field(&self, name: &str) -> Option<&'a Field> {
        self.map.fields.get(name)
    }

    /// The type of a field, declared or not; none if it may not exist.
    pub fn field_type(&self, name: &str) -> Option<Type<'a>> {
        let id = self
            .map
            .fields
            .get(name)
            .map(|field| field.node)
            .or(self.map.element)?;
        Some(self.owner.at(id))
    }

    /// Whether undeclared fields take the type of whatever they hold.
    pub fn has_untyped_elements(&self) -> bool {
        self.map
            .element
            .is_some_and(|id| self.owner.at(id).is_untyped())
    }
}
