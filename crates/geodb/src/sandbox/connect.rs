//! How to reach a database of the sandbox from this machine: environment for programs, lines for people.
//!
//! The names in the Secret are a cluster's; outside of pods nothing resolves them, so the Services' addresses are used instead.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use geodb_api::names::{Credential, Endpoint};
use k8s_openapi::api::core::v1::{Secret, Service};
use kube::{Api, Client};

use super::apply::said;

/// Everything a client needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub database: String,
    pub namespace: String,
    /// The address of the Service that leads to the primary.
    pub host: String,
    /// The address of the Service that leads to replicas.
    pub read_only_host: String,
    pub port: String,
    pub user: String,
    pub password: String,
    pub dbname: String,
}

impl Connection {
    /// Reads it from the objects that the operator made for the Database.
    pub async fn read(client: &Client, namespace: &str, database: &str) -> Result<Self> {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let name = Credential::App.secret(database);
        let secret = secrets
            .get(&name)
            .await
            .map_err(said)
            .with_context(|| format!("failed to read the Secret {name}"))?;
        let data = secret.data.unwrap_or_default();
        let field = |key: &str| -> Result<String> {
            let bytes = data
                .get(key)
                .with_context(|| format!("the Secret {name} has no {key}"))?;
            String::from_utf8(bytes.0.clone())
                .with_context(|| format!("{key} in the Secret {name} is not text"))
        };
        Ok(Self {
            host: service_address(client, namespace, &Endpoint::ReadWrite.service(database))
                .await?,
            read_only_host: service_address(
                client,
                namespace,
                &Endpoint::ReadOnly.service(database),
            )
            .await?,
            port: field("port")?,
            user: field("username")?,
            password: field("password")?,
            dbname: field("dbname")?,
            database: database.to_owned(),
            namespace: namespace.to_owned(),
        })
    }

    /// What libpq and everything built on it reads.
    pub fn environment(&self) -> BTreeMap<&'static str, &str> {
        BTreeMap::from([
            ("PGHOST", self.host.as_str()),
            ("PGPORT", self.port.as_str()),
            ("PGUSER", self.user.as_str()),
            ("PGPASSWORD", self.password.as_str()),
            ("PGDATABASE", self.dbname.as_str()),
        ])
    }

    fn uri(&self, host: &str) -> String {
        format!(
            "postgresql://{}:{}@{host}:{}/{}",
            percent_encoded(&self.user),
            percent_encoded(&self.password),
            self.port,
            percent_encoded(&self.dbname)
        )
    }

    /// Lines that work by copy and paste.
    pub fn lines(&self) -> String {
        format!(
            "  psql '{}'    # reads and writes: the primary\n  psql '{}'    # reads: a replica\n",
            self.uri(&self.host),
            self.uri(&self.read_only_host)
        )
    }

    #[cfg(test)]
    pub fn for_tests() -> Self {
        Self {
            database: "rivers".to_owned(),
            namespace: "water".to_owned(),
            host: "127.9.128.1".to_owned(),
            read_only_host: "127.9.128.2".to_owned(),
            port: "5432".to_owned(),
            user: "keeper".to_owned(),
            password: "s3cret".to_owned(),
            dbname: "rivers".to_owned(),
        }
    }
}

async fn service_address(client: &Client, namespace: &str, name: &str) -> Result<String> {
    let services: Api<Service> = Api::namespaced(client.clone(), namespace);
    let service = services
        .get(name)
        .await
        .map_err(said)
        .with_context(|| format!("failed to read the Service {name}"))?;
    service
        .spec
        .and_then(|spec| spec.cluster_ip)
        .filter(|address| !address.is_empty() && address != "None")
        .with_context(|| format!("the Service {name} has no address"))
}

/// All but the characters that a URI never needs to escape.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

/// A path as one word of a shell.
pub fn shell_word(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+@:".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_survives_odd_passwords() {
        let connection = Connection {
            password: "a b/c@d'é".to_owned(),
            ..Connection::for_tests()
        };
        assert_eq!(
            connection.uri("127.9.128.1"),
            "postgresql://keeper:a%20b%2Fc%40d%27%C3%A9@127.9.128.1:5432/rivers"
        );
    }

    #[test]
    fn a_path_is_quoted_where_it_has_to_be() {
        assert_eq!(
            shell_word(Path::new("/work/main/.geodb/kubeconfig")),
            "/work/main/.geodb/kubeconfig"
        );
        assert_eq!(shell_word(Path::new("/it's here")), r"'/it'\''s here'");
    }
}
