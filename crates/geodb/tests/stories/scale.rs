//! Three instances become four, then two: a clone is made, the surplus goes, never the primary.

use super::harness::{CHANGE_WITHIN, Sandbox, eventually, skipped_without_kubectl};

#[test]
fn scaling_clones_and_removes_but_never_the_primary() {
    if skipped_without_kubectl("scaling_clones_and_removes_but_never_the_primary") {
        return;
    }
    let sandbox = Sandbox::start();
    let primary = sandbox.primary();
    sandbox.psql("create table marks (number int); insert into marks values (1)");

    the_read_only_service_answers_from_a_replica(&sandbox);

    scale(&sandbox, 4);
    assert_eq!(
        pods(&sandbox),
        ["cities-1", "cities-2", "cities-3", "cities-4"]
    );
    assert_eq!(sandbox.primary(), primary);

    scale(&sandbox, 2);
    let left = pods(&sandbox);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left.contains(&primary),
        "the primary {primary} is not among {left:?}"
    );
    assert_eq!(sandbox.primary(), primary);
    assert_eq!(sandbox.psql("select sum(number) from marks"), "1");
}

/// Scales, and waits until everything agrees: the Database, its table, and PostgreSQL's own view of who streams (rows only: their
/// details are not for the owner of a database to see).
fn scale(sandbox: &Sandbox, replicas: usize) {
    sandbox.kubectl(&["scale", "db", "cities", "--replicas", &replicas.to_string()]);
    sandbox.await_ready();
    eventually(
        "the surplus is gone and everybody else streams",
        CHANGE_WITHIN,
        || {
            let streaming = sandbox.try_psql("select count(*) from pg_stat_replication")?;
            let pods = pods(sandbox);
            if streaming == (replicas - 1).to_string() && pods.len() == replicas {
                Ok(())
            } else {
                Err(format!("{streaming} stream, pods are {pods:?}"))
            }
        },
    );
    let table = sandbox.kubectl(&["get", "db", "cities"]);
    assert!(table.contains(&format!("{replicas}/{replicas}")), "{table}");
}

fn the_read_only_service_answers_from_a_replica(sandbox: &Sandbox) {
    eventually("a replica has the mark", CHANGE_WITHIN, || {
        let answer = sandbox
            .try_psql_read_only("select pg_is_in_recovery(), (select sum(number) from marks)")?;
        if answer == "t|1" { Ok(()) } else { Err(answer) }
    });
    let refused = sandbox.try_psql_read_only("insert into marks values (2)");
    assert!(
        refused.is_err_and(|error| error.contains("read-only")),
        "a replica takes no writes"
    );
}

fn pods(sandbox: &Sandbox) -> Vec<String> {
    let names = sandbox.kubectl(&[
        "get",
        "pods",
        "-l",
        "geodb.imaginedata.com/database=cities",
        "-o",
        "name",
    ]);
    let mut names: Vec<String> = names
        .lines()
        .map(|name| name.trim_start_matches("pod/").to_owned())
        .collect();
    names.sort();
    names
}
