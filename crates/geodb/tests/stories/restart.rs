//! Ctrl-C and kill -9: nothing is left running, mounted or bound, and the next start goes on where the last one ended.

use std::path::Path;

use super::harness::{CHANGE_WITHIN, Sandbox, eventually, skipped_without_kubectl};
use super::machine::{listeners_in, mounts_of, processes_of, range_of};

#[test]
fn a_sandbox_stops_without_a_trace_and_goes_on_with_its_data() {
    if skipped_without_kubectl("a_sandbox_stops_without_a_trace_and_goes_on_with_its_data") {
        return;
    }
    let directory = tempfile::Builder::new()
        .prefix("geodb-story-")
        .tempdir()
        .expect("a temporary directory");
    let data = directory.path();

    let sandbox = Sandbox::start_in(data);
    sandbox.psql("create table places (name text, at geometry(point, 4326)); insert into places values ('Ulm', st_point(9.99, 48.4, 4326))");
    let range = range_of(data);
    let first = revision(&sandbox);
    assert!(
        !processes_of(data).is_empty() && !listeners_in(range).is_empty(),
        "the test can see what it looks for"
    );
    let status = sandbox.interrupt();
    assert!(status.success(), "Ctrl-C is an orderly end: {status}");
    nothing_is_left(data, range);

    let sandbox = Sandbox::start_in(data);
    assert_eq!(range_of(data), range, "the address range is kept");
    let second = revision(&sandbox);
    assert!(
        second > first,
        "resourceVersion went from {first} to {second}"
    );
    assert_eq!(
        sandbox.psql("select name, st_astext(at) from places"),
        "Ulm|POINT(9.99 48.4)"
    );
    sandbox.psql("insert into places values ('Bonn', st_point(7.1, 50.73, 4326))");
    sandbox.kill();
    nothing_is_left(data, range);

    let sandbox = Sandbox::start_in(data);
    let third = revision(&sandbox);
    assert!(
        third > second,
        "resourceVersion went from {second} to {third}"
    );
    assert_eq!(sandbox.psql("select count(*) from places"), "2");
    eventually("the replicas stream again", CHANGE_WITHIN, || {
        let streaming = sandbox.try_psql("select count(*) from pg_stat_replication")?;
        if streaming == "2" {
            Ok(())
        } else {
            Err(streaming)
        }
    });
    assert!(sandbox.interrupt().success());
    nothing_is_left(data, range);
}

fn nothing_is_left(data: &Path, range: u8) {
    // A killed parent's children die by a signal of the kernel's, a moment later.
    eventually("no process is left", CHANGE_WITHIN, || {
        let left = processes_of(data);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    assert_eq!(mounts_of(data), Vec::<String>::new(), "mounts");
    assert_eq!(listeners_in(range), Vec::<String>::new(), "listeners");
}

fn revision(sandbox: &Sandbox) -> u64 {
    let list = serde_json::from_str::<serde_json::Value>(
        &sandbox.raw("/api/v1/namespaces/default/pods?limit=1"),
    )
    .expect("a list is JSON");
    list["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|text| text.parse().ok())
        .expect("a list has a resourceVersion")
}
