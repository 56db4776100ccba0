//! One value laid over another along their type: what is applied wins, what it does not mention stays.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{TypeError, fields, items, list_element};
use crate::field_set::PathElement;
use crate::schema::{ListType, MapType, Shape, Type};

/// The merged value; none if nothing is left of it. Removes nothing.
pub(crate) fn merge(
    kind: Type<'_>,
    live: Option<&Value>,
    applied: Option<&Value>,
) -> Result<Option<Value>, Vec<TypeError>> {
    let shape = kind.shape(if applied.is_some() { applied } else { live });
    let leaf = || Ok(applied.or(live).cloned());
    match shape {
        Shape::Scalar(_) => leaf(),
        Shape::List(list) => {
            let (live, applied) = (live.map_or(&[][..], items), applied.map_or(&[][..], items));
            // Two empty ones are a leaf, so that null and `[]` stay apart.
            if list.is_atomic() || (live.is_empty() && applied.is_empty()) {
                leaf()
            } else {
                lists(list, live, applied)
            }
        }
        Shape::Map(map) => {
            let (live_fields, applied_fields) = (fields(live), fields(applied));
            if map.is_atomic() || (live_fields.is_empty() && applied_fields.is_empty()) {
                leaf()
            } else {
                maps(map, live_fields, applied_fields)
            }
        }
    }
}

fn maps(
    map: MapType<'_>,
    live: &serde_json::Map<String, Value>,
    applied: &serde_json::Map<String, Value>,
) -> Result<Option<Value>, Vec<TypeError>> {
    let mut merged = serde_json::Map::new();
    let new = applied.keys().filter(|name| !live.contains_key(*name));
    for name in live.keys().chain(new) {
        let (live, applied) = (live.get(name), applied.get(name));
        let value = match map.field_type(name) {
            Some(kind) => merge(kind, live, applied)?,
            None => applied.or(live).cloned(),
        };
        if let Some(value) = value {
            merged.insert(name.clone(), value);
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Object(merged)))
}

/// Items in order. Several live ones with the same key are kept apart from what is applied.
struct Indexed<'a> {
    order: Vec<(PathElement, &'a Value)>,
    /// Null where a key occurs more than once.
    by_element: BTreeMap<PathElement, &'a Value>,
}

fn index<'a>(list: ListType<'_>, items: &'a [Value]) -> Result<Indexed<'a>, Vec<TypeError>> {
    let mut indexed = Indexed {
        order: Vec::with_capacity(items.len()),
        by_element: BTreeMap::new(),
    };
    for (position, item) in items.iter().enumerate() {
        let element = list_element(list, item).map_err(|message| {
            vec![TypeError {
                path: String::new(),
                message: format!("element {position}: {message}"),
            }]
        })?;
        indexed
            .by_element
            .entry(element.clone())
            .and_modify(|known| *known = &Value::Null)
            .or_insert(item);
        indexed.order.push((element, item));
    }
    Ok(indexed)
}

/// The order of the result: items in both come in the applied order; an item only one side has keeps its place relative to those.
fn lists(
    list: ListType<'_>,
    live: &[Value],
    applied: &[Value],
) -> Result<Option<Value>, Vec<TypeError>> {
    let (live, applied) = (index(list, live)?, index(list, applied)?);
    let mut shared = applied
        .order
        .iter()
        .map(|(element, _)| element)
        .filter(|element| live.by_element.contains_key(*element));
    let mut next_shared = shared.next();
    let mut merged = Vec::new();
    let mut placed = BTreeSet::new();
    let (mut left, mut right) = (
        live.order.iter().peekable(),
        applied.order.iter().peekable(),
    );
    while left.peek().is_some() || right.peek().is_some() {
        let next_right = right.peek().map(|(element, _)| element);
        if let Some((element, item)) = left.peek().copied() {
            if !applied.by_element.contains_key(element) {
                merged.extend(merge(list.element(), Some(item), None)?);
                left.next();
                continue;
            }
            let comes_now = next_right == Some(element);
            let comes_later =
                next_right.is_some() && next_shared.is_some_and(|next| next != element);
            if !comes_now && comes_later {
                left.next();
                continue;
            }
            if comes_now || placed.contains(element) {
                left.next();
            }
        }
        if let Some((element, item)) = right.next() {
            merged.extend(merge(
                list.element(),
                live.by_element.get(element).copied(),
                Some(item),
            )?);
            placed.insert(element);
            if next_shared == Some(element) {
                next_shared = shared.next();
            }
        }
    }
    Ok((!merged.is_empty()).then_some(Value::Array(merged)))
}
