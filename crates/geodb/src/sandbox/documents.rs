//! Kubernetes objects read from YAML files: what is a valid document, and how each is called when something is wrong with it.
//!
//! Pure but for reading the file itself; the server is not asked. What the objects mean is the server's to judge.

use std::fmt;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// More than any set of manifests needs, and little enough to refuse a mistaken file (a dump, a log) quickly.
const FILE_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// One object to apply, and where it came from.
#[derive(Clone, Debug)]
pub struct Document {
    pub origin: Origin,
    pub api_version: String,
    pub kind: String,
    pub name: String,
    /// None where the document does not say; the server's scope of the kind decides what that means.
    pub namespace: Option<String>,
    pub content: Value,
}

impl Document {
    /// `Database cities`, as a person would call it.
    pub fn title(&self) -> String {
        format!("{} {}", self.kind, self.name)
    }
}

/// The place to look at when an object is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub file: String,
    /// Counted from 1 over the parts between `---` that are not empty.
    pub document: usize,
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, document {}", self.file, self.document)
    }
}

/// Reads the objects of one file; `-` is standard input.
pub fn read(path: &Path) -> Result<Vec<Document>> {
    if path.as_os_str() == "-" {
        let text =
            read_limited(std::io::stdin().lock()).context("failed to read standard input")?;
        return parse("standard input", &text);
    }
    let name = path.display().to_string();
    let file = std::fs::File::open(path).with_context(|| format!("failed to open {name}"))?;
    let text = read_limited(file).with_context(|| format!("failed to read {name}"))?;
    parse(&name, &text)
}

fn read_limited(reader: impl Read) -> Result<String> {
    let mut text = String::new();
    reader.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    ensure!(
        text.len() as u64 <= FILE_BYTES_MAX,
        "it is larger than {} MiB: not a file of manifests",
        FILE_BYTES_MAX / 1024 / 1024
    );
    Ok(text)
}

/// The objects of a YAML text with any number of documents; `List`s are taken apart, empty documents passed over.
pub fn parse(file: &str, text: &str) -> Result<Vec<Document>> {
    let values: Vec<Value> = serde_saphyr::from_multiple(text)
        .map_err(|error| anyhow::anyhow!("{file} is not valid YAML: {error}"))?;
    let mut documents = Vec::new();
    for (index, value) in values.into_iter().enumerate() {
        let origin = Origin {
            file: file.to_owned(),
            document: index + 1,
        };
        collect(value, &origin, &mut documents).with_context(|| origin.to_string())?;
    }
    Ok(documents)
}

fn collect(value: Value, origin: &Origin, documents: &mut Vec<Document>) -> Result<()> {
    if value.is_null() {
        return Ok(());
    }
    let Value::Object(mut object) = value else {
        bail!(
            "a Kubernetes object is a map with apiVersion, kind and metadata, this is {}",
            kind_of(&value)
        );
    };
    let is_list = object.get("kind").and_then(Value::as_str) == Some("List");
    if is_list {
        let Some(Value::Array(items)) = object.remove("items") else {
            bail!("a List has `items`");
        };
        return items
            .into_iter()
            .try_for_each(|item| collect(item, origin, documents));
    }
    let content = Value::Object(object);
    let api_version = text_at(&content, "/apiVersion", "apiVersion")?;
    let kind = text_at(&content, "/kind", "kind")?;
    if content.pointer("/metadata/generateName").is_some()
        && content.pointer("/metadata/name").is_none()
    {
        bail!(
            "{kind} has generateName: what is applied needs a name, or every start would make another one"
        );
    }
    let name = text_at(&content, "/metadata/name", "metadata.name")?;
    let namespace = match content.pointer("/metadata/namespace") {
        None | Some(Value::Null) => None,
        Some(_) => Some(text_at(
            &content,
            "/metadata/namespace",
            "metadata.namespace",
        )?),
    };
    documents.push(Document {
        origin: origin.clone(),
        api_version,
        kind,
        name,
        namespace,
        content,
    });
    Ok(())
}

fn text_at(content: &Value, pointer: &str, field: &str) -> Result<String> {
    match content.pointer(pointer) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::Number(number)) => bail!("{field} is the number {number}; write it in quotes"),
        Some(Value::String(_) | Value::Null) | None => bail!("{field} is missing"),
        Some(other) => bail!(
            "{field} is {}, it has to be text; quotes make it text",
            kind_of(other)
        ),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_hold_several_objects_and_nothing() {
        let text = "# only a comment\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, metadata: {name: b, namespace: water}}\n- {apiVersion: v1, kind: Secret, metadata: {name: c}}\n";
        let documents = parse("f.yaml", text).unwrap();
        let titles: Vec<String> = documents.iter().map(Document::title).collect();
        assert_eq!(titles, ["ConfigMap a", "Secret b", "Secret c"]);
        assert_eq!(documents[1].namespace.as_deref(), Some("water"));
        assert_eq!(documents[2].namespace, None);
    }

    #[test]
    fn what_is_wrong_is_said_with_file_and_document() {
        let good = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let table = [
            ("kind: X\nmetadata: {name: a}\n", "apiVersion is missing"),
            ("apiVersion: v1\nmetadata: {name: a}\n", "kind is missing"),
            ("apiVersion: v1\nkind: X\n", "metadata.name is missing"),
            (
                "apiVersion: v1\nkind: X\nmetadata: {name: 5}\n",
                "metadata.name is the number 5",
            ),
            (
                "apiVersion: v1\nkind: X\nmetadata: {generateName: a-}\n",
                "generateName",
            ),
            ("apiVersion: v1\nkind: List\n", "a List has `items`"),
            ("- a\n- b\n", "this is a list"),
            ("just words\n", "this is text"),
        ];
        for (second, expected) in table {
            let text = format!("{good}---\n{second}");
            let error = format!("{:#}", parse("f.yaml", &text).unwrap_err());
            assert!(error.contains(expected), "{expected}: {error}");
            assert!(error.contains("f.yaml, document 2"), "{error}");
        }
    }

    #[test]
    fn broken_yaml_names_the_file_and_the_line() {
        let error = format!("{:#}", parse("f.yaml", "a: b\n  c: [d\n").unwrap_err());
        assert!(error.starts_with("f.yaml is not valid YAML"), "{error}");
        assert!(error.contains("line 2") || error.contains(":2"), "{error}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = format!("{:#}", read(Path::new("/nowhere/cities.yaml")).unwrap_err());
        assert!(error.contains("/nowhere/cities.yaml"), "{error}");
    }
}
