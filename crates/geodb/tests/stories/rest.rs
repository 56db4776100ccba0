//! At rest nothing is written: the server's own counters stand still.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::harness::{CHANGE_WITHIN, Sandbox, eventually, skipped_without_kubectl};

/// How long to watch; `make soak` asks for ten minutes.
const DEFAULT_SECONDS: u64 = 60;
/// After Ready, the last words (events, a label) are still being written.
const SETTLED_FOR: Duration = Duration::from_secs(3);
const WRITES: [&str; 6] = [
    "POST",
    "PUT",
    "PATCH",
    "APPLY",
    "DELETE",
    "DELETECOLLECTION",
];

#[test]
fn at_rest_the_server_counts_no_write() {
    if skipped_without_kubectl("at_rest_the_server_counts_no_write") {
        return;
    }
    let seconds = std::env::var("GEODB_REST_SECONDS").map_or(DEFAULT_SECONDS, |text| {
        text.parse().expect("GEODB_REST_SECONDS is a number")
    });
    let sandbox = Sandbox::start();
    let mut settled = (writes(&sandbox), Instant::now());
    eventually("the last words are written", CHANGE_WITHIN, || {
        let now = writes(&sandbox);
        if now != settled.0 {
            settled = (now, Instant::now());
        }
        if settled.1.elapsed() >= SETTLED_FOR {
            Ok(())
        } else {
            Err("writes still come".to_owned())
        }
    });
    let before = writes(&sandbox);
    // The one place where time itself is what is tested.
    std::thread::sleep(Duration::from_secs(seconds));
    let after = writes(&sandbox);
    let made: Vec<String> = after
        .iter()
        .filter(|(series, count)| before.get(*series).unwrap_or(&0) != *count)
        .map(|(series, count)| {
            format!(
                "{series}: {count} (was {})",
                before.get(series).unwrap_or(&0)
            )
        })
        .collect();
    assert!(
        made.is_empty(),
        "writes in {seconds} s at rest:\n{}",
        made.join("\n")
    );
}

/// The server's count of each kind of write.
fn writes(sandbox: &Sandbox) -> BTreeMap<String, u64> {
    let text = sandbox.raw("/metrics");
    let counted: BTreeMap<String, u64> = text
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{"))
        .filter(|line| {
            WRITES
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        })
        .filter_map(|line| {
            let (series, count) = line.rsplit_once(' ')?;
            Some((series.to_owned(), count.parse().ok()?))
        })
        .collect();
    assert!(
        !counted.is_empty(),
        "a server that made a database has counted writes: {text}"
    );
    counted
}
