//! Real PostgreSQL under real agents: how a database begins, what it survives, what it refuses.
#![allow(clippy::unwrap_used)] // Everything here is a test, also what the lint takes for a helper: a panic is the report.

mod support;

use std::fs;
use std::path::Path;

use geodb_ha::register::REGISTER_ANNOTATION;
use kube::api::{Patch, PatchParams};
use rustix::process::{Signal, kill_process};
use serde_json::json;
use support::instance::Instance;
use support::secrets::{OWNER, PASSWORD};
use support::sql::{APP_DATABASE, as_owner, inside, try_in};
use support::{Cluster, DATABASE, eventually};

/// Set for the process that is to be the agent.
const AGENT_MARK: &str = "GEODB_TEST_AGENT";

/// Not a test: what the pods of the other tests run. Without the mark it does nothing.
#[test]
fn agent_program() {
    if std::env::var_os(AGENT_MARK).is_none() {
        return;
    }
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(filter)
        .init();
    let environment = geodb_agent::Environment::from_process().expect("the environment of a pod");
    let code = match geodb_agent::run(environment) {
        Ok(code) if code == std::process::ExitCode::SUCCESS => 0,
        Ok(_) => 2,
        Err(error) => {
            tracing::error!("{error:#}");
            1
        }
    };
    std::process::exit(code);
}

/// Makes a table and acknowledges `rows` in it, one commit each.
async fn write_rows(cluster: &Cluster, address: &str, rows: std::ops::RangeInclusive<u32>) {
    let inserts: Vec<String> = rows
        .map(|row| format!("INSERT INTO shore VALUES ({row});"))
        .collect();
    let script = format!(
        "CREATE TABLE IF NOT EXISTS shore (id int); COMMIT; {}",
        inserts.join(" COMMIT; ")
    );
    as_owner(cluster, address, &script).await.unwrap();
}

async fn rows(cluster: &Cluster, address: &str) -> Option<u32> {
    as_owner(cluster, address, "SELECT count(DISTINCT id) FROM shore")
        .await
        .ok()?
        .parse()
        .ok()
}

async fn reaches(cluster: &Cluster, instance: &Instance, expected: u32) {
    let what = format!("{expected} rows on {}", instance.name);
    eventually(&what, || async {
        rows(cluster, &instance.address)
            .await
            .filter(|rows| *rows == expected)
    })
    .await;
}

#[tokio::test]
async fn three_race_one_makes_the_database_two_clone_and_stream() {
    let cluster = Cluster::with_extensions("postgis").await;
    let mut instances = cluster.ready_instances(3).await;
    let register = cluster.register().await;
    let record = register.record.clone().unwrap();
    assert_eq!(
        (register.epoch.0, register.winner.as_ref()),
        (1, Some(&record.leader))
    );
    let (primary, mut replicas) = cluster.split(&mut instances).await;
    assert_eq!(record.address, primary.address);
    assert_eq!(
        cluster.endpoint().await.as_deref(),
        Some(primary.address.as_str())
    );
    assert_eq!(primary.reason().await.as_deref(), Some("Primary"));

    let statement =
        "SELECT string_agg(application_name || ' ' || state, ',') FROM pg_stat_replication";
    let streaming = inside(primary, "postgres", statement).await.unwrap();
    assert_eq!(streaming.matches(" streaming").count(), 2, "{streaming}");
    for replica in &replicas {
        assert!(
            streaming.contains(&format!("{}.", replica.name)),
            "{streaming}"
        );
        assert_eq!(replica.reason().await.as_deref(), Some("Replica"));
    }
    let version = as_owner(&cluster, &primary.address, "SELECT postgis_full_version()")
        .await
        .unwrap();
    assert!(version.contains("POSTGIS="), "{version}");
    assert_eq!(
        inside(primary, "postgres", "SHOW data_checksums")
            .await
            .unwrap(),
        "on"
    );

    write_rows(&cluster, &primary.address, 1..=3).await;
    for replica in &replicas {
        reaches(&cluster, replica, 3).await;
    }
    let error = as_owner(
        &cluster,
        &replicas[0].address,
        "INSERT INTO shore VALUES (9)",
    )
    .await
    .unwrap_err();
    assert!(error.contains("read-only"), "{error}");

    // Told to end, everybody ends cleanly, and nothing is left to recover.
    replicas.push(primary);
    for instance in &mut replicas {
        let status = instance.terminate().await;
        assert!(status.success(), "{status}\n{}", instance.log());
        assert!(
            instance.log().contains("database system is shut down"),
            "{}",
            instance.log()
        );
    }
    let primary = replicas.pop().unwrap();
    assert!(!primary.volume.join("pgdata/postmaster.pid").exists());
    assert!(
        !primary.log().contains(PASSWORD),
        "the password is in the log"
    );
}

#[tokio::test]
async fn nobody_gets_in_by_another_door() {
    let cluster = Cluster::start().await;
    let instances = cluster.ready_instances(1).await;
    let primary = &instances[0];
    let authority = cluster.secrets.server.join("ca.crt");
    let secret = |name: &str| {
        cluster
            .secrets
            .replication
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    };
    let (certificate, key) = (secret("tls.crt"), secret("tls.key"));
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let verified = [
        ("PGSSLMODE", "verify-ca"),
        ("PGSSLROOTCERT", authority.to_str().unwrap()),
    ];
    let with = |settings: &[(&'static str, &'static str)]| [&verified[..], settings].concat();

    try_in(
        &primary.address,
        &with(&[("PGUSER", OWNER), ("PGPASSWORD", PASSWORD)]),
    )
    .await
    .unwrap();
    let refused = [
        (
            "without TLS",
            vec![
                ("PGSSLMODE", "disable"),
                ("PGUSER", OWNER),
                ("PGPASSWORD", PASSWORD),
            ],
        ),
        (
            "with a wrong password",
            with(&[("PGUSER", OWNER), ("PGPASSWORD", "wrong")]),
        ),
        (
            "as the superuser",
            with(&[("PGUSER", "postgres"), ("PGPASSWORD", PASSWORD)]),
        ),
        (
            "as the replication role by password",
            with(&[("PGUSER", "geodb_replication"), ("PGPASSWORD", PASSWORD)]),
        ),
    ];
    for (how, settings) in refused {
        assert!(try_in(&primary.address, &settings).await.is_err(), "{how}");
    }
    // The replication certificate opens replication, and nothing else.
    let mut certified = with(&[("PGUSER", "geodb_replication")]);
    certified.extend([
        ("PGSSLCERT", certificate.as_str()),
        ("PGSSLKEY", key.as_str()),
    ]);
    assert!(
        try_in(&primary.address, &certified).await.is_err(),
        "an ordinary session by certificate"
    );
    let stored = inside(
        primary,
        "postgres",
        "SELECT rolpassword FROM pg_authid WHERE rolcanlogin AND rolpassword IS NOT NULL",
    )
    .await
    .unwrap();
    assert!(
        stored.starts_with("SCRAM-SHA-256$") && !stored.contains('\n'),
        "{stored}"
    );
}

#[tokio::test]
async fn a_killed_postmaster_comes_back_with_every_acknowledged_row() {
    let cluster = Cluster::start().await;
    let mut instances = cluster.ready_instances(2).await;
    let (primary, replicas) = cluster.split(&mut instances).await;
    write_rows(&cluster, &primary.address, 1..=50).await;
    // A busy backend outlives its postmaster; it must be gone before the next one starts.
    let busy = as_owner(
        &cluster,
        &primary.address,
        "SELECT count(*) FROM generate_series(1, 100000000000)",
    );
    let fault = async {
        let running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series(1%' AND pid <> pg_backend_pid()";
        eventually("the query runs", || async {
            inside(primary, "postgres", running)
                .await
                .ok()
                .filter(|count| count == "1")
        })
        .await;
        let before = primary.postgres_pids();
        kill_process(primary.postmaster(), Signal::KILL).unwrap();
        eventually("the old processes are gone", || async {
            (!primary
                .postgres_pids()
                .iter()
                .any(|pid| before.contains(pid)))
            .then_some(())
        })
        .await;
    };
    let (broken, ()) = tokio::join!(busy, fault);
    broken.expect_err("the busy query does not survive");
    primary.ready().await;
    assert_eq!(rows(&cluster, &primary.address).await, Some(50));
    write_rows(&cluster, &primary.address, 51..=60).await;
    reaches(&cluster, replicas[0], 60).await;
    replicas[0].ready().await;
    assert_eq!(cluster.register().await.epoch.0, 1);
    assert!(primary.is_running(), "the container was not restarted");
}

#[tokio::test]
async fn a_killed_container_goes_on_with_its_volume() {
    let cluster = Cluster::start().await;
    let mut instances = cluster.ready_instances(2).await;
    let before = cluster.register().await;
    let (primary, mut replicas) = cluster.split(&mut instances).await;
    write_rows(&cluster, &primary.address, 1..=20).await;
    // The emptyDir stays, with the socket's lock file and a process number that may mean anybody now.
    replicas[0].restart(&cluster).await;
    primary.restart(&cluster).await;
    primary.ready().await;
    assert_eq!(rows(&cluster, &primary.address).await, Some(20));
    write_rows(&cluster, &primary.address, 21..=30).await;
    reaches(&cluster, replicas[0], 30).await;
    replicas[0].ready().await;
    assert_eq!(
        cluster.register().await,
        before,
        "the same incarnations, the same record"
    );
}

#[tokio::test]
async fn replicas_follow_a_primary_that_moved() {
    let cluster = Cluster::start().await;
    let mut instances = cluster.ready_instances(2).await;
    let (primary, replicas) = cluster.split(&mut instances).await;
    write_rows(&cluster, &primary.address, 1..=5).await;
    assert!(primary.terminate().await.success());
    replicas[0].waits_because("NotStreaming").await;
    // The pod is replaced: another address, a new emptyDir, the same volume.
    primary.address = cluster.api.pod_address(77);
    primary.replace_run_directory();
    primary.start(&cluster);
    primary.ready().await;
    let record = cluster.register().await.record.unwrap();
    assert_eq!(
        (record.address.as_str(), record.epoch.0),
        (primary.address.as_str(), 1)
    );
    assert_eq!(
        cluster.endpoint().await.as_deref(),
        Some(primary.address.as_str())
    );
    replicas[0].ready().await;
    write_rows(&cluster, &primary.address, 6..=9).await;
    reaches(&cluster, replicas[0], 9).await;
}

#[tokio::test]
async fn half_made_data_is_made_again() {
    let cluster = Cluster::start().await;
    let mut first = cluster.instance(1);
    first.start(&cluster);
    // Killed inside initdb: nothing but the staging directory is there.
    let staging = first.volume.join("pgdata.making");
    eventually("initdb is under way", || async {
        staging.join("global").exists().then_some(())
    })
    .await;
    first.kill().await;
    assert!(!first.volume.join("pgdata").exists());
    first.start(&cluster);
    first.ready().await;
    assert_eq!(cluster.register().await.epoch.0, 1);
    assert!(!staging.exists());

    // A base backup that was interrupted, and left files that are not the leader's.
    let mut second = cluster.instance(2);
    fs::create_dir_all(second.volume.join("pgdata.making/base")).unwrap();
    fs::write(second.volume.join("pgdata.making/PG_VERSION"), "15\n").unwrap();
    second.start(&cluster);
    second.ready().await;
    assert!(
        second.log().contains("DiscardingHalfMadeData"),
        "{}",
        second.log()
    );
    assert!(!second.volume.join("pgdata.making").exists());
}

#[tokio::test]
async fn a_foreign_directory_is_refused_and_left_alone() {
    let cluster = Cluster::start().await;
    let mut instance = cluster.instance(1);
    let data = instance.volume.join("pgdata");
    fs::create_dir_all(data.join("base")).unwrap();
    fs::write(data.join("PG_VERSION"), "15\n").unwrap();
    fs::write(data.join("precious"), "keep").unwrap();
    let before = listing(&instance.volume.join("pgdata"));
    instance.start(&cluster);
    instance.waits_because("ForeignData").await;
    assert_eq!(listing(&data), before);
    assert_eq!(
        cluster.register().await.epoch.0,
        0,
        "it did not take part in anything"
    );
    assert_eq!(
        instance.probe("/livez").await.unwrap().0,
        200,
        "restarting it would not help"
    );
    assert!(instance.terminate().await.success());
}

fn listing(directory: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut found: Vec<_> = entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                entry.metadata().unwrap().len(),
            )
        })
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn a_lost_register_is_taken_again_by_the_primary_alone() {
    let cluster = Cluster::start().await;
    let mut instances = cluster.ready_instances(2).await;
    let before = cluster.register().await.record.unwrap();
    let (primary, mut replicas) = cluster.split(&mut instances).await;
    write_rows(&cluster, &primary.address, 1..=5).await;
    cluster.delete_register().await;
    write_rows(&cluster, &primary.address, 6..=9).await;

    // An instance with nothing must not make a database of a register that has lost its content.
    primary.kill().await;
    replicas[0].kill().await;
    cluster.create_register(false).await;
    let mut empty = cluster.instance(9);
    empty.start(&cluster);
    empty.waits_because("BootstrapForbidden").await;
    replicas[0].start(&cluster);
    replicas[0].waits_because("RegisterEmptied").await;
    primary.start(&cluster);
    primary.ready().await;
    let record = cluster.register().await.record.unwrap();
    assert_eq!(
        (record.epoch.0, &record.leader, &record.system_identifier),
        (2, &before.leader, &before.system_identifier)
    );
    for instance in [&*replicas[0], &empty] {
        instance.ready().await;
        reaches(&cluster, instance, 9).await;
    }

    // The same under a running primary, this time with only the annotation gone.
    let patch = json!({ "metadata": { "annotations": { REGISTER_ANNOTATION: null } } });
    cluster
        .leases()
        .patch(DATABASE, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    eventually("published in epoch 3", || async {
        cluster
            .register()
            .await
            .record
            .filter(|record| record.epoch.0 == 3)
    })
    .await;
    primary.ready().await;
    assert_eq!(rows(&cluster, &primary.address).await, Some(9));
}

#[tokio::test]
async fn an_outage_of_the_api_stops_nothing_that_works() {
    let mut cluster = Cluster::start().await;
    let mut instances = cluster.ready_instances(2).await;
    let (primary, replicas) = cluster.split(&mut instances).await;
    cluster.api.stop().await;
    write_rows(&cluster, &primary.address, 1..=5).await;
    reaches(&cluster, replicas[0], 5).await;
    kill_process(primary.postmaster(), Signal::KILL).unwrap();
    primary.waits_until_not_ready().await;
    primary.ready().await;
    write_rows(&cluster, &primary.address, 6..=7).await;
    reaches(&cluster, replicas[0], 7).await;
    // A container that starts now has nobody to ask, and waits.
    let replica = replicas.into_iter().next().unwrap();
    replica.restart(&cluster).await;
    replica.waits_because("RegisterUnknown").await;
    cluster.api.resume().await;
    for instance in &instances {
        instance.ready().await;
    }
}

#[tokio::test]
async fn a_lost_volume_of_the_leader_is_not_replaced_by_nothing() {
    let cluster = Cluster::start().await;
    let mut instances = cluster.ready_instances(1).await;
    let before = cluster.register().await;
    let primary = &mut instances[0];
    primary.kill().await;
    fs::remove_dir_all(&primary.volume).unwrap();
    fs::create_dir(&primary.volume).unwrap();
    primary.start(&cluster);
    primary.waits_because("VolumeLost").await;
    assert!(!primary.volume.join("pgdata").exists());
    assert_eq!(cluster.register().await, before);
}

#[tokio::test]
async fn at_rest_nothing_is_asked_of_the_api() {
    let cluster = Cluster::start().await;
    let _instances = cluster.ready_instances(2).await;
    let server = cluster.api.server();
    // Whatever the start still had under way is over when both watches are all there is.
    let (requests, watches) = (server.requests(), server.watches());
    assert_eq!(watches, 2, "one watch each");
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(
        server.requests(),
        requests,
        "five seconds without a request"
    );
}

#[tokio::test]
async fn what_the_image_lacks_is_said() {
    let cluster = Cluster::with_extensions("no_such_extension").await;
    let mut instance = cluster.instance(1);
    instance.start(&cluster);
    instance.waits_because("Preparing").await;
    let said = eventually("the reason", || async {
        let message = instance.probe("/readyz").await?.1["message"]
            .as_str()?
            .to_owned();
        message.contains("not in this image").then_some(message)
    })
    .await;
    assert!(said.contains("no_such_extension"), "{said}");
    assert!(
        cluster.register().await.record.is_none(),
        "nothing is published before it is complete"
    );
    assert!(
        as_owner(&cluster, &instance.address, "SELECT 1")
            .await
            .is_err(),
        "the doors of {APP_DATABASE} are shut"
    );
}
