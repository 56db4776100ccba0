//! The rules of style that neither rustfmt nor clippy knows: sizes, banned calls, headers, purity of modules.
//!
//! Every rule is a small function over one file; a finding names file, line, what is wrong and what to do instead.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::source::Source;

/// A file longer than this is cut along a seam; longer ones hide more than one idea.
const FILE_LINES_MAX: usize = 600;
/// A function fits on one screen.
const FUNCTION_LINES_MAX: usize = 70;
/// A test may hold a table of cases: data, which splitting would only hide.
const TEST_FUNCTION_LINES_MAX: usize = 150;

/// Files whose business is the wall clock or a stopwatch. Everything else gets time as a value.
const CLOCK_FILE_NAMES: [&str; 2] = ["clock.rs", "time.rs"];
/// The binary prints: that is its job. xtask prints findings. Build scripts speak to cargo by printing.
const MAY_PRINT: [&str; 2] = ["crates/geodb/", "xtask/"];
/// Directories with nothing of ours in them.
const SKIPPED_DIRECTORIES: [&str; 3] = ["target", "node_modules", "proptest-regressions"];
/// Text files that are checked for white space and markers, by ending.
const TEXT_ENDINGS: [&str; 7] = ["rs", "md", "toml", "yaml", "yml", "sh", "json"];
/// Modules inside an impure crate that have to stay pure, and the words that would make them impure.
const PURE_MODULES: [&str; 2] = ["crates/sandbox/src/core/", "crates/sandbox/src/present/"];
const IMPURE_WORDS: [&str; 10] = [
    "tokio::",
    "kube::",
    "hyper::",
    "std::fs",
    "TcpStream",
    "TcpListener",
    "UdpSocket",
    "std::process",
    "SystemTime",
    "rand::rng(",
];

/// One broken rule in one place.
#[derive(Debug)]
pub struct Finding {
    pub path: String,
    pub line: usize,
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Checks every text file under `repository`.
///
/// # Errors
/// When a directory or file cannot be read.
pub fn check(repository: &Path) -> Result<Vec<Finding>> {
    let mut paths = Vec::new();
    collect(repository, &mut paths)?;
    paths.sort();
    let mut findings = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("failed to read {}", path.display()))?;
        let relative = path.strip_prefix(repository).unwrap_or(&path);
        findings.extend(check_file(&relative.to_string_lossy(), &text));
    }
    Ok(findings)
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(directory)
        .with_context(|| format!("failed to list {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        let kind = entry.file_type()?;
        if kind.is_dir() {
            if !name.starts_with('.') && !SKIPPED_DIRECTORIES.contains(&name.as_str()) {
                collect(&path, paths)?;
            }
        } else if kind.is_file() && is_text(&path) {
            paths.push(path);
        }
    }
    Ok(())
}

/// By ending, or a script (no ending) under scripts/; Cargo.lock and other tools' files are not ours to tidy.
fn is_text(path: &Path) -> bool {
    match path.extension() {
        Some(ending) => TEXT_ENDINGS.contains(&ending.to_string_lossy().as_ref()),
        None => path
            .parent()
            .is_some_and(|parent| parent.ends_with("scripts")),
    }
}

/// All findings of one file; `path` is relative to the repository, with forward slashes.
#[must_use]
pub fn check_file(path: &str, text: &str) -> Vec<Finding> {
    let mut check = FileCheck {
        path,
        findings: Vec::new(),
    };
    check.whitespace_and_markers(text);
    if path.ends_with(".rs") {
        let source = Source::scan(text);
        check.sizes(text, &source);
        check.header(text);
        check.banned_calls(&source);
        check.purity(&source);
    }
    check.findings
}

struct FileCheck<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl FileCheck<'_> {
    fn find(&mut self, line: usize, message: impl Into<String>) {
        self.findings.push(Finding {
            path: self.path.to_owned(),
            line,
            message: message.into(),
        });
    }

    fn whitespace_and_markers(&mut self, text: &str) {
        for (index, line) in text.lines().enumerate() {
            if line.ends_with(' ') || line.ends_with('\t') {
                self.find(index + 1, "white space at the end of the line");
            }
            // Split so that this file does not find itself.
            for marker in [concat!("TO", "DO"), concat!("FIX", "ME")] {
                if is_open_marker(line, marker) {
                    self.find(
                        index + 1,
                        format!("{marker} without an issue: do it, or write {marker}(issue N)"),
                    );
                }
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            self.find(text.lines().count(), "no line break at the end of the file");
        }
    }

    fn sizes(&mut self, text: &str, source: &Source) {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            self.find(
                lines,
                format!("{lines} lines, at most {FILE_LINES_MAX}: split it along a seam"),
            );
        }
        for function in &source.functions {
            let is_test = is_test_file(self.path) || source.test[function.line - 1];
            let most = if is_test {
                TEST_FUNCTION_LINES_MAX
            } else {
                FUNCTION_LINES_MAX
            };
            if function.length > most {
                self.find(
                    function.line,
                    format!(
                        "fn {} has {} lines, at most {most}: name its parts",
                        function.name, function.length
                    ),
                );
            }
        }
    }

    fn header(&mut self, text: &str) {
        let first = text
            .lines()
            .find(|line| !line.trim().is_empty() && !line.starts_with("#!["));
        if !first.is_some_and(|line| line.starts_with("//!")) {
            self.find(
                1,
                "no `//!` header that says what this module is and is not",
            );
        }
    }

    fn banned_calls(&mut self, source: &Source) {
        let in_tests_directory = is_test_file(self.path);
        let may_print = MAY_PRINT.iter().any(|prefix| self.path.starts_with(prefix));
        let clock = CLOCK_FILE_NAMES
            .iter()
            .any(|name| self.path.ends_with(&format!("/{name}")));
        let virtual_instant = imports_virtual_instant(source);
        for (index, code) in source.code.iter().enumerate() {
            if code.contains("todo!(") || code.contains("unimplemented!(") {
                self.find(index + 1, "unfinished code is not committed");
            }
            if in_tests_directory || source.test[index] {
                continue;
            }
            if code.contains(".unwrap()") {
                self.find(
                    index + 1,
                    "unwrap() outside tests: handle it, or expect(\"why it cannot happen\")",
                );
            }
            if !may_print
                && ["println!(", "eprintln!(", "print!(", "eprint!("]
                    .iter()
                    .any(|call| code.contains(call))
            {
                self.find(index + 1, "printing outside the binary: use tracing");
            }
            if !clock && reads_a_clock(code, virtual_instant) {
                self.find(index + 1, "a clock read outside a clock.rs: take time as a value, or tokio::time::Instant");
            }
        }
    }

    fn purity(&mut self, source: &Source) {
        if !PURE_MODULES
            .iter()
            .any(|prefix| self.path.starts_with(prefix))
        {
            return;
        }
        for (index, code) in source.code.iter().enumerate() {
            for word in IMPURE_WORDS {
                if code.contains(word) && !source.test[index] {
                    self.find(
                        index + 1,
                        format!("`{word}` in a pure module: IO, clocks and runtimes stay in serve"),
                    );
                }
            }
        }
    }
}

/// Whole files of test code: a crate's tests and benches, and modules that are declared under `#[cfg(test)]` by convention of name.
fn is_test_file(path: &str) -> bool {
    let endings = ["/tests.rs", "_test.rs", "_tests.rs"];
    path.contains("/tests/")
        || path.contains("/benches/")
        || endings.iter().any(|ending| path.ends_with(ending))
}

/// `MARKER` as a word of its own, not followed by an issue as in `MARKER(issue 12)`.
fn is_open_marker(line: &str, marker: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '!';
    line.match_indices(marker).any(|(at, _)| {
        let after = &line[at + marker.len()..];
        !line[..at].ends_with(is_word)
            && !after.starts_with(is_word)
            && !after.starts_with("(issue ")
            && !after.starts_with("/")
            && !line[..at].ends_with('/')
    })
}

/// tokio's Instant follows tokio's clock, which tests pause; the standard library's follows the machine's.
fn imports_virtual_instant(source: &Source) -> bool {
    source.code.iter().any(|code| {
        let code = code.trim_start();
        code.starts_with("use tokio::") && code.contains("Instant")
    })
}

fn reads_a_clock(code: &str, virtual_instant: bool) -> bool {
    let wall = ["SystemTime::now(", "Timestamp::now(", "Zoned::now("];
    let stopwatch = code.contains("Instant::now(")
        && !virtual_instant
        && !code.contains("tokio::time::Instant::now(");
    stopwatch || wall.iter().any(|call| code.contains(call))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What tidy says about a file, in short.
    fn messages(path: &str, text: &str) -> Vec<String> {
        check_file(path, text)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_tidy_file_has_no_findings() {
        let text = "//! What it is.\n\nfn f() -> Option<u8> {\n    None\n}\n";
        assert_eq!(messages("crates/plan/src/f.rs", text), Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_breach() {
        let long_function = format!("//! H\nfn f() {{\n{}}}\n", "    g();\n".repeat(70));
        let long_file = format!("//! H\n{}", "// x\n".repeat(600));
        let table = [
            ("crates/plan/src/a.rs", "fn f() {}\n", "no `//!` header"),
            (
                "crates/plan/src/a.rs",
                "//! H\nfn f() { g().unwrap(); }\n",
                "unwrap()",
            ),
            (
                "crates/plan/src/a.rs",
                "//! H\nfn f() { println!(); }\n",
                "printing",
            ),
            (
                "crates/plan/src/a.rs",
                "//! H\nfn f() { todo!() }\n",
                "unfinished",
            ),
            (
                "crates/kit/src/a.rs",
                "//! H\nfn f() { Instant::now(); }\n",
                "clock",
            ),
            (
                "crates/kit/src/a.rs",
                "//! H\nfn f() { jiff::Timestamp::now(); }\n",
                "clock",
            ),
            ("crates/kit/src/a.rs", "//! H \n", "white space"),
            ("crates/kit/src/a.rs", "//! H", "no line break"),
            (
                "docs/a.md",
                concat!("TO", "DO: later\n"),
                "without an issue",
            ),
            (
                "crates/sandbox/src/core/a.rs",
                "//! H\nuse tokio::net;\n",
                "pure module",
            ),
            ("crates/kit/src/a.rs", &long_function, "fn f has 72 lines"),
            ("crates/kit/src/a.rs", &long_file, "601 lines"),
        ];
        for (path, text, expected) in table {
            let found = messages(path, text);
            assert_eq!(found.len(), 1, "{expected}: {found:?}");
            assert!(found[0].contains(expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        let table = [
            (
                "crates/kit/src/clock.rs",
                "//! H\nfn f() { Timestamp::now(); }\n",
            ),
            (
                "crates/kit/src/a.rs",
                "//! H\nuse tokio::time::Instant;\nfn f() { Instant::now(); }\n",
            ),
            (
                "crates/kit/src/a.rs",
                "//! H\n#[cfg(test)]\nmod tests {\n    fn f() { g().unwrap(); }\n}\n",
            ),
            ("crates/kit/tests/a.rs", "//! H\nfn f() { g().unwrap(); }\n"),
            ("crates/geodb/src/a.rs", "//! H\nfn f() { println!(); }\n"),
            ("docs/a.md", concat!("TO", "DO(issue 7): later\n")),
        ];
        for (path, text) in table {
            assert_eq!(messages(path, text), Vec::<String>::new(), "{path}: {text}");
        }
    }
}
