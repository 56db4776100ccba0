//! Tests of `probes`.
#![allow(
    clippy::needless_pass_by_value,
    reason = "literals read better by value"
)]

use super::*;
use serde_json::{Value, json};
use tokio::net::TcpListener;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;

fn planned(probe: Value) -> Result<ProbePlan, ProbeError> {
    let probe: Probe = serde_json::from_value(probe).expect("a probe");
    let container: Container = serde_json::from_value(
        json!({"name": "c", "ports": [{"name": "web", "containerPort": 8008}]}),
    )
    .expect("a container");
    ProbePlan::of(&probe, &container, HERE)
}

fn inside() -> Inside {
    Inside {
        process: ContainerProcess::nobody(),
        variables: Variables::default(),
        directory: "/".into(),
    }
}

#[test]
fn defaults_are_those_of_kubernetes_and_ports_have_names() {
    let plan = planned(json!({"httpGet": {"path": "/readyz", "port": "web"}})).expect("a plan");
    assert_eq!(
        plan.question,
        Question::Http {
            host: HERE.to_string(),
            port: 8008,
            path: "/readyz".to_owned(),
            headers: Vec::new()
        }
    );
    assert_eq!(
        (
            plan.period,
            plan.timeout,
            plan.success_threshold,
            plan.failure_threshold
        ),
        (Duration::from_secs(10), Duration::from_secs(1), 1, 3)
    );
    let table = [
        (
            json!({"tcpSocket": {"port": "nope"}}),
            ProbeError::NoPort("nope".to_owned()),
        ),
        (
            json!({"tcpSocket": {"port": 70000}}),
            ProbeError::NoPort("70000".to_owned()),
        ),
        (
            json!({"httpGet": {"port": 1, "scheme": "HTTPS"}}),
            ProbeError::Refused("httpGet with scheme HTTPS"),
        ),
        (json!({"grpc": {"port": 1}}), ProbeError::Refused("grpc")),
        (
            json!({"httpGet": {"port": 1, "path": "/x\r\nEvil: 1"}}),
            ProbeError::BadRequest,
        ),
    ];
    for (probe, expected) in table {
        assert_eq!(planned(probe), Err(expected));
    }
}

#[test]
fn a_verdict_needs_its_row_and_is_given_once() {
    let plan = ProbePlan {
        success_threshold: 2,
        ..planned(json!({"exec": {"command": ["true"]}})).expect("a plan")
    };
    let mut tally = Tally::default();
    let told: Vec<_> = [
        true, true, true, false, false, true, false, false, false, false,
    ]
    .into_iter()
    .map(|healthy| tally.record(healthy, &plan))
    .collect();
    assert_eq!(
        told,
        [
            None,
            Some(true),
            None,
            None,
            None,
            None,
            None,
            None,
            Some(false),
            None
        ]
    );
}

#[tokio::test]
async fn http_counts_the_status_and_nothing_else() {
    for (answer, expected) in [
        ("HTTP/1.1 200 OK\r\n\r\n", None),
        ("HTTP/1.0 302 Found\r\n\r\n", None),
        ("HTTP/1.1 503 Busy\r\n\r\n", Some("statuscode: 503")),
        ("nonsense\r\n", Some("malformed")),
        ("", Some("malformed")),
    ] {
        let listener = TcpListener::bind((HERE, 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut request = [0; 1024];
            let count = stream.read(&mut request).await.expect("a request");
            stream.write_all(answer.as_bytes()).await.expect("sent");
            String::from_utf8_lossy(&request[..count]).into_owned()
        });
        let plan = planned(json!({"httpGet": {"path": "livez", "port": port, "httpHeaders": [{"name": "X-Who", "value": "me"}]}, "timeoutSeconds": 30})).expect("a plan");
        let answer = ask(&plan, &inside()).await;
        let request = server.await.expect("served");
        assert!(
            request.starts_with("GET /livez HTTP/1.1\r\n") && request.contains("X-Who: me\r\n"),
            "{request}"
        );
        match expected {
            None => assert_eq!(answer, Ok(())),
            Some(text) => assert!(
                answer.as_ref().is_err_and(|said| said.contains(text)),
                "{answer:?}"
            ),
        }
    }
}

#[tokio::test]
async fn tcp_needs_somebody_who_listens() {
    let listener = TcpListener::bind((HERE, 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let plan = planned(json!({"tcpSocket": {"port": port}, "timeoutSeconds": 30})).expect("a plan");
    assert_eq!(ask(&plan, &inside()).await, Ok(()));
    drop(listener);
    assert!(
        ask(&plan, &inside())
            .await
            .is_err_and(|said| said.contains("dial tcp"))
    );
}
