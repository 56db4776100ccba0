//! The API server of one test: the sandbox's own, in memory, in this process.

use std::net::TcpListener;

use geodb_sandbox::serve::{Server, ServerConfig, range};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};

pub struct Backend {
    pub client: Client,
    pub namespace: String,
    pub range: u8,
    server: Server,
    /// Holding it keeps the range ours.
    _lock: TcpListener,
}

impl Backend {
    pub async fn start() -> Self {
        let (range, lock) = range::claim(None).expect("a free range");
        let server = Server::start(ServerConfig {
            range,
            ..ServerConfig::memory()
        })
        .expect("a server");
        let client = server.client();
        let account: ServiceAccount =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "default"}}))
                .expect("an account");
        // A controller makes it in every namespace; here there is none.
        Api::namespaced(client.clone(), "default")
            .create(&PostParams::default(), &account)
            .await
            .expect("an account");
        Self {
            client,
            namespace: "default".to_owned(),
            range,
            server,
            _lock: lock,
        }
    }

    /// Requests that wrote, so far.
    pub fn writes(&self) -> u64 {
        self.server.writes()
    }
}
