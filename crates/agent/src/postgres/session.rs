//! A session of the agent with its own server, through the socket, as the superuser. Every statement has a deadline.

use std::path::Path;
use std::time::Duration;

use geodb_ha::Timeline;
use geodb_ha::environment::SUPERUSER;
use geodb_ha::instance::Upstream;
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, SimpleQueryRow};

use crate::limits::QUERY_DEADLINE;

/// Why the server did not answer.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("PostgreSQL did not answer within {} s", .0.as_secs())]
    Deadline(Duration),
    #[error("PostgreSQL said: {message} ({code})")]
    Said { message: String, code: String },
    #[error("the session with PostgreSQL broke: {0}")]
    Broken(String),
    #[error("PostgreSQL gave an unexpected answer to {0:?}")]
    Answer(&'static str),
}

impl From<tokio_postgres::Error> for SessionError {
    /// The library's own text leaves out what the server said.
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(said) => SessionError::Said {
                message: said.message().to_owned(),
                code: said.code().code().to_owned(),
            },
            None => SessionError::Broken(error.to_string()),
        }
    }
}

/// What a server is right now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Primary { timeline: Timeline, version: String },
    Replica { streams_from: Option<Upstream> },
}

/// One open session. Dropped, it says goodbye: the task that holds the connection ends with its client.
pub struct Session {
    client: Client,
}

impl Session {
    /// Connects through the socket in `run`. The search path is pinned: no object of a user can stand in for one of the server's.
    pub async fn open(run: &Path, port: u16, database: &str) -> Result<Self, SessionError> {
        let mut config = tokio_postgres::Config::new();
        config
            .host_path(run)
            .port(port)
            .user(SUPERUSER)
            .dbname(database);
        config
            .application_name("geodb-agent")
            .options("-c search_path=pg_catalog -c client_min_messages=warning");
        let (client, connection) = timeout(QUERY_DEADLINE, config.connect(NoTls))
            .await
            .map_err(|_| SessionError::Deadline(QUERY_DEADLINE))??;
        tokio::spawn(async move {
            // Its error also reaches whoever asks next through the client.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "session ended");
            }
        });
        Ok(Self { client })
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Looks at the server.
    pub async fn state(&self) -> Result<State, SessionError> {
        const ROLE: &str = "SELECT pg_is_in_recovery(), \
             (SELECT sender_host FROM pg_stat_wal_receiver WHERE status = 'streaming'), \
             (SELECT sender_port FROM pg_stat_wal_receiver WHERE status = 'streaming'), \
             current_setting('server_version')";
        const LOG_FILE: &str = "SELECT pg_walfile_name(pg_current_wal_lsn())";
        let row = self.row(ROLE, QUERY_DEADLINE).await?;
        if row.get(0) == Some("t") {
            let upstream = row
                .get(1)
                .zip(row.get(2).and_then(|port| port.parse().ok()));
            let streams_from = upstream.map(|(address, port)| Upstream {
                address: address.to_owned(),
                port,
            });
            return Ok(State::Replica { streams_from });
        }
        let version = row
            .get(3)
            .and_then(|version| version.split_whitespace().next())
            .unwrap_or_default()
            .to_owned();
        // The first eight digits of a log file's name are the timeline.
        let file = self.row(LOG_FILE, QUERY_DEADLINE).await?;
        let digits = file
            .get(0)
            .and_then(|name| name.get(..8))
            .ok_or(SessionError::Answer(LOG_FILE))?;
        let timeline =
            u32::from_str_radix(digits, 16).map_err(|_| SessionError::Answer(LOG_FILE))?;
        Ok(State::Primary {
            timeline: Timeline(timeline),
            version,
        })
    }

    /// When the server last read its configuration, in its own words.
    pub async fn configuration_loaded_at(&self) -> Result<String, SessionError> {
        const LOADED: &str = "SELECT extract(epoch FROM pg_conf_load_time())";
        let row = self.row(LOADED, QUERY_DEADLINE).await?;
        row.get(0)
            .map(str::to_owned)
            .ok_or(SessionError::Answer(LOADED))
    }

    /// What the files that were read last have wrong, if anything.
    pub async fn configuration_error(&self) -> Result<Option<String>, SessionError> {
        const ERRORS: &str = "SELECT coalesce((SELECT string_agg(name || ': ' || error, '; ') FROM pg_file_settings WHERE error IS NOT NULL), \
             (SELECT string_agg(error, '; ') FROM pg_hba_file_rules WHERE error IS NOT NULL))";
        Ok(self
            .row(ERRORS, QUERY_DEADLINE)
            .await?
            .get(0)
            .map(str::to_owned))
    }

    async fn row(
        &self,
        statement: &'static str,
        deadline: Duration,
    ) -> Result<SimpleQueryRow, SessionError> {
        let messages = timeout(deadline, self.client.simple_query(statement))
            .await
            .map_err(|_| SessionError::Deadline(deadline))??;
        let row = messages.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        row.ok_or(SessionError::Answer(statement))
    }

    /// One text, or none, from a statement with parameters.
    pub async fn text(
        &self,
        statement: &'static str,
        parameters: &[&str],
        deadline: Duration,
    ) -> Result<Option<String>, SessionError> {
        let parameters: Vec<&(dyn ToSql + Sync)> = parameters
            .iter()
            .map(|value| value as &(dyn ToSql + Sync))
            .collect();
        let row = timeout(deadline, self.client.query_opt(statement, &parameters))
            .await
            .map_err(|_| SessionError::Deadline(deadline))??;
        Ok(row.and_then(|row| row.get(0)))
    }

    /// Runs a statement that the server itself has put together, with names and values quoted by it.
    pub async fn execute_formatted(
        &self,
        format: &'static str,
        parameters: &[&str],
        deadline: Duration,
    ) -> Result<(), SessionError> {
        let statement = self
            .text(format, parameters, QUERY_DEADLINE)
            .await?
            .ok_or(SessionError::Answer(format))?;
        timeout(deadline, self.client.batch_execute(&statement))
            .await
            .map_err(|_| SessionError::Deadline(deadline))??;
        Ok(())
    }
}
