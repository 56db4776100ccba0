//! The API server of one test: the sandbox's own, in memory, in this process.

use std::net::TcpListener;

use geodb_sandbox::serve::{Server, ServerConfig, range};
use kube::Client;

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
        Self {
            client: server.client(),
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
