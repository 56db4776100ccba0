//! The Secrets that the operator makes: an authority, a server and a replication certificate, the owner's credentials.

use std::fs;
use std::path::{Path, PathBuf};

use geodb_ha::environment::REPLICATION_ROLE;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
};

pub const OWNER: &str = "Map Maker";
pub const PASSWORD: &str = "planted-secret-\"'\\-1";

pub struct Secrets {
    pub server: PathBuf,
    pub replication: PathBuf,
    pub app: PathBuf,
}

impl Secrets {
    pub fn make(directory: &Path) -> Self {
        let (server, replication, app) = (
            directory.join("server"),
            directory.join("replication"),
            directory.join("app"),
        );
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name = named("lake authority");
        let authority = parameters.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(parameters, key);
        for (place, name) in [(&server, "lake-rw"), (&replication, REPLICATION_ROLE)] {
            let key = KeyPair::generate().unwrap();
            let mut parameters = CertificateParams::new(vec!["lake-rw".to_owned()]).unwrap();
            parameters.distinguished_name = named(name);
            let certificate = parameters.signed_by(&key, &issuer).unwrap();
            fs::create_dir_all(place).unwrap();
            fs::write(place.join("tls.crt"), certificate.pem()).unwrap();
            fs::write(place.join("tls.key"), key.serialize_pem()).unwrap();
            fs::write(place.join("ca.crt"), &authority).unwrap();
        }
        fs::create_dir_all(&app).unwrap();
        fs::write(app.join("username"), OWNER).unwrap();
        fs::write(app.join("password"), PASSWORD).unwrap();
        Self {
            server,
            replication,
            app,
        }
    }
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}
