//! The sandbox's own certificate authority, the key that signs service-account tokens, and the administrator's token.
//!
//! Only what has to be the same after a restart is kept on disk: the CA (clients trust it), the token key (pods hold tokens) and the
//! administrator's token (it is in people's kubeconfigs). Certificates are issued anew at every start, so none can run out on disk.
//! It is not a general PKI: one CA, ECDSA P-256, no revocation.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{Span, Timestamp, tz::TimeZone};
use rand::RngCore;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::files;
use super::token::TokenKey;

/// A data directory may lie around for years; its CA must not run out before its data is of no more interest.
const AUTHORITY_VALIDITY_YEARS: i32 = 20;
/// Certificates are issued at each start and never written to disk, so this only bounds one uninterrupted run.
const LEAF_VALIDITY_YEARS: i32 = 5;
/// Clocks of virtual machines jump back on resume; a certificate must not be "not yet valid" then.
const VALIDITY_MARGIN_DAYS: i64 = 2;
/// 256 bits: not to be guessed.
const ADMINISTRATOR_TOKEN_BYTES: usize = 32;

const AUTHORITY_CERTIFICATE_FILE: &str = "ca.crt";
const AUTHORITY_KEY_FILE: &str = "ca.key";
const TOKEN_KEY_FILE: &str = "service-account.key";
const ADMINISTRATOR_TOKEN_FILE: &str = "admin.token";

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error("failed to read or write {path}; check its permissions and the free space")]
    File { path: PathBuf, source: io::Error },
    #[error(
        "{path} is missing or damaged, so the certificate authority in this data directory cannot be used; restore the file, or remove \
         the whole directory it is in to start with a new authority (every kubeconfig made before stops working)"
    )]
    Damaged { path: PathBuf },
    #[error("failed to issue a certificate")]
    Issue(#[from] rcgen::Error),
    #[error("failed to set up TLS")]
    Tls(#[from] rustls::Error),
    #[error("failed to set up the check of client certificates")]
    ClientVerifier(#[from] rustls::server::VerifierBuilderError),
}

/// Whether a TLS server of the sandbox asks its clients for a certificate of the sandbox's CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The API server: its clients show bearer tokens.
    NotAsked,
    /// The nodes: only the API server may ask them.
    Required,
}

pub struct Pki {
    authority_pem: String,
    authority_key: KeyPair,
    token_key: Arc<TokenKey>,
    administrator_token: String,
    now: Timestamp,
}

impl Pki {
    /// The authority in `directory`, made if there is none; without a directory one that lives only in memory.
    pub fn open(
        directory: Option<&Path>,
        now: Timestamp,
        random: &mut dyn RngCore,
    ) -> Result<Self, PkiError> {
        let Some(directory) = directory else {
            return Self::create(now, random);
        };
        if directory.exists() {
            return Self::load(directory, now);
        }
        let pki = Self::create(now, random)?;
        pki.save(directory)?;
        Ok(pki)
    }

    /// The CA's certificate, PEM: what clients must trust.
    pub fn authority_pem(&self) -> &str {
        &self.authority_pem
    }

    /// The bearer token of the user who may do everything; it is in the kubeconfig.
    pub fn administrator_token(&self) -> &str {
        &self.administrator_token
    }

    pub(super) fn token_key(&self) -> Arc<TokenKey> {
        Arc::clone(&self.token_key)
    }

    /// TLS for a server of the sandbox that answers under `names` (addresses or DNS names).
    pub fn server_config(
        &self,
        names: &[String],
        clients: ClientCertificates,
    ) -> Result<ServerConfig, PkiError> {
        let mut parameters =
            self.leaf_parameters(names.first().map_or("geodb-sandbox", String::as_str));
        for name in names {
            parameters
                .subject_alt_names
                .push(match name.parse::<IpAddr>() {
                    Ok(address) => SanType::IpAddress(address),
                    Err(_) => SanType::DnsName(name.as_str().try_into()?),
                });
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (chain, key) = self.issue(&parameters)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match clients {
            ClientCertificates::NotAsked => builder.with_no_client_auth(),
            ClientCertificates::Required => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(self.roots()?),
                    provider(),
                )
                .build()?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        Ok(builder.with_single_cert(chain, key)?)
    }

    /// TLS for a client inside the sandbox that proves to be `common_name`; it trusts the sandbox's CA and nothing else.
    pub fn client_config(&self, common_name: &str) -> Result<ClientConfig, PkiError> {
        let mut parameters = self.leaf_parameters(common_name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (chain, key) = self.issue(&parameters)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        Ok(builder
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(chain, key)?)
    }

    fn create(now: Timestamp, random: &mut dyn RngCore) -> Result<Self, PkiError> {
        let authority_key = KeyPair::generate()?;
        let mut parameters = dated_parameters(now, AUTHORITY_VALIDITY_YEARS);
        let mut serial = [0_u8; 4];
        random.fill_bytes(&mut serial);
        // Two sandboxes' authorities must not look the same to a person or to a trust store.
        let suffix = serial
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>();
        parameters.distinguished_name = common_name(&format!("geodb sandbox {suffix}"));
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let authority_pem = parameters.self_signed(&authority_key)?.pem();
        let mut token = [0_u8; ADMINISTRATOR_TOKEN_BYTES];
        random.fill_bytes(&mut token);
        Ok(Self {
            authority_pem,
            authority_key,
            token_key: Arc::new(TokenKey::new(KeyPair::generate()?)?),
            administrator_token: URL_SAFE_NO_PAD.encode(token),
            now,
        })
    }

    /// The directory appears whole or not at all: it is filled beside its place and then renamed.
    fn save(&self, directory: &Path) -> Result<(), PkiError> {
        let unfinished = directory.with_extension("new");
        let fail = |path: &Path, source| PkiError::File {
            path: path.to_owned(),
            source,
        };
        if unfinished.exists() {
            fs::remove_dir_all(&unfinished).map_err(|source| fail(&unfinished, source))?;
        }
        files::private_directory(&unfinished).map_err(|source| fail(&unfinished, source))?;
        for (name, contents) in [
            (AUTHORITY_CERTIFICATE_FILE, self.authority_pem.clone()),
            (AUTHORITY_KEY_FILE, self.authority_key.serialize_pem()),
            (TOKEN_KEY_FILE, self.token_key.pem()),
            (ADMINISTRATOR_TOKEN_FILE, self.administrator_token.clone()),
        ] {
            let path = unfinished.join(name);
            files::write_private(&path, contents.as_bytes())
                .map_err(|source| fail(&path, source))?;
        }
        fs::rename(&unfinished, directory).map_err(|source| fail(directory, source))?;
        files::sync_parent(directory).map_err(|source| fail(directory, source))
    }

    fn load(directory: &Path, now: Timestamp) -> Result<Self, PkiError> {
        files::private_directory(directory).map_err(|source| PkiError::File {
            path: directory.to_owned(),
            source,
        })?;
        let read = |name: &str| {
            let path = directory.join(name);
            match fs::read_to_string(&path) {
                Ok(text) if !text.trim().is_empty() => Ok(text),
                Ok(_) => Err(PkiError::Damaged { path }),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Err(PkiError::Damaged { path })
                }
                Err(source) => Err(PkiError::File { path, source }),
            }
        };
        let damaged = |name: &str| PkiError::Damaged {
            path: directory.join(name),
        };
        let authority_pem = read(AUTHORITY_CERTIFICATE_FILE)?;
        let authority_key = KeyPair::from_pem(&read(AUTHORITY_KEY_FILE)?)
            .map_err(|_| damaged(AUTHORITY_KEY_FILE))?;
        Issuer::from_ca_cert_pem(&authority_pem, &authority_key)
            .map_err(|_| damaged(AUTHORITY_CERTIFICATE_FILE))?;
        let token_key =
            KeyPair::from_pem(&read(TOKEN_KEY_FILE)?).map_err(|_| damaged(TOKEN_KEY_FILE))?;
        Ok(Self {
            authority_pem,
            authority_key,
            token_key: Arc::new(TokenKey::new(token_key).map_err(|_| damaged(TOKEN_KEY_FILE))?),
            administrator_token: read(ADMINISTRATOR_TOKEN_FILE)?.trim().to_owned(),
            now,
        })
    }

    fn leaf_parameters(&self, name: &str) -> CertificateParams {
        let mut parameters = dated_parameters(self.now, LEAF_VALIDITY_YEARS);
        parameters.distinguished_name = common_name(name);
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.use_authority_key_identifier_extension = true;
        parameters
    }

    fn issue(
        &self,
        parameters: &CertificateParams,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
        let key = KeyPair::generate()?;
        let issuer = Issuer::from_ca_cert_pem(&self.authority_pem, &self.authority_key)?;
        let certificate: Certificate = parameters.signed_by(&key, &issuer)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok((vec![certificate.der().clone()], key))
    }

    fn roots(&self) -> Result<RootCertStore, PkiError> {
        let mut roots = RootCertStore::empty();
        let certificate =
            CertificateDer::from_pem_slice(self.authority_pem.as_bytes()).map_err(|_| {
                PkiError::Damaged {
                    path: PathBuf::from(AUTHORITY_CERTIFICATE_FILE),
                }
            })?;
        roots.add(certificate)?;
        Ok(roots)
    }
}

/// The same provider everywhere, chosen here and not by whatever another crate installed for the process.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn dated_parameters(now: Timestamp, years: i32) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    let day = |timestamp: Timestamp| timestamp.to_zoned(TimeZone::UTC).date();
    let first = now
        .saturating_sub(Span::new().hours(VALIDITY_MARGIN_DAYS * 24))
        .map_or(day(now), day);
    // 28: a day every month has, so that "the same day, years later" always exists.
    let calendar_day = |value: i8| u8::try_from(value.clamp(1, 28)).unwrap_or(1);
    let month = |value: i8| u8::try_from(value).unwrap_or(1);
    parameters.not_before = rcgen::date_time_ymd(
        i32::from(first.year()),
        month(first.month()),
        calendar_day(first.day()),
    );
    parameters.not_after = rcgen::date_time_ymd(
        i32::from(first.year()) + years,
        month(first.month()),
        calendar_day(first.day()),
    );
    parameters
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn open(directory: &Path) -> Result<Pki, PkiError> {
        let now = "2030-02-28T12:00:00Z".parse().unwrap();
        Pki::open(Some(directory), now, &mut rand::rng())
    }

    #[test]
    fn an_authority_is_made_once_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("pki");
        let first = open(&place).unwrap();
        let second = open(&place).unwrap();
        assert_eq!(first.authority_pem(), second.authority_pem());
        assert_eq!(first.administrator_token(), second.administrator_token());
        let mode = fs::metadata(&place).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, files::PRIVATE_DIRECTORY_MODE);
        let other = open(&directory.path().join("other")).unwrap();
        assert_ne!(first.authority_pem(), other.authority_pem());
        assert_ne!(first.administrator_token(), other.administrator_token());
    }

    #[test]
    fn a_damaged_authority_is_reported_and_not_replaced() {
        for name in [
            AUTHORITY_CERTIFICATE_FILE,
            AUTHORITY_KEY_FILE,
            TOKEN_KEY_FILE,
            ADMINISTRATOR_TOKEN_FILE,
        ] {
            let directory = tempfile::tempdir().unwrap();
            let place = directory.path().join("pki");
            open(&place).unwrap();
            fs::write(place.join(name), "").unwrap();
            assert!(
                matches!(open(&place), Err(PkiError::Damaged { .. })),
                "{name} empty"
            );
            assert_eq!(fs::read_to_string(place.join(name)).unwrap(), "");
            fs::remove_file(place.join(name)).unwrap();
            assert!(
                matches!(open(&place), Err(PkiError::Damaged { .. })),
                "{name} missing"
            );
        }
    }

    #[test]
    fn a_crash_while_making_it_leaves_nothing_half_made() {
        let directory = tempfile::tempdir().unwrap();
        let place = directory.path().join("pki");
        fs::create_dir(directory.path().join("pki.new")).unwrap();
        fs::write(
            directory.path().join("pki.new").join(AUTHORITY_KEY_FILE),
            "half",
        )
        .unwrap();
        open(&place).unwrap();
        open(&place).unwrap();
        assert!(!directory.path().join("pki.new").exists());
    }

    #[test]
    fn names_that_are_no_names_are_refused() {
        let pki = Pki::open(None, Timestamp::UNIX_EPOCH, &mut rand::rng()).unwrap();
        let names = ["127.64.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
        pki.server_config(&names, ClientCertificates::Required)
            .unwrap();
        pki.server_config(
            &["not\u{fc}a name".to_owned()],
            ClientCertificates::NotAsked,
        )
        .unwrap_err();
        pki.client_config("somebody").unwrap();
    }
}
