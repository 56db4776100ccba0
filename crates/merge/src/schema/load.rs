//! From OpenAPI v3 to `Schema`: named definitions with references (built-in kinds) and a custom resource's structural schema.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::{
    Endpoints, Field, List, ListRelation, Map, Node, NodeId, PatchStrategy, Scalar, Schema,
};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// Schemas nest at most this deep; a structural schema cannot refer to itself, so a deeper one is a mistake, and recursion stays bounded.
const NESTING_LIMIT_LEVELS: usize = 200;

/// Why a schema cannot be used for merging.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SchemaError {
    /// A part of the schema is not an object.
    #[error("{path} must be an object")]
    NotAnObject { path: String },
    /// A keyword has a value that does not exist.
    #[error("{path} has {keyword}: {value}, which is unknown; use {allowed}")]
    UnknownKeyword {
        path: String,
        keyword: &'static str,
        value: String,
        allowed: &'static str,
    },
    /// A list is keyed but says not by what.
    #[error(
        "{path} has x-kubernetes-list-type: map and needs x-kubernetes-list-map-keys, a list of field names"
    )]
    MissingKeys { path: String },
    /// A reference leads nowhere.
    #[error("{path} refers to {reference}, which is not among the definitions")]
    DanglingReference { path: String, reference: String },
    /// It never ends.
    #[error("{path} is nested more than {NESTING_LIMIT_LEVELS} levels deep")]
    TooDeep { path: String },
}

/// Named definitions, as in `components.schemas` of an OpenAPI v3 document.
#[derive(Clone, Copy, Debug)]
pub struct Definitions<'a>(pub &'a serde_json::Map<String, Value>);

impl Definitions<'_> {
    /// The schemas of some of the definitions, for built-in kinds. They share what they have in common.
    ///
    /// # Errors
    /// When a definition, or what it refers to, is missing or malformed.
    pub fn schemas(&self, names: &[&str]) -> Result<Vec<Schema>, SchemaError> {
        let mut loader = Loader::new(self.0);
        let roots = names
            .iter()
            .map(|name| loader.reference(name, None, name, 0))
            .collect::<Result<Vec<_>, _>>()?;
        let nodes = Arc::new(loader.nodes);
        let schema = |root| Schema {
            nodes: nodes.clone(),
            root,
            is_structured: true,
            endpoints: Endpoints::default(),
        };
        Ok(roots.into_iter().map(schema).collect())
    }

    /// The schema of a custom resource, whose metadata is one of these definitions. See [`Schema::from_openapi`].
    pub(crate) fn custom_resource(&self, structural: &Value) -> Result<Schema, SchemaError> {
        let mut loader = Loader::new(self.0);
        let id = loader.reserve();
        let mut node = loader.node(structural, false, "openAPIV3Schema", 0)?;
        loader.add_object_fields(&mut node)?;
        loader.fill(id, node);
        let endpoints = Endpoints {
            has_status: false,
            status_ignores: &[&["spec"], &["metadata"]],
        };
        Ok(Schema {
            nodes: Arc::new(loader.nodes),
            root: id,
            is_structured: false,
            endpoints,
        })
    }
}

struct Loader<'a> {
    definitions: &'a serde_json::Map<String, Value>,
    nodes: Vec<Node>,
    /// By name and by whether the reference overrides the map type.
    named: BTreeMap<(String, Option<bool>), NodeId>,
    untyped: NodeId,
    deduced: NodeId,
}

impl<'a> Loader<'a> {
    fn new(definitions: &'a serde_json::Map<String, Value>) -> Self {
        let (untyped, deduced) = (NodeId(0), NodeId(1));
        let node = |map_element, is_atomic| Node {
            scalar: Some(Scalar::Any),
            list: Some(List {
                relation: ListRelation::Atomic,
                element: untyped,
            }),
            map: Some(Map {
                fields: BTreeMap::new(),
                element: Some(map_element),
                is_atomic,
            }),
            is_nullable: true,
        };
        let nodes = vec![node(untyped, true), node(deduced, false)];
        Self {
            definitions,
            nodes,
            named: BTreeMap::new(),
            untyped,
            deduced,
        }
    }

    fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        NodeId(self.nodes.len() - 1)
    }

    fn fill(&mut self, id: NodeId, node: Node) {
        self.nodes[id.0] = node;
    }

    fn reference(
        &mut self,
        name: &str,
        is_atomic: Option<bool>,
        path: &str,
        depth: usize,
    ) -> Result<NodeId, SchemaError> {
        let key = (name.to_owned(), is_atomic);
        if let Some(id) = self.named.get(&key) {
            return Ok(*id);
        }
        let dangling = || SchemaError::DanglingReference {
            path: path.to_owned(),
            reference: name.to_owned(),
        };
        let definition = self.definitions.get(name).ok_or_else(dangling)?;
        let id = self.reserve();
        // Known before it is filled, because definitions may refer to themselves.
        self.named.insert(key, id);
        let mut node = match name {
            QUANTITY => Node {
                scalar: Some(Scalar::Any),
                ..Node::default()
            },
            RAW_EXTENSION => self.nodes[self.untyped.0].clone(),
            _ => self.node(definition, false, name, depth + 1)?,
        };
        if let (Some(map), Some(is_atomic)) = (&mut node.map, is_atomic) {
            map.is_atomic = is_atomic;
        }
        self.fill(id, node);
        Ok(id)
    }

    /// The node for a schema that may be a reference, alone or as the only member of `allOf`.
    fn resolve(
        &mut self,
        schema: &Value,
        preserves: bool,
        path: &str,
        depth: usize,
    ) -> Result<NodeId, SchemaError> {
        let reference =
            schema
                .get("$ref")
                .or_else(|| match schema.get("allOf")?.as_array()?.as_slice() {
                    [only] => only.get("$ref"),
                    _ => None,
                });
        if let Some(name) = reference
            .and_then(Value::as_str)
            .and_then(|reference| reference.rsplit('/').next())
        {
            return self.reference(name, map_type(schema, path)?, path, depth);
        }
        let node = self.node(schema, preserves, path, depth)?;
        let id = self.reserve();
        self.fill(id, node);
        Ok(id)
    }

    fn node(
        &mut self,
        schema: &Value,
        preserves: bool,
        path: &str,
        depth: usize,
    ) -> Result<Node, SchemaError> {
        if !schema.is_object() {
            return Err(SchemaError::NotAnObject {
                path: path.to_owned(),
            });
        }
        if depth > NESTING_LIMIT_LEVELS {
            return Err(SchemaError::TooDeep {
                path: path.to_owned(),
            });
        }
        let preserves = preserves || flag(schema, "x-kubernetes-preserve-unknown-fields");
        let mut node = Node {
            is_nullable: flag(schema, "nullable"),
            ..Node::default()
        };
        match schema
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default()
        {
            "" => {
                node.scalar = Some(Scalar::Any);
                node.list = Some(self.list(schema, preserves, path, depth)?);
                node.map = Some(self.map(schema, preserves, path, depth)?);
            }
            "object" => node.map = Some(self.map(schema, preserves, path, depth)?),
            "array" => node.list = Some(self.list(schema, preserves, path, depth)?),
            "integer" | "number" => node.scalar = Some(Scalar::Number),
            "boolean" => node.scalar = Some(Scalar::Boolean),
            // Other formats (times, int-or-string) may come as numbers too.
            "string" => match schema.get("format").and_then(Value::as_str) {
                None | Some("" | "byte") => node.scalar = Some(Scalar::String),
                Some(_) => node.scalar = Some(Scalar::Any),
            },
            other => {
                return Err(SchemaError::UnknownKeyword {
                    path: path.to_owned(),
                    keyword: "type",
                    value: other.to_owned(),
                    allowed: "object, array, string, integer, number or boolean",
                });
            }
        }
        if flag(schema, "x-kubernetes-embedded-resource") {
            self.add_object_fields(&mut node)?;
        }
        Ok(node)
    }

    fn list(
        &mut self,
        schema: &Value,
        preserves: bool,
        path: &str,
        depth: usize,
    ) -> Result<List, SchemaError> {
        let relation = list_relation(schema, path)?;
        let element = match schema.get("items") {
            Some(items) => self.resolve(items, preserves, &format!("{path}.items"), depth + 1)?,
            None => self.untyped,
        };
        Ok(List { relation, element })
    }

    fn map(
        &mut self,
        schema: &Value,
        preserves: bool,
        path: &str,
        depth: usize,
    ) -> Result<Map, SchemaError> {
        let always_written: Vec<_> = strings(schema.get("x-always-written")).unwrap_or_default();
        let mut fields = BTreeMap::new();
        for (name, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let node = self.resolve(
                property,
                preserves,
                &format!("{path}.properties.{name}"),
                depth + 1,
            )?;
            let field = Field {
                node,
                default: property
                    .get("default")
                    .filter(|default| !default.is_null())
                    .cloned(),
                patch: patch_strategy(property),
                is_always_written: always_written.contains(name),
            };
            fields.insert(name.clone(), field);
        }
        let element = match schema.get("additionalProperties") {
            None if preserves || fields.is_empty() => Some(self.deduced),
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(self.deduced),
            Some(element) => Some(self.resolve(
                element,
                preserves,
                &format!("{path}.additionalProperties"),
                depth + 1,
            )?),
        };
        Ok(Map {
            fields,
            element,
            is_atomic: map_type(schema, path)?.unwrap_or(false),
        })
    }

    /// The fields every object has, whatever its schema says about them: a custom resource cannot redefine its metadata.
    fn add_object_fields(&mut self, node: &mut Node) -> Result<(), SchemaError> {
        let metadata = self.reference(OBJECT_META, None, "metadata", 0)?;
        let text = self.reserve();
        self.fill(
            text,
            Node {
                scalar: Some(Scalar::String),
                ..Node::default()
            },
        );
        if let Some(map) = &mut node.map {
            for (name, id) in [("apiVersion", text), ("kind", text), ("metadata", metadata)] {
                let field = Field {
                    node: id,
                    default: None,
                    patch: PatchStrategy::default(),
                    is_always_written: false,
                };
                map.fields.insert(name.to_owned(), field);
            }
        }
        Ok(())
    }
}

fn flag(schema: &Value, keyword: &str) -> bool {
    schema
        .get(keyword)
        .and_then(Value::as_bool)
        .unwrap_or(false)
}

fn strings(value: Option<&Value>) -> Option<Vec<String>> {
    value?
        .as_array()?
        .iter()
        .map(|item| item.as_str().map(str::to_owned))
        .collect()
}

fn map_type(schema: &Value, path: &str) -> Result<Option<bool>, SchemaError> {
    match schema.get("x-kubernetes-map-type") {
        None => Ok(None),
        Some(Value::String(kind)) if kind == "atomic" => Ok(Some(true)),
        Some(Value::String(kind)) if kind == "granular" => Ok(Some(false)),
        Some(other) => Err(SchemaError::UnknownKeyword {
            path: path.to_owned(),
            keyword: "x-kubernetes-map-type",
            value: other.to_string(),
            allowed: "granular or atomic",
        }),
    }
}

fn list_relation(schema: &Value, path: &str) -> Result<ListRelation, SchemaError> {
    match schema
        .get("x-kubernetes-list-type")
        .map(|kind| kind.as_str().unwrap_or_default())
    {
        Some("atomic") => Ok(ListRelation::Atomic),
        Some("set") => Ok(ListRelation::Set),
        Some("map") => match strings(schema.get("x-kubernetes-list-map-keys")) {
            Some(keys) if !keys.is_empty() => Ok(ListRelation::Keyed(keys)),
            _ => Err(SchemaError::MissingKeys {
                path: path.to_owned(),
            }),
        },
        Some(other) => Err(SchemaError::UnknownKeyword {
            path: path.to_owned(),
            keyword: "x-kubernetes-list-type",
            value: other.to_owned(),
            allowed: "atomic, set or map",
        }),
        // Types from before list types said it with the patch strategy.
        None => Ok(match patch_strategy(schema) {
            PatchStrategy {
                merges: true,
                merge_key: Some(key),
                ..
            } => ListRelation::Keyed(vec![key]),
            PatchStrategy {
                merges: true,
                merge_key: None,
                ..
            } => ListRelation::Set,
            _ => ListRelation::Atomic,
        }),
    }
}

fn patch_strategy(schema: &Value) -> PatchStrategy {
    let strategies = schema
        .get("x-kubernetes-patch-strategy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    PatchStrategy {
        merges: strategies.split(',').any(|strategy| strategy == "merge"),
        replaces: strategies.split(',').any(|strategy| strategy == "replace"),
        merge_key: schema
            .get("x-kubernetes-patch-merge-key")
            .and_then(Value::as_str)
            .map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_malformed_schema_says_where_and_what_to_write() {
        let cases = [
            (json!([]), "openAPIV3Schema must be an object"),
            (
                json!({"type": "object", "properties": {"a": {"type": "list"}}}),
                "openAPIV3Schema.properties.a has type: list, which is unknown; use object, array, string, integer, number or boolean",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map", "items": {"type": "object"}}),
                "openAPIV3Schema has x-kubernetes-list-type: map and needs x-kubernetes-list-map-keys, a list of field names",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "x-kubernetes-list-type": "bag"}}}),
                "openAPIV3Schema.properties.a has x-kubernetes-list-type: bag, which is unknown; use atomic, set or map",
            ),
            (
                json!({"type": "object", "x-kubernetes-map-type": "whole"}),
                "openAPIV3Schema has x-kubernetes-map-type: \"whole\", which is unknown; use granular or atomic",
            ),
            (
                json!({"type": "object", "additionalProperties": {"$ref": "#/definitions/Nobody"}}),
                "openAPIV3Schema.additionalProperties refers to Nobody, which is not among the definitions",
            ),
        ];
        for (schema, message) in cases {
            let error = Schema::from_openapi(&schema).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn a_schema_without_an_end_is_refused() {
        let mut schema = json!({"type": "object"});
        for _ in 0..=NESTING_LIMIT_LEVELS {
            schema = json!({"type": "array", "items": schema});
        }
        let error = Schema::from_openapi(&schema).expect_err("too deep");
        assert!(matches!(error, SchemaError::TooDeep { .. }), "{error}");
    }

    #[test]
    fn apply_and_strategic_merge_have_different_keys_for_the_ports_of_a_service() {
        let service = crate::builtin::schema("v1", "Service").expect("a built-in kind");
        let spec = service
            .root()
            .map()
            .and_then(|map| map.field_type("spec"))
            .and_then(|spec| spec.map())
            .expect("a struct");
        let ports = spec
            .field_type("ports")
            .and_then(|ports| ports.list())
            .expect("a list");
        assert_eq!(
            *ports.relation(),
            ListRelation::Keyed(vec!["port".to_owned(), "protocol".to_owned()])
        );
        let patch = &spec.field("ports").expect("declared").patch;
        assert_eq!(patch.merge_key.as_deref(), Some("port"));
        assert!(patch.merges);
    }

    #[test]
    fn embedded_resources_and_the_object_itself_have_metadata() {
        let schema = Schema::from_openapi(&json!({
            "type": "object",
            "properties": {"template": {"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"spec": {"type": "object"}}}},
        }))
        .expect("structural");
        let object = json!({"metadata": {"lables": {}}, "template": {"kind": "Pod", "metadata": {"labels": {"a": "b"}, "lables": {}}}});
        assert_eq!(
            crate::validate::unknown_fields(&schema, &object),
            ["metadata.lables", "template.metadata.lables"]
        );
    }
}
