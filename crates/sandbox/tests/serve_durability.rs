//! What was acknowledged is there after the process is killed, and versions only grow.
#![allow(
    clippy::unwrap_used,
    reason = "a test's panic is its report, in its helpers too"
)]

mod serve_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use geodb_sandbox::serve::{Clock, Server, ServerConfig, StartError};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;

const CHILD_DIRECTORY: &str = "GEODB_TEST_CHILD_DIRECTORY";
/// The child is killed after this many acknowledged writes, in the middle of more.
const WRITES_BEFORE_KILL: usize = 200;
const WRITERS: usize = 8;

fn start(data: &Path) -> Result<Server, StartError> {
    Server::start(ServerConfig {
        data: Some(data.to_owned()),
        range: 64,
        clock: Clock::system(),
        seed: None,
    })
}

async fn version(client: Client) -> u64 {
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    maps.list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap()
        .parse()
        .unwrap()
}

/// Not a test of its own: what [`a_kill_loses_nothing_that_was_acknowledged`] starts and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "started by another test, as the process to kill"]
async fn child_that_writes() {
    let Some(data) = std::env::var_os(CHILD_DIRECTORY) else {
        return;
    };
    let server = start(Path::new(&data)).unwrap();
    let writer = |number: usize| {
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
        async move {
            for round in 0_usize.. {
                let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("w{number}-{}", round % 20)},
                    "data": {"round": round.to_string()}});
                let made = maps
                    .patch(
                        map["metadata"]["name"].as_str().unwrap(),
                        &PatchParams::apply("writer"),
                        &Patch::Apply(&map),
                    )
                    .await
                    .unwrap();
                // One line is one acknowledged write.
                println!(
                    "ACK {} {} {round}",
                    made.name_any(),
                    made.resource_version().unwrap()
                );
            }
        }
    };
    futures::future::join_all((0..WRITERS).map(writer)).await;
}

#[tokio::test]
async fn a_kill_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_writes", "--ignored", "--nocapture"])
        .env(CHILD_DIRECTORY, &data)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let mut newest = 0_u64;
    let mut count = 0;
    while let Some(Ok(line)) = lines.next() {
        let Some(rest) = line.split_once("ACK ").map(|(_, rest)| rest.to_owned()) else {
            continue;
        };
        let parts = rest.split(' ').collect::<Vec<_>>();
        // A line the kill cut off was not acknowledged to anybody.
        let [name, version, round] = parts.as_slice() else {
            continue;
        };
        let (Ok(version), Ok(round)) = (version.parse::<u64>(), round.parse::<usize>()) else {
            continue;
        };
        newest = newest.max(version);
        acknowledged.insert((*name).to_owned(), round);
        count += 1;
        if count == WRITES_BEFORE_KILL {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(
        count >= WRITES_BEFORE_KILL,
        "only {count} writes were acknowledged"
    );

    let server = start(&data).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    for (name, round) in &acknowledged {
        let map = maps.get(name).await.unwrap();
        let found = map.data.unwrap()["round"].parse::<usize>().unwrap();
        assert!(
            found >= *round,
            "{name}: {found} is older than the acknowledged {round}"
        );
    }
    assert!(version(server.client()).await >= newest);
    let map = serde_json::from_value(json!({"metadata": {"name": "after"}})).unwrap();
    let next = maps
        .create(&PostParams::default(), &map)
        .await
        .unwrap()
        .resource_version()
        .unwrap();
    assert!(next.parse::<u64>().unwrap() > newest);
    server.shutdown().await;
}

#[tokio::test]
async fn a_restart_has_the_same_objects_keys_and_definitions() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).unwrap();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let before = namespaces.get("default").await.unwrap();
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "boats.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat", "singular": "boat", "listKind": "BoatList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        .header("content-type", "application/json")
        .body(definition.to_string().into_bytes())
        .unwrap();
    server.client().request_text(request).await.unwrap();
    let (token, authority) = (
        server.pki().administrator_token().to_owned(),
        server.pki().authority_pem().to_owned(),
    );
    let last = version(server.client()).await;
    server.shutdown().await;
    drop((namespaces, server));

    let server = start(directory.path()).unwrap();
    assert_eq!(
        version(server.client()).await,
        last,
        "a restart changes nothing"
    );
    assert_eq!(server.pki().administrator_token(), token);
    assert_eq!(server.pki().authority_pem(), authority);
    let namespaces: Api<Namespace> = Api::all(server.client());
    assert_eq!(namespaces.get("default").await.unwrap(), before);
    let boats = http::Request::get("/apis/example.com/v1/boats")
        .body(vec![])
        .unwrap();
    server
        .client()
        .request_text(boats)
        .await
        .expect("the definition is served again");
    server.shutdown().await;
}

#[tokio::test]
async fn a_directory_belongs_to_one_server() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).unwrap();
    let error = start(directory.path()).err().expect("refused").to_string();
    assert!(error.contains("another sandbox"), "{error}");
    server.shutdown().await;
    drop(server);
    start(directory.path()).unwrap();
}

#[test]
fn secrets_on_disk_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (ours, theirs) = (
        directory.path().join("ours"),
        directory.path().join("theirs"),
    );
    std::fs::create_dir(&theirs).unwrap();
    std::fs::set_permissions(&theirs, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for data in [&ours, &theirs] {
        drop(start(data).unwrap());
        for file in [
            "kubeconfig",
            "state.redb",
            "pki/ca.key",
            "pki/service-account.key",
            "pki/admin.token",
        ] {
            assert_eq!(mode(&data.join(file)), 0o600, "{file}");
        }
        assert_eq!(mode(&data.join("pki")), 0o700);
    }
    assert_eq!(mode(&ours), 0o700);
    assert_eq!(
        mode(&theirs),
        0o755,
        "a directory that was there keeps its permissions"
    );
}
