//! The JSONPath dialect of printer columns: fields, quoted fields, indexes, wildcards, equality filters on a field.
//!
//! `None` from [`Path::parse`] for anything else (ranges, unions, recursive descent, other operators), so that nobody guesses.

use serde_json::Value;

/// More steps than any sensible column has; bounds the work a definition can cause.
const STEPS_LIMIT: usize = 64;

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    /// Negative counts from the end.
    Index(i64),
    All,
    /// `[?(@.type=="Ready")]`
    Where {
        field: Vec<String>,
        equals: Value,
    },
}

#[derive(Debug, PartialEq)]
pub(super) struct Path {
    steps: Vec<Step>,
}

impl Path {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text
            .strip_prefix('{')
            .and_then(|inner| inner.strip_suffix('}'))
            .unwrap_or(text);
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if steps.len() == STEPS_LIMIT {
                return None;
            }
            rest = match rest.strip_prefix('.') {
                Some(after) if after.starts_with('[') => after,
                Some("") if steps.is_empty() => "",
                Some(after) => {
                    let (name, remainder) = field(after)?;
                    steps.push(if name == "*" {
                        Step::All
                    } else {
                        Step::Field(name)
                    });
                    remainder
                }
                None => {
                    let (inside, remainder) = bracket(rest)?;
                    steps.push(step(inside)?);
                    remainder
                }
            };
        }
        Some(Self { steps })
    }

    /// Every value the path leads to, in order.
    pub(super) fn find<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        self.steps.iter().fold(vec![root], |found, step| {
            found
                .into_iter()
                .flat_map(|value| follow(step, value))
                .collect()
        })
    }
}

/// A field's name up to the next `.` or `[`; `\.` stands for a dot in it.
fn field(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut characters = text.char_indices();
    let mut end = text.len();
    while let Some((index, character)) = characters.next() {
        match character {
            '\\' => name.push(characters.next()?.1),
            '.' | '[' => {
                end = index;
                break;
            }
            other => name.push(other),
        }
    }
    (!name.is_empty()).then(|| (name, &text[end..]))
}

/// What is between a `[` and its `]`, quotes respected, and what comes after.
fn bracket(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('[')?;
    let mut quote = None;
    for (index, character) in inner.char_indices() {
        match (quote, character) {
            (Some(open), _) if open == character => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(character),
            (None, ']') => return Some((&inner[..index], &inner[index + 1..])),
            (None, _) => {}
        }
    }
    None
}

fn step(inside: &str) -> Option<Step> {
    let inside = inside.trim();
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(filter) = inside
        .strip_prefix("?(")
        .and_then(|filter| filter.strip_suffix(')'))
    {
        let (left, right) = filter.split_once("==")?;
        let path = Path::parse(left.trim().strip_prefix('@')?)?;
        let name = |step: &Step| match step {
            Step::Field(name) => Some(name.clone()),
            _ => None,
        };
        let field = path.steps.iter().map(name).collect::<Option<Vec<_>>>()?;
        return Some(Step::Where {
            field,
            equals: literal(right.trim())?,
        });
    }
    match quoted(inside) {
        Some(name) => Some(Step::Field(name.to_owned())),
        None => inside.parse().ok().map(Step::Index),
    }
}

fn quoted(text: &str) -> Option<&str> {
    let quote = text
        .chars()
        .next()
        .filter(|character| matches!(character, '\'' | '"'))?;
    text[1..]
        .strip_suffix(quote)
        .filter(|inner| !inner.contains(quote))
}

fn literal(text: &str) -> Option<Value> {
    match quoted(text) {
        Some(inner) => Some(inner.into()),
        None => serde_json::from_str(text)
            .ok()
            .filter(|value: &Value| !value.is_object() && !value.is_array()),
    }
}

fn follow<'a>(step: &Step, value: &'a Value) -> Vec<&'a Value> {
    match step {
        Step::Field(name) => value.get(name).into_iter().collect(),
        Step::Index(index) => {
            let Some(list) = value.as_array() else {
                return Vec::new();
            };
            let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
            let position = if *index < 0 {
                length.saturating_add(*index)
            } else {
                *index
            };
            usize::try_from(position)
                .ok()
                .and_then(|position| list.get(position))
                .into_iter()
                .collect()
        }
        Step::All => match value {
            Value::Array(list) => list.iter().collect(),
            Value::Object(map) => map.values().collect(),
            _ => Vec::new(),
        },
        Step::Where { field, equals } => {
            let Some(list) = value.as_array() else {
                return Vec::new();
            };
            let matches = |entry: &&Value| {
                field
                    .iter()
                    .try_fold(*entry, |value, name| value.get(name))
                    .is_some_and(|found| found == equals)
            };
            list.iter().filter(matches).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_find_what_columns_ask_for() {
        let object = json!({
            "metadata": {"labels": {"a.b/c": "dotted"}},
            "status": {"ready": 2, "list": [1, 2, 3], "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Degraded", "status": "False"}]},
        });
        for (path, expected) in [
            (".status.ready", vec![json!(2)]),
            ("$.status.ready", vec![json!(2)]),
            ("{.status.ready}", vec![json!(2)]),
            (".status.list[0]", vec![json!(1)]),
            (".status.list[-1]", vec![json!(3)]),
            (".status.list[*]", vec![json!(1), json!(2), json!(3)]),
            (".status.list[9]", vec![]),
            (".status.absent.deeper", vec![]),
            (".metadata.labels['a.b/c']", vec![json!("dotted")]),
            (".metadata.labels.a\\.b/c", vec![json!("dotted")]),
            (
                ".status.conditions[?(@.type==\"Ready\")].status",
                vec![json!("True")],
            ),
            (
                ".status.conditions[?(@.type=='Degraded')].status",
                vec![json!("False")],
            ),
        ] {
            let parsed = Path::parse(path).unwrap_or_else(|| panic!("{path}"));
            let found = parsed
                .find(&object)
                .into_iter()
                .cloned()
                .collect::<Vec<_>>();
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn what_it_cannot_do_is_not_guessed() {
        for path in [
            "..name",
            ".a[0:2]",
            ".a[0,1]",
            ".a[?(@.b>1)]",
            ".a[",
            "a b[",
            ".a..b",
            ".a[?(@.b==)]",
        ] {
            assert_eq!(Path::parse(path), None, "{path}");
        }
    }
}
