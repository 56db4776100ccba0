//! What a new database needs before anybody is let in: the replication role, the owner, the database, its extensions.
//!
//! Every step looks first, so that a crash anywhere is followed by the rest only. Names are quoted by the server, and the password reaches it
//! as a SCRAM verifier: the clear text is in no statement, log or view.

use std::io;
use std::path::Path;

use geodb_ha::environment::{REPLICATION_ROLE, SUPERUSER};
use postgres_protocol::password::scram_sha_256;

use super::session::{Session, SessionError};
use crate::environment::{Environment, is_identifier};
use crate::files::read_bounded;
use crate::limits::{PREPARE_DEADLINE, QUERY_DEADLINE, SECRET_BYTES_MAX};

/// Why the database is not prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("failed to {step}")]
    Step { step: String, source: SessionError },
    #[error(
        "failed to read the owner's {0}; the operator has to make the Secret with username and password"
    )]
    Secret(&'static str, #[source] io::Error),
    #[error("the owner cannot be called {0:?}: choose another spec.owner")]
    Owner(String),
    #[error(
        "the extension {0:?} is not in this image: use an image that has it (postgis/postgis has PostGIS), or take it out of spec.extensions"
    )]
    ExtensionMissing(String, #[source] SessionError),
}

fn step(step: impl Into<String>) -> impl FnOnce(SessionError) -> PrepareError {
    let step = step.into();
    move |source| PrepareError::Step { step, source }
}

/// The owner as the Secret says it. Not printable: it holds the password.
struct Owner {
    name: String,
    verifier: String,
}

impl Owner {
    fn read(secret: &Path) -> Result<Self, PrepareError> {
        let read = |name: &'static str| {
            let content = read_bounded(&secret.join(name), SECRET_BYTES_MAX);
            let failed = |error| PrepareError::Secret(name, error);
            let text = content
                .and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other))
                .map_err(failed)?;
            let empty = || failed(io::Error::other("it is empty"));
            if text.is_empty() {
                Err(empty())
            } else {
                Ok(text)
            }
        };
        let name = read("username")?;
        let reserved = name == SUPERUSER || name == REPLICATION_ROLE || name.starts_with("pg_");
        if reserved || !is_identifier(&name) {
            return Err(PrepareError::Owner(name));
        }
        Ok(Self {
            name,
            verifier: scram_sha_256(read("password")?.as_bytes()),
        })
    }
}

/// Makes sure that everything is there.
pub async fn prepare(environment: &Environment) -> Result<(), PrepareError> {
    let owner = Owner::read(&environment.paths.app_secret)?;
    let (run, port) = (&environment.paths.run, environment.port);
    let session = Session::open(run, port, SUPERUSER)
        .await
        .map_err(step("connect"))?;
    roles(&session, &owner).await?;
    database(&session, &environment.app_database, &owner).await?;
    let session = Session::open(run, port, &environment.app_database)
        .await
        .map_err(step("connect to the new database"))?;
    for name in &environment.extensions {
        extension(&session, name).await?;
    }
    Ok(())
}

async fn roles(session: &Session, owner: &Owner) -> Result<(), PrepareError> {
    if !exists(session, ROLE_EXISTS, REPLICATION_ROLE)
        .await
        .map_err(step("look for the replication role"))?
    {
        let create = session.execute_formatted(
            "SELECT format('CREATE ROLE %I LOGIN REPLICATION', $1::text)",
            &[REPLICATION_ROLE],
            QUERY_DEADLINE,
        );
        create.await.map_err(step("create the replication role"))?;
    }
    let statement = match exists(session, ROLE_EXISTS, &owner.name)
        .await
        .map_err(step("look for the owner"))?
    {
        false => "SELECT format('CREATE ROLE %I LOGIN PASSWORD %L', $1::text, $2::text)",
        true => "SELECT format('ALTER ROLE %I LOGIN PASSWORD %L', $1::text, $2::text)",
    };
    session
        .execute_formatted(statement, &[&owner.name, &owner.verifier], QUERY_DEADLINE)
        .await
        .map_err(step("set up the owner"))
}

async fn database(session: &Session, name: &str, owner: &Owner) -> Result<(), PrepareError> {
    let known = exists(
        session,
        "SELECT 1::text FROM pg_database WHERE datname = $1",
        name,
    )
    .await;
    if known.map_err(step("look for the database"))? {
        // The superuser's own database may be asked for: then the owner gets it.
        return session
            .execute_formatted(GIVE_DATABASE, &[name, &owner.name], QUERY_DEADLINE)
            .await
            .map_err(step(format!("give {name:?} to its owner")));
    }
    session
        .execute_formatted(CREATE_DATABASE, &[name, &owner.name], PREPARE_DEADLINE)
        .await
        .map_err(step(format!("create the database {name:?}")))
}

async fn extension(session: &Session, name: &str) -> Result<(), PrepareError> {
    let failed = || step(format!("create the extension {name:?}"));
    if exists(
        session,
        "SELECT 1::text FROM pg_extension WHERE extname = $1",
        name,
    )
    .await
    .map_err(failed())?
    {
        return Ok(());
    }
    // Some extensions insist on a schema of their own; all others go where PostgreSQL would put them for a user. Asking first would have
    // the server read every extension's file, and fail over one that is broken and not wanted.
    let created = session
        .execute_formatted(CREATE_EXTENSION, &[name], PREPARE_DEADLINE)
        .await;
    if !created.as_ref().is_err_and(is_unsupported) {
        return created.map_err(failed());
    }
    let created = session
        .execute_formatted(CREATE_EXTENSION_OWN_SCHEMA, &[name], PREPARE_DEADLINE)
        .await;
    created.map_err(|source| match is_unsupported(&source) {
        true => PrepareError::ExtensionMissing(name.to_owned(), source),
        false => failed()(source),
    })
}

/// "Not available", or "must be installed in another schema": the server has one code for both.
fn is_unsupported(error: &SessionError) -> bool {
    matches!(error, SessionError::Said { code, .. } if code == "0A000" || code == "58P01")
}

const CREATE_EXTENSION: &str =
    "SELECT format('CREATE EXTENSION %I SCHEMA public CASCADE', $1::text)";
const CREATE_EXTENSION_OWN_SCHEMA: &str = "SELECT format('CREATE EXTENSION %I', $1::text)";
const GIVE_DATABASE: &str = "SELECT format('ALTER DATABASE %I OWNER TO %I', $1::text, $2::text)";
const CREATE_DATABASE: &str = "SELECT format('CREATE DATABASE %I OWNER %I', $1::text, $2::text)";
const ROLE_EXISTS: &str = "SELECT 1::text FROM pg_roles WHERE rolname = $1";

async fn exists(
    session: &Session,
    statement: &'static str,
    name: &str,
) -> Result<bool, SessionError> {
    Ok(session
        .text(statement, &[name], QUERY_DEADLINE)
        .await?
        .is_some())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn owner(username: &str, password: &str) -> Result<Owner, PrepareError> {
        let secret = tempfile::tempdir().unwrap();
        fs::write(secret.path().join("username"), username).unwrap();
        fs::write(secret.path().join("password"), password).unwrap();
        Owner::read(secret.path())
    }

    #[test]
    fn the_password_becomes_a_verifier_and_nothing_else() {
        let owner = owner("mapper", "planted-secret").ok().unwrap();
        assert!(
            owner.verifier.starts_with("SCRAM-SHA-256$4096:"),
            "{}",
            owner.verifier
        );
        assert!(!owner.verifier.contains("planted-secret"));
    }

    #[test]
    fn an_owner_that_would_be_somebody_else_is_refused() {
        let long = "x".repeat(64);
        for name in [
            "postgres",
            "geodb_replication",
            "pg_monitor",
            "a\nb",
            long.as_str(),
        ] {
            assert!(
                matches!(owner(name, "p"), Err(PrepareError::Owner(_))),
                "{name}"
            );
        }
        for (name, password) in [("", "p"), ("mapper", "")] {
            assert!(matches!(
                owner(name, password),
                Err(PrepareError::Secret(..))
            ));
        }
    }
}
