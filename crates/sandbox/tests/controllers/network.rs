//! Services answer on their own addresses, with whoever is ready.

use std::net::SocketAddr;

use geodb_sandbox::controllers::hosts;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::{Stage, eventually};

/// Greets every connection with a name and then holds it open. Ends with the test's runtime.
async fn server(listener: TcpListener, name: &'static str) {
    let mut open = Vec::new();
    while let Ok((mut client, _)) = listener.accept().await {
        client.write_all(name.as_bytes()).await.expect("written");
        open.push(client);
    }
}

async fn listen(address: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind((address, 0)).await.expect("a listener");
    let port = listener.local_addr().expect("an address").port();
    (listener, port)
}

async fn greeting(address: SocketAddr) -> Option<(TcpStream, String)> {
    let mut client = TcpStream::connect(address).await.ok()?;
    let mut name = [0; 3];
    client.read_exact(&mut name).await.ok()?;
    Some((client, String::from_utf8_lossy(&name).into_owned()))
}

fn address(service: &Service, port: u16) -> SocketAddr {
    let ip = service
        .spec
        .as_ref()
        .and_then(|spec| spec.cluster_ip.clone())
        .expect("an address");
    SocketAddr::new(ip.parse().expect("an address"), port)
}

fn ready(address: &str, is_ready: bool) -> Value {
    json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_follows_its_pods() {
    let stage = Stage::new().await;
    stage.node("oak").await;
    let (listener, port) = listen("127.0.0.1").await;
    tokio::spawn(server(listener, "one"));
    stage.pod("web", json!({"containers": [{"name": "c", "image": "debian:12", "ports": [{"name": "sql", "containerPort": port}]}]})).await;
    let service: Service = stage
        .create(json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": port, "targetPort": "sql"}]}}))
        .await;
    let front = address(&service, port);
    let slices = stage.api::<EndpointSlice>();
    let of_service = ListParams::default().labels("kubernetes.io/service-name=web");
    eventually("an empty slice", || async {
        slices
            .list(&of_service)
            .await
            .expect("an answer")
            .items
            .pop()
    })
    .await;
    assert!(TcpStream::connect(front).await.is_err(), "nobody is there");
    stage.node_of("web").await;
    stage.report("web", ready("127.0.0.1", true)).await;
    let (_open, name) = eventually("the pod answers", || greeting(front)).await;
    assert_eq!(name, "one");
    let slice = slices
        .list(&of_service)
        .await
        .expect("an answer")
        .items
        .pop()
        .expect("a slice");
    assert!(slice.metadata.name.expect("a name").starts_with("web-"));
    stage.report("web", ready("127.0.0.1", false)).await;
    eventually("the Service refuses", || async {
        TcpStream::connect(front).await.is_err().then_some(())
    })
    .await;
    let hosts_file = hosts::path(stage.data.path(), &stage.namespace);
    let line = format!("{} web web.{} ", front.ip(), stage.namespace);
    eventually("the name is in the hosts file", || async {
        std::fs::read_to_string(&hosts_file)
            .ok()
            .filter(|text| text.contains(&line))
    })
    .await;
    stage.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_written_by_somebody_else_moves_the_service_and_closes_old_connections() {
    let stage = Stage::new().await;
    let (old, port) = listen("127.0.0.1").await;
    let new = TcpListener::bind(("127.0.0.2", port))
        .await
        .expect("a listener");
    tokio::spawn(server(old, "old"));
    tokio::spawn(server(new, "new"));
    let service: Service = stage
        .create(json!({"metadata": {"name": "rw"}, "spec": {"ports": [{"port": port}]}}))
        .await;
    let slice = json!({"metadata": {"name": "rw", "labels": {"kubernetes.io/service-name": "rw"}}, "addressType": "IPv4",
        "ports": [{"name": "", "port": port, "protocol": "TCP"}], "endpoints": [{"addresses": ["127.71.2.1"]}]});
    // A real API server forbids loopback addresses in slices; the sandbox must not, because its pods have nothing else.
    let mut first = slice.clone();
    first["endpoints"] = json!([{"addresses": ["127.0.0.1"]}]);
    stage.create::<EndpointSlice>(first).await;
    let front = address(&service, port);
    let (mut connection, name) = eventually("the old one answers", || greeting(front)).await;
    assert_eq!(name, "old");
    let moved = json!({"endpoints": [{"addresses": ["127.0.0.2"]}]});
    stage
        .api::<EndpointSlice>()
        .patch("rw", &PatchParams::default(), &Patch::Merge(&moved))
        .await
        .expect("moved");
    let mut rest = Vec::new();
    let closed = tokio::time::timeout(
        std::time::Duration::from_secs(30),
        connection.read_to_end(&mut rest),
    )
    .await;
    assert!(
        closed.is_ok(),
        "the connection to the old endpoint is closed"
    );
    let (_open, name) = eventually("the new one answers", || greeting(front)).await;
    assert_eq!(name, "new");
    let all = stage
        .api::<EndpointSlice>()
        .list(&ListParams::default())
        .await
        .expect("an answer");
    assert_eq!(
        all.items.len(),
        1,
        "no slice is added to a Service without a selector"
    );
    stage.end().await;
}
