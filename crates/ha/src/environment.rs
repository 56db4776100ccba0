//! The names an instance's pod and its agent meet by: environment variables, paths, ports, roles.
//!
//! The operator writes them into manifests, the agent reads them. It is not configuration: nothing here varies between databases.

/// Name of the Database this instance belongs to; also the name of its register.
pub const DATABASE: &str = "GEODB_DATABASE";
/// Name of the instance, which is the name of its pod and of its claim.
pub const INSTANCE: &str = "GEODB_INSTANCE";
/// Namespace of the Database.
pub const NAMESPACE: &str = "GEODB_NAMESPACE";
/// Address of the pod (downward API, `status.podIP`); everything the agent opens, it opens here only.
pub const POD_IP: &str = "GEODB_POD_IP";
/// Port PostgreSQL listens on.
pub const PORT: &str = "GEODB_PORT";
/// Port of the health endpoint.
pub const HEALTH_PORT: &str = "GEODB_HEALTH_PORT";
/// Name of the database inside PostgreSQL that is made for the application.
pub const APP_DATABASE: &str = "GEODB_APP_DATABASE";
/// Extensions of that database, comma separated.
pub const EXTENSIONS: &str = "GEODB_EXTENSIONS";

/// Health endpoint of every instance unless told otherwise.
pub const DEFAULT_HEALTH_PORT: u16 = 8008;
/// PostgreSQL's own port.
pub const DEFAULT_PORT: u16 = 5432;

/// Where the claim is mounted.
pub const VOLUME_PATH: &str = "/var/lib/geodb";
/// The data directory inside the volume.
pub const DATA_PATH: &str = "/var/lib/geodb/pgdata";
/// What the agent remembers across restarts, outside everything a clone overwrites.
pub const STATE_PATH: &str = "/var/lib/geodb/state";
/// Socket, rendered configuration and private copies of keys; an emptyDir.
pub const RUN_PATH: &str = "/run/geodb";
/// Scratch space; an emptyDir.
pub const TMP_PATH: &str = "/tmp";
/// Where the init container leaves the program; an emptyDir.
pub const PROGRAM_DIRECTORY: &str = "/opt/geodb";
/// The program in it.
pub const PROGRAM_PATH: &str = "/opt/geodb/geodb";
/// Mounted Secret with the server's certificate.
pub const SERVER_SECRET_PATH: &str = "/etc/geodb/server";
/// Mounted Secret with the replication client's certificate.
pub const REPLICATION_SECRET_PATH: &str = "/etc/geodb/replication";
/// Mounted Secret with the owner's `username` and `password`.
pub const APP_SECRET_PATH: &str = "/etc/geodb/app";

/// Paths of the health endpoint.
pub const LIVE_PATH: &str = "/livez";
pub const READY_PATH: &str = "/readyz";

/// Name of PostgreSQL's port in the pod, in the Services and in the EndpointSlice: a Service finds its endpoint's port by name.
pub const POSTGRES_PORT_NAME: &str = "postgres";
/// Name of the health port in the pod.
pub const HEALTH_PORT_NAME: &str = "health";

/// The role replicas connect as; also the common name of their client certificate.
pub const REPLICATION_ROLE: &str = "geodb_replication";
/// The superuser, reachable only through the socket inside the pod.
pub const SUPERUSER: &str = "postgres";

/// Name of the EndpointSlice that the leader of a database writes, and of the Service in front of it.
#[must_use]
pub fn primary_endpoint_name(database: &str) -> String {
    format!("{database}-rw")
}
