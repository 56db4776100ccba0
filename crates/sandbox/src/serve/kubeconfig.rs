//! The file that lets kubectl in: the server's address, its CA, and the administrator's token.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::files;
use super::pki::Pki;

const FILE: &str = "kubeconfig";

/// How to connect as the administrator. It holds a secret: the file is private to its owner.
#[derive(Clone)]
pub struct Kubeconfig {
    text: String,
    path: Option<PathBuf>,
}

impl Kubeconfig {
    pub(super) fn new(address: SocketAddr, pki: &Pki) -> Self {
        let authority = STANDARD.encode(pki.authority_pem());
        let token = pki.administrator_token();
        let text = format!(
            "apiVersion: v1\n\
             kind: Config\n\
             clusters:\n\
             - name: geodb-sandbox\n  cluster:\n    server: https://{address}\n    certificate-authority-data: {authority}\n\
             users:\n\
             - name: geodb-sandbox-admin\n  user:\n    token: \"{token}\"\n\
             contexts:\n\
             - name: geodb-sandbox\n  context:\n    cluster: geodb-sandbox\n    user: geodb-sandbox-admin\n    namespace: default\n\
             current-context: geodb-sandbox\n"
        );
        Self { text, path: None }
    }

    pub(super) fn save(&mut self, data: &Path) -> io::Result<()> {
        let path = data.join(FILE);
        files::write_private(&path, self.text.as_bytes())?;
        self.path = Some(path);
        Ok(())
    }

    /// The document, YAML.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Where it is on disk; nowhere without a data directory.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// For `kube::Config::from_custom_kubeconfig`.
    pub fn parsed(&self) -> Result<kube::config::Kubeconfig, kube::config::KubeconfigError> {
        kube::config::Kubeconfig::from_yaml(&self.text)
    }
}
