//! The task behind a store: list, watch, and again when the watch cannot go on.
//!
//! Written over `Api::list` and `Api::watch` rather than kube's `watcher()`, because that keeps two things to itself which the
//! store's rules need: the version of a list (is an object that it lacks gone, or newer?) and bookmarks (how far has
//! the cache seen?).

use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::{
    Api,
    api::{ListParams, WatchEvent, WatchParams},
};
use parking_lot::Mutex;
use serde::Serialize;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{Kind, Store};
use crate::{backoff::Backoff, clock::Stopwatch, limits, version::Version};

const BACKOFF: Backoff = Backoff {
    base: limits::WATCH_RETRY_BASE,
    cap: limits::WATCH_RETRY_CAP,
};

/// 410: the version to go on from is too old, so list again.
const GONE: u16 = 410;

#[derive(Debug, Error)]
enum WatchError {
    #[error(
        "failed to list {kind}; check that the kind is installed and that list and watch are allowed"
    )]
    List {
        kind: String,
        source: Box<kube::Error>,
    },
    #[error("failed to list {kind}: no answer in {} s", limits::LIST_DEADLINE.as_secs())]
    ListTimeout { kind: String },
    #[error("failed to list {kind}: the list has no resourceVersion to watch from")]
    NoVersion { kind: String },
    #[error("failed to watch {kind}")]
    Watch {
        kind: String,
        source: Box<kube::Error>,
    },
    #[error("failed to watch {kind}: the server closed the watch after {} ms", lived.as_millis())]
    ClosedEarly { kind: String, lived: Duration },
    #[error(
        "failed to watch {kind}: nothing heard for {} s, not even that the watch is over",
        limits::WATCH_TIMEOUT_SECONDS
    )]
    Silent { kind: String },
    #[error("failed to watch {kind}: the server says {reason}: {message}")]
    Refused {
        kind: String,
        reason: String,
        message: String,
    },
    #[error("{kind} is no longer watched from version {version}: too old; listing again")]
    Expired { kind: String, version: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum WatchPhase {
    Listing,
    Watching,
    /// Waiting after an error.
    Backoff,
    Stopped,
}

/// How a watch is doing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchHealth {
    pub kind: String,
    pub scope: String,
    pub phase: WatchPhase,
    pub synced: bool,
    pub objects: usize,
    pub high_water: Option<Version>,
    pub lists: u64,
    pub errors: u64,
    /// The newest error, until the watch works again.
    pub last_error: Option<String>,
}

#[derive(Debug)]
pub(super) struct HealthCell {
    health: Mutex<WatchHealth>,
    synced: tokio::sync::watch::Sender<bool>,
}

impl HealthCell {
    pub(super) fn new(kind: String, scope: String) -> Self {
        Self {
            health: Mutex::new(WatchHealth {
                kind,
                scope,
                phase: WatchPhase::Listing,
                synced: false,
                objects: 0,
                high_water: None,
                lists: 0,
                errors: 0,
                last_error: None,
            }),
            synced: tokio::sync::watch::Sender::new(false),
        }
    }

    pub(super) fn read(&self) -> WatchHealth {
        self.health.lock().clone()
    }

    pub(super) async fn synced(&self) {
        let mut synced = self.synced.subscribe();
        // `self` holds the sender, so this cannot fail while we wait.
        let _ = synced.wait_for(|synced| *synced).await;
    }

    fn phase(&self, phase: WatchPhase) {
        self.health.lock().phase = phase;
    }

    fn listed(&self) {
        let mut health = self.health.lock();
        health.lists += 1;
        health.synced = true;
        drop(health);
        self.synced.send_replace(true);
    }

    fn works<K: Kind>(&self, store: &Store<K>) {
        let mut health = self.health.lock();
        health.last_error = None;
        health.objects = store.len();
        health.high_water = store.high_water();
    }

    fn failed(&self, error: &str) {
        let mut health = self.health.lock();
        health.errors += 1;
        health.phase = WatchPhase::Backoff;
        health.last_error = Some(error.to_owned());
    }
}

/// Runs until cancelled.
pub(super) async fn run<K: Kind>(
    api: Api<K>,
    store: Store<K>,
    health: std::sync::Arc<HealthCell>,
    cancel: CancellationToken,
) {
    let work = Watch {
        kind: K::kind(&()).into_owned(),
        api,
        store,
        health: health.clone(),
        failures: 0,
    };
    // The cancellation is at the top, so that no await below can outlive it.
    tokio::select! {
        () = cancel.cancelled() => {}
        () = work.run() => {}
    }
    health.phase(WatchPhase::Stopped);
}

/// Where the task stands; each turn consumes it and returns the next.
enum Turn {
    List,
    Watch { from: String },
}

struct Watch<K: Kind> {
    kind: String,
    api: Api<K>,
    store: Store<K>,
    health: std::sync::Arc<HealthCell>,
    /// Errors in a row.
    failures: u32,
}

impl<K: Kind> Watch<K> {
    async fn run(mut self) {
        let mut turn = Turn::List;
        loop {
            turn = match turn {
                Turn::List => match self.list().await {
                    Ok(from) => Turn::Watch { from },
                    Err(error) => {
                        self.store.inner.state.write().list_failed();
                        self.wait_after(&error).await;
                        Turn::List
                    }
                },
                Turn::Watch { mut from } => match self.watch(&mut from).await {
                    Ok(()) => Turn::Watch { from },
                    Err(WatchError::Expired { .. }) => Turn::List,
                    Err(error) => {
                        self.wait_after(&error).await;
                        // Perhaps it is not the server but the version, or one event that we cannot read.
                        if self.failures >= limits::WATCH_FAILURES_BEFORE_LIST {
                            Turn::List
                        } else {
                            Turn::Watch { from }
                        }
                    }
                },
            };
        }
    }

    async fn wait_after(&mut self, error: &WatchError) {
        self.failures = self.failures.saturating_add(1);
        let text = with_sources(error);
        let delay = BACKOFF.delay(self.failures, rand::random());
        tracing::warn!(kind = %self.kind, failures = self.failures, delay_ms = delay.as_millis(), error = %text, "watch failed");
        self.health.failed(&text);
        tokio::time::sleep(delay).await;
    }

    /// Receives the whole list, page by page, and returns the version to watch from.
    async fn list(&mut self) -> Result<String, WatchError> {
        self.health.phase(WatchPhase::Listing);
        self.store.inner.state.write().list_begins();
        let mut continue_token = None;
        loop {
            let parameters = ListParams {
                label_selector: self.label_selector(),
                field_selector: self.store.inner.bounds.fields.clone(),
                limit: Some(limits::LIST_PAGE_SIZE),
                continue_token,
                ..ListParams::default()
            };
            let page = tokio::time::timeout(limits::LIST_DEADLINE, self.api.list(&parameters))
                .await
                .map_err(|_| WatchError::ListTimeout {
                    kind: self.kind.clone(),
                })?
                .map_err(|source| WatchError::List {
                    kind: self.kind.clone(),
                    source: Box::new(source),
                })?;
            for object in page.items {
                let object = self.store.slimmed(object);
                self.store.inner.state.write().list_item(object);
            }
            continue_token = page.metadata.continue_.filter(|token| !token.is_empty());
            if continue_token.is_some() {
                continue;
            }
            let version = page
                .metadata
                .resource_version
                .filter(|version| !version.is_empty());
            let from = version.ok_or_else(|| WatchError::NoVersion {
                kind: self.kind.clone(),
            })?;
            self.store
                .update(|state| state.list_ends(Version::parse(&from)));
            self.store.inner.synced.send_replace(true);
            self.health.listed();
            self.health.works(&self.store);
            self.failures = 0;
            return Ok(from);
        }
    }

    /// Follows one watch call to its end. `from` is moved along, so that the next call goes on from there.
    async fn watch(&mut self, from: &mut String) -> Result<(), WatchError> {
        self.health.phase(WatchPhase::Watching);
        let parameters = WatchParams {
            label_selector: self.label_selector(),
            field_selector: self.store.inner.bounds.fields.clone(),
            timeout: Some(limits::WATCH_TIMEOUT_SECONDS),
            bookmarks: true,
            send_initial_events: false,
        };
        let started = Stopwatch::start();
        let silence_max = Duration::from_secs(u64::from(limits::WATCH_TIMEOUT_SECONDS))
            + limits::WATCH_TIMEOUT_MARGIN;
        let opened =
            tokio::time::timeout(limits::LIST_DEADLINE, self.api.watch(&parameters, from)).await;
        let stream = opened
            .map_err(|_| WatchError::Silent {
                kind: self.kind.clone(),
            })?
            .map_err(|error| self.watch_error(error, from))?;
        let mut stream = stream.boxed();
        let mut heard = false;
        loop {
            let next = tokio::time::timeout(silence_max, stream.try_next()).await;
            let event = next
                .map_err(|_| WatchError::Silent {
                    kind: self.kind.clone(),
                })?
                .map_err(|error| self.watch_error(error, from))?;
            let Some(event) = event else { break };
            self.take_in(event, from)?;
            heard = true;
            self.failures = 0;
            self.health.works(&self.store);
        }
        let lived = started.now().since_start();
        if !heard && lived < limits::WATCH_LIFE_MIN {
            return Err(WatchError::ClosedEarly {
                kind: self.kind.clone(),
                lived,
            });
        }
        self.failures = 0;
        self.health.works(&self.store);
        Ok(())
    }

    fn take_in(&self, event: WatchEvent<K>, from: &mut String) -> Result<(), WatchError> {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                advance(from, object.meta().resource_version.as_deref());
                let object = self.store.slimmed(object);
                self.store.update(|state| state.watch_applied(object));
            }
            WatchEvent::Deleted(object) => {
                advance(from, object.meta().resource_version.as_deref());
                self.store.update(|state| state.watch_deleted(&object));
            }
            WatchEvent::Bookmark(bookmark) => {
                let version = &bookmark.metadata.resource_version;
                advance(from, Some(version));
                self.store
                    .inner
                    .state
                    .write()
                    .bookmark(Version::parse(version));
            }
            WatchEvent::Error(status) if status.code == GONE => {
                return Err(WatchError::Expired {
                    kind: self.kind.clone(),
                    version: from.clone(),
                });
            }
            WatchEvent::Error(status) => {
                return Err(WatchError::Refused {
                    kind: self.kind.clone(),
                    reason: status.reason,
                    message: status.message,
                });
            }
        }
        Ok(())
    }

    fn watch_error(&self, error: kube::Error, from: &str) -> WatchError {
        match error {
            kube::Error::Api(status) if status.code == GONE => WatchError::Expired {
                kind: self.kind.clone(),
                version: from.to_owned(),
            },
            source => WatchError::Watch {
                kind: self.kind.clone(),
                source: Box::new(source),
            },
        }
    }

    fn label_selector(&self) -> Option<String> {
        self.store
            .inner
            .bounds
            .labels
            .as_ref()
            .map(ToString::to_string)
    }
}

fn advance(from: &mut String, version: Option<&str>) {
    if let Some(version) = version.filter(|version| !version.is_empty()) {
        version.clone_into(from);
    }
}

/// An error and why, in one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
