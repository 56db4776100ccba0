//! Strategic merge patch: a merge patch that knows which lists are merged by a key, with directives for the rest. Only for built-in kinds;
//! custom resources have no patch strategies, and a real server refuses it for them. Its merge keys differ from those of apply: a Service's
//! ports are `port` here and `port, protocol` there.

mod lists;

use serde_json::{Map, Value};

use crate::schema::{Field, MapType, Schema, Type};
use crate::value::go_text;

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const DELETE_FROM_LIST: &str = "$deleteFromPrimitiveList";
const SET_ORDER: &str = "$setElementOrder";

/// Why a patch cannot be merged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StrategicError {
    /// The kind is a custom one. Send a JSON merge patch or an apply.
    #[error("strategic merge patch format is not supported")]
    Unsupported,
    /// The patch or the document is not an object.
    #[error("invalid JSON document")]
    NotAnObject,
    /// `$patch` is none of `delete`, `replace`, `merge`.
    #[error("unknown patch type: {directive} in map: {map}")]
    UnknownDirective { directive: String, map: String },
    /// `$patch: merge` in a list.
    #[error("merging lists cannot yet be specified in the patch")]
    MergeDirectiveInList,
    /// An item of a merged list does not say which one it is.
    #[error("map: {map} does not contain declared merge key: {key}")]
    NoMergeKey { map: String, key: String },
    /// Items are objects and nothing says by what to merge them.
    #[error("cannot merge lists without merge key for {field}")]
    NoMergeKeyDeclared { field: String },
    /// Items of different types.
    #[error("list element types are not identical: {items}")]
    MixedItems { items: String },
    /// Items that are lists.
    #[error("lists of lists are not supported")]
    ListOfLists,
    /// An order for a list that is empty.
    #[error("no elements in any of the given slices")]
    NoElements,
    /// A list was expected.
    #[error("expected a list for {field}, but received {value}")]
    NotAList { field: String, value: String },
    /// `$deleteFromPrimitiveList/FIELD` without the field.
    #[error("invalid patch format of primitive list")]
    BadDeleteList,
    /// `$retainKeys` is not a list, or the patch has keys that are not in it.
    #[error("invalid patch format of retainKeys")]
    BadRetainKeys,
    /// `$setElementOrder/FIELD` without the field, or not a list.
    #[error("invalid patch format of setElementOrder list")]
    BadSetOrder,
    /// The list in the patch is in another order than `$setElementOrder` says, or has items that are not in it.
    #[error("The order in patch list:\n{items}\n doesn't match $setElementOrder list:\n{order}\n")]
    OrderMismatch { items: String, order: String },
    /// The type has no such field.
    #[error("unable to find api field for the json field {field:?}")]
    UnknownField { field: String },
}

impl StrategicError {
    /// The HTTP status a real server answers with.
    #[must_use]
    pub fn status_code(&self) -> u16 {
        match self {
            Self::Unsupported => 415,
            Self::NotAnObject | Self::BadDeleteList | Self::BadRetainKeys | Self::BadSetOrder => {
                400
            }
            Self::ListOfLists => 422,
            _ => 500,
        }
    }
}

/// The document with the patch laid over it.
///
/// # Errors
/// When the kind has no strategies, or the patch is malformed.
pub fn strategic_merge(
    schema: &Schema,
    original: &Value,
    patch: &Value,
) -> Result<Value, StrategicError> {
    if !schema.supports_strategic_merge() {
        return Err(StrategicError::Unsupported);
    }
    let (Value::Object(original), Value::Object(patch)) = (original, patch) else {
        return Err(StrategicError::NotAnObject);
    };
    let mut merged = Value::Object(merge_maps(schema.root(), original.clone(), patch)?);
    drop_directives(schema.root(), &mut merged);
    Ok(merged)
}

/// Takes out what is left of directives in structs: a new item of a list is taken as it is, and the server then finds no such fields in it.
/// Keys of maps are data and stay, whatever they are called.
fn drop_directives(kind: Type<'_>, value: &mut Value) {
    match value {
        Value::Array(items) => {
            if let Some(list) = kind.list() {
                items
                    .iter_mut()
                    .for_each(|item| drop_directives(list.element(), item));
            }
        }
        Value::Object(fields) => {
            let Some(map) = kind.map() else { return };
            fields.retain(|name, _| {
                map.field_type(name).is_some() || !(name == DIRECTIVE || is_directive(name))
            });
            for (name, field) in fields.iter_mut() {
                if let Some(kind) = map.field_type(name) {
                    drop_directives(kind, field);
                }
            }
        }
        _ => {}
    }
}

fn merge_maps(
    kind: Type<'_>,
    mut original: Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, StrategicError> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(patch
                .iter()
                .filter(|(name, _)| *name != DIRECTIVE)
                .map(owned)
                .collect()),
            Some("delete") => Ok(Map::new()),
            _ => Err(StrategicError::UnknownDirective {
                directive: directive
                    .as_str()
                    .map_or_else(|| directive.to_string(), str::to_owned),
                map: go_text(&Value::Object(patch.clone())),
            }),
        };
    }
    let mut patch = patch.clone();
    retain_keys(&mut original, &mut patch)?;
    let map = kind.map();
    lists::merge_ordered(map, &mut original, &mut patch)?;
    for (key, value) in &patch {
        match key.strip_prefix(DELETE_FROM_LIST) {
            Some(rest) => {
                let name = rest
                    .strip_prefix('/')
                    .ok_or(StrategicError::BadDeleteList)?;
                lists::delete_values(&mut original, name, value)?;
            }
            None => merge_field(map, &mut original, key, value)?,
        }
    }
    Ok(original)
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn merge_field(
    map: Option<MapType<'_>>,
    original: &mut Map<String, Value>,
    name: &str,
    patch: &Value,
) -> Result<(), StrategicError> {
    let merged = match (original.get_mut(name), patch) {
        (_, Value::Null) => None,
        (Some(Value::Object(fields)), Value::Object(patch)) => {
            let (kind, field) = lookup(map, name)?;
            let replaces = field.is_some_and(|field| field.patch.replaces);
            let fields = std::mem::take(fields);
            Some(Value::Object(if replaces {
                patch.clone()
            } else {
                merge_maps(kind, fields, patch)?
            }))
        }
        (Some(Value::Array(items)), Value::Array(patch)) => {
            let (kind, field) = lookup(map, name)?;
            match field {
                Some(field) if field.patch.merges => {
                    let key = field.patch.merge_key.as_deref();
                    Some(Value::Array(lists::merge(
                        kind,
                        name,
                        key,
                        std::mem::take(items),
                        patch,
                    )?))
                }
                _ => Some(Value::Array(patch.clone())),
            }
        }
        (_, patch) => without_directives(patch),
    };
    match merged {
        Some(value) => {
            original.insert(name.to_owned(), value);
        }
        None => original.retain(|field, _| field != name),
    }
    Ok(())
}

fn lookup<'a>(
    map: Option<MapType<'a>>,
    name: &str,
) -> Result<(Type<'a>, Option<&'a Field>), StrategicError> {
    let unknown = || StrategicError::UnknownField {
        field: name.to_owned(),
    };
    let map = map.ok_or_else(unknown)?;
    Ok((map.field_type(name).ok_or_else(unknown)?, map.field(name)))
}

/// What a patch puts where nothing was: without nulls and without what only means something against an existing value.
fn without_directives(patch: &Value) -> Option<Value> {
    match patch {
        Value::Null => None,
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(name, _)| !is_directive(name));
            Some(Value::Object(
                kept.filter_map(|(name, value)| Some((name.clone(), without_directives(value)?)))
                    .collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(
            items
                .iter()
                .filter_map(|item| {
                    if item.is_null() {
                        Some(Value::Null)
                    } else {
                        without_directives(item)
                    }
                })
                .collect(),
        )),
        scalar => Some(scalar.clone()),
    }
}

fn is_directive(name: &str) -> bool {
    name == RETAIN_KEYS || name.starts_with(DELETE_FROM_LIST) || name.starts_with(SET_ORDER)
}

/// `$retainKeys`: whatever the list does not name goes, and the patch may not set it.
fn retain_keys(
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let Some(directive) = patch.get(RETAIN_KEYS).cloned() else {
        return Ok(());
    };
    patch.retain(|name, _| name != RETAIN_KEYS);
    let keys = directive.as_array().ok_or(StrategicError::BadRetainKeys)?;
    let is_kept = |name: &str| keys.iter().any(|key| key.as_str() == Some(name));
    if patch
        .iter()
        .any(|(name, value)| !value.is_null() && !is_directive(name) && !is_kept(name))
    {
        return Err(StrategicError::BadRetainKeys);
    }
    original.retain(|name, _| is_kept(name));
    Ok(())
}
