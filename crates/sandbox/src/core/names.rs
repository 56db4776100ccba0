//! Rules for names, label keys and values, and the sentences in which a real server states them.

const SUBDOMAIN_SENTENCE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_SENTENCE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SERVICE_SENTENCE: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const QUALIFIED_SENTENCE: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_SENTENCE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const CONFIG_KEY_SENTENCE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

const SUBDOMAIN_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

fn is_lower(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            is_lower(*first)
                && is_lower(*last)
                && bytes.iter().all(|byte| is_lower(*byte) || *byte == b'-')
        }
        _ => false,
    }
}

fn is_qualified_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(first), Some(last)) => {
            first.is_ascii_alphanumeric()
                && last.is_ascii_alphanumeric()
                && bytes
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        }
        _ => false,
    }
}

/// What is wrong with a DNS subdomain; nothing if the list is empty.
pub fn subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_BYTES {
        problems.push(format!("must be no more than {SUBDOMAIN_BYTES} characters"));
    }
    if !text.split('.').all(is_label) {
        problems.push(SUBDOMAIN_SENTENCE.to_owned());
    }
    problems
}

pub fn label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_BYTES {
        problems.push(format!("must be no more than {LABEL_BYTES} bytes"));
    }
    if !is_label(text) {
        problems.push(LABEL_SENTENCE.to_owned());
    }
    problems
}

pub fn service_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_BYTES {
        problems.push(format!("must be no more than {LABEL_BYTES} bytes"));
    }
    if !is_label(text) || text.as_bytes().first().is_some_and(u8::is_ascii_digit) {
        problems.push(SERVICE_SENTENCE.to_owned());
    }
    problems
}

pub fn path_segment(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for whole in [".", ".."] {
        if text == whole {
            problems.push(format!("may not be '{whole}'"));
        }
    }
    for part in ["/", "%"] {
        if text.contains(part) {
            problems.push(format!("may not contain '{part}'"));
        }
    }
    problems
}

/// A label's or annotation's key: `name` or `prefix/name`.
pub fn qualified(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    subdomain(prefix)
                        .into_iter()
                        .map(|problem| format!("prefix part {problem}")),
                );
            }
            *name
        }
        _ => {
            let sentence = QUALIFIED_SENTENCE
                .strip_prefix("name part ")
                .unwrap_or(QUALIFIED_SENTENCE);
            return vec![format!(
                "a qualified name {sentence} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LABEL_BYTES {
        problems.push(format!(
            "name part must be no more than {LABEL_BYTES} bytes"
        ));
    }
    if !is_qualified_part(name) {
        problems.push(QUALIFIED_SENTENCE.to_owned());
    }
    problems
}

pub fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > LABEL_BYTES {
        problems.push(format!("must be no more than {LABEL_BYTES} bytes"));
    }
    if !text.is_empty() && !is_qualified_part(text) {
        problems.push(VALUE_SENTENCE.to_owned());
    }
    problems
}

/// A key of a ConfigMap or Secret, which becomes a file's name.
pub fn config_key(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > SUBDOMAIN_BYTES {
        problems.push(format!("must be no more than {SUBDOMAIN_BYTES} characters"));
    }
    if text.is_empty()
        || !text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
    {
        problems.push(CONFIG_KEY_SENTENCE.to_owned());
    }
    match text {
        "." => problems.push("must not be '.'".to_owned()),
        ".." => problems.push("must not be '..'".to_owned()),
        _ if text.starts_with("..") => problems.push("must not start with '..'".to_owned()),
        _ => {}
    }
    problems
}
