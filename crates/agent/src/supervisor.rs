//! The loop: observe, decide, do one step, wait for something to change.
//!
//! There is one task that acts, this one, so no two steps overlap. Beside it run the watch of the register, the reaper of children and the
//! probes; they only tell. A signal to end cancels whatever step is under way: every step can be repeated.

mod publish;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use geodb_ha::instance::{
    Action, Contents, Doors, Endpoint, Foreign, Knowledge, Observed, Postgres, Primary, Role,
    Streaming, Upstream, Volume, decide,
};
use geodb_ha::{Epoch, Incarnation, Record};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::backoff::Backoff;
use crate::environment::Environment;
use crate::health::{self, Health};
use crate::limits::{
    KILL_DEADLINE, NOT_STREAMING_INTERVAL, PRIMARY_INTERVAL, RELOAD_DEADLINE, RELOAD_INTERVAL,
    REPLICA_INTERVAL, RETRY_LAST, STABLE_AFTER, STARTING_INTERVAL,
};
use crate::postgres::make;
use crate::postgres::prepare::prepare;
use crate::postgres::programs::Programs;
use crate::postgres::server::{Configuration, Server, Stop};
use crate::postgres::session::{Session, State};
use crate::processes::{OrphansRemain, Processes};
use crate::register::{RegisterAccess, Snapshot};
use crate::volume::{Claim, Memory};

/// The random part of the name under which an instance without an identity of its own speaks; it takes part in nothing.
const NOBODY: &str = "unknown";

/// Runs until told to end, or until only the end of the container helps.
pub async fn run(environment: Environment) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    // Listening is what keeps the default, which ends a program that is not PID 1, from happening.
    let _hangup = signal(SignalKind::hangup()).context("failed to listen for SIGHUP")?;
    let told_to_end = async move {
        tokio::select! { _ = terminate.recv() => "SIGTERM", _ = interrupt.recv() => "SIGINT" }
    };
    tokio::pin!(told_to_end);

    let (mut supervisor, mut companions) = tokio::select! {
        begun = Supervisor::begin(environment) => begun?,
        _ = &mut told_to_end => return Ok(ExitCode::SUCCESS),
    };
    let outcome = tokio::select! {
        failed = supervisor.work() => failed,
        // They run for ever: one that ended has panicked, and without it the agent would be blind or mute.
        _ = companions.join_next() => Err(anyhow::anyhow!("a part of the agent ended; this is a bug, and the container has to be restarted")),
        why = &mut told_to_end => { tracing::info!(why, "ending"); Ok(()) }
    };
    supervisor.end().await?;
    outcome.map(|()| ExitCode::SUCCESS)
}

/// What to do after a step.
enum Next {
    /// Something changed: look again at once.
    Look,
    /// Nothing to do: look again when something is told, or after this time.
    Wait(Duration),
}

struct Supervisor {
    environment: Environment,
    processes: Processes,
    programs: Programs,
    configuration: Configuration,
    claim: Claim,
    memory: Memory,
    foreign: Option<Foreign>,
    volume: Volume,
    client: kube::Client,
    register: Arc<RegisterAccess>,
    snapshots: watch::Receiver<Snapshot>,
    health: watch::Sender<Health>,
    server: Option<Server>,
    session: Option<Session>,
    contents: Contents,
    /// The record, and the Lease's UID, for which the endpoint was last seen to be right.
    endpoint: Option<(Record, Option<String>)>,
    retries: Backoff,
    restarts: Backoff,
    start_not_before: Instant,
    said: Option<Action>,
}

impl Supervisor {
    async fn begin(environment: Environment) -> anyhow::Result<(Self, JoinSet<()>)> {
        let processes = Processes::take_over().context("failed to take over the children")?;
        let (health, probes) = watch::channel(Health::starting());
        let listener = TcpListener::bind((environment.pod_ip, environment.health_port)).await;
        let listener = listener.with_context(|| {
            format!(
                "failed to bind the health endpoint {}:{}",
                environment.pod_ip, environment.health_port
            )
        })?;
        let mut companions = JoinSet::new();
        companions.spawn(health::serve(listener, probes));

        let claim = Claim::lock(&environment.paths).await?;
        let (memory, foreign) = match claim.recall(&environment.instance)? {
            Ok(memory) => (memory, None),
            Err(foreign) => {
                let nobody = Incarnation::new(&environment.instance, NOBODY)?;
                (
                    Memory {
                        incarnation: nobody,
                        last_promoted_epoch: Epoch::NONE,
                        system_identifier: None,
                    },
                    Some(foreign),
                )
            }
        };
        let programs = Programs::find(&processes, claim.data_version().as_deref()).await?;
        let client = api_client()?;
        let register = Arc::new(RegisterAccess::new(
            client.clone(),
            &environment.namespace,
            &environment.database,
        ));
        let snapshots = register.subscribe();
        let follower = Arc::clone(&register);
        companions.spawn(async move { follower.follow().await });
        tracing::info!(incarnation = %memory.incarnation, postgresql = programs.major, "agent started");
        let supervisor = Self {
            configuration: Configuration::new(&environment),
            environment,
            processes,
            programs,
            claim,
            memory,
            foreign,
            volume: Volume::Empty,
            client,
            register,
            snapshots,
            health,
            server: None,
            session: None,
            contents: Contents::Unprepared,
            endpoint: None,
            retries: Backoff::default(),
            restarts: Backoff::default(),
            start_not_before: Instant::now(),
            said: None,
        };
        Ok((supervisor, companions))
    }

    /// Works for ever; returns only what the end of the container has to mend.
    async fn work(&mut self) -> anyhow::Result<()> {
        loop {
            let observed = self.observe().await?;
            let action = decide(&observed);
            self.say(&action);
            let next = match self.perform(&observed, action).await {
                Ok(next) => next,
                Err(error) if error.is::<OrphansRemain>() => return Err(error),
                Err(error) => {
                    let pause = self.retries.next();
                    tracing::error!(
                        error = format!("{error:#}"),
                        pause_ms = pause.as_millis(),
                        "step failed"
                    );
                    let tried = self.said.as_ref().map(Action::message).unwrap_or_default();
                    let message = format!("{tried}; last attempt: {error:#}");
                    self.health.send_modify(|health| health.message = message);
                    Next::Wait(pause)
                }
            };
            if let Next::Wait(pause) = next {
                self.wait(pause).await?;
            } else {
                self.retries.reset();
            }
        }
    }

    /// Ends PostgreSQL cleanly.
    async fn end(&mut self) -> anyhow::Result<()> {
        self.health
            .send_modify(|health| (health.ready, health.reason) = (false, "Ending".to_owned()));
        self.session = None;
        if let Some(server) = self.server.take() {
            server.stop(&self.processes, Stop::Fast).await?;
        }
        Ok(())
    }

    async fn observe(&mut self) -> anyhow::Result<Observed> {
        if let Some(foreign) = &self.foreign {
            self.volume = Volume::Foreign(foreign.clone());
        } else if self.server.is_none() {
            self.volume = self.claim.look(&mut self.memory, &self.programs.major)?;
        }
        let postgres = self.look_at_server().await?;
        Ok(Observed {
            me: self.memory.incarnation.clone(),
            here: self.environment.here(),
            volume: self.volume.clone(),
            last_promoted: self.memory.last_promoted_epoch,
            register: self.snapshots.borrow_and_update().knowledge.clone(),
            postgres,
        })
    }

    async fn look_at_server(&mut self) -> anyhow::Result<Postgres> {
        let Some(server) = &self.server else {
            return Ok(Postgres::Stopped);
        };
        let role = server.role.clone();
        let Some(state) = self.ask_server().await else {
            return Ok(Postgres::Starting(role));
        };
        match (role, state) {
            (Role::Primary, State::Primary { timeline, version }) => {
                let endpoint = if self.endpoint.is_some() && self.endpoint == self.published() {
                    Endpoint::Confirmed
                } else {
                    Endpoint::Unconfirmed
                };
                Ok(Postgres::Primary(Primary {
                    contents: self.contents,
                    timeline,
                    version,
                    endpoint,
                }))
            }
            (Role::Replica { following }, State::Replica { streams_from }) => {
                let streaming = if streams_from.as_ref() == Some(&following) {
                    Streaming::Yes
                } else {
                    Streaming::No
                };
                Ok(Postgres::Replica {
                    following,
                    streaming,
                })
            }
            (role, state) => {
                // Somebody promoted it by hand, or put a signal file into its data. It must not go on as what nobody agreed to.
                tracing::error!(
                    ?role,
                    ?state,
                    "PostgreSQL is not what it was started as; stopping it"
                );
                self.stop_server(Stop::Immediate).await?;
                Ok(Postgres::Stopped)
            }
        }
    }

    async fn ask_server(&mut self) -> Option<State> {
        if self.session.as_ref().is_none_or(Session::is_closed) {
            self.session = None;
            if !self.server.as_ref()?.accepts_connections() {
                return None;
            }
            let opened = Session::open(
                &self.environment.paths.run,
                self.environment.port,
                geodb_ha::environment::SUPERUSER,
            )
            .await;
            self.session = opened
                .inspect_err(|error| tracing::debug!(%error, "no session yet"))
                .ok();
        }
        match self.session.as_ref()?.state().await {
            Ok(state) => Some(state),
            Err(error) => {
                tracing::warn!(%error, "PostgreSQL did not say how it is");
                self.session = None;
                None
            }
        }
    }

    /// One line per change of mind, and the same words for the probes.
    fn say(&mut self, action: &Action) {
        if self.said.as_ref() == Some(action) {
            return;
        }
        let (reason, message) = (action.reason(), action.message());
        match action {
            Action::Refuse(_) | Action::Stop(_) => tracing::error!(reason, "{message}"),
            _ => tracing::info!(reason, "{message}"),
        }
        self.health.send_replace(Health {
            ready: matches!(action, Action::Serve(_)),
            reason: reason.to_owned(),
            message,
            incarnation: Some(self.memory.incarnation.to_string()),
        });
        self.said = Some(action.clone());
    }

    async fn perform(&mut self, observed: &Observed, action: Action) -> anyhow::Result<Next> {
        match action {
            Action::Wait(_) | Action::Serve(_) => return Ok(Next::Wait(self.interval(observed))),
            Action::Refuse(_) => return Ok(Next::Wait(RETRY_LAST)),
            Action::DiscardHalfMade => self.claim.discard_staging().await?,
            Action::RenewIncarnation => {
                self.memory = self.claim.renew(&self.environment.instance)?;
                tracing::info!(incarnation = %self.memory.incarnation, "new incarnation");
            }
            Action::Claim { epoch, .. } => self.claim_epoch(observed, epoch, &action).await?,
            Action::Initialise => {
                make::initialise(
                    &self.processes,
                    &self.programs,
                    &self.claim,
                    &mut self.memory,
                )
                .await?;
            }
            Action::Clone {
                from,
                system_identifier,
            } => self.clone_leader(from, &system_identifier).await?,
            Action::StartPrimary { epoch, doors } => {
                self.promote_in_memory(epoch)?;
                self.contents = if doors == Doors::Open {
                    Contents::Prepared
                } else {
                    Contents::Unprepared
                };
                return self.start_server(Role::Primary, doors).await;
            }
            Action::StartReplica { following } => {
                return self
                    .start_server(Role::Replica { following }, Doors::Open)
                    .await;
            }
            Action::Prepare => {
                prepare(&self.environment).await?;
                self.contents = Contents::Prepared;
            }
            Action::Publish { epoch } => self.publish(observed, epoch, &action).await?,
            Action::PublishEndpoint => self.publish_endpoint().await?,
            Action::Follow { leader } => self.follow(leader).await?,
            Action::Stop(_) => self.stop_server(Stop::Immediate).await?,
        }
        Ok(Next::Look)
    }

    /// When to look again at something that does not tell of itself.
    fn interval(&self, observed: &Observed) -> Duration {
        match &observed.postgres {
            // What changes then is told: the register.
            Postgres::Stopped => RETRY_LAST,
            Postgres::Starting(_) => STARTING_INTERVAL,
            Postgres::Primary(_) => PRIMARY_INTERVAL,
            Postgres::Replica {
                streaming: Streaming::No,
                ..
            } => NOT_STREAMING_INTERVAL,
            Postgres::Replica { .. } => REPLICA_INTERVAL,
        }
    }

    /// Waits for news of the register, the end of PostgreSQL, or the time.
    async fn wait(&mut self, pause: Duration) -> Result<(), OrphansRemain> {
        let exit = tokio::select! {
            changed = self.snapshots.changed() => {
                debug_assert!(changed.is_ok(), "the sender lives in self.register");
                return Ok(());
            }
            () = sleep(pause) => return Ok(()),
            exit = async {
                match &mut self.server {
                    Some(server) => server.wait().await,
                    None => std::future::pending().await,
                }
            } => exit,
        };
        let lived = self
            .server
            .take()
            .map_or(Duration::ZERO, |server| server.started.elapsed());
        self.session = None;
        self.said = None;
        tracing::error!(%exit, lived_s = lived.as_secs(), "PostgreSQL ended by itself");
        self.health.send_modify(|health| {
            (health.ready, health.reason) = (false, "PostgresDied".to_owned());
        });
        if lived >= STABLE_AFTER {
            self.restarts.reset();
            self.start_not_before = Instant::now();
        } else {
            self.start_not_before = Instant::now() + self.restarts.next();
        }
        // A backend can outlive its postmaster, and even answer a commit: none may be left when the next server starts.
        self.processes.end_orphans(KILL_DEADLINE).await
    }

    async fn start_server(&mut self, role: Role, doors: Doors) -> anyhow::Result<Next> {
        if Instant::now() < self.start_not_before {
            sleep_until(self.start_not_before).await;
            return Ok(Next::Look);
        }
        self.configuration
            .write(&role, doors, &self.memory.incarnation)?;
        let (run, port) = (&self.environment.paths.run, self.environment.port);
        let server = Server::start(
            &self.processes,
            &self.programs,
            &self.claim,
            run,
            port,
            (role, doors),
        )
        .await?;
        self.server = Some(server);
        Ok(Next::Look)
    }

    async fn stop_server(&mut self, how: Stop) -> Result<(), OrphansRemain> {
        self.session = None;
        match self.server.take() {
            Some(server) => server.stop(&self.processes, how).await,
            None => Ok(()),
        }
    }

    /// On disk before anything is done in that epoch: a crash must not forget a promotion.
    fn promote_in_memory(&mut self, epoch: Epoch) -> anyhow::Result<()> {
        if self.memory.last_promoted_epoch < epoch {
            let memory = Memory {
                last_promoted_epoch: epoch,
                ..self.memory.clone()
            };
            self.claim.remember(&memory)?;
            self.memory = memory;
        }
        Ok(())
    }

    async fn clone_leader(
        &mut self,
        from: Upstream,
        system_identifier: &str,
    ) -> anyhow::Result<()> {
        let connection = self
            .configuration
            .upstream(&from, &self.memory.incarnation)?;
        let mut snapshots = self.snapshots.clone();
        let elsewhere = snapshots.wait_for(|snapshot| match &snapshot.knowledge {
            Knowledge::Read { register, .. } => register
                .current_record()
                .is_some_and(|record| record.address != from.address || record.port != from.port),
            _ => false,
        });
        tokio::select! {
            made = make::clone(&self.processes, &self.programs, &self.claim, &mut self.memory, &connection, system_identifier) => Ok(made?),
            _ = elsewhere => { tracing::info!("the leader moved while it was cloned; beginning again"); Ok(()) }
        }
    }

    async fn open_doors(&mut self) -> anyhow::Result<()> {
        if self
            .server
            .as_ref()
            .is_some_and(|server| server.doors == Doors::Open)
        {
            return Ok(());
        }
        self.reconfigure(Role::Primary, Doors::Open).await
    }

    async fn follow(&mut self, leader: Upstream) -> anyhow::Result<()> {
        self.reconfigure(Role::Replica { following: leader }, Doors::Open)
            .await
    }

    /// Writes the configuration, has the server read it, and sees that it did.
    async fn reconfigure(&mut self, role: Role, doors: Doors) -> anyhow::Result<()> {
        let server = self
            .server
            .as_mut()
            .context("there is no server to reconfigure; this is a bug")?;
        let before = match &self.session {
            Some(session) => Some(session.configuration_loaded_at().await?),
            None => None,
        };
        self.configuration
            .write(&role, doors, &self.memory.incarnation)?;
        server.reload();
        if let (Some(before), Some(session)) = (before, &self.session) {
            let loaded = async {
                while session.configuration_loaded_at().await? == before {
                    sleep(RELOAD_INTERVAL).await;
                }
                session.configuration_error().await
            };
            let error = timeout(RELOAD_DEADLINE, loaded)
                .await
                .context("PostgreSQL did not read its configuration in time")??;
            anyhow::ensure!(
                error.is_none(),
                "PostgreSQL does not accept its configuration: {}",
                error.unwrap_or_default()
            );
        }
        (server.role, server.doors) = (role, doors);
        Ok(())
    }
}

/// A client for the API server of this pod. Retries are the agent's own: a hidden one would turn a lost reply into a conflict.
fn api_client() -> anyhow::Result<kube::Client> {
    let mut config = kube::Config::incluster_env()
        .context("failed to find the Kubernetes API; the agent runs in a pod")?;
    config.default_retry = false;
    kube::Client::try_from(config).context("failed to make a client for the Kubernetes API")
}
