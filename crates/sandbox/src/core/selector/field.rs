//! Field selectors: `metadata.name=a,status.phase!=Running`, over the few fields that a kind offers.

use serde_json::Value;

use crate::core::error::{Failure, Outcome};
use crate::core::kind::{KindInfo, Source};
use crate::core::meta;

#[derive(Clone, Debug, Default)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    path: Vec<String>,
    value: String,
    equal: bool,
}

impl FieldSelector {
    pub fn parse(text: &str, kind: &KindInfo) -> Outcome<FieldSelector> {
        let mut requirements = Vec::new();
        for term in split_terms(text) {
            if term.is_empty() {
                continue;
            }
            let (name, value, equal) = split_term(&term).ok_or_else(|| {
                Failure::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{term}'"
                ))
            })?;
            requirements.push(Requirement {
                path: resolve(name, kind)?,
                value: unescape(value),
                equal,
            });
        }
        Ok(FieldSelector { requirements })
    }

    /// The name that every match must have, if the selector says so.
    pub fn with_name(mut self, name: &str) -> FieldSelector {
        let path = vec!["metadata".to_owned(), "name".to_owned()];
        self.requirements.push(Requirement {
            path,
            value: name.to_owned(),
            equal: true,
        });
        self
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.requirements.iter().all(|requirement| {
            let path: Vec<&str> = requirement.path.iter().map(String::as_str).collect();
            let found = meta::at(object, &path).map(shown).unwrap_or_default();
            (found == requirement.value) == requirement.equal
        })
    }
}

/// A field's value as a selector writes it.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Splits at commas that are not escaped.
fn split_terms(text: &str) -> Vec<String> {
    let mut terms = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        if character == ',' && !escaped {
            terms.push(String::new());
            continue;
        }
        escaped = character == '\\' && !escaped;
        if let Some(term) = terms.last_mut() {
            term.push(character);
        }
    }
    terms
}

fn split_term(term: &str) -> Option<(&str, &str, bool)> {
    let position = term.find('=')?;
    if position > 0 && term.as_bytes()[position - 1] == b'!' {
        return Some((&term[..position - 1], &term[position + 1..], false));
    }
    let value = &term[position + 1..];
    Some((
        &term[..position],
        value.strip_prefix('=').unwrap_or(value),
        true,
    ))
}

fn unescape(value: &str) -> String {
    let mut plain = String::with_capacity(value.len());
    let mut characters = value.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' => plain.extend(characters.next()),
            other => plain.push(other),
        }
    }
    plain
}

fn resolve(name: &str, kind: &KindInfo) -> Outcome<Vec<String>> {
    let path = |parts: &[&str]| parts.iter().map(|part| (*part).to_owned()).collect();
    if name == "metadata.name"
        || (name == "metadata.namespace" && (kind.is_namespaced() || !kind.is_custom()))
    {
        return Ok(path(&name.split('.').collect::<Vec<_>>()));
    }
    let message = match &kind.source {
        Source::Custom(custom) => {
            if let Some(selectable) = custom
                .selectable
                .iter()
                .find(|selectable| selectable.join(".") == name)
            {
                return Ok(selectable.clone());
            }
            format!("field label not supported: {name}")
        }
        Source::Builtin(row) => {
            if let Some((_, parts)) = row.fields.iter().find(|(label, _)| *label == name) {
                return Ok(path(parts));
            }
            match (row.kind, row.fields.is_empty()) {
                ("Job", _) => format!("field label {name:?} not supported for Job"),
                (_, false) => format!("field label not supported: {name}"),
                (_, true) => format!(
                    "{name:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            }
        }
    };
    Err(Failure::bad_request(message))
}
