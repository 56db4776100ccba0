//! What the tests of `serve` share: servers that listen, clients, and the real kubectl.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use geodb_sandbox::serve::{Clock, Listening, Server, ServerConfig, listen, range};

/// A server behind TLS, with everything of its own: address range, directory, keys.
pub struct Sandbox {
    pub server: Server,
    pub listening: Option<Listening>,
    pub directory: tempfile::TempDir,
}

impl Sandbox {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let (range, listener) = range::claim(Some(&data)).unwrap();
        let server = Server::start(ServerConfig {
            data: Some(data),
            range,
            clock: Clock::system(),
            seed: None,
        })
        .unwrap();
        let listening = listen(&server, listener).unwrap();
        Self {
            server,
            listening: Some(listening),
            directory,
        }
    }

    pub fn kubeconfig(&self) -> &Path {
        self.server.kubeconfig().path().unwrap()
    }

    /// A client that comes in over TLS with the kubeconfig, and retries nothing.
    pub async fn remote_client(&self) -> kube::Client {
        let kubeconfig = self.server.kubeconfig().parsed().unwrap();
        let config = kube::Config::from_custom_kubeconfig(
            kubeconfig,
            &kube::config::KubeConfigOptions::default(),
        )
        .await
        .unwrap();
        kube::Client::try_from(config).unwrap()
    }

    pub async fn stop(mut self) {
        self.server.shutdown().await;
        if let Some(listening) = self.listening.take() {
            listening.ended().await;
        }
    }
}

/// The real kubectl, or a loud word that it is missing.
pub fn kubectl_program() -> Option<PathBuf> {
    let named = std::env::var_os("GEODB_KUBECTL").map(PathBuf::from);
    let cached = std::env::var_os("HOME")
        .map(|home| PathBuf::from(home).join(".cache/geodb/kubernetes-v1.36.3/kubectl"));
    let found = named.into_iter().chain(cached).find(|path| path.exists());
    if found.is_none() {
        eprintln!(
            "SKIPPED: no kubectl (set GEODB_KUBECTL, or build it into ~/.cache/geodb/kubernetes-v1.36.3/)"
        );
    }
    found
}

/// kubectl with its own home, so that nothing of the machine's leaks in and nothing is left behind.
pub struct Kubectl {
    pub program: PathBuf,
    pub kubeconfig: PathBuf,
    pub home: PathBuf,
}

impl Kubectl {
    pub fn new(sandbox: &Sandbox) -> Option<Self> {
        let home = sandbox.directory.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        Some(Self {
            program: kubectl_program()?,
            kubeconfig: sandbox.kubeconfig().to_owned(),
            home,
        })
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null());
        command
    }

    pub fn try_run(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        child.wait_with_output().unwrap()
    }

    /// Runs and expects success; returns what it printed.
    pub fn run(&self, arguments: &[&str]) -> String {
        self.run_with(arguments, "")
    }

    pub fn run_with(&self, arguments: &[&str], input: &str) -> String {
        let output = self.try_run(arguments, input);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            output.status.success(),
            "kubectl {arguments:?} failed\n{stdout}\n{stderr}"
        );
        format!("{stdout}{stderr}")
    }

    /// Runs and expects a refusal; returns what it said.
    pub fn refused(&self, arguments: &[&str], input: &str) -> String {
        let output = self.try_run(arguments, input);
        let (stdout, stderr) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        assert!(
            !output.status.success(),
            "kubectl {arguments:?} succeeded\n{stdout}\n{stderr}"
        );
        format!("{stdout}{stderr}")
    }
}

/// What the controllers of a whole sandbox make in each namespace, and pods need.
pub async fn default_account(client: kube::Client) {
    let accounts: kube::Api<k8s_openapi::api::core::v1::ServiceAccount> =
        kube::Api::namespaced(client, "default");
    let account =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "default"}})).unwrap();
    accounts
        .create(&kube::api::PostParams::default(), &account)
        .await
        .unwrap();
}
