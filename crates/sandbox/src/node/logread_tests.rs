//! Tests of `logread`: what a reader gets from files as the runtime leaves them.

use super::*;

fn line(second: u32, tag: &str, text: &str) -> String {
    format!("2026-01-01T00:00:{second:02}.000000000Z stdout {tag} {text}\n")
}

/// A log of two files: the older one was rotated.
fn log() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("0.log");
    std::fs::write(
        rotated(&path, 1),
        line(1, "F", "one") + &line(2, "F", "two"),
    )
    .expect("written");
    std::fs::write(
        &path,
        line(3, "P", "thr") + &line(3, "F", "ee") + &line(4, "F", "four"),
    )
    .expect("written");
    (directory, path)
}

fn text(path: &Path, query: LogQuery) -> String {
    let mut reader = Reader::open(path.to_owned(), query).expect("opened");
    let mut text = Vec::new();
    while let Some(piece) = reader.next().expect("read") {
        text.extend_from_slice(&piece);
    }
    String::from_utf8(text).expect("text")
}

#[test]
fn rotated_files_come_first_and_parts_of_a_line_are_joined() {
    let (_directory, path) = log();
    assert_eq!(text(&path, LogQuery::default()), "one\ntwo\nthree\nfour\n");
    assert_eq!(
        text(
            &path,
            LogQuery {
                tail_lines: Some(2),
                ..LogQuery::default()
            }
        ),
        "three\nfour\n"
    );
    assert_eq!(
        text(
            &path,
            LogQuery {
                tail_lines: Some(0),
                ..LogQuery::default()
            }
        ),
        ""
    );
    assert_eq!(
        text(
            &path,
            LogQuery {
                limit_bytes: Some(6),
                ..LogQuery::default()
            }
        ),
        "one\ntw"
    );
    let since = Some("2026-01-01T00:00:03Z".parse().expect("a time"));
    assert_eq!(
        text(
            &path,
            LogQuery {
                since,
                timestamps: true,
                ..LogQuery::default()
            }
        ),
        "2026-01-01T00:00:03.000000000Z three\n2026-01-01T00:00:04.000000000Z four\n"
    );
}

#[test]
fn a_reader_that_slept_through_rotations_misses_nothing_that_is_kept() {
    let (_directory, path) = log();
    let mut reader = Reader::open(path.clone(), LogQuery::default()).expect("opened");
    let mut seen = Vec::new();
    let mut drain = |reader: &mut Reader| {
        while let Some(piece) = reader.next().expect("read") {
            seen.extend_from_slice(&piece);
        }
    };
    drain(&mut reader);
    for (number, word) in [(5, "five"), (6, "six")] {
        std::fs::rename(rotated(&path, 1), rotated(&path, 2)).expect("renamed");
        std::fs::rename(&path, rotated(&path, 1)).expect("renamed");
        std::fs::write(&path, line(number, "F", word)).expect("written");
    }
    drain(&mut reader);
    assert_eq!(
        String::from_utf8(seen).expect("text"),
        "one\ntwo\nthree\nfour\nfive\nsix\n"
    );
}

#[test]
fn a_query_is_checked() {
    let query = LogQuery::parse("follow=true&previous=false&tailLines=7&timestamps=1&sinceTime=2026-01-01T00%3A00%3A00Z&limitBytes=9&pretty=x").expect("a query");
    let since = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
    assert_eq!(
        query,
        LogQuery {
            follow: true,
            previous: false,
            timestamps: true,
            tail_lines: Some(7),
            since,
            limit_bytes: Some(9)
        }
    );
    for bad in [
        "tailLines=-1",
        "follow=maybe",
        "sinceTime=yesterday",
        "limitBytes=x",
        "stream=Stdout",
    ] {
        assert!(LogQuery::parse(bad).is_err(), "{bad}");
    }
    assert!(LogQuery::parse("sinceSeconds=99999999999999999999").is_err());
    assert!(
        LogQuery::parse("sinceSeconds=9999999999999")
            .expect("far back")
            .since
            .is_some()
    );
}

#[test]
fn a_container_name_cannot_leave_the_logs() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let book = LogBook::new(directory.path());
    for container in ["../x", "..", "a/b"] {
        assert!(matches!(
            book.find("n", "p", container, false),
            Err(LogError::NoRun { .. })
        ));
    }
}
