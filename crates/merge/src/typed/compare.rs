//! What differs between two values of one type, as sets of fields.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{TypeError, fields, items, list_element};
use crate::field_set::{FieldSet, Path, PathElement, path_text};
use crate::schema::{ListType, MapType, Shape, Type};
use crate::value::equal;

/// No field is in more than one of the three.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub removed: FieldSet,
    pub modified: FieldSet,
    pub added: FieldSet,
}

impl Comparison {
    /// The comparison without these fields and all below them.
    pub fn without(self, ignored: &FieldSet) -> Self {
        Self {
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            added: self.added.recursive_difference(ignored),
        }
    }
}

/// Compares an older value with a newer one. Both must have been checked.
pub(crate) fn compare(
    kind: Type<'_>,
    old: &Value,
    new: &Value,
) -> Result<Comparison, Vec<TypeError>> {
    let mut walker = Walker {
        comparison: Comparison::default(),
        path: Vec::new(),
    };
    walker.value(kind, Some(old), Some(new))?;
    Ok(walker.comparison)
}

struct Walker {
    comparison: Comparison,
    path: Path,
}

/// Whether a value was compared as a whole or field by field.
#[derive(PartialEq, Eq)]
enum Granularity {
    Leaf,
    Parts,
}

impl Walker {
    fn value(
        &mut self,
        kind: Type<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<(), Vec<TypeError>> {
        let (old_shape, new_shape) = (kind.shape(old), kind.shape(new));
        let granularity = match (old, new) {
            (_, None) => self.shape(old_shape, old, new)?,
            (None, Some(_)) => self.shape(new_shape, old, new)?,
            (Some(_), Some(_)) if old_shape.is_like(&new_shape) => {
                self.shape(new_shape, old, new)?
            }
            // What was a map is now a scalar, or the like: the old parts are gone, and the new ones have come.
            (Some(_), Some(_)) => {
                self.shape(old_shape, old, new)?;
                self.shape(new_shape, old, new)?
            }
        };
        if granularity == Granularity::Parts {
            if old.is_none() {
                self.comparison.added.insert(&self.path);
            } else if new.is_none() {
                self.comparison.removed.insert(&self.path);
            }
        }
        Ok(())
    }

    fn shape(
        &mut self,
        shape: Shape<'_>,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<Granularity, Vec<TypeError>> {
        match shape {
            Shape::Scalar(_) => Ok(self.leaf(old, new)),
            Shape::List(list) => {
                let (old_items, new_items) =
                    (old.map_or(&[][..], items), new.map_or(&[][..], items));
                if list.is_atomic() || (old_items.is_empty() && new_items.is_empty()) {
                    return Ok(self.leaf(old, new));
                }
                self.lists(list, old_items, new_items)?;
                Ok(Granularity::Parts)
            }
            Shape::Map(map) => {
                let (old_fields, new_fields) = (fields(old), fields(new));
                if map.is_atomic() || (old_fields.is_empty() && new_fields.is_empty()) {
                    return Ok(self.leaf(old, new));
                }
                self.maps(map, old_fields, new_fields)?;
                Ok(Granularity::Parts)
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> Granularity {
        match (old, new) {
            (None, _) => self.comparison.added.insert(&self.path),
            (_, None) => self.comparison.removed.insert(&self.path),
            (Some(old), Some(new)) if !equal(old, new) => {
                self.comparison.modified.insert(&self.path);
            }
            _ => {}
        }
        Granularity::Leaf
    }

    fn maps(
        &mut self,
        map: MapType<'_>,
        old: &serde_json::Map<String, Value>,
        new: &serde_json::Map<String, Value>,
    ) -> Result<(), Vec<TypeError>> {
        for name in old
            .keys()
            .chain(new.keys().filter(|name| !old.contains_key(*name)))
        {
            let Some(kind) = map.field_type(name) else {
                continue;
            };
            self.path.push(PathElement::field(name));
            self.value(kind, old.get(name), new.get(name))?;
            self.path.pop();
        }
        Ok(())
    }

    fn lists(
        &mut self,
        list: ListType<'_>,
        old: &[Value],
        new: &[Value],
    ) -> Result<(), Vec<TypeError>> {
        let mut pairs: BTreeMap<PathElement, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for item in old {
            pairs
                .entry(self.element(list, item)?)
                .or_default()
                .0
                .push(item);
        }
        for item in new {
            pairs
                .entry(self.element(list, item)?)
                .or_default()
                .1
                .push(item);
        }
        for (element, (old, new)) in pairs {
            self.path.push(element);
            match (old.as_slice(), new.as_slice()) {
                // The usual case: no duplicates.
                ([] | [_], [] | [_]) => {
                    self.value(list.element(), old.first().copied(), new.first().copied())?;
                }
                ([_, _, ..], [_, _, ..]) => {
                    let is_same = old.len() == new.len()
                        && old.iter().zip(&new).all(|(old, new)| equal(old, new));
                    if !is_same {
                        self.comparison.modified.insert(&self.path);
                    }
                }
                // Duplicates are owned as a whole, so what was or becomes single counts as wholly new or gone.
                ([_, _, ..], single) => {
                    if let Some(item) = single.first() {
                        self.value(list.element(), None, Some(item))?;
                    }
                    self.comparison.removed.insert(&self.path);
                }
                (single, [_, _, ..]) => {
                    if let Some(item) = single.first() {
                        self.value(list.element(), Some(item), None)?;
                    }
                    self.comparison.added.insert(&self.path);
                }
            }
            self.path.pop();
        }
        Ok(())
    }

    fn element(&self, list: ListType<'_>, item: &Value) -> Result<PathElement, Vec<TypeError>> {
        list_element(list, item).map_err(|message| {
            vec![TypeError {
                path: path_text(&self.path),
                message,
            }]
        })
    }
}
