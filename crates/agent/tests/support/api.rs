//! The Kubernetes API that the agents under test talk to: the sandbox's server, over TLS, on an address range of its own.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use geodb_sandbox::serve::{Clock, Listening, Server, ServerConfig, listen, range};

/// Pods' addresses begin in the third quarter byte of the range.
const POD_SUBNET: u8 = 2;

pub struct ApiServer {
    pub address: SocketAddr,
    pub authority: String,
    pub token: String,
    directory: PathBuf,
    running: Option<(Server, Listening)>,
}

impl ApiServer {
    pub async fn start(directory: &Path) -> Self {
        std::fs::create_dir_all(directory).unwrap();
        let (server, listening) = begin(directory);
        Self {
            address: listening.address(),
            authority: server.pki().authority_pem().to_owned(),
            token: server.pki().administrator_token().to_owned(),
            directory: directory.to_owned(),
            running: Some((server, listening)),
        }
    }

    /// An outage: nobody gets an answer, and connections end.
    pub async fn stop(&mut self) {
        let (server, listening) = self.running.take().expect("a running server");
        server.shutdown().await;
        listening.ended().await;
    }

    /// The end of an outage: the same objects, at the same address.
    pub async fn resume(&mut self) {
        assert!(self.running.is_none());
        let (server, listening) = begin(&self.directory);
        assert_eq!(listening.address(), self.address);
        self.running = Some((server, listening));
    }

    pub fn server(&self) -> &Server {
        &self.running.as_ref().expect("a running server").0
    }

    pub fn client(&self) -> kube::Client {
        self.server().client()
    }

    /// The address of the pod with this number.
    pub fn pod_address(&self, number: u8) -> String {
        let SocketAddr::V4(address) = self.address else {
            unreachable!("the sandbox serves on IPv4")
        };
        let [first, range, ..] = address.ip().octets();
        format!("{first}.{range}.{POD_SUBNET}.{number}")
    }
}

fn begin(directory: &Path) -> (Server, Listening) {
    let (range, listener) = range::claim(Some(directory)).unwrap();
    let config = ServerConfig {
        data: Some(directory.to_owned()),
        range,
        clock: Clock::system(),
        seed: None,
    };
    let server = Server::start(config).unwrap();
    let listening = listen(&server, listener).unwrap();
    (server, listening)
}
