//! Which schemas a definition may have: structural ones, and of those what this server does right.

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

use super::validate::{Patterns, validate};
use super::{flag, preserves_unknown};
use crate::core::error::Cause;

/// Levels of nesting of a schema; real ones stay below twenty.
const SCHEMA_LEVELS: usize = 64;

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Words of OpenAPI that a structural schema may not use, with a real server's reason.
const FORBIDDEN: [(&str, &str); 9] = [
    ("$ref", "$ref is not supported"),
    ("definitions", "definitions is not supported"),
    ("dependencies", "dependencies is not supported"),
    ("deprecated", "deprecated is not supported"),
    ("discriminator", "discriminator is not supported"),
    ("id", "id is not supported"),
    ("patternProperties", "patternProperties is not supported"),
    ("readOnly", "readOnly is not supported"),
    ("writeOnly", "writeOnly is not supported"),
];

/// Formats whose check is not written yet; accepting them would accept what a real server refuses.
const UNCHECKED_FORMATS: [&str; 16] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "cidr",
    "mac",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "duration",
];

/// Words that only say which values are valid; inside `anyOf` and its like nothing else may be said.
const STRUCTURE_ONLY: [&str; 8] = [
    "type",
    "additionalProperties",
    "default",
    "nullable",
    "title",
    "description",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-list-type",
];

/// Every pattern in a schema, compiled. Patterns that do not compile are reported by [`check`].
pub fn patterns(schema: &Value) -> Patterns {
    let mut patterns = HashMap::new();
    collect_patterns(schema, &mut patterns);
    patterns
}

fn collect_patterns(schema: &Value, patterns: &mut Patterns) {
    match schema {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(pattern) if key == "pattern" => {
                        if let Ok(regex) = Regex::new(pattern) {
                            patterns.insert(pattern.clone(), regex);
                        }
                    }
                    other => collect_patterns(other, patterns),
                }
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_patterns(item, patterns)),
        _ => {}
    }
}

/// Why a schema is not accepted; `field` is where it stands in its definition.
pub fn check(schema: &Value, field: &str) -> Vec<Cause> {
    let patterns = patterns(schema);
    let mut checker = Checker {
        causes: Vec::new(),
        patterns: &patterns,
    };
    if schema.get("type") != Some(&"object".into()) {
        let shown = schema.get("type").cloned().unwrap_or_else(|| "".into());
        checker.causes.push(Cause::invalid(
            format!("{field}.type"),
            &shown,
            "must be object at the root",
        ));
    }
    checker.check(schema, field, 0);
    checker.causes
}

struct Checker<'a> {
    causes: Vec<Cause>,
    patterns: &'a Patterns,
}

impl Checker<'_> {
    fn check(&mut self, schema: &Value, field: &str, level: usize) {
        if level > SCHEMA_LEVELS {
            self.causes.push(Cause::forbidden(
                field,
                &format!("this sandbox takes schemas of up to {SCHEMA_LEVELS} levels"),
            ));
            return;
        }
        self.check_words(schema, field);
        self.check_type(schema, field);
        self.check_values(schema, field);
        self.check_list(schema, field);
        for (key, property) in schema
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.check(property, &format!("{field}.properties[{key}]"), level + 1);
        }
        if let Some(items) = schema.get("items") {
            if items.is_array() {
                self.causes.push(Cause::forbidden(
                    format!("{field}.items"),
                    "items must be a schema object and not an array",
                ));
            } else {
                self.check(items, &format!("{field}.items"), level + 1);
            }
        }
        self.check_additional(schema, field, level);
        for key in ["allOf", "anyOf", "oneOf"] {
            for (index, branch) in schema
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
            {
                self.check_branch(
                    branch,
                    &format!("{field}.{key}[{index}]"),
                    flag(schema, "x-kubernetes-int-or-string"),
                    level + 1,
                );
            }
        }
        if let Some(branch) = schema.get("not") {
            self.check_branch(branch, &format!("{field}.not"), false, level + 1);
        }
    }

    fn check_additional(&mut self, schema: &Value, field: &str, level: usize) {
        match schema.get("additionalProperties") {
            Some(additional @ Value::Object(_)) => {
                if schema
                    .get("properties")
                    .and_then(Value::as_object)
                    .is_some_and(|properties| !properties.is_empty())
                {
                    self.causes.push(Cause::forbidden(
                        format!("{field}.additionalProperties"),
                        "additionalProperties and properties are mutual exclusive",
                    ));
                }
                self.check(
                    additional,
                    &format!("{field}.additionalProperties"),
                    level + 1,
                );
            }
            Some(Value::Bool(false)) => {
                self.causes.push(Cause::forbidden(
                    format!("{field}.additionalProperties"),
                    "additionalProperties cannot be set to false",
                ));
            }
            _ => {}
        }
    }

    fn check_words(&mut self, schema: &Value, field: &str) {
        for (word, reason) in FORBIDDEN {
            if schema
                .get(word)
                .is_some_and(|value| !value.is_null() && value != &Value::Bool(false))
            {
                self.causes
                    .push(Cause::forbidden(format!("{field}.{word}"), reason));
            }
        }
        if flag(schema, "uniqueItems") {
            let reason =
                "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
            self.causes
                .push(Cause::forbidden(format!("{field}.uniqueItems"), reason));
        }
        if schema
            .get("x-kubernetes-validations")
            .and_then(Value::as_array)
            .is_some_and(|rules| !rules.is_empty())
        {
            let reason = "this sandbox evaluates no CEL rules yet, and a rule that is stored but never checked would pretend it is";
            self.causes.push(Cause::forbidden(
                format!("{field}.x-kubernetes-validations"),
                reason,
            ));
        }
        if flag(schema, "x-kubernetes-embedded-resource") {
            let reason = "this sandbox does not check embedded resources yet";
            self.causes.push(Cause::forbidden(
                format!("{field}.x-kubernetes-embedded-resource"),
                reason,
            ));
        }
        if let Some(format) = schema.get("format").and_then(Value::as_str)
            && UNCHECKED_FORMATS.contains(&format)
        {
            let reason =
                format!("this sandbox does not check the format {format:?} yet; use a pattern");
            self.causes
                .push(Cause::forbidden(format!("{field}.format"), &reason));
        }
    }

    fn check_type(&mut self, schema: &Value, field: &str) {
        let kind = schema
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        if kind.is_empty() {
            if !flag(schema, "x-kubernetes-int-or-string") && !preserves_unknown(schema) {
                self.causes.push(Cause::required(
                    format!("{field}.type"),
                    "must not be empty for specified object fields",
                ));
            }
        } else if !TYPES.contains(&kind) {
            self.causes.push(Cause::not_supported(
                format!("{field}.type"),
                &kind.into(),
                &TYPES,
            ));
        } else if flag(schema, "x-kubernetes-int-or-string") {
            let reason = "must be empty if x-kubernetes-int-or-string is true";
            self.causes.push(Cause::invalid(
                format!("{field}.type"),
                &kind.into(),
                reason,
            ));
        }
        if kind == "array" && schema.get("items").is_none() {
            self.causes.push(Cause::required(
                format!("{field}.items"),
                "must be specified",
            ));
        }
    }

    fn check_values(&mut self, schema: &Value, field: &str) {
        if let Some(pattern) = schema.get("pattern").and_then(Value::as_str)
            && let Err(error) = Regex::new(pattern)
        {
            let reason = format!("must be a valid regular expression, but isn't: {error}");
            self.causes.push(Cause::invalid(
                format!("{field}.pattern"),
                &pattern.into(),
                &reason,
            ));
        }
        if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
            let mut pruned = default.clone();
            let mut removed = Vec::new();
            super::prune::prune(&mut pruned, schema, "", &mut removed);
            if !removed.is_empty() {
                self.causes.push(Cause::invalid(
                    format!("{field}.default"),
                    default,
                    "must not have unknown fields",
                ));
            }
            for cause in validate(default, schema, "", self.patterns) {
                let at = if cause.field == "<nil>" {
                    format!("{field}.default")
                } else {
                    format!("{field}.default.{}", cause.field)
                };
                self.causes.push(Cause { field: at, ..cause });
            }
        }
    }

    fn check_list(&mut self, schema: &Value, field: &str) {
        let Some(list_type) = schema.get("x-kubernetes-list-type").and_then(Value::as_str) else {
            return;
        };
        if !["atomic", "set", "map"].contains(&list_type) {
            self.causes.push(Cause::not_supported(
                format!("{field}.x-kubernetes-list-type"),
                &list_type.into(),
                &["atomic", "set", "map"],
            ));
        }
        if schema.get("type") != Some(&"array".into()) {
            let reason = "must be array if x-kubernetes-list-type is specified";
            self.causes.push(Cause::invalid(
                format!("{field}.type"),
                &schema.get("type").cloned().unwrap_or_else(|| "".into()),
                reason,
            ));
        }
        if list_type != "map" {
            return;
        }
        let keys: Vec<&str> = schema
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        if keys.is_empty() {
            let reason = "must not be empty if x-kubernetes-list-type is map";
            self.causes.push(Cause::required(
                format!("{field}.x-kubernetes-list-map-keys"),
                reason,
            ));
        }
        let items = schema.get("items").cloned().unwrap_or_default();
        let required: Vec<&str> = items
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        for key in keys {
            match items
                .get("properties")
                .and_then(|properties| properties.get(key))
            {
                None => {
                    let reason = "entries must all be names of item properties";
                    self.causes.push(Cause::invalid(
                        format!("{field}.x-kubernetes-list-map-keys"),
                        &key.into(),
                        reason,
                    ));
                }
                Some(property) if property.get("default").is_none() && !required.contains(&key) => {
                    let reason = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    self.causes.push(Cause::required(
                        format!("{field}.items.properties[{key}].default"),
                        reason,
                    ));
                }
                Some(_) => {}
            }
        }
    }

    /// Inside `anyOf` and its like only values may be judged; the structure is the outer schema's.
    fn check_branch(&mut self, branch: &Value, field: &str, in_int_or_string: bool, level: usize) {
        if level > SCHEMA_LEVELS {
            self.causes.push(Cause::forbidden(
                field,
                &format!("this sandbox takes schemas of up to {SCHEMA_LEVELS} levels"),
            ));
            return;
        }
        for word in STRUCTURE_ONLY {
            let allowed = word == "type"
                && in_int_or_string
                && [Some("integer"), Some("string")]
                    .contains(&branch.get("type").and_then(Value::as_str));
            if branch.get(word).is_some() && !allowed {
                self.causes.push(Cause::forbidden(
                    format!("{field}.{word}"),
                    "must be empty to be structural",
                ));
            }
        }
        self.check_words(branch, field);
        for (key, property) in branch
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            self.check_branch(
                property,
                &format!("{field}.properties[{key}]"),
                false,
                level + 1,
            );
        }
        if let Some(items) = branch.get("items") {
            self.check_branch(items, &format!("{field}.items"), false, level + 1);
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            for (index, inner) in branch
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
            {
                self.check_branch(
                    inner,
                    &format!("{field}.{key}[{index}]"),
                    in_int_or_string,
                    level + 1,
                );
            }
        }
        if let Some(not) = branch.get("not") {
            self.check_branch(not, &format!("{field}.not"), false, level + 1);
        }
    }
}
