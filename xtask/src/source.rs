//! A Rust source file as tidy looks at it: code with comments, strings and characters blanked out, which lines are test code, and where each
//! function begins and ends.
//!
//! It is a scanner, not a parser: it knows just enough of the lexical grammar (nested comments, raw strings, lifetimes against characters) that a
//! brace or a word in a string is never taken for code. Macros that unbalance braces would fool it; we do not write such macros.

/// One function with a body.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    pub name: String,
    /// First line, counted from 1: where `fn` stands.
    pub line: usize,
    /// Lines from `fn` to the closing brace, both included.
    pub length: usize,
}

/// A scanned file.
pub struct Source {
    /// The file's lines with everything blanked that is not code; as many lines as the file has.
    pub code: Vec<String>,
    /// For each line: is it inside `#[cfg(test)]` or a `#[test]` function?
    pub test: Vec<bool>,
    pub functions: Vec<Function>,
}

impl Source {
    #[must_use]
    pub fn scan(text: &str) -> Self {
        let blanked = blank(text);
        let code: Vec<String> = blanked.split('\n').map(str::to_owned).collect();
        let functions = functions(&blanked);
        let test = test_lines(&blanked, code.len());
        Self {
            code,
            test,
            functions,
        }
    }
}

/// What the scanner is inside of.
#[derive(Clone, Copy)]
enum Inside {
    Code,
    LineComment,
    /// Block comments nest; the depth is counted.
    BlockComment(usize),
    Text,
    /// A raw string ends with a quote and this many hashes.
    RawText(usize),
}

/// The text with comments, strings and character literals replaced by spaces, line breaks kept.
fn blank(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < characters.len() {
        let (next, taken, keep) = step(inside, &characters, at);
        for &character in &characters[at..at + taken] {
            out.push(match character {
                '\n' => '\n',
                character if keep => character,
                _ => ' ',
            });
        }
        inside = next;
        at += taken;
    }
    out
}

/// Reads on from `at`: what we are inside of afterwards, how many characters were read, and whether they are code.
fn step(inside: Inside, characters: &[char], at: usize) -> (Inside, usize, bool) {
    let current = characters[at];
    let following = characters.get(at + 1).copied();
    match inside {
        Inside::Code => step_code(characters, at),
        Inside::LineComment if current == '\n' => (Inside::Code, 1, false),
        Inside::LineComment => (inside, 1, false),
        Inside::BlockComment(depth) => match (current, following) {
            ('/', Some('*')) => (Inside::BlockComment(depth + 1), 2, false),
            ('*', Some('/')) if depth == 1 => (Inside::Code, 2, false),
            ('*', Some('/')) => (Inside::BlockComment(depth - 1), 2, false),
            _ => (inside, 1, false),
        },
        Inside::Text => match current {
            '\\' if following.is_some() => (inside, 2, false),
            '"' => (Inside::Code, 1, false),
            _ => (inside, 1, false),
        },
        Inside::RawText(hashes) => {
            let closes = current == '"'
                && characters.len() > at + hashes
                && characters[at + 1..=at + hashes].iter().all(|c| *c == '#');
            if closes {
                (Inside::Code, 1 + hashes, false)
            } else {
                (inside, 1, false)
            }
        }
    }
}

fn step_code(characters: &[char], at: usize) -> (Inside, usize, bool) {
    let following = characters.get(at + 1).copied();
    match (characters[at], following) {
        ('/', Some('/')) => (Inside::LineComment, 2, false),
        ('/', Some('*')) => (Inside::BlockComment(1), 2, false),
        ('"', _) => (Inside::Text, 1, false),
        ('r', Some('"' | '#')) if !continues_word(characters, at) => {
            let hashes = characters[at + 1..]
                .iter()
                .take_while(|c| **c == '#')
                .count();
            if characters.get(at + 1 + hashes) == Some(&'"') {
                (Inside::RawText(hashes), 2 + hashes, false)
            } else {
                (Inside::Code, 1, true) // a raw identifier
            }
        }
        ('\'', Some('\\')) => {
            // An escaped character: up to the closing quote, which is not the one that may be escaped.
            let rest = &characters[(at + 3).min(characters.len())..];
            let length = rest
                .iter()
                .position(|c| *c == '\'')
                .map_or(1, |end| end + 4);
            (Inside::Code, length, false)
        }
        ('\'', Some(_)) if characters.get(at + 2) == Some(&'\'') => (Inside::Code, 3, false),
        _ => (Inside::Code, 1, true),
    }
}

/// Whether the character at `at` goes on with a word begun before it (so that the `r` of `for` is no raw string); `br"` is one.
fn continues_word(characters: &[char], at: usize) -> bool {
    let is_word = |index: usize| characters[index].is_alphanumeric() || characters[index] == '_';
    match at {
        0 => false,
        1 => is_word(0) && characters[0] != 'b',
        _ => is_word(at - 1) && (characters[at - 1] != 'b' || is_word(at - 2)),
    }
}

/// A word or a punctuation mark of the blanked code, with its line counted from 0.
struct Token<'a> {
    text: &'a str,
    line: usize,
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut found = Vec::new();
    for (line, content) in code.split('\n').enumerate() {
        let mut rest = content;
        while let Some(first) = rest.chars().next() {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let length = if is_word(first) {
                rest.find(|c| !is_word(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (text, after) = rest.split_at(length);
            if !first.is_whitespace() {
                found.push(Token { text, line });
            }
            rest = after;
        }
    }
    found
}

/// The index of the token that closes the body which begins after `from`, or None for a declaration without one.
fn body_end(tokens: &[Token<'_>], from: usize) -> Option<usize> {
    let mut nesting = 0usize; // parentheses and brackets: a `;` or `{` in an array type or default is not the body's
    let mut index = from;
    while index < tokens.len() {
        match tokens[index].text {
            "(" | "[" => nesting += 1,
            ")" | "]" => nesting = nesting.saturating_sub(1),
            ";" if nesting == 0 => return None,
            "{" if nesting == 0 => return closing_brace(tokens, index),
            _ => {}
        }
        index += 1;
    }
    None
}

fn closing_brace(tokens: &[Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

fn functions(code: &str) -> Vec<Function> {
    let tokens = tokens(code);
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        // `fn(` is a pointer's type, not a function.
        let Some(name) = tokens.get(index + 1).filter(|next| next.text != "(") else {
            continue;
        };
        if token.text != "fn" {
            continue;
        }
        if let Some(end) = body_end(&tokens, index) {
            found.push(Function {
                name: name.text.to_owned(),
                line: token.line + 1,
                length: tokens[end].line - token.line + 1,
            });
        }
    }
    found
}

/// Marks the lines of every item under `#[cfg(test)]`, `#[test]` or `#[tokio::test...]`.
fn test_lines(code: &str, lines: usize) -> Vec<bool> {
    let tokens = tokens(code);
    let mut marked = vec![false; lines];
    for index in 0..tokens.len() {
        if tokens[index].text != "#" || tokens.get(index + 1).is_none_or(|t| t.text != "[") {
            continue;
        }
        let Some(length) = tokens[index..].iter().position(|token| token.text == "]") else {
            continue;
        };
        let attribute: Vec<&str> = tokens[index..index + length]
            .iter()
            .map(|t| t.text)
            .collect();
        if !attribute.contains(&"test") || attribute.contains(&"not") {
            continue;
        }
        let last = body_end(&tokens, index + length + 1)
            .map_or(tokens[index].line, |end| tokens[end].line);
        for mark in &mut marked[tokens[index].line..=last] {
            *mark = true;
        }
    }
    marked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_strings_and_comments_are_not_code() {
        let source = Source::scan(
            "let a = \"x.unwrap()\"; // b.unwrap()\nlet c = r#\"todo!(\"\")\"#; /* { /* } */ { */\nlet d = '{'; let e = '\\''; f.g();",
        );
        let code = source.code.join("\n");
        assert!(!code.contains("unwrap"), "{code}");
        assert!(!code.contains("todo"), "{code}");
        assert!(!code.contains('{'), "{code}");
        assert!(code.contains("f.g();"), "{code}");
        assert_eq!(source.code.len(), 3);
    }

    #[test]
    fn a_lifetime_is_not_a_character() {
        let source =
            Source::scan("fn f<'a>(x: &'a str) -> &'a str { x }\nlet y = 'a'; let z = b'\"';");
        assert_eq!(source.functions.len(), 1);
        assert!(!source.code[1].contains('"'));
    }

    #[test]
    fn a_function_is_as_long_as_its_lines() {
        let source = Source::scan(
            "trait T {\n    fn declared(&self, of: [u8; 3]);\n    fn given(&self) -> [u8; 2] {\n        [1, 2]\n    }\n}\n",
        );
        assert_eq!(
            source.functions,
            [Function {
                name: "given".to_owned(),
                line: 3,
                length: 3
            }]
        );
    }

    #[test]
    fn test_code_is_known_as_such() {
        let source = Source::scan(
            "fn product() {\n}\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn t() {}\n}\n#[cfg(not(test))]\nfn more() {}\n#[tokio::test(flavor = \"current_thread\")]\nasync fn u() {\n}\n",
        );
        let lines: Vec<usize> = (0..source.test.len())
            .filter(|line| source.test[*line])
            .collect();
        assert_eq!(lines, [2, 3, 4, 5, 6, 9, 10, 11]);
    }
}
