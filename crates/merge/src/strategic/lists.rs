//! Lists in a strategic merge: merged by key or as sets, deleted from, and put in order.

use serde_json::{Map, Value};

use super::{DIRECTIVE, SET_ORDER, StrategicError, lookup, merge_maps, without_directives};
use crate::schema::{MapType, Type};
use crate::value::{equal, go_text};

type Items = Vec<Value>;

/// How to tell whether two items are the same one.
#[derive(Clone, Copy)]
enum Identity<'a> {
    Value,
    Key(&'a str),
}

impl Identity<'_> {
    fn is_same(self, left: &Value, right: &Value) -> bool {
        match self {
            Self::Value => equal(left, right),
            Self::Key(key) => match (left.get(key), right.get(key)) {
                (Some(left), Some(right)) => equal(left, right),
                _ => false,
            },
        }
    }

    fn position(self, items: &[Value], wanted: &Value) -> Option<usize> {
        items.iter().position(|item| self.is_same(item, wanted))
    }
}

/// Merges two lists whose field says so.
pub(super) fn merge(
    kind: Type<'_>,
    field: &str,
    key: Option<&str>,
    original: Items,
    patch: &[Value],
) -> Result<Items, StrategicError> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !holds_objects(&original, patch)? {
        let mut merged: Items = Vec::new();
        for item in original.iter().chain(patch) {
            if !merged.iter().any(|known| equal(known, item)) {
                merged.push(item.clone());
            }
        }
        return Ok(in_order(merged, patch, &original, Identity::Value));
    }
    let key = key.ok_or_else(|| StrategicError::NoMergeKeyDeclared {
        field: field.to_owned(),
    })?;
    let (original, patch) = apply_directives(original, patch, key)?;
    let element = kind.list().map(|list| list.element());
    let mut merged = original.clone();
    for item in &patch {
        require_key(item, key)?;
        match (Identity::Key(key).position(&merged, item), element, item) {
            (Some(position), Some(element), Value::Object(fields)) => {
                let existing = merged[position].as_object().cloned().unwrap_or_default();
                merged[position] = Value::Object(merge_maps(element, existing, fields)?);
            }
            _ => merged.push(item.clone()),
        }
    }
    for item in &merged {
        require_key(item, key)?;
    }
    Ok(in_order(merged, &patch, &original, Identity::Key(key)))
}

/// Whether the items of both lists are objects; they must all be of one type.
fn holds_objects(original: &[Value], patch: &[Value]) -> Result<bool, StrategicError> {
    let mut items = original.iter().chain(patch);
    let Some(first) = items.next() else {
        return Ok(false);
    };
    if first.is_array() {
        return Err(StrategicError::ListOfLists);
    }
    if items.any(|item| std::mem::discriminant(item) != std::mem::discriminant(first)) {
        let all: Items = original.iter().chain(patch).cloned().collect();
        return Err(StrategicError::MixedItems {
            items: go_text(&Value::Array(all)),
        });
    }
    Ok(first.is_object())
}

/// Carries out `$patch` items of a list and takes them out of the patch.
fn apply_directives(
    mut original: Items,
    patch: &[Value],
    key: &str,
) -> Result<(Items, Items), StrategicError> {
    let mut plain = Vec::new();
    let mut replaces = false;
    for item in patch {
        match item
            .get(DIRECTIVE)
            .map(|directive| directive.as_str().unwrap_or_default())
        {
            None => plain.push(item.clone()),
            Some("delete") => {
                require_key(item, key)?;
                original.retain(|existing| !Identity::Key(key).is_same(existing, item));
            }
            Some("replace") => replaces = true,
            Some("merge") => return Err(StrategicError::MergeDirectiveInList),
            Some(other) => {
                return Err(StrategicError::UnknownDirective {
                    directive: other.to_owned(),
                    map: go_text(item),
                });
            }
        }
    }
    Ok(if replaces {
        (plain, Vec::new())
    } else {
        (original, plain)
    })
}

fn require_key(item: &Value, key: &str) -> Result<(), StrategicError> {
    match item.get(key) {
        Some(_) => Ok(()),
        None => Err(StrategicError::NoMergeKey {
            map: go_text(item),
            key: key.to_owned(),
        }),
    }
}

/// The items of the patch in its order, with the server's own among them where the live list had them.
fn in_order(
    merged: Items,
    patch_order: &[Value],
    live_order: &[Value],
    identity: Identity<'_>,
) -> Items {
    let sorted_by = |mut items: Items, order: &[Value]| {
        items.sort_by_key(|item| identity.position(order, item).unwrap_or(usize::MAX));
        items
    };
    let (from_patch, server_only): (Items, Items) = merged
        .into_iter()
        .partition(|item| identity.position(patch_order, item).is_some());
    let (from_patch, server_only) = (
        sorted_by(from_patch, patch_order),
        sorted_by(server_only, live_order),
    );
    let (mut left, mut right) = (
        server_only.into_iter().peekable(),
        from_patch.into_iter().peekable(),
    );
    let mut ordered = Vec::new();
    while let (Some(server), Some(patch)) = (left.peek(), right.peek()) {
        let places = (
            identity.position(live_order, server),
            identity.position(live_order, patch),
        );
        let server_first = matches!(places, (Some(server), Some(patch)) if server < patch);
        ordered.extend(if server_first {
            left.next()
        } else {
            right.next()
        });
    }
    ordered.extend(left);
    ordered.extend(right);
    ordered
}

/// `$deleteFromPrimitiveList/FIELD`.
pub(super) fn delete_values(
    original: &mut Map<String, Value>,
    name: &str,
    values: &Value,
) -> Result<(), StrategicError> {
    let not_a_list = |value: &Value| StrategicError::NotAList {
        field: name.to_owned(),
        value: value.to_string(),
    };
    if values.is_null() {
        original.retain(|field, _| field != name);
        return Ok(());
    }
    let Some(items) = original.get_mut(name) else {
        return Ok(());
    };
    let values = values.as_array().ok_or_else(|| not_a_list(values))?;
    let Value::Array(items) = items else {
        return Ok(());
    };
    items.retain(|item| !values.iter().any(|value| equal(value, item)));
    Ok(())
}

/// Carries out every `$setElementOrder/FIELD`, together with the list of that field, and takes both out of the patch.
pub(super) fn merge_ordered(
    map: Option<MapType<'_>>,
    original: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), StrategicError> {
    let directives: Vec<_> = patch
        .keys()
        .filter(|name| name.starts_with(SET_ORDER))
        .cloned()
        .collect();
    for directive in directives {
        let name = directive
            .strip_prefix(SET_ORDER)
            .and_then(|rest| rest.strip_prefix('/'));
        let name = name.ok_or(StrategicError::BadSetOrder)?.to_owned();
        let order = patch
            .get(&directive)
            .and_then(Value::as_array)
            .cloned()
            .ok_or(StrategicError::BadSetOrder)?;
        patch.retain(|field, _| *field != directive);
        let not_a_list = |value: &Value| StrategicError::NotAList {
            field: name.clone(),
            value: value.to_string(),
        };
        let list = |value: &Value| value.as_array().cloned().ok_or_else(|| not_a_list(value));
        let live = original.get(&name).map(list).transpose()?;
        let patched = patch.get(&name).map(list).transpose()?;
        let (kind, field) = lookup(map, &name)?;
        let key = field.and_then(|field| field.patch.merge_key.as_deref());
        let identity = key.map_or(Identity::Value, Identity::Key);
        check_order(patched.as_deref().unwrap_or_default(), &order, identity)?;
        let merges = field.is_some_and(|field| field.patch.merges);
        let merged = match (&live, &patched) {
            (None, None) => continue,
            (Some(live), None) => live.clone(),
            (None, Some(patched)) => patched.iter().filter_map(without_directives).collect(),
            (Some(live), Some(patched)) if merges => {
                merge(kind, &name, key, live.clone(), patched)?
            }
            (Some(_), Some(patched)) => patched.clone(),
        };
        if live.iter().chain(&patched).all(Vec::is_empty) {
            return Err(StrategicError::NoElements);
        }
        if let Some(key) = key {
            merged
                .iter()
                .chain(&order)
                .try_for_each(|item| require_key(item, key))?;
        }
        let live_order = match (&live, &patched, key) {
            (Some(live), Some(patched), Some(key)) if merges => {
                order_left_behind(live, patched, key)
            }
            _ => live.unwrap_or_default(),
        };
        let ordered = in_order(merged, &order, &live_order, identity);
        original.insert(name.clone(), Value::Array(ordered));
        patch.retain(|field, _| *field != name);
    }
    Ok(())
}

/// The live order as the server sees it after the merge. It deletes and appends in the memory of the live list, which keeps its length: what
/// was deleted makes room for what is new, and the new items then have a place in the live order. Nobody meant this, but it is the order
/// that clients get.
fn order_left_behind(live: &[Value], patch: &[Value], key: &str) -> Items {
    let identity = Identity::Key(key);
    let mut order = live.to_vec();
    let mut length = order.len();
    let directive = |item: &Value| {
        item.get(DIRECTIVE)
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    for item in patch
        .iter()
        .filter(|item| directive(item).as_deref() == Some("delete"))
    {
        while let Some(position) = identity.position(&order[..length], item) {
            length -= 1;
            for index in position..length {
                order[index] = order[index + 1].clone();
            }
        }
    }
    if patch
        .iter()
        .any(|item| directive(item).as_deref() == Some("replace"))
    {
        return order;
    }
    for item in patch.iter().filter(|item| directive(item).is_none()) {
        if length == order.len() {
            break;
        }
        if identity.position(&order[..length], item).is_none() {
            order[length] = item.clone();
            length += 1;
        }
    }
    order
}

/// The items of the patch must be among those of the order, in that order. Deletions may be anywhere; other directives only before the
/// order is used up.
fn check_order(
    patch: &[Value],
    order: &[Value],
    identity: Identity<'_>,
) -> Result<(), StrategicError> {
    let is_deletion = |item: &&Value| {
        item.get(DIRECTIVE)
            .is_some_and(|directive| directive == "delete")
    };
    let mut items = patch.iter().filter(|item| !is_deletion(item)).peekable();
    let mut places = order.iter().peekable();
    if places.peek().is_none() {
        return Ok(());
    }
    while let (Some(item), Some(place)) = (items.peek(), places.peek()) {
        if item.get(DIRECTIVE).is_some() {
            items.next();
            continue;
        }
        if identity.is_same(place, item) {
            items.next();
        }
        places.next();
    }
    if items.peek().is_none() {
        return Ok(());
    }
    let text = |items: &[Value]| go_text(&Value::Array(items.to_vec()));
    Err(StrategicError::OrderMismatch {
        items: text(patch),
        order: text(order),
    })
}
