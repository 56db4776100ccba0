//! `geodb sandbox -f FILE -- COMMAND`: a real PostGIS for anybody's CI in one line.

use super::harness::{READY_WITHIN, STOP_WITHIN, cities, geodb, run_within};

#[test]
fn one_line_gives_a_postgis_and_its_exit_status() {
    let script = r#"
        psql -At -c 'select postgis_full_version()' || exit 11
        test "$(psql -At -c 'select count(*) from pg_stat_replication')" = 2 || exit 12
        test "$(psql -At -c 'select pg_is_in_recovery()')" = f || exit 13
        exit 7
    "#;
    let mut command = geodb();
    command
        .args(["sandbox", "-f"])
        .arg(cities())
        .args(["--", "sh", "-c", script]);
    let (status, output, errors) = run_within(&mut command, READY_WITHIN + STOP_WITHIN);
    assert_eq!(status.code(), Some(7), "{errors}\n{output}");
    assert!(
        output.starts_with("POSTGIS="),
        "standard output is the command's alone: {output}"
    );
    assert!(
        errors.contains("cities-1"),
        "progress is told on standard error: {errors}"
    );
}

#[test]
fn until_ready_ends_with_success() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let manifest = directory.path().join("one.yaml");
    let one = std::fs::read_to_string(cities())
        .expect("the example is there")
        .replace("replicas: 3", "replicas: 1");
    std::fs::write(&manifest, one).expect("the manifest can be written");
    let mut command = geodb();
    command
        .args(["sandbox", "--until-ready", "-f"])
        .arg(&manifest);
    let (status, _, errors) = run_within(&mut command, READY_WITHIN + STOP_WITHIN);
    assert!(status.success(), "{errors}");
}

#[test]
fn not_ready_in_time_says_why() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let manifest = directory.path().join("odd.yaml");
    let text = std::fs::read_to_string(cities()).expect("the example is there");
    std::fs::write(&manifest, format!("{text}  image: nowhere/postgis:1\n"))
        .expect("the manifest can be written");
    let mut command = geodb();
    command
        .args(["sandbox", "--until-ready", "--timeout", "15s", "-f"])
        .arg(&manifest);
    let (status, _, errors) = run_within(&mut command, READY_WITHIN);
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("not ready after 15 s"), "{errors}");
    assert!(
        errors.contains("nowhere/postgis:1"),
        "the image that cannot be had is named: {errors}"
    );
}

#[test]
fn bad_files_are_refused_before_or_by_the_server_with_their_place() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let table = [
        (
            "kind: Database\nmetadata: {name: a}\n",
            "document 1: apiVersion is missing",
        ),
        (
            "apiVersion: v1\nkind: Datebase\nmetadata: {name: a}\n",
            "the server has no kind Datebase in v1",
        ),
        (
            "apiVersion: stable.imaginedata.com/v2\nkind: Database\nmetadata: {name: a}\nspec: {replicas: -1, storage: {size: 1Gi}}\n",
            "spec.replicas",
        ),
        ("a: [b\n", "is not valid YAML"),
    ];
    for (text, expected) in table {
        let manifest = directory.path().join("bad.yaml");
        std::fs::write(&manifest, text).expect("the manifest can be written");
        let mut command = geodb();
        command
            .args(["sandbox", "--until-ready", "-f"])
            .arg(&manifest);
        let (status, _, errors) = run_within(&mut command, READY_WITHIN);
        assert_eq!(status.code(), Some(1), "{errors}");
        assert!(errors.contains(expected), "{expected}: {errors}");
        assert!(errors.contains("bad.yaml"), "{errors}");
    }
}
