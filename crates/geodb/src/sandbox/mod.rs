//! `geodb sandbox`: everything in one process, from nothing to a database, and back to nothing.
//!
//! `main` and `Session::run` are the story. The parts are crates of their own; here they are started and stopped in order ([`compose`]),
//! files are applied ([`documents`], [`apply`]), progress is judged and shown ([`readiness`], [`board`], [`watching`], [`display`]), and
//! the user's command is run ([`command`], [`connect`]).

mod apply;
mod board;
mod command;
mod compose;
mod connect;
mod data;
mod display;
mod documents;
mod guide;
mod preflight;
mod readiness;
mod signals;
mod watching;

use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use tokio::time::Instant;

use crate::cli::SandboxArguments;
use crate::logging;
use apply::{Applied, Outcome};
use board::{Board, Observation, Standing, Subject};
use compose::{Composition, Plan};
use connect::Connection;
use data::DataDirectory;
use display::Display;
use documents::Document;
use signals::{Signals, StopSignal};
use watching::Watching;

/// The log of everything but the pods, in the data directory.
const LOG_FILE: &str = "sandbox.log";

/// Runs a sandbox from start to stop.
pub async fn main(arguments: SandboxArguments) -> Result<ExitCode> {
    // What can be found wrong without starting anything is found first.
    let installed = preflight::check()?;
    let documents = read_documents(&arguments.files)?;
    let signals = Signals::listen()?;
    let data = DataDirectory::open(arguments.data.as_deref())?;
    logging::to_file(&data.path().join(LOG_FILE))?;
    let plan = Plan {
        data: data.path().to_owned(),
        nodes: arguments.nodes,
        default_image: installed.image(),
    };
    let mut session = Session {
        arguments,
        plan,
        signals,
        display: Display::new(),
        composition: Composition::default(),
    };

    let end = Box::pin(session.run(documents)).await;
    session.stop().await;
    if end.is_err() {
        tracing::info!("stopped before what was asked for was done");
    }
    let hint = data.where_the_logs_are();
    data.close()?;
    match end {
        Ok(status) => Ok(ExitCode::from(status)),
        Err(Interruption::Signal(signal)) => Ok(ExitCode::from(signal.exit_status())),
        Err(Interruption::Failed(error)) => Err(anyhow!("{error:#}\n{hint}")),
    }
}

/// Why a session ended before what was asked for was done.
enum Interruption {
    Signal(StopSignal),
    Failed(anyhow::Error),
}

impl From<anyhow::Error> for Interruption {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed(error)
    }
}

/// One sandbox while it lives.
struct Session {
    arguments: SandboxArguments,
    plan: Plan,
    signals: Signals,
    display: Display,
    composition: Composition,
}

/// What was applied, and where it stands.
struct Followed {
    applied: Vec<Applied>,
    board: Board,
    watching: Watching,
}

impl Session {
    /// Everything between start and stop; returns the exit status.
    async fn run(&mut self, documents: Vec<Document>) -> Result<u8, Interruption> {
        unless_stopped(
            &mut self.signals,
            Box::pin(self.composition.start(&self.plan, &self.display)),
        )
        .await?;
        let mut followed = Box::pin(self.apply(documents)).await?;
        let waits_for_ready = self.arguments.until_ready || !self.arguments.command.is_empty();
        if waits_for_ready {
            self.await_ready(&mut followed).await?;
            self.display.settle();
            return if self.arguments.command.is_empty() {
                Ok(0)
            } else {
                self.run_command(&followed.applied).await
            };
        }
        self.run_until_stopped(&mut followed).await
    }

    async fn apply(&mut self, documents: Vec<Document>) -> Result<Followed, Interruption> {
        let client = self.composition.client()?;
        let mut applied = Vec::new();
        for document in documents {
            let object = unless_stopped(&mut self.signals, apply::apply(&client, document)).await?;
            let title = object.document.title();
            self.display.say(&match object.outcome {
                Outcome::Created => format!("{title}: created"),
                Outcome::Unchanged => format!("{title}: as the file says"),
                Outcome::SetToFile => {
                    format!("{title}: set to what {} says", object.document.origin.file)
                }
            });
            applied.push(object);
        }
        let subjects = applied.iter().map(|object| Subject {
            title: object.document.title(),
            expectation: object.expectation,
            has_instances: object.is_database(),
        });
        let board = Board::new(subjects.collect());
        let watching = watching::start(&client, &applied);
        Ok(Followed {
            applied,
            board,
            watching,
        })
    }

    /// Follows what was applied until all of it is ready; not ready in time is an error with the reasons.
    async fn await_ready(&mut self, followed: &mut Followed) -> Result<(), Interruption> {
        let deadline = Instant::now() + self.arguments.timeout;
        loop {
            match followed.board.standing() {
                Standing::Ready => return Ok(()),
                Standing::Failed(reasons) => return Err(anyhow!("{}", reasons.join("\n")).into()),
                Standing::Waiting(reasons) => {
                    let step = tokio::time::timeout_at(deadline, self.step(followed)).await;
                    step.unwrap_or_else(|_| Err(self.too_late(&reasons, &followed.board).into()))?;
                }
            }
        }
    }

    fn too_late(&self, reasons: &[String], board: &Board) -> anyhow::Error {
        let details = board
            .unfinished()
            .into_iter()
            .filter(|row| !reasons.contains(row))
            .map(|row| format!("\n  {row}"));
        anyhow!(
            "not ready after {} s; give it longer with --timeout, or see what it waits for:\n  {}{}",
            self.arguments.timeout.as_secs(),
            reasons.join("\n  "),
            details.collect::<String>()
        )
    }

    /// Shows the next thing that happens.
    async fn step(&mut self, followed: &mut Followed) -> Result<(), Interruption> {
        tokio::select! {
            Some(observation) = followed.watching.observations.recv() => {
                if let Observation::Warning { text } = &observation {
                    self.display.say(text);
                }
                for change in followed.board.observe(observation) {
                    self.display.show(&change);
                }
                Ok(())
            }
            signal = self.signals.next() => Err(Interruption::Signal(signal)),
            error = self.composition.broken() => Err(error.into()),
        }
    }

    /// Alone, the sandbox runs until it is told to stop; that is its success.
    async fn run_until_stopped(&mut self, followed: &mut Followed) -> Result<u8, Interruption> {
        match self.welcome_when_ready(followed).await {
            Err(Interruption::Signal(_)) => Ok(0),
            Err(failed) => Err(failed),
            Ok(never) => match never {},
        }
    }

    async fn welcome_when_ready(
        &mut self,
        followed: &mut Followed,
    ) -> Result<std::convert::Infallible, Interruption> {
        let mut welcomed = false;
        loop {
            if !welcomed && followed.board.standing() == Standing::Ready {
                welcomed = true;
                self.display.settle();
                let connections = self.connections(&followed.applied).await?;
                println!(
                    "{}",
                    guide::welcome(&self.composition.kubeconfig()?, &connections)
                );
            }
            self.step(followed).await?;
        }
    }

    async fn connections(&mut self, applied: &[Applied]) -> Result<Vec<Connection>, Interruption> {
        let client = self.composition.client()?;
        let mut connections = Vec::new();
        for database in applied.iter().filter(|object| object.is_database()) {
            let namespace = database
                .namespace
                .as_deref()
                .unwrap_or(apply::DEFAULT_NAMESPACE);
            let read = Connection::read(&client, namespace, &database.document.name);
            connections.push(unless_stopped(&mut self.signals, read).await?);
        }
        Ok(connections)
    }

    /// `PG*` are set only where it is clear which database is meant.
    async fn run_command(&mut self, applied: &[Applied]) -> Result<u8, Interruption> {
        let connections = self.connections(applied).await?;
        let connection = match connections.as_slice() {
            [only] => Some(only),
            _ => None,
        };
        let kubeconfig = self.composition.kubeconfig()?;
        Ok(command::run(
            &self.arguments.command,
            &kubeconfig,
            connection,
            &mut self.signals,
        )
        .await?)
    }

    /// Stops everything in order; a further signal means at once. Pods die with this process whichever way it ends.
    async fn stop(&mut self) {
        self.display.settle();
        self.display
            .say("stopping; press Ctrl-C again to stop at once");
        let stopped = tokio::select! {
            () = self.composition.stop() => None,
            signal = self.signals.next() => Some(signal),
        };
        match stopped {
            None => self.display.say("stopped"),
            Some(signal) => std::process::exit(signal.exit_status().into()),
        }
    }
}

/// Does the work, unless a signal comes first.
async fn unless_stopped<T>(
    signals: &mut Signals,
    work: impl Future<Output = Result<T>>,
) -> Result<T, Interruption> {
    tokio::select! {
        result = work => Ok(result?),
        signal = signals.next() => Err(Interruption::Signal(signal)),
    }
}

fn read_documents(files: &[PathBuf]) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    for file in files {
        let read = documents::read(file)?;
        if read.is_empty() {
            return Err(anyhow!("{} has no objects in it", file.display()));
        }
        documents.extend(read);
    }
    Ok(documents)
}
