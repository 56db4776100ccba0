//! From a CustomResourceDefinition to the kinds it serves.

use std::sync::Arc;

use serde_json::Value;

use super::error::Cause;
use super::kind::{KindInfo, PrinterColumn, Scope, Source, Subresource};
use super::registry::{builtin, resource_of, subresource};
use super::schema::{default, prune, structural, validate};
use super::{fields, meta};

/// The behaviour of one version of a custom resource.
#[derive(Debug)]
pub struct CustomKind {
    /// The definition's name.
    pub definition: String,
    /// The version in which objects are stored; conversion is by name only (`strategy: None`).
    pub storage_api_version: String,
    pub schema: Arc<Value>,
    pub patterns: validate::Patterns,
    pub scale: Option<ScalePaths>,
    /// Paths of fields that selectors may name.
    pub selectable: Vec<Vec<String>>,
    /// The definition is being deleted: objects may go, none may come.
    pub is_terminating: bool,
    /// The definition has changed since it was made: what is stored may predate today's schema, so it is pruned and defaulted when read.
    pub reads_by_schema: bool,
    pub merge_schema: geodb_merge::schema::Schema,
}

/// Where a custom resource keeps what `scale` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: Vec<String>,
    pub status_replicas: Vec<String>,
    pub label_selector: Option<Vec<String>>,
}

impl CustomKind {
    pub fn prune(&self, object: &mut Value, removed: &mut Vec<String>) {
        prune::prune_root(object, &self.schema, removed);
    }

    pub fn default(&self, object: &mut Value) {
        default::apply(object, &self.schema);
    }

    pub fn validate(&self, object: &Value) -> Vec<Cause> {
        let mut causes = validate::validate(object, &self.schema, "", &self.patterns);
        if let Some(scale) = &self.scale {
            causes.extend(scale_causes(scale, object));
        }
        causes
    }
}

fn scale_causes(scale: &ScalePaths, object: &Value) -> Option<Cause> {
    let path: Vec<&str> = scale.spec_replicas.iter().map(String::as_str).collect();
    let field = format!(".{}", path.join("."));
    let value = meta::at(object, &path)?;
    match value.as_i64() {
        Some(replicas) if replicas < 0 => Some(Cause::invalid(
            field,
            value,
            "should be a non-negative integer",
        )),
        Some(replicas) if replicas > i64::from(i32::MAX) => Some(Cause::invalid(
            field,
            value,
            "should be less than or equal to 2147483647",
        )),
        Some(_) => None,
        None => {
            let detail =
                format!("{field} accessor error: {value} is of another type, expected int64");
            Some(Cause::invalid(field, &0.into(), &detail))
        }
    }
}

/// `.spec.replicas` as its parts. `None` for anything but a plain path.
pub fn plain_path(text: &str) -> Option<Vec<String>> {
    let parts: Vec<String> = text
        .strip_prefix('.')?
        .split('.')
        .map(str::to_owned)
        .collect();
    let plain = |part: &String| {
        !part.is_empty()
            && part.chars().all(|character| {
                character.is_ascii_alphanumeric() || character == '_' || character == '-'
            })
    };
    parts.iter().all(plain).then_some(parts)
}

/// What a definition serves. The definition was validated, unless storage holds what another version of this server accepted.
pub fn kinds(definition: &Value) -> Result<Vec<Arc<KindInfo>>, String> {
    if !is_established(definition) {
        return Ok(Vec::new());
    }
    let versions = meta::at(definition, &["spec", "versions"])
        .and_then(Value::as_array)
        .ok_or("it has no versions")?;
    let storage = versions
        .iter()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .ok_or("it has no storage version")?;
    let group = meta::text(definition, &["spec", "group"]);
    let storage_api_version = format!("{group}/{}", meta::text(storage, &["name"]));
    versions
        .iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
        .map(|version| kind_of_version(definition, version, &storage_api_version).map(Arc::new))
        .collect()
}

fn is_established(definition: &Value) -> bool {
    let conditions = meta::at(definition, &["status", "conditions"]).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|condition| {
        meta::text(condition, &["type"]) == "Established"
            && meta::text(condition, &["status"]) == "True"
    })
}

fn kind_of_version(
    definition: &Value,
    version: &Value,
    storage_api_version: &str,
) -> Result<KindInfo, String> {
    let names = meta::at(definition, &["spec", "names"]).ok_or("it has no names")?;
    let group = meta::text(definition, &["spec", "group"]);
    let version_name = meta::text(version, &["name"]);
    let kind = meta::text(names, &["kind"]);
    let plural = meta::text(names, &["plural"]);
    let has_status =
        meta::at(version, &["subresources", "status"]).is_some_and(|status| !status.is_null());
    let custom = custom_kind(definition, version, storage_api_version, has_status)?;
    let mut subresources: Vec<Subresource> = Vec::new();
    if custom.scale.is_some() {
        subresources.push(subresource("scale", group, version_name, kind));
    }
    if has_status {
        subresources.push(subresource("status", group, version_name, kind));
    }
    let is_cluster_wide = meta::text(definition, &["spec", "scope"]) == "Cluster";
    Ok(KindInfo {
        group: group.to_owned(),
        version: version_name.to_owned(),
        kind: kind.to_owned(),
        list_kind: meta::text(names, &["listKind"]).to_owned(),
        plural: plural.to_owned(),
        singular: meta::text(names, &["singular"]).to_owned(),
        short_names: texts(names.get("shortNames")),
        categories: texts(names.get("categories")),
        scope: if is_cluster_wide {
            Scope::Cluster
        } else {
            Scope::Namespaced
        },
        resource: resource_of(group, plural).into(),
        verbs: builtin::ALL,
        subresources,
        columns: columns(version),
        schema: Some(Arc::clone(&custom.schema)),
        deprecation: deprecation(version, &format!("{group}/{version_name} {kind}")),
        source: Source::Custom(Arc::new(custom)),
    })
}

fn custom_kind(
    definition: &Value,
    version: &Value,
    storage_api_version: &str,
    has_status: bool,
) -> Result<CustomKind, String> {
    let schema = meta::at(version, &["schema", "openAPIV3Schema"])
        .cloned()
        .ok_or_else(|| format!("version {} has no schema", meta::text(version, &["name"])))?;
    let scale = meta::at(version, &["subresources", "scale"])
        .filter(|scale| !scale.is_null())
        .map(scale_paths)
        .transpose()?;
    let selectable = version.get("selectableFields").and_then(Value::as_array);
    let generation = meta::at(definition, &["metadata", "generation"]).and_then(Value::as_i64);
    Ok(CustomKind {
        definition: meta::name(definition).to_owned(),
        storage_api_version: storage_api_version.to_owned(),
        patterns: structural::patterns(&schema),
        merge_schema: fields::custom_schema(&schema, has_status)?,
        schema: Arc::new(schema),
        scale,
        selectable: selectable
            .into_iter()
            .flatten()
            .filter_map(|field| plain_path(meta::text(field, &["jsonPath"])))
            .collect(),
        is_terminating: meta::is_deleting(definition),
        reads_by_schema: generation.unwrap_or(1) > 1,
    })
}

/// What a client of a deprecated version is told; `shown` is the version's name for people.
fn deprecation(version: &Value, shown: &str) -> Option<String> {
    (version.get("deprecated") == Some(&Value::Bool(true))).then(|| {
        let own = meta::text(version, &["deprecationWarning"]);
        if own.is_empty() {
            format!("{shown} is deprecated")
        } else {
            own.to_owned()
        }
    })
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn scale_paths(scale: &Value) -> Result<ScalePaths, String> {
    let path = |key: &str| {
        plain_path(meta::text(scale, &[key]))
            .ok_or_else(|| format!("its scale has no plain path {key}"))
    };
    let label_selector = match meta::text(scale, &["labelSelectorPath"]) {
        "" => None,
        _ => Some(path("labelSelectorPath")?),
    };
    Ok(ScalePaths {
        spec_replicas: path("specReplicasPath")?,
        status_replicas: path("statusReplicasPath")?,
        label_selector,
    })
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let columns = version
        .get("additionalPrinterColumns")
        .and_then(Value::as_array);
    let column = |column: &Value| {
        let text = |key: &str| meta::text(column, &[key]).to_owned();
        PrinterColumn {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description: text("description"),
            priority: column
                .get("priority")
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            json_path: text("jsonPath"),
        }
    };
    columns.into_iter().flatten().map(column).collect()
}
