//! Clients: `psql`, over TLS as the owner, or through an instance's socket as the superuser.

use std::path::Path;
use std::process::Output;

use tokio::process::Command;

use super::Cluster;
use super::instance::Instance;
use super::secrets::{OWNER, PASSWORD};

pub const APP_DATABASE: &str = "Shore Lines";

/// Runs a statement as the owner over the network. The output, or what psql said.
pub async fn as_owner(cluster: &Cluster, address: &str, statement: &str) -> Result<String, String> {
    let mut psql = psql(statement);
    psql.env("PGHOST", address)
        .env("PGPORT", "5432")
        .env("PGDATABASE", APP_DATABASE);
    psql.env("PGUSER", OWNER).env("PGPASSWORD", PASSWORD);
    psql.env("PGSSLMODE", "verify-ca")
        .env("PGSSLROOTCERT", cluster.secrets.server.join("ca.crt"));
    finish(psql).await
}

/// Tries to get in over the network with exactly these settings.
pub async fn try_in(address: &str, settings: &[(&str, &str)]) -> Result<String, String> {
    let mut psql = psql("SELECT 1");
    psql.env("PGHOST", address)
        .env("PGPORT", "5432")
        .env("PGDATABASE", "postgres")
        .envs(settings.iter().copied());
    finish(psql).await
}

/// Runs a statement as the superuser, inside the pod.
pub async fn inside(
    instance: &Instance,
    database: &str,
    statement: &str,
) -> Result<String, String> {
    let mut psql = psql(statement);
    psql.env("PGHOST", socket_directory(instance))
        .env("PGPORT", "5432")
        .env("PGDATABASE", database)
        .env("PGUSER", "postgres");
    finish(psql).await
}

fn socket_directory(instance: &Instance) -> &Path {
    &instance.run
}

fn psql(statement: &str) -> Command {
    let mut psql = Command::new("psql");
    psql.args([
        "--no-psqlrc",
        "--no-password",
        "--tuples-only",
        "--no-align",
        "--set=ON_ERROR_STOP=1",
        "--command",
        statement,
    ]);
    psql.env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("PGCONNECT_TIMEOUT", "5")
        .kill_on_drop(true);
    psql
}

async fn finish(mut psql: Command) -> Result<String, String> {
    let Output {
        status,
        stdout,
        stderr,
    } = psql.output().await.unwrap();
    if status.success() {
        Ok(String::from_utf8_lossy(&stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&stderr).into_owned())
    }
}
