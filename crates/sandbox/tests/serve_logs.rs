//! `pods/NAME/log`: the API server asks the node, over mutual TLS, and passes on what comes as it comes.
#![allow(
    clippy::unwrap_used,
    reason = "a test's panic is its report, in its helpers too"
)]

mod serve_support;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use geodb_sandbox::serve::pki::ClientCertificates;
use geodb_sandbox::serve::{Server, ServerConfig};
use http_body::Frame;
use http_body_util::StreamBody;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{Api, LogParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

const DEADLINE: Duration = Duration::from_secs(30);

/// What a kubelet would answer: the lines sent into `lines`, after one that says what was asked.
async fn fake_node(server: &Server, lines: mpsc::Receiver<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = server
        .pki()
        .server_config(&["127.0.0.1".to_owned()], ClientCertificates::Required)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let lines = Arc::new(tokio::sync::Mutex::new(Some(lines)));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(stream) = acceptor.accept(stream).await else {
                continue;
            };
            let lines = Arc::clone(&lines);
            let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                let lines = Arc::clone(&lines);
                async move {
                    let asked = format!("{}\n", request.uri());
                    let lines = lines.lock().await.take();
                    let waiting = asked.contains("/init/") || lines.is_none();
                    let rest = futures::stream::unfold(lines, |lines| async move {
                        let mut lines = lines?;
                        let line = lines.recv().await?;
                        Some((line, Some(lines)))
                    });
                    let all = futures::stream::iter([asked]).chain(rest);
                    let body = StreamBody::new(
                        all.map(|line| Ok::<_, Infallible>(Frame::data(Bytes::from(line)))),
                    );
                    let mut response = http::Response::new(body);
                    if waiting {
                        *response.status_mut() = http::StatusCode::BAD_REQUEST;
                    }
                    Ok::<_, Infallible>(response)
                }
            });
            tokio::spawn(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

async fn make_node(client: &Client, address: SocketAddr) {
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(json!({"metadata": {"name": "quay"}})).unwrap(),
        )
        .await
        .unwrap();
    let status = json!({"status": {
        "addresses": [{"type": "Hostname", "address": "quay"}, {"type": "InternalIP", "address": address.ip().to_string()}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": address.port()}}}});
    nodes
        .patch_status("quay", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

async fn make_pod(client: &Client, name: &str, node: Option<&str>, containers: &[&str]) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let containers = containers
        .iter()
        .map(|name| json!({"name": name, "image": "busybox:1"}))
        .collect::<Vec<_>>();
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(pod).unwrap(),
    )
    .await
    .unwrap();
}

#[tokio::test]
async fn a_followed_log_comes_as_it_is_written() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let client = server.client();
    serve_support::default_account(client.clone()).await;
    let (sender, lines) = mpsc::channel(8);
    make_node(&client, fake_node(&server, lines).await).await;
    make_pod(&client, "crane", Some("quay"), &["main"]).await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let options = LogParams {
        follow: true,
        tail_lines: Some(5),
        ..LogParams::default()
    };
    let work = async {
        let mut log = pods.log_stream("crane", &options).await.unwrap().lines();
        let asked = log.try_next().await.unwrap().unwrap();
        assert_eq!(
            asked,
            "/containerLogs/default/crane/main?follow=true&tailLines=5"
        );
        for text in ["one", "two"] {
            sender.send(format!("{text}\n")).await.unwrap();
            assert_eq!(
                log.try_next().await.unwrap().unwrap(),
                text,
                "each line arrives before the next is written"
            );
        }
        drop(sender);
        assert!(log.try_next().await.unwrap().is_none());
    };
    tokio::time::timeout(DEADLINE, work).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_shown_is_said_as_a_cluster_says_it() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let client = server.client();
    serve_support::default_account(client.clone()).await;
    let (sender, lines) = mpsc::channel(8);
    make_node(&client, fake_node(&server, lines).await).await;
    drop(sender);
    make_pod(&client, "pair", Some("quay"), &["left", "right"]).await;
    make_pod(&client, "lost", Some("gone"), &["main"]).await;
    make_pod(&client, "waiting", None, &["main"]).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let refusal =
        async |name: &str, options: LogParams| match pods.logs(name, &options).await.unwrap_err() {
            kube::Error::Api(status) => (status.code, status.message),
            other => panic!("{other}"),
        };
    let named = |container: &str| LogParams {
        container: Some(container.to_owned()),
        ..LogParams::default()
    };
    let expected = (
        400,
        "a container name must be specified for pod pair, choose one of: [left right]".to_owned(),
    );
    assert_eq!(refusal("pair", LogParams::default()).await, expected);
    assert_eq!(
        refusal("pair", named("middle")).await,
        (400, "container middle is not valid for pod pair".to_owned())
    );
    assert_eq!(
        refusal("absent", LogParams::default()).await,
        (404, "pods \"absent\" not found".to_owned())
    );
    assert_eq!(refusal("lost", LogParams::default()).await.0, 500);
    assert_eq!(
        pods.logs("waiting", &LogParams::default()).await.unwrap(),
        "",
        "no node, no log, no error"
    );
    pods.logs("pair", &named("left")).await.unwrap();
    let (code, message) = refusal("pair", named("left")).await;
    assert_eq!(
        (code, message.as_str()),
        (400, "/containerLogs/default/pair/left"),
        "a node's refusal reaches the client"
    );
    for (query, code) in [
        ("tailLines=-1", 422),
        ("limitBytes=0", 422),
        ("tailLines=x", 400),
        ("stream=Stdout", 501),
    ] {
        let path = format!("/api/v1/namespaces/default/pods/waiting/log?{query}");
        let error = client
            .request_text(http::Request::get(path).body(vec![]).unwrap())
            .await
            .unwrap_err();
        assert!(
            matches!(&error, kube::Error::Api(status) if status.code == code),
            "{query}: {error}"
        );
    }
    let exec = http::Request::get("/api/v1/namespaces/default/pods/pair/exec?command=ls")
        .body(vec![])
        .unwrap();
    let error = client.request_text(exec).await.unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 501),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_answers_nobody_without_a_certificate() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let (_sender, lines) = mpsc::channel(8);
    let address = fake_node(&server, lines).await;
    let mut roots = rustls::RootCertStore::empty();
    use rustls_pki_types::pem::PemObject;
    roots
        .add(
            rustls_pki_types::CertificateDer::from_pem_slice(
                server.pki().authority_pem().as_bytes(),
            )
            .unwrap(),
        )
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let answer = async {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = connector
            .connect("127.0.0.1".try_into().unwrap(), stream)
            .await?;
        stream
            .write_all(b"GET /containerLogs/a/b/c HTTP/1.1\r\nhost: x\r\n\r\n")
            .await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok::<_, std::io::Error>(text)
    };
    // In TLS 1.3 the client learns of its refusal with the first read.
    let answer = tokio::time::timeout(DEADLINE, answer).await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
}
