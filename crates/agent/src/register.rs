//! The register in the Kubernetes API: read by consistent GET, written by PUT with the version that was read, followed by one watch.
//!
//! At rest there is nothing but the open watch. What a failed request means is never guessed: the register is read again. It is not the
//! register's meaning (`geodb-ha`), and it decides nothing.

use std::sync::Arc;

use futures::StreamExt;
use geodb_ha::Register;
use geodb_ha::instance::{Bootstrap, Knowledge};
use geodb_ha::register::{BOOTSTRAP_ALLOWED, BOOTSTRAP_ANNOTATION, REGISTER_ANNOTATION};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::backoff::Backoff;
use crate::limits::{API_REQUEST_DEADLINE, STABLE_AFTER, WATCH_SECONDS, WATCH_SILENCE_MAX};

/// Who wrote a field, in the objects' own bookkeeping.
pub const FIELD_MANAGER: &str = "geodb-agent";

/// The register as it was last seen.
#[derive(Debug, Clone)]
pub struct Snapshot {
    pub knowledge: Knowledge,
    /// The object it was in, if there is one: writing needs its version, and the endpoint copies its owner.
    pub lease: Option<Arc<Lease>>,
}

impl Snapshot {
    fn of(lease: Option<Lease>) -> Self {
        let knowledge = lease.as_ref().map_or(Knowledge::Absent, knowledge_of);
        Self {
            knowledge,
            lease: lease.map(Arc::new),
        }
    }

    fn version(&self) -> Option<u64> {
        self.lease
            .as_ref()?
            .metadata
            .resource_version
            .as_ref()?
            .parse()
            .ok()
    }
}

fn knowledge_of(lease: &Lease) -> Knowledge {
    let annotation = |name: &str| {
        lease
            .metadata
            .annotations
            .as_ref()?
            .get(name)
            .map(String::as_str)
    };
    let bootstrap = match annotation(BOOTSTRAP_ANNOTATION) {
        Some(BOOTSTRAP_ALLOWED) => Bootstrap::Allowed,
        _ => Bootstrap::Forbidden,
    };
    match Register::from_lease(annotation(REGISTER_ANNOTATION)) {
        Ok(register) => Knowledge::Read {
            register,
            bootstrap,
        },
        Err(error) => Knowledge::Unreadable(error.to_string()),
    }
}

/// Why the API did not do what was asked. Whether a write took place is then unknown.
#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("the Kubernetes API did not answer within {} s", API_REQUEST_DEADLINE.as_secs())]
    Deadline,
    #[error("the Kubernetes API refused: {message} ({code})")]
    Refused { code: u16, message: String },
    #[error("the Kubernetes API cannot be reached")]
    Unreachable(#[source] kube::Error),
    #[error("somebody else was faster")]
    Conflict,
}

impl From<kube::Error> for ApiError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 409 => ApiError::Conflict,
            kube::Error::Api(status) => ApiError::Refused {
                code: status.code,
                message: status.message,
            },
            other => ApiError::Unreachable(other),
        }
    }
}

/// One request with its deadline; a conflict is its own case.
pub async fn request<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, ApiError> {
    match timeout(API_REQUEST_DEADLINE, call).await {
        Err(_) => Err(ApiError::Deadline),
        Ok(result) => Ok(result?),
    }
}

/// Access to one database's register.
pub struct RegisterAccess {
    api: Api<Lease>,
    name: String,
    latest: watch::Sender<Snapshot>,
}

impl RegisterAccess {
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let (latest, _) = watch::channel(Snapshot {
            knowledge: Knowledge::Unknown,
            lease: None,
        });
        Self {
            api: Api::namespaced(client, namespace),
            name: name.to_owned(),
            latest,
        }
    }

    pub fn subscribe(&self) -> watch::Receiver<Snapshot> {
        self.latest.subscribe()
    }

    /// Reads what is true now.
    pub async fn read(&self) -> Result<Snapshot, ApiError> {
        let snapshot = Snapshot::of(request(self.api.get_opt(&self.name)).await?);
        self.learn(snapshot.clone());
        Ok(snapshot)
    }

    /// Reads what is true now, and the version from which a watch goes on. The object's own version will not do: an object that rests
    /// is soon older than anything the server can still tell of.
    async fn list(&self) -> Result<String, ApiError> {
        let parameters = ListParams::default().fields(&self.only_this());
        let list = request(self.api.list(&parameters)).await?;
        self.learn(Snapshot::of(list.items.into_iter().next()));
        Ok(list.metadata.resource_version.unwrap_or_default())
    }

    fn only_this(&self) -> String {
        format!("metadata.name={}", self.name)
    }

    /// Writes `register` over exactly what was read in `base`, or fails.
    pub async fn write(&self, base: &Lease, register: &Register) -> Result<(), ApiError> {
        let next = with_register(base, register);
        let parameters = PostParams {
            field_manager: Some(FIELD_MANAGER.to_owned()),
            ..PostParams::default()
        };
        let written = request(self.api.replace(&self.name, &parameters, &next)).await?;
        self.learn(Snapshot::of(Some(written)));
        Ok(())
    }

    /// Follows the register for ever. What is known stays known while the API does not answer.
    pub async fn follow(&self) {
        let mut backoff = Backoff::default();
        let mut version: Option<String> = None;
        loop {
            let began = Instant::now();
            let ended = self.follow_once(&mut version).await;
            if began.elapsed() >= STABLE_AFTER {
                backoff.reset();
            }
            match ended {
                // The server ends watches now and then; the next one begins where this one ended.
                Ok(()) if began.elapsed() >= STABLE_AFTER => {}
                Ok(()) => tokio::time::sleep(backoff.next()).await,
                Err(error) => {
                    let pause = backoff.next();
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        pause_ms = pause.as_millis(),
                        "lost sight of the register"
                    );
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    async fn follow_once(&self, version: &mut Option<String>) -> Result<(), ApiError> {
        let from = match version {
            Some(version) => version.clone(),
            None => self.list().await?,
        };
        *version = Some(from.clone()).filter(|version| !version.is_empty());
        let parameters = WatchParams::default()
            .fields(&self.only_this())
            .timeout(WATCH_SECONDS);
        let opened = request(self.api.watch(&parameters, &from)).await;
        if matches!(opened, Err(ApiError::Refused { .. })) {
            *version = None;
        }
        let mut events = opened?.boxed();
        loop {
            match timeout(WATCH_SILENCE_MAX, events.next())
                .await
                .map_err(|_| ApiError::Deadline)?
            {
                None => return Ok(()),
                Some(Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease))) => {
                    *version = lease.metadata.resource_version.clone();
                    self.learn_from_watch(Snapshot::of(Some(lease)));
                }
                Some(Ok(WatchEvent::Deleted(lease))) => {
                    *version = lease.metadata.resource_version.clone();
                    self.learn(Snapshot::of(None));
                }
                Some(Ok(WatchEvent::Bookmark(bookmark))) => {
                    *version = Some(bookmark.metadata.resource_version);
                }
                Some(Ok(WatchEvent::Error(status))) => {
                    // Mostly 410: the version is too old. Whatever it is, only a read tells.
                    *version = None;
                    return Err(kube::Error::Api(status).into());
                }
                Some(Err(error)) => return Err(error.into()),
            }
        }
    }

    /// A watch may tell of what was before our own last write; that is no news.
    fn learn_from_watch(&self, snapshot: Snapshot) {
        if self
            .latest
            .borrow()
            .version()
            .zip(snapshot.version())
            .is_some_and(|(known, told)| told < known)
        {
            return;
        }
        self.learn(snapshot);
    }

    fn learn(&self, snapshot: Snapshot) {
        self.latest.send_if_modified(|latest| {
            let news = latest.knowledge != snapshot.knowledge || uid(latest) != uid(&snapshot);
            *latest = snapshot;
            if let (true, Knowledge::Unreadable(error)) = (news, &latest.knowledge) {
                tracing::error!(error, "the register is unreadable");
            }
            news
        });
    }
}

fn uid(snapshot: &Snapshot) -> Option<&str> {
    snapshot.lease.as_ref()?.metadata.uid.as_deref()
}

/// The object with another register in it. The holder and the count of transitions are for people.
fn with_register(base: &Lease, register: &Register) -> Lease {
    debug_assert!(
        base.metadata.resource_version.is_some(),
        "a write without a version would overwrite anything"
    );
    let mut next = base.clone();
    let annotations = next.metadata.annotations.get_or_insert_default();
    annotations.insert(REGISTER_ANNOTATION.to_owned(), register.to_annotation());
    if register.record.is_some() {
        // The database exists: from here on an emptied register means a loss, not a beginning.
        annotations.remove(BOOTSTRAP_ANNOTATION);
    }
    let spec = next.spec.get_or_insert_default();
    spec.holder_identity = register.winner.as_ref().map(ToString::to_string);
    spec.lease_transitions = Some(i32::try_from(register.epoch.0).unwrap_or(i32::MAX));
    next
}

#[cfg(test)]
mod tests {
    use geodb_ha::Epoch;

    use super::*;

    fn lease(annotations: &serde_json::Value) -> Lease {
        let object = serde_json::json!({ "metadata": { "name": "lake", "resourceVersion": "7", "uid": "u", "annotations": annotations } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn only_the_operators_word_allows_a_new_database() {
        for (value, expected) in [
            ("allowed", Bootstrap::Allowed),
            ("Allowed", Bootstrap::Forbidden),
            ("", Bootstrap::Forbidden),
        ] {
            let knowledge =
                knowledge_of(&lease(&serde_json::json!({ BOOTSTRAP_ANNOTATION: value })));
            assert_eq!(
                knowledge,
                Knowledge::Read {
                    register: Register::default(),
                    bootstrap: expected
                }
            );
        }
    }

    #[test]
    fn a_damaged_register_is_not_an_empty_one() {
        let knowledge = knowledge_of(&lease(&serde_json::json!({ REGISTER_ANNOTATION: "{}" })));
        assert!(matches!(knowledge, Knowledge::Unreadable(_)));
    }

    #[test]
    fn writing_keeps_the_version_that_was_read_and_everything_else() {
        let base = lease(&serde_json::json!({ BOOTSTRAP_ANNOTATION: "allowed", "other": "kept" }));
        let register = Register {
            epoch: Epoch::FIRST,
            winner: Some("lake-1.a".parse().unwrap()),
            record: None,
        };
        let next = with_register(&base, &register);
        assert_eq!(next.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(next.metadata.annotations.as_ref().unwrap()["other"], "kept");
        assert_eq!(
            next.spec.as_ref().unwrap().holder_identity.as_deref(),
            Some("lake-1.a")
        );
        assert_eq!(
            knowledge_of(&next),
            Knowledge::Read {
                register,
                bootstrap: Bootstrap::Allowed
            }
        );
    }

    /// After a restart of the API server agents asked for the register's own old version, were told 410, and asked again, for ever.
    #[tokio::test]
    async fn a_register_that_rested_for_long_is_followed_by_one_watch() {
        let directory = tempfile::tempdir().unwrap();
        let config = geodb_sandbox::serve::ServerConfig {
            data: Some(directory.path().to_owned()),
            ..geodb_sandbox::serve::ServerConfig::memory()
        };
        let before = geodb_sandbox::serve::Server::start(config.clone()).unwrap();
        let leases: Api<Lease> = Api::namespaced(before.client(), "default");
        for name in ["lake", "other"] {
            let object = serde_json::json!({ "metadata": { "name": name }, "spec": {} });
            let object: Lease = serde_json::from_value(object).unwrap();
            leases
                .create(&PostParams::default(), &object)
                .await
                .unwrap();
        }
        before.shutdown().await;

        let server = geodb_sandbox::serve::Server::start(config).unwrap();
        let access = std::sync::Arc::new(RegisterAccess::new(server.client(), "default", "lake"));
        let mut snapshots = access.subscribe();
        let follower = tokio::spawn({
            let access = std::sync::Arc::clone(&access);
            async move { access.follow().await }
        });
        let seen = snapshots.wait_for(|snapshot| snapshot.lease.is_some());
        let base = timeout(WATCH_SILENCE_MAX, seen)
            .await
            .unwrap()
            .unwrap()
            .lease
            .clone()
            .unwrap();
        while server.watches() == 0 {
            tokio::task::yield_now().await;
        }
        // Written behind the follower's back, so that only the watch can tell.
        let leases: Api<Lease> = Api::namespaced(server.client(), "default");
        let mut changed = Lease::clone(&base);
        changed.metadata.annotations =
            Some([(BOOTSTRAP_ANNOTATION.to_owned(), "allowed".to_owned())].into());
        leases
            .replace("lake", &PostParams::default(), &changed)
            .await
            .unwrap();
        let allowed = |snapshot: &Snapshot| {
            matches!(
                snapshot.knowledge,
                Knowledge::Read {
                    bootstrap: Bootstrap::Allowed,
                    ..
                }
            )
        };
        timeout(WATCH_SILENCE_MAX, snapshots.wait_for(allowed))
            .await
            .unwrap()
            .unwrap();
        let of_leases = |verb: &str| -> u64 {
            let requests = server.requests();
            let matching = requests.iter().filter(|request| {
                request.labels.resource == "leases" && request.labels.verb == verb
            });
            matching.map(|request| request.count).sum()
        };
        assert_eq!(
            (of_leases("GET"), of_leases("LIST")),
            (0, 1),
            "one list and then only the watch"
        );
        follower.abort();
        server.shutdown().await;
    }
}
