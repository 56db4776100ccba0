//! Secret values: the database's certificate authority, the certificates it signs, the owner's password.
//!
//! Made once, by whoever creates the Secret first. Rotation is not here yet, so everything is valid for ten years.

use std::collections::BTreeMap;

use geodb_api::names::{Credential, Endpoint};
use geodb_ha::environment::{DEFAULT_PORT, REPLICATION_ROLE};
use jiff::{SignedDuration, Timestamp};
use rand::Rng;
use rand::distr::Alphanumeric;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// No certificate is renewed yet; this outlives the wait for it.
const VALIDITY_DAYS: i64 = 3650;

/// Clocks differ: a certificate is valid from a little before it was made, minutes.
const CLOCK_SKEW_MINUTES: i64 = 10;

/// 32 letters and digits carry 190 bits and need no escaping in any connection string.
const PASSWORD_LENGTH: usize = 32;

/// Keys of a Secret with their values.
pub type Contents = BTreeMap<String, String>;

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error("failed to make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error(
        "the Secret {0} has no usable tls.crt and tls.key: delete it if this database holds no data yet, else bring the original back"
    )]
    BrokenAuthority(String),
}

/// What the values are made for.
pub struct Subject<'a> {
    pub database: &'a str,
    pub namespace: &'a str,
    pub owner: &'a str,
    pub app_database: &'a str,
}

/// `authority` is the content of the authority's Secret; only certificates need it.
pub fn make(
    credential: Credential,
    subject: &Subject<'_>,
    authority: Option<&Contents>,
    now: Timestamp,
) -> Result<Contents, CredentialError> {
    match credential {
        Credential::Authority => make_authority(subject, now),
        Credential::Server => sign(subject, authority, server_parameters(subject)?, now),
        Credential::Replication => sign(subject, authority, replication_parameters()?, now),
        Credential::App => Ok(make_app(subject)),
    }
}

fn make_authority(subject: &Subject<'_>, now: Timestamp) -> Result<Contents, CredentialError> {
    let mut parameters = CertificateParams::default();
    let name = format!("geodb {}/{}", subject.namespace, subject.database);
    parameters
        .distinguished_name
        .push(DnType::CommonName, common_name(&name));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut parameters, now);
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok(Contents::from([
        ("tls.crt".to_owned(), certificate.pem()),
        ("tls.key".to_owned(), key.serialize_pem()),
    ]))
}

fn server_parameters(subject: &Subject<'_>) -> Result<CertificateParams, CredentialError> {
    let (database, namespace) = (subject.database, subject.namespace);
    let mut names = vec!["localhost".to_owned()];
    for endpoint in Endpoint::ALL {
        let service = endpoint.service(database);
        names.push(service.clone());
        names.push(format!("{service}.{namespace}"));
        names.push(format!("{service}.{namespace}.svc"));
        names.push(format!("{service}.{namespace}.svc.cluster.local"));
    }
    let mut parameters = CertificateParams::new(names)?;
    parameters
        .distinguished_name
        .push(DnType::CommonName, common_name(database));
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(parameters)
}

fn replication_parameters() -> Result<CertificateParams, CredentialError> {
    let mut parameters = CertificateParams::default();
    parameters
        .distinguished_name
        .push(DnType::CommonName, REPLICATION_ROLE);
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(parameters)
}

fn sign(
    subject: &Subject<'_>,
    authority: Option<&Contents>,
    mut parameters: CertificateParams,
    now: Timestamp,
) -> Result<Contents, CredentialError> {
    let broken =
        || CredentialError::BrokenAuthority(Credential::Authority.secret(subject.database));
    let authority = authority.ok_or_else(broken)?;
    let pem = |name: &str| authority.get(name).ok_or_else(broken);
    let authority_key = KeyPair::from_pem(pem("tls.key")?).map_err(|_| broken())?;
    let issuer = Issuer::from_ca_cert_pem(pem("tls.crt")?, authority_key).map_err(|_| broken())?;
    set_validity(&mut parameters, now);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, &issuer)?;
    Ok(Contents::from([
        ("tls.crt".to_owned(), certificate.pem()),
        ("tls.key".to_owned(), key.serialize_pem()),
        ("ca.crt".to_owned(), pem("tls.crt")?.clone()),
    ]))
}

fn make_app(subject: &Subject<'_>) -> Contents {
    let password: String = rand::rng()
        .sample_iter(Alphanumeric)
        .take(PASSWORD_LENGTH)
        .map(char::from)
        .collect();
    let host = format!(
        "{}.{}.svc",
        Endpoint::ReadWrite.service(subject.database),
        subject.namespace
    );
    let (user, database, port) = (subject.owner, subject.app_database, DEFAULT_PORT);
    let entries = [
        ("username", user.to_owned()),
        ("password", password.clone()),
        ("host", host.clone()),
        ("port", port.to_string()),
        ("dbname", database.to_owned()),
        (
            "uri",
            format!("postgresql://{user}:{password}@{host}:{port}/{database}?sslmode=require"),
        ),
        (
            "jdbc-uri",
            format!(
                "jdbc:postgresql://{host}:{port}/{database}?user={user}&password={password}&sslmode=require"
            ),
        ),
        (
            "pgpass",
            format!("{host}:{port}:{database}:{user}:{password}\n"),
        ),
    ];
    entries
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

/// X.509 allows 64 bytes; the name is for people, the key is what counts.
fn common_name(name: &str) -> &str {
    const COMMON_NAME_BYTES_MAX: usize = 64;
    &name[..name.floor_char_boundary(COMMON_NAME_BYTES_MAX)]
}

fn set_validity(parameters: &mut CertificateParams, now: Timestamp) {
    let day = |timestamp: Timestamp| {
        let date = timestamp.to_zoned(jiff::tz::TimeZone::UTC).date();
        let (month, day) = (date.month().unsigned_abs(), date.day().unsigned_abs());
        rcgen::date_time_ymd(i32::from(date.year()), month, day)
    };
    let early = SignedDuration::from_mins(CLOCK_SKEW_MINUTES);
    let long = SignedDuration::from_hours(24 * VALIDITY_DAYS);
    parameters.not_before = day(now - early);
    parameters.not_after = day(now + long);
}

#[cfg(test)]
mod tests {
    //! The values, as their users read them.

    use super::*;

    const SUBJECT: Subject<'static> = Subject {
        database: "harbours",
        namespace: "coast",
        owner: "pilot",
        app_database: "ports",
    };

    fn now() -> Timestamp {
        "2031-05-06T07:08:09Z".parse().expect("a timestamp")
    }

    #[test]
    fn certificates_are_signed_by_the_database_s_own_authority() {
        let authority = make(Credential::Authority, &SUBJECT, None, now()).expect("an authority");
        for credential in [Credential::Server, Credential::Replication] {
            let signed = make(credential, &SUBJECT, Some(&authority), now()).expect("signed");
            assert_eq!(signed["ca.crt"], authority["tls.crt"]);
            assert!(signed["tls.key"].starts_with("-----BEGIN PRIVATE KEY-----"));
            assert_ne!(signed["tls.key"], authority["tls.key"]);
        }
    }

    #[test]
    fn without_an_authority_nothing_is_signed_and_the_way_out_is_named() {
        let error = make(Credential::Server, &SUBJECT, None, now()).expect_err("no authority");
        assert!(error.to_string().contains("harbours-ca"), "{error}");
        let junk = Contents::from([
            ("tls.crt".to_owned(), "junk".to_owned()),
            ("tls.key".to_owned(), "junk".to_owned()),
        ]);
        assert!(make(Credential::Server, &SUBJECT, Some(&junk), now()).is_err());
    }

    #[test]
    fn every_connection_string_leads_to_the_primary() {
        let app = make(Credential::App, &SUBJECT, None, now()).expect("credentials");
        let password = &app["password"];
        assert_eq!(password.len(), PASSWORD_LENGTH);
        assert_eq!(
            app["uri"],
            format!(
                "postgresql://pilot:{password}@harbours-rw.coast.svc:5432/ports?sslmode=require"
            )
        );
        assert_eq!(
            app["pgpass"],
            format!("harbours-rw.coast.svc:5432:ports:pilot:{password}\n")
        );
        let again = make(Credential::App, &SUBJECT, None, now()).expect("credentials");
        assert_ne!(&again["password"], password);
    }
}
