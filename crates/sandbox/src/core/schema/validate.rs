//! Checks a value against a schema, with a real server's sentences and causes.

use std::collections::HashMap;

use regex::Regex;
use serde_json::Value;

use super::{flag, join};
use crate::core::error::{Cause, CauseReason};
use crate::core::limits;

/// Compiled patterns by their text; made once per definition.
pub type Patterns = HashMap<String, Regex>;

pub struct Validator<'a> {
    pub patterns: &'a Patterns,
    causes: Vec<Cause>,
}

/// All causes for which a value is not what the schema says.
pub fn validate(value: &Value, schema: &Value, path: &str, patterns: &Patterns) -> Vec<Cause> {
    let mut validator = Validator {
        patterns,
        causes: Vec::new(),
    };
    validator.check(value, schema, path);
    validator.causes
}

/// The type's name as messages show it.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number)
            if number.is_f64() && number.as_f64().is_some_and(|float| float.fract() != 0.0) =>
        {
            "number"
        }
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn shown_path(path: &str) -> &str {
    if path.is_empty() { "<nil>" } else { path }
}

impl Validator<'_> {
    fn push(&mut self, cause: Cause) {
        if self.causes.len() < limits::CAUSES {
            self.causes.push(cause);
        }
    }

    fn invalid(&mut self, path: &str, value: &Value, rule: &str) {
        self.push(Cause::invalid(
            shown_path(path),
            value,
            &format!("{path} in body {rule}"),
        ));
    }

    fn check(&mut self, value: &Value, schema: &Value, path: &str) {
        if value.is_null() && flag(schema, "nullable") {
            return;
        }
        if !self.check_type(value, schema, path) {
            self.check_combinations(value, schema, path);
            return;
        }
        self.check_enum(value, schema, path);
        match value {
            Value::String(text) => self.check_string(text, value, schema, path),
            Value::Number(number) => {
                self.check_number(number.as_f64().unwrap_or_default(), value, schema, path);
            }
            Value::Array(items) => self.check_list(items, value, schema, path),
            Value::Object(_) => self.check_map(value, schema, path),
            Value::Null | Value::Bool(_) => {}
        }
        self.check_combinations(value, schema, path);
    }

    /// Whether the type fits; the rest is not worth checking if not.
    fn check_type(&mut self, value: &Value, schema: &Value, path: &str) -> bool {
        let actual = type_of(value);
        if flag(schema, "x-kubernetes-int-or-string") {
            if matches!(actual, "integer" | "string") {
                return true;
            }
            let rule = format!("{path} in body must be of type integer,string: {actual:?}");
            self.push(Cause::type_invalid(shown_path(path), &actual.into(), &rule));
            return false;
        }
        let Some(expected) = schema
            .get("type")
            .and_then(Value::as_str)
            .filter(|expected| !expected.is_empty())
        else {
            return true;
        };
        if actual == expected || (expected == "number" && actual == "integer") {
            return true;
        }
        let rule = format!("{path} in body must be of type {expected}: {actual:?}");
        self.push(Cause::type_invalid(shown_path(path), &actual.into(), &rule));
        false
    }

    fn check_enum(&mut self, value: &Value, schema: &Value, path: &str) {
        let Some(allowed) = schema.get("enum").and_then(Value::as_array) else {
            return;
        };
        if allowed.contains(value) {
            return;
        }
        let shown: Vec<String> = allowed
            .iter()
            .map(|word| {
                word.as_str()
                    .map_or_else(|| word.to_string(), str::to_owned)
            })
            .collect();
        let words: Vec<&str> = shown.iter().map(String::as_str).collect();
        self.push(Cause::not_supported(shown_path(path), value, &words));
    }

    fn check_string(&mut self, text: &str, value: &Value, schema: &Value, path: &str) {
        let characters = text.chars().count() as u64;
        if let Some(maximum) = schema.get("maxLength").and_then(Value::as_u64)
            && characters > maximum
        {
            self.push(Cause::new(
                CauseReason::TooLong,
                shown_path(path),
                format!("Too long: may not be more than {maximum} bytes"),
            ));
        }
        if let Some(minimum) = schema.get("minLength").and_then(Value::as_u64)
            && characters < minimum
        {
            self.invalid(
                path,
                value,
                &format!("should be at least {minimum} chars long"),
            );
        }
        if let Some(pattern) = schema
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|pattern| !pattern.is_empty())
            && self
                .patterns
                .get(pattern)
                .is_none_or(|regex| !regex.is_match(text))
        {
            self.invalid(path, value, &format!("should match '{pattern}'"));
        }
        if let Some(format) = schema.get("format").and_then(Value::as_str)
            && !format_fits(format, text)
        {
            let rule = format!("{path} in body must be of type {format}: {text:?}");
            self.push(Cause::type_invalid(shown_path(path), value, &rule));
        }
    }

    fn check_number(&mut self, number: f64, value: &Value, schema: &Value, path: &str) {
        if let Some(minimum) = schema.get("minimum").and_then(Value::as_f64) {
            let exclusive = flag(schema, "exclusiveMinimum");
            if number < minimum || (exclusive && number <= minimum) {
                let words = if exclusive {
                    "should be greater than"
                } else {
                    "should be greater than or equal to"
                };
                self.invalid(path, value, &format!("{words} {minimum}"));
            }
        }
        if let Some(maximum) = schema.get("maximum").and_then(Value::as_f64) {
            let exclusive = flag(schema, "exclusiveMaximum");
            if number > maximum || (exclusive && number >= maximum) {
                let words = if exclusive {
                    "should be less than"
                } else {
                    "should be less than or equal to"
                };
                self.invalid(path, value, &format!("{words} {maximum}"));
            }
        }
        if let Some(factor) = schema
            .get("multipleOf")
            .and_then(Value::as_f64)
            .filter(|factor| *factor > 0.0)
            && (number / factor).fract() != 0.0
        {
            self.invalid(path, value, &format!("should be a multiple of {factor}"));
        }
        let out_of_range = match schema.get("format").and_then(Value::as_str) {
            Some("int32") => number < f64::from(i32::MIN) || number > f64::from(i32::MAX),
            Some("int64") => {
                value.as_i64().is_none()
                    && value
                        .as_f64()
                        .is_none_or(|float| float.fract() != 0.0 || float.abs() > i64::MAX as f64)
            }
            _ => false,
        };
        if out_of_range {
            let format = schema
                .get("format")
                .and_then(Value::as_str)
                .unwrap_or_default();
            self.invalid(path, value, &format!("must be of type {format}: {value}"));
        }
    }

    fn check_list(&mut self, items: &[Value], value: &Value, schema: &Value, path: &str) {
        if let Some(maximum) = schema.get("maxItems").and_then(Value::as_u64)
            && items.len() as u64 > maximum
        {
            self.push(Cause::too_many(shown_path(path), items.len(), maximum));
        }
        if let Some(minimum) = schema.get("minItems").and_then(Value::as_u64)
            && (items.len() as u64) < minimum
        {
            self.invalid(
                path,
                &items.len().into(),
                &format!("should have at least {minimum} items"),
            );
        }
        self.check_list_type(value, schema, path);
        if let Some(item_schema) = schema.get("items") {
            for (index, item) in items.iter().enumerate() {
                self.check(item, item_schema, &format!("{path}[{index}]"));
            }
        }
    }

    /// `set` and `map` lists have no two equal items, or none with equal keys.
    fn check_list_type(&mut self, list: &Value, schema: &Value, path: &str) {
        let Some(items) = list.as_array() else { return };
        let keys: Option<Vec<&str>> =
            match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                Some("set") => None,
                Some("map") => {
                    let keys = schema
                        .get("x-kubernetes-list-map-keys")
                        .and_then(Value::as_array);
                    Some(
                        keys.map(|keys| keys.iter().filter_map(Value::as_str).collect())
                            .unwrap_or_default(),
                    )
                }
                _ => return,
            };
        let mut seen: Vec<Value> = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let identity = match &keys {
                None => item.clone(),
                Some(keys) => keys
                    .iter()
                    .filter_map(|key| item.get(key).map(|part| ((*key).to_owned(), part.clone())))
                    .collect(),
            };
            if seen.contains(&identity) {
                self.push(Cause::duplicate(format!("{path}[{index}]"), &identity));
            } else {
                seen.push(identity);
            }
        }
    }

    fn check_map(&mut self, value: &Value, schema: &Value, path: &str) {
        let Some(map) = value.as_object() else { return };
        if let Some(maximum) = schema.get("maxProperties").and_then(Value::as_u64)
            && map.len() as u64 > maximum
        {
            self.push(Cause::too_many(shown_path(path), map.len(), maximum));
        }
        if let Some(minimum) = schema.get("minProperties").and_then(Value::as_u64)
            && (map.len() as u64) < minimum
        {
            self.invalid(
                path,
                &map.len().into(),
                &format!("should have at least {minimum} properties"),
            );
        }
        for name in schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            if !map.contains_key(name) {
                self.push(Cause::required(join(path, name), ""));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        for (key, field) in map {
            if let Some(property) = properties.and_then(|properties| properties.get(key)) {
                self.check(field, property, &join(path, key));
            } else if let Some(additional) = schema
                .get("additionalProperties")
                .filter(|additional| additional.is_object())
            {
                self.check(field, additional, &join(path, key));
            }
        }
    }

    fn check_combinations(&mut self, value: &Value, schema: &Value, path: &str) {
        let branches = |key: &str| schema.get(key).and_then(Value::as_array);
        if let Some(any) = branches("anyOf").filter(|any| !any.is_empty())
            && self.fitting(value, any, path) == 0
        {
            self.combined(&format!(
                "{path:?} must validate at least one schema (anyOf)"
            ));
            self.first_of(value, any, path);
        }
        if let Some(one) = branches("oneOf").filter(|one| !one.is_empty()) {
            let rule = format!("{path:?} must validate one and only one schema (oneOf). Found");
            match self.fitting(value, one, path) {
                1 => {}
                0 => {
                    self.combined(&format!("{rule} none valid"));
                    self.first_of(value, one, path);
                }
                several => self.combined(&format!("{rule} {several} valid alternatives")),
            }
        }
        for branch in branches("allOf").into_iter().flatten() {
            for cause in validate(value, branch, path, self.patterns) {
                self.push(cause);
            }
        }
        if let Some(not) = schema.get("not")
            && validate(value, not, path, self.patterns).is_empty()
        {
            self.combined(&format!("{path:?} must not validate the schema (not)"));
        }
    }

    fn fitting(&self, value: &Value, branches: &[Value], path: &str) -> usize {
        let fits = |branch: &&Value| validate(value, branch, path, self.patterns).is_empty();
        branches.iter().filter(fits).count()
    }

    /// A real server gives these no field and no value.
    fn combined(&mut self, rule: &str) {
        self.push(Cause::invalid("<nil>", &"".into(), rule));
    }

    /// Of branches that all fail, the first explains itself.
    fn first_of(&mut self, value: &Value, branches: &[Value], path: &str) {
        let first = branches
            .first()
            .map(|branch| validate(value, branch, path, self.patterns));
        for cause in first.unwrap_or_default() {
            self.push(cause);
        }
    }
}

/// Formats that are checked; the others were refused with the definition or mean nothing to a real server either.
fn format_fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "uuid" => uuid::Uuid::parse_str(text).is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "byte" => base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text).is_ok(),
        _ => true,
    }
}
