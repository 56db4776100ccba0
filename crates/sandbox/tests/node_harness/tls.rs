//! An authority, a server and a client for the kubelet's endpoint of one test.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub struct Tls {
    pub server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    pub fn new(address: Ipv4Addr) -> Self {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(Vec::<String>::new()).expect("parameters");
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let authority = parameters.self_signed(&key).expect("an authority");
        let issuer = Issuer::new(parameters, key);
        let mut roots = RootCertStore::empty();
        roots.add(authority.der().clone()).expect("a root");
        let roots = Arc::new(roots);
        let (chain, key) = leaf(&issuer, &address.to_string());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .expect("a verifier");
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let server = server
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .expect("a server");
        let (chain, key) = leaf(&issuer, "client");
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions");
        let client = client
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .expect("a client");
        Self {
            server: Arc::new(server),
            client: Arc::new(client),
        }
    }

    pub async fn connect(&self, address: SocketAddr) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(address).await.expect("connected");
        let name = ServerName::IpAddress(address.ip().into());
        TlsConnector::from(self.client.clone())
            .connect(name, stream)
            .await
            .expect("a handshake")
    }
}

fn leaf(
    issuer: &Issuer<'_, KeyPair>,
    name: &str,
) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(vec![name.to_owned()])
        .expect("parameters")
        .signed_by(&key, issuer)
        .expect("signed");
    (
        vec![certificate.der().clone()],
        PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
    )
}
