//! A fresh API server for each test.

use geodb_sandbox::serve::{Server, ServerConfig};
use kube::Client;

/// The server a test talks to, and the range its Services are in.
pub struct Connection {
    server: Server,
}

impl Connection {
    pub fn open() -> Connection {
        // Tests run at the same time and their proxies really listen, so each has a range of its own.
        let range = 100 + rand::random::<u8>() % 150;
        let config = ServerConfig {
            range,
            ..ServerConfig::memory()
        };
        Connection {
            server: Server::start(config).expect("the server starts"),
        }
    }

    pub fn client(&self) -> Client {
        self.server.client()
    }

    pub fn range(&self) -> u8 {
        self.server.range()
    }

    /// Requests for a change so far, where the server counts them.
    pub fn writes(&self) -> Option<u64> {
        Some(self.server.writes())
    }

    pub async fn close(&self) {
        self.server.shutdown().await;
    }
}
