//! Names of the objects that belong to a Database. Deterministic, so that a repeated pass meets its own earlier work.

/// Longest name of a Database: every derived name must fit a DNS label (63 bytes), and the longest suffix is `-replication`.
pub const DATABASE_NAME_BYTES_MAX: usize = 50;

pub fn register(database: &str) -> String {
    database.to_owned()
}

/// ServiceAccount, Role and RoleBinding of the agents.
pub fn identity(database: &str) -> String {
    database.to_owned()
}

pub fn instance(database: &str, serial: u32) -> String {
    format!("{database}-{serial}")
}

/// The serial of an instance of this database, if the name is one.
pub fn serial(database: &str, instance: &str) -> Option<u32> {
    let digits = instance.strip_prefix(database)?.strip_prefix('-')?;
    let canonical = !digits.is_empty()
        && !digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { digits.parse().ok() } else { None }
}

/// The three ways in: the primary, the replicas, any instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    ReadWrite,
    ReadOnly,
    Read,
}

impl Endpoint {
    pub const ALL: [Self; 3] = [Self::ReadWrite, Self::ReadOnly, Self::Read];

    pub fn service(self, database: &str) -> String {
        let suffix = match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
            Self::Read => "r",
        };
        format!("{database}-{suffix}")
    }
}

/// Secrets the operator makes once and never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Credential {
    /// The database's own certificate authority, with its key.
    Authority,
    /// Server certificate of all instances.
    Server,
    /// Client certificate of the replication role.
    Replication,
    /// User name, password and connection strings of the owner.
    App,
}

impl Credential {
    /// In the order to make them: the authority signs the next two.
    pub const ALL: [Self; 4] = [Self::Authority, Self::Server, Self::Replication, Self::App];

    pub fn secret(self, database: &str) -> String {
        let suffix = match self {
            Self::Authority => "ca",
            Self::Server => "server",
            Self::Replication => "replication",
            Self::App => "app",
        };
        format!("{database}-{suffix}")
    }
}

/// ConfigMap with the connection details that are not secret.
pub fn connection(database: &str) -> String {
    format!("{database}-connection")
}
