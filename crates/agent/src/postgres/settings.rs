//! PostgreSQL's configuration as text: settings, client authentication, connection strings. Pure.
//!
//! Everything is rendered anew before each start and lives outside the data directory, so a clone brings no settings of another instance.
//! What safety depends on is also given on the command line, where neither a file nor `ALTER SYSTEM` can change it.

use std::fmt::Write;
use std::path::Path;

use geodb_ha::Incarnation;
use geodb_ha::environment::{REPLICATION_ROLE, SUPERUSER};
use geodb_ha::instance::{Doors, Upstream};

use super::tls::KeyPair;

/// WAL kept for replicas that were away: eight minutes at 1 MB/s. Slots replace it when the protocol can also take them away again.
const WAL_KEEP: &str = "512MB";
/// Senders: each replica needs one, and a second while it is cloned; ten instances are more than a database has.
const WAL_SENDERS_MAX: u32 = 20;
/// How soon either side notices a dead replication connection.
const WAL_TIMEOUT: &str = "10s";
/// How soon a replica tries again; PostgreSQL's own 5 s would be most of a restart's outage.
const WAL_RETRY: &str = "500ms";

/// What no file, user or `ALTER SYSTEM` may change: an acknowledged commit rests on it.
pub const FIXED: [(&str, &str); 8] = [
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("wal_log_hints", "on"),
    ("wal_level", "replica"),
    ("hot_standby", "on"),
    ("data_sync_retry", "off"),
    ("restart_after_crash", "on"),
    ("ssl", "on"),
];

/// Everything that differs between servers.
pub struct Settings<'a> {
    pub listen: &'a Upstream,
    pub run: &'a Path,
    pub server_keys: &'a KeyPair,
    /// Where a replica receives the log from; none for a primary.
    pub primary_conninfo: Option<String>,
}

impl Settings<'_> {
    /// The text of `postgresql.conf`.
    pub fn render(&self) -> String {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut settings: Vec<(&str, String)> = FIXED
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        settings.extend([
            ("listen_addresses", self.listen.address.clone()),
            ("port", self.listen.port.to_string()),
            ("unix_socket_directories", path(self.run)),
            ("unix_socket_permissions", "0700".to_owned()),
            ("hba_file", path(&self.run.join("pg_hba.conf"))),
            ("ident_file", path(&self.run.join("pg_ident.conf"))),
            ("ssl_cert_file", path(&self.server_keys.certificate)),
            ("ssl_key_file", path(&self.server_keys.key)),
            ("ssl_ca_file", path(&self.server_keys.authority)),
            ("ssl_min_protocol_version", "TLSv1.2".to_owned()),
            ("password_encryption", "scram-sha-256".to_owned()),
            ("max_wal_senders", WAL_SENDERS_MAX.to_string()),
            ("wal_keep_size", WAL_KEEP.to_owned()),
            ("wal_sender_timeout", WAL_TIMEOUT.to_owned()),
            ("wal_receiver_timeout", WAL_TIMEOUT.to_owned()),
            ("wal_retrieve_retry_interval", WAL_RETRY.to_owned()),
            ("log_destination", "stderr".to_owned()),
            ("logging_collector", "off".to_owned()),
            ("log_timezone", "UTC".to_owned()),
            ("timezone", "UTC".to_owned()),
            ("lc_messages", "C".to_owned()),
            (
                "primary_conninfo",
                self.primary_conninfo.clone().unwrap_or_default(),
            ),
        ]);
        let mut text =
            String::from("# Rendered by geodb before every start; changes here are lost.\n");
        for (name, value) in settings {
            writeln!(text, "{name} = {}", quoted_setting(&value))
                .expect("writing to a string does not fail");
        }
        text
    }
}

/// The text of `pg_hba.conf`. With closed doors only the agent itself gets in.
pub fn client_authentication(doors: Doors) -> String {
    let mut text = format!(
        "# Rendered by geodb. The superuser comes through the socket inside the pod and no other way.\n\
         local all {SUPERUSER} trust\n\
         local all all reject\n"
    );
    if doors == Doors::Open {
        text.push_str(&format!(
            "hostssl replication {REPLICATION_ROLE} all cert\n\
             hostssl all {REPLICATION_ROLE} all reject\n\
             hostssl all {SUPERUSER} all reject\n\
             hostssl all all all scram-sha-256\n"
        ));
    }
    text.push_str("host all all all reject\nhost replication all all reject\n");
    text
}

/// What a replica says to connect to `leader`: by certificate, and under the name of its incarnation.
pub fn connection_parameters(
    leader: &Upstream,
    keys: &KeyPair,
    me: &Incarnation,
) -> Vec<(&'static str, String)> {
    let path = |path: &Path| path.to_string_lossy().into_owned();
    vec![
        ("host", leader.address.clone()),
        ("port", leader.port.to_string()),
        ("user", REPLICATION_ROLE.to_owned()),
        ("application_name", me.to_string()),
        ("sslmode", "verify-ca".to_owned()),
        ("sslcert", path(&keys.certificate)),
        ("sslkey", path(&keys.key)),
        ("sslrootcert", path(&keys.authority)),
        ("connect_timeout", "5".to_owned()),
        ("keepalives_idle", "10".to_owned()),
        ("keepalives_interval", "5".to_owned()),
        ("keepalives_count", "3".to_owned()),
    ]
}

/// Parameters as one connection string.
pub fn connection_string(parameters: &[(&'static str, String)]) -> String {
    let quoted = |value: &str| format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"));
    let pairs: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{name}={}", quoted(value)))
        .collect();
    pairs.join(" ")
}

/// A value in a configuration file, whatever is in it.
fn quoted_setting(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('\'');
    for character in value.chars() {
        match character {
            '\'' => quoted.push_str("''"),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            other => quoted.push(other),
        }
    }
    quoted.push('\'');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leader() -> Upstream {
        Upstream {
            address: "10.1.2.3".into(),
            port: 5433,
        }
    }

    #[test]
    fn values_cannot_leave_their_quotes() {
        assert_eq!(quoted_setting("plain"), "'plain'");
        assert_eq!(quoted_setting("it's"), "'it''s'");
        assert_eq!(quoted_setting("a'\nfsync = off #"), "'a''\\nfsync = off #'");
        assert_eq!(quoted_setting("back\\slash'"), "'back\\\\slash'''");
    }

    #[test]
    fn connection_values_cannot_become_parameters() {
        let text = connection_string(&[
            ("host", "x' sslmode='disable".into()),
            ("user", "\\".into()),
        ]);
        assert_eq!(text, r"host='x\' sslmode=\'disable' user='\\'");
    }

    #[test]
    fn a_replica_connects_by_certificate_under_its_incarnation() {
        let keys = KeyPair::in_run_directory(Path::new("/run/geodb"), "replication");
        let text = connection_string(&connection_parameters(
            &leader(),
            &keys,
            &"lake-2.abc".parse().unwrap(),
        ));
        for part in [
            "host='10.1.2.3'",
            "port='5433'",
            "application_name='lake-2.abc'",
            "sslmode='verify-ca'",
            "sslkey='/run/geodb/tls/replication/tls.key'",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("password"));
    }

    #[test]
    fn closed_doors_let_only_the_agent_in() {
        let open = client_authentication(Doors::Open);
        let closed = client_authentication(Doors::Closed);
        assert!(open.contains("hostssl all all all scram-sha-256"));
        assert!(!closed.contains("hostssl"));
        for text in [open, closed] {
            let accepting: Vec<&str> = text
                .lines()
                .filter(|line| line.starts_with("host ") && !line.ends_with("reject"))
                .collect();
            assert!(
                accepting.is_empty(),
                "without TLS nobody gets in: {accepting:?}"
            );
        }
    }

    #[test]
    fn safety_settings_are_in_the_file_and_an_empty_upstream_too() {
        let keys = KeyPair::in_run_directory(Path::new("/run/geodb"), "server");
        let settings = Settings {
            listen: &leader(),
            run: Path::new("/run/geodb"),
            server_keys: &keys,
            primary_conninfo: None,
        };
        let text = settings.render();
        for line in [
            "fsync = 'on'",
            "wal_log_hints = 'on'",
            "listen_addresses = '10.1.2.3'",
            "primary_conninfo = ''",
            "unix_socket_permissions = '0700'",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }
}
