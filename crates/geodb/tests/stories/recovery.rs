//! The primary's postmaster is killed, then its pod is deleted: it comes back with its data, the replicas stream again, and every
//! write that was acknowledged is there.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::harness::{CHANGE_WITHIN, Sandbox, eventually, send, skipped_without_kubectl};
use super::machine::postmaster_of;

/// Between two writes; enough of them to be in the way of every fault, few enough to leave the cores to PostgreSQL.
const WRITE_EVERY: Duration = Duration::from_millis(50);

#[test]
fn a_killed_primary_comes_back_with_everything_acknowledged() {
    if skipped_without_kubectl("a_killed_primary_comes_back_with_everything_acknowledged") {
        return;
    }
    let sandbox = Sandbox::start();
    sandbox.psql("create table writes (number bigint primary key)");
    let stop = AtomicBool::new(false);
    let acknowledged = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write_until(&sandbox, &stop, &acknowledged));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            kill_the_postmaster(&sandbox, &acknowledged);
            delete_the_pod(&sandbox, &acknowledged);
        }));
        stop.store(true, Ordering::SeqCst);
        let written = writer.join().expect("the writer ends");
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
        let found = sandbox.psql("select number from writes order by number");
        let found: Vec<u64> = found
            .lines()
            .map(|line| line.parse().expect("a number"))
            .collect();
        let missing: Vec<&u64> = written
            .iter()
            .filter(|number| found.binary_search(number).is_err())
            .collect();
        assert!(
            missing.is_empty(),
            "acknowledged but missing: {missing:?} of {}",
            written.len()
        );
    });
}

/// Writes numbers one by one until told to stop; returns those that were acknowledged.
fn write_until(sandbox: &Sandbox, stop: &AtomicBool, acknowledged: &AtomicU64) -> Vec<u64> {
    let mut written = Vec::new();
    let mut number = 0;
    while !stop.load(Ordering::SeqCst) {
        number += 1;
        if sandbox
            .try_psql(&format!("insert into writes values ({number})"))
            .is_ok()
        {
            written.push(number);
            acknowledged.fetch_add(1, Ordering::SeqCst);
        }
        std::thread::sleep(WRITE_EVERY);
    }
    written
}

fn kill_the_postmaster(sandbox: &Sandbox, acknowledged: &AtomicU64) {
    await_writes(acknowledged);
    let primary = sandbox.primary();
    let postmaster = postmaster_of(sandbox.data(), &primary).expect("the primary has a postmaster");
    send("KILL", postmaster);
    eventually(
        "another postmaster runs",
        CHANGE_WITHIN,
        || match postmaster_of(sandbox.data(), &primary) {
            Some(now) if now != postmaster => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
    await_streaming(sandbox);
    assert_eq!(
        sandbox.primary(),
        primary,
        "without failover the same instance stays the primary"
    );
    await_writes(acknowledged);
}

fn delete_the_pod(sandbox: &Sandbox, acknowledged: &AtomicU64) {
    let primary = sandbox.primary();
    let uid = |sandbox: &Sandbox| {
        sandbox.kubectl_json(&["get", "pod", &primary])["metadata"]["uid"].clone()
    };
    let before = uid(sandbox);
    sandbox.kubectl(&["delete", "pod", &primary]);
    eventually("the pod is made again", CHANGE_WITHIN, || {
        let output =
            sandbox.try_kubectl(&["get", "pod", &primary, "-o", "jsonpath={.metadata.uid}"]);
        let now = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && Some(now.as_str()) != before.as_str() {
            Ok(())
        } else {
            Err(now)
        }
    });
    await_streaming(sandbox);
    sandbox.await_ready();
    await_writes(acknowledged);
}

fn await_streaming(sandbox: &Sandbox) {
    eventually("both replicas stream again", CHANGE_WITHIN, || {
        let streaming = sandbox.try_psql("select count(*) from pg_stat_replication")?;
        if streaming == "2" {
            Ok(())
        } else {
            Err(streaming)
        }
    });
}

/// A few more writes than there were.
fn await_writes(acknowledged: &AtomicU64) {
    let before = acknowledged.load(Ordering::SeqCst);
    eventually("writes are acknowledged", CHANGE_WITHIN, || {
        let now = acknowledged.load(Ordering::SeqCst);
        if now >= before + 5 {
            Ok(())
        } else {
            Err(format!("{} since", now - before))
        }
    });
}
