//! From bytes to an object of a kind: format, kind, types, unknown and duplicate fields.

use std::cell::RefCell;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::error::{Cause, Failure, Named, Outcome, Reason};
use super::kind::{KindInfo, Source};
use super::request::Request;

/// What a client wants done about fields that the kind does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl FieldValidation {
    /// `options` is the kind that messages name: `CreateOptions`, `PatchOptions`.
    pub fn of(request: &Request, options: &'static str) -> Outcome<FieldValidation> {
        match request.parameter("fieldValidation").unwrap_or_default() {
            "" | "Warn" => Ok(FieldValidation::Warn),
            "Ignore" => Ok(FieldValidation::Ignore),
            "Strict" => Ok(FieldValidation::Strict),
            other => {
                let cause = Cause::not_supported(
                    "fieldValidation",
                    &other.into(),
                    &["", "Ignore", "Strict", "Warn"],
                );
                Err(Failure::invalid(
                    &Named {
                        group: "meta.k8s.io",
                        kind: options,
                        name: "",
                    },
                    vec![cause],
                ))
            }
        }
    }
}

/// A document and the keys that it says twice (the last one counts).
#[derive(Debug)]
pub struct Document {
    pub value: Value,
    pub duplicates: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Json,
    Yaml,
}

/// The format of an object in a body. A client that does not say means JSON.
pub fn format(request: &Request) -> Outcome<Format> {
    match request.content_type.as_str() {
        "" | "application/json" => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        _ => Err(Failure::new(
            415,
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml",
        )),
    }
}

/// Parses a document; the error is the parser's sentence.
pub fn parse(bytes: &[u8], format: Format) -> Result<Document, String> {
    let duplicates = RefCell::new(Vec::new());
    let seed = ValueSeed {
        path: String::new(),
        duplicates: &duplicates,
    };
    let value = match format {
        Format::Json => {
            let mut deserializer = serde_json::Deserializer::from_slice(bytes);
            seed.deserialize(&mut deserializer)
                .and_then(|value| deserializer.end().map(|()| value))
                .map_err(|error| {
                    if error.is_eof() {
                        "unexpected end of JSON input".to_owned()
                    } else {
                        error.to_string()
                    }
                })?
        }
        Format::Yaml => {
            let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
            // YAML refuses a key that is there twice by itself.
            serde_saphyr::from_str::<Value>(text).map_err(|error| error.to_string())?
        }
    };
    Ok(Document {
        value,
        duplicates: duplicates.into_inner(),
    })
}

struct ValueSeed<'a> {
    path: String,
    duplicates: &'a RefCell<Vec<String>>,
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            let seed = ValueSeed {
                path: format!("{}[{}]", self.path, items.len()),
                duplicates: self.duplicates,
            };
            match access.next_element_seed(seed)? {
                Some(item) => items.push(item),
                None => return Ok(Value::Array(items)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            if key.len() > usize::from(u16::MAX) {
                return Err(A::Error::custom("a key is longer than 65535 bytes"));
            }
            let path = join(&self.path, &key);
            if map.contains_key(&key) {
                self.duplicates.borrow_mut().push(path.clone());
            }
            let value = access.next_value_seed(ValueSeed {
                path,
                duplicates: self.duplicates,
            })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// The object in a request's body, as one of `kind`: kind checked, types checked, unknown fields gone and reported.
pub fn object(
    request: &Request,
    kind: &KindInfo,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Outcome<Value> {
    let format = format(request)?;
    let document =
        parse(&request.body, format).map_err(|error| unrecognized(kind, &error, &request.body))?;
    let Document {
        mut value,
        duplicates,
    } = document;
    if !value.is_object() {
        return Err(unrecognized(
            kind,
            "the document is not an object",
            &request.body,
        ));
    }
    check_kind(&mut value, kind, &request.body)?;
    canonical(&value, kind, validation, &duplicates, warnings)
}

fn unrecognized(kind: &KindInfo, error: &str, body: &[u8]) -> Box<Failure> {
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {error} ({})",
        kind.kind,
        excerpt(body)
    ))
}

/// Enough of a body to recognise it by.
fn excerpt(body: &[u8]) -> String {
    const CHARACTERS: usize = 30;
    if body.is_empty() {
        return "<empty>".to_owned();
    }
    let text = String::from_utf8_lossy(&body[..body.len().min(4 * CHARACTERS)]);
    let start: String = text.chars().take(CHARACTERS).collect();
    if start.len() < body.len() {
        format!("{start} ...")
    } else {
        start
    }
}

/// Built-in kinds take their kind from the path if the body has none; custom resources must say it.
pub fn check_kind(value: &mut Value, kind: &KindInfo, body: &[u8]) -> Outcome<()> {
    for (key, shown, expected) in [
        ("kind", "Kind", kind.kind.clone()),
        ("apiVersion", "apiVersion", kind.api_version()),
    ] {
        if value
            .get(key)
            .and_then(Value::as_str)
            .is_some_and(|text| !text.is_empty())
        {
            continue;
        }
        if kind.is_custom() {
            let text = String::from_utf8_lossy(body);
            let whole: String = text.chars().take(1024).collect();
            let message = format!(
                "the object provided is unrecognized (must be of type {}): Object '{shown}' is missing in '{whole}' ({})",
                kind.kind,
                excerpt(body)
            );
            return Err(Failure::bad_request(message));
        }
        value[key] = expected.into();
    }
    let said_kind = value["kind"].as_str().unwrap_or_default();
    let said_version = value["apiVersion"].as_str().unwrap_or_default();
    if said_kind == kind.kind && said_version == kind.api_version() {
        return Ok(());
    }
    let version = said_version.rsplit('/').next().unwrap_or_default();
    let message = if kind.is_custom() || said_kind == kind.kind {
        format!(
            "the API version in the data ({said_version}) does not match the expected API version ({}) of a {}, or its kind {said_kind} is another",
            kind.api_version(),
            kind.kind
        )
    } else {
        format!(
            "{said_kind} in version {version:?} cannot be handled as a {}: converting ({version}.{said_kind}) to ({}.{}): unknown conversion",
            kind.kind,
            if kind.group.is_empty() {
                "core"
            } else {
                kind.group.split('.').next().unwrap_or_default()
            },
            kind.kind
        )
    };
    Err(Failure::bad_request(message))
}

/// Types checked, unknown fields and nulls dropped, as decoding into the API's own types does; custom resources are pruned by their schema.
pub fn canonical(
    value: &Value,
    kind: &KindInfo,
    validation: FieldValidation,
    duplicates: &[String],
    warnings: &mut Vec<String>,
) -> Outcome<Value> {
    let mut problems: Vec<String> = duplicates
        .iter()
        .map(|field| format!("duplicate field {field:?}"))
        .collect();
    let mut clean = match &kind.source {
        Source::Builtin(row) => {
            (row.canonical)(value.clone()).map_err(|error| mistyped(kind, &error))?
        }
        Source::Custom(_) => {
            canonical_custom(value.clone()).map_err(|error| mistyped(kind, &error))?
        }
    };
    let mut unknown = Vec::new();
    if validation != FieldValidation::Ignore {
        unknown_fields(value, &clean, "", &mut unknown);
    }
    if let Source::Custom(custom) = &kind.source {
        custom.prune(&mut clean, &mut unknown);
    }
    problems.extend(
        unknown
            .iter()
            .map(|field| format!("unknown field {field:?}")),
    );
    if validation != FieldValidation::Ignore {
        report(kind, problems, validation, warnings)?;
    }
    Ok(clean)
}

fn canonical_custom(mut value: Value) -> Result<Value, serde_json::Error> {
    if let Some(metadata) = value.get_mut("metadata") {
        let typed: Option<ObjectMeta> = serde_json::from_value(metadata.take())?;
        *metadata = serde_json::to_value(typed.unwrap_or_default())?;
    }
    Ok(value)
}

fn mistyped(kind: &KindInfo, error: &serde_json::Error) -> Box<Failure> {
    Failure::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: json: {error}",
        kind.kind, kind.version, kind.kind
    ))
}

fn report(
    kind: &KindInfo,
    problems: Vec<String>,
    validation: FieldValidation,
    warnings: &mut Vec<String>,
) -> Outcome<()> {
    if problems.is_empty() {
        return Ok(());
    }
    if validation == FieldValidation::Strict {
        let list = problems.join(", ");
        let message = format!(
            "{} in version {:?} cannot be handled as a {}: strict decoding error: {list}",
            kind.kind, kind.version, kind.kind
        );
        return Err(Failure::bad_request(message));
    }
    warnings.extend(problems);
    Ok(())
}

/// What was in the document and is not in its decoded form. Nulls mean absent and are not missed.
fn unknown_fields(given: &Value, kept: &Value, path: &str, unknown: &mut Vec<String>) {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            for (key, value) in given {
                match kept.get(key) {
                    Some(counterpart) => {
                        unknown_fields(value, counterpart, &join(path, key), unknown);
                    }
                    None if value.is_null() => {}
                    None => unknown.push(join(path, key)),
                }
            }
        }
        (Value::Array(given), Value::Array(kept)) => {
            for (index, (value, counterpart)) in given.iter().zip(kept).enumerate() {
                unknown_fields(value, counterpart, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}
