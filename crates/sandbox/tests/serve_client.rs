//! The server as kube-rs sees it: in process and over TLS, and who is let in.
#![allow(
    clippy::unwrap_used,
    reason = "a test's panic is its report, in its helpers too"
)]

mod serve_support;

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use geodb_sandbox::serve::{Server, ServerConfig};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, WatchEvent,
    WatchParams,
};
use kube::discovery::Discovery;
use kube::{Client, ResourceExt};
use serde_json::json;
use serve_support::Sandbox;

/// Nothing here takes a second; a test that waits this long is stuck.
const DEADLINE: Duration = Duration::from_secs(60);

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": value}})).unwrap()
}

async fn exercise(client: Client) {
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = maps.list(&ListParams::default()).await.unwrap();
    let version = list.metadata.resource_version.unwrap();
    let mut events = maps
        .watch(&WatchParams::default().timeout(50), &version)
        .await
        .unwrap()
        .boxed();

    let made = maps
        .create(&PostParams::default(), &config_map("buoy", "a"))
        .await
        .unwrap();
    assert!(made.uid().is_some());
    let conflict = maps
        .create(&PostParams::default(), &config_map("buoy", "a"))
        .await
        .unwrap_err();
    assert!(
        matches!(&conflict, kube::Error::Api(status) if status.code == 409 && status.reason == "AlreadyExists"),
        "{conflict}"
    );
    let patch = Patch::Merge(json!({"data": {"k": "b"}}));
    let patched = maps
        .patch("buoy", &PatchParams::default(), &patch)
        .await
        .unwrap();
    assert_eq!(patched.data.as_ref().unwrap()["k"], "b");
    let mut stale = made.clone();
    stale.data = Some([("k".to_owned(), "c".to_owned())].into());
    let error = maps
        .replace("buoy", &PostParams::default(), &stale)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, kube::Error::Api(status) if status.code == 409),
        "{error}"
    );
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "buoy"}, "data": {"l": "d"}});
    let applied = maps
        .patch(
            "buoy",
            &PatchParams::apply("tester"),
            &Patch::Apply(applied),
        )
        .await
        .unwrap();
    assert_eq!(applied.data.as_ref().unwrap().len(), 2);
    maps.delete("buoy", &DeleteParams::default()).await.unwrap();

    let mut seen = Vec::new();
    while seen.len() < 4 {
        match events.try_next().await.unwrap().expect("the watch goes on") {
            WatchEvent::Added(map) => seen.push(format!("added {}", map.data.unwrap()["k"])),
            WatchEvent::Modified(map) => seen.push(format!("modified {}", map.data.unwrap().len())),
            WatchEvent::Deleted(map) => seen.push(format!("deleted {}", map.name_any())),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(
        seen,
        ["added a", "modified 1", "modified 2", "deleted buoy"]
    );
}

#[tokio::test]
async fn objects_live_and_die_in_process() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    tokio::time::timeout(DEADLINE, exercise(server.client()))
        .await
        .unwrap();
    server.shutdown().await;
}

#[tokio::test]
async fn objects_live_and_die_over_tls() {
    let sandbox = Sandbox::start();
    let client = sandbox.remote_client().await;
    tokio::time::timeout(DEADLINE, exercise(client))
        .await
        .unwrap();
    sandbox.stop().await;
}

#[tokio::test]
async fn a_fresh_cluster_has_its_namespaces() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let namespaces: Api<Namespace> = Api::all(server.client());
    let names = namespaces
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect::<Vec<_>>();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
}

fn definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": "boats.harbour.example.com"},
        "spec": {
            "group": "harbour.example.com", "scope": "Namespaced",
            "names": {"plural": "boats", "singular": "boat", "kind": "Boat", "shortNames": ["bt"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": {"type": "integer", "default": 1}}},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}},
            }],
        },
    }))
    .unwrap()
}

#[tokio::test]
async fn a_definition_is_discovered_and_its_objects_have_defaults() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions
        .create(&PostParams::default(), &definition())
        .await
        .unwrap();
    let discovery = Discovery::new(client.clone())
        .filter(&["harbour.example.com"])
        .run()
        .await
        .unwrap();
    let group = discovery
        .get("harbour.example.com")
        .expect("the group is there");
    let (resource, capabilities) = group.recommended_kind("Boat").expect("the kind is there");
    assert_eq!(capabilities.scope, kube::discovery::Scope::Namespaced);
    let aggregated = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .unwrap();
    assert!(aggregated.get("harbour.example.com").is_some());
    let boats: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    let boat = DynamicObject::new("ferry", &resource).data(json!({"spec": {}}));
    let made = boats.create(&PostParams::default(), &boat).await.unwrap();
    assert_eq!(made.data["spec"]["replicas"], 1);
}

/// Sends a bare request with the given token and returns status and body.
async fn ask(
    sandbox: &Sandbox,
    path: &str,
    token: Option<&str>,
    header: Option<(&str, &str)>,
) -> (u16, String) {
    let mut config = kube::Config::new(
        format!("https://{}", sandbox.server.address())
            .parse()
            .unwrap(),
    );
    config.root_cert = Some(vec![pem(sandbox.server.pki().authority_pem())]);
    config.auth_info.token = token.map(|token| token.to_owned().into());
    let client = Client::try_from(config).unwrap();
    let mut request = http::Request::get(path);
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    let response = client
        .send(request.body(kube::client::Body::empty()).unwrap())
        .await
        .unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn pem(text: &str) -> Vec<u8> {
    use rustls_pki_types::pem::PemObject;
    rustls_pki_types::CertificateDer::from_pem_slice(text.as_bytes())
        .unwrap()
        .to_vec()
}

#[tokio::test]
async fn nobody_is_let_in_without_a_token() {
    let sandbox = Sandbox::start();
    for open in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(ask(&sandbox, open, None, None).await.0, 200, "{open}");
    }
    for path in [
        "/api/v1/namespaces/default/secrets",
        "/metrics",
        "/apis",
        "/openapi/v3",
        "/",
        "/healthz/etcd",
    ] {
        assert_eq!(ask(&sandbox, path, None, None).await.0, 401, "{path}");
        assert_eq!(
            ask(&sandbox, path, Some("not-the-token"), None).await.0,
            401,
            "{path}"
        );
    }
    let admin = sandbox.server.pki().administrator_token().to_owned();
    assert_eq!(
        ask(&sandbox, "/api/v1/pods", Some(&admin), None).await.0,
        200
    );
    let (status, text) = ask(
        &sandbox,
        "/api/v1/pods",
        Some(&admin),
        Some(("Impersonate-User", "somebody")),
    )
    .await;
    assert_eq!(
        status, 501,
        "acting as somebody else is refused, not ignored: {text}"
    );
    sandbox.stop().await;
}

#[tokio::test]
async fn a_service_account_token_works_until_its_account_is_gone() {
    let sandbox = Sandbox::start();
    let accounts: Api<ServiceAccount> = Api::namespaced(sandbox.server.client(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "crane"}})).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![],
            expiration_seconds: Some(900),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request("crane", &PostParams::default(), &request)
        .await
        .unwrap();
    let token = answer.status.unwrap().token;
    assert_eq!(
        ask(&sandbox, "/api/v1/pods", Some(&token), None).await.0,
        200
    );
    let missing = accounts
        .create_token_request("nobody", &PostParams::default(), &request)
        .await
        .unwrap_err();
    assert!(
        matches!(&missing, kube::Error::Api(status) if status.code == 404),
        "{missing}"
    );
    let mut short = request.clone();
    short.spec.expiration_seconds = Some(10);
    let short = accounts
        .create_token_request("crane", &PostParams::default(), &short)
        .await
        .unwrap_err();
    assert!(
        matches!(&short, kube::Error::Api(status) if status.code == 422),
        "{short}"
    );
    accounts
        .delete("crane", &DeleteParams::default())
        .await
        .unwrap();
    assert_eq!(
        ask(&sandbox, "/api/v1/pods", Some(&token), None).await.0,
        401
    );
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    assert_eq!(
        ask(&sandbox, "/api/v1/pods", Some(&token), None).await.0,
        401,
        "another account of the same name is another account"
    );
    sandbox.stop().await;
}

#[tokio::test]
async fn a_token_bound_to_a_pod_dies_with_the_pod() {
    let sandbox = Sandbox::start();
    let client = sandbox.server.client();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "crane"}})).unwrap();
    accounts
        .create(&PostParams::default(), &account)
        .await
        .unwrap();
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pod = json!({"metadata": {"name": "crane-1"},
        "spec": {"serviceAccountName": "crane", "containers": [{"name": "c", "image": "busybox:1"}]}});
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(pod).unwrap(),
    )
    .await
    .unwrap();
    let request: TokenRequest = serde_json::from_value(json!({
        "metadata": {}, "spec": {"audiences": [], "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "crane-1"}}}))
    .unwrap();
    let answer = accounts
        .create_token_request("crane", &PostParams::default(), &request)
        .await
        .unwrap();
    let token = answer.status.unwrap().token;
    assert_eq!(
        ask(&sandbox, "/api/v1/pods", Some(&token), None).await.0,
        200
    );
    pods.delete("crane-1", &DeleteParams::default().grace_period(0))
        .await
        .unwrap();
    assert_eq!(
        ask(&sandbox, "/api/v1/pods", Some(&token), None).await.0,
        401
    );
    sandbox.stop().await;
}

#[tokio::test]
async fn requests_are_counted() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let before = server.writes();
    maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(server.writes(), before, "reading is no write");
    maps.create(&PostParams::default(), &config_map("buoy", "a"))
        .await
        .unwrap();
    assert_eq!(server.writes(), before + 1);
    let counted = server.requests();
    let found = counted
        .iter()
        .find(|request| request.labels.verb == "POST" && request.labels.resource == "configmaps")
        .unwrap();
    assert_eq!((found.labels.code, found.count), (201, 1));
    let text = server
        .client()
        .request_text(http::Request::get("/metrics").body(vec![]).unwrap())
        .await
        .unwrap();
    let line = r#"apiserver_request_total{verb="POST",group="",resource="configmaps",subresource="",code="201"} 1"#;
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn watches_end_with_the_server() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut events = maps
        .watch(&WatchParams::default(), "0")
        .await
        .unwrap()
        .boxed();
    assert_eq!(server.watches(), 1);
    server.shutdown().await;
    let end = tokio::time::timeout(DEADLINE, async { while events.next().await.is_some() {} });
    end.await.expect("the watch ends");
    assert_eq!(server.watches(), 0);
    let refused = maps.list(&ListParams::default()).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 503),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn those_who_ask_get_bookmarks_every_minute_and_an_end() {
    let server = Server::start(ServerConfig::memory()).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    maps.create(&PostParams::default(), &config_map("buoy", "a"))
        .await
        .unwrap();
    let version = maps
        .list(&ListParams::default())
        .await
        .unwrap()
        .metadata
        .resource_version
        .unwrap();
    let mut events = maps
        .watch(&WatchParams::default().timeout(150), &version)
        .await
        .unwrap()
        .boxed();
    let mut bookmarks = 0;
    while let Some(event) = events.try_next().await.unwrap() {
        match event {
            WatchEvent::Bookmark(bookmark) => {
                assert_eq!(bookmark.metadata.resource_version, version);
                bookmarks += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bookmarks, 3, "after one minute, after two, and at the end");
}
