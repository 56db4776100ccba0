//! Events (`events.k8s.io/v1`) about the objects an operator looks after.
//!
//! A pass repeats itself by nature: each time it looks, it finds and would say the same. So a note names its occurrence (which transition, which pod),
//! and one occurrence is told once; the same thing happening again is counted on the same Event; and an object that talks too much is cut off.
//! At rest nothing is written. Sending happens in the background: a pass never waits for it and never fails by it.
//! What was told is not remembered across a restart.

mod ledger;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client, Resource,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{Clock, Stopwatch, SystemClock},
    conditions::shortened,
    limits,
};
use ledger::{Ledger, Verdict};

/// An object's name is cut to this many bytes in an Event's name, which has room for 253 with the rest.
const NAME_BYTES_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum Weight {
    Normal,
    Warning,
}

/// Something to tell about an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    pub regarding: ObjectReference,
    pub weight: Weight,
    /// A word from the operator's enum of reasons.
    pub reason: &'static str,
    /// What was done or tried, one word: `Create`, `Failover`.
    pub action: &'static str,
    pub note: String,
    /// Which time it happened, for example a resourceVersion or a pod's UID. The same occurrence is told once.
    pub occurrence: String,
}

impl Note {
    /// A note that is told once for each different text.
    pub fn about<K: Resource<DynamicType = ()>>(
        object: &K,
        weight: Weight,
        reason: &'static str,
        action: &'static str,
        note: impl Into<String>,
    ) -> Self {
        let note = shortened(&note.into(), limits::EVENT_NOTE_BYTES_MAX);
        Self {
            regarding: object.object_ref(&()),
            weight,
            reason,
            action,
            occurrence: note.clone(),
            note,
        }
    }

    /// Tells the same text again when it happens again.
    #[must_use]
    pub fn occurrence(mut self, occurrence: impl Into<String>) -> Self {
        self.occurrence = occurrence.into();
        self
    }
}

/// Who reports. `controller` as in `imaginedata.com/geodb`, `instance` is the pod's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    pub controller: String,
    pub instance: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventCounts {
    pub written: u64,
    pub failed: u64,
    /// Not told because there were too many.
    pub dropped: u64,
}

#[derive(Debug, Default)]
struct Counters {
    written: AtomicU64,
    failed: AtomicU64,
    dropped: AtomicU64,
}

/// Cheap to clone; all clones are the same recorder.
#[derive(Clone, Debug)]
pub struct Recorder {
    notes: mpsc::Sender<Note>,
    counters: Arc<Counters>,
}

impl Recorder {
    /// Starts the task that sends. It ends when `cancel` is cancelled; notes not yet sent are lost then.
    pub fn start(client: Client, reporter: Reporter, cancel: CancellationToken) -> Self {
        let (notes, waiting) = mpsc::channel(limits::EVENTS_WAITING_MAX);
        let counters = Arc::new(Counters::default());
        let sender = Sender {
            client,
            reporter,
            counters: counters.clone(),
            ledger: Ledger::new(rand::random()),
            stopwatch: Stopwatch::start(),
            clock: SystemClock,
        };
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = sender.run(waiting) => {}
            }
        });
        Self { notes, counters }
    }

    /// Never waits. When too many wait already, the note is dropped and counted.
    pub fn record(&self, note: Note) {
        if self.notes.try_send(note).is_err() {
            self.counters.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn counts(&self) -> EventCounts {
        EventCounts {
            written: self.counters.written.load(Ordering::Relaxed),
            failed: self.counters.failed.load(Ordering::Relaxed),
            dropped: self.counters.dropped.load(Ordering::Relaxed),
        }
    }
}

struct Sender {
    client: Client,
    reporter: Reporter,
    counters: Arc<Counters>,
    ledger: Ledger,
    stopwatch: Stopwatch,
    clock: SystemClock,
}

impl Sender {
    async fn run(mut self, mut waiting: mpsc::Receiver<Note>) {
        while let Some(note) = waiting.recv().await {
            let verdict = self.ledger.judge(&note, self.stopwatch.now());
            self.follow(&note, verdict).await;
        }
    }

    async fn follow(&mut self, note: &Note, verdict: Verdict) {
        let result = match verdict {
            Verdict::Known => return,
            Verdict::TooMany => {
                self.counters.dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Verdict::Tell { name_suffix } => self.tell(note, name_suffix).await,
            Verdict::Again { name_suffix, count } => {
                match self.count(note, name_suffix, count).await {
                    Err(kube::Error::Api(status)) if status.is_not_found() => {
                        let Verdict::Tell { name_suffix } = self.ledger.lost(note) else {
                            return;
                        };
                        self.tell(note, name_suffix).await
                    }
                    other => other,
                }
            }
        };
        match result {
            Ok(()) => {
                self.counters.written.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                // Events are for people's convenience; conditions carry what matters.
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                self.ledger.not_told(note);
                tracing::warn!(reason = note.reason, note = %note.note, %error, "failed to write an Event");
            }
        }
    }

    async fn tell(&self, note: &Note, name_suffix: u64) -> Result<(), kube::Error> {
        let event = event_of(note, &self.reporter, name_suffix, self.clock.now());
        let api = self.api(note);
        let parameters = PostParams::default();
        within_deadline(api.create(&parameters, &event))
            .await
            .map(drop)
    }

    async fn count(&self, note: &Note, name_suffix: u64, count: i32) -> Result<(), kube::Error> {
        let series = EventSeries {
            count,
            last_observed_time: MicroTime(self.clock.now()),
        };
        let patch = Patch::Merge(json!({"series": series}));
        let api = self.api(note);
        let name = name_of(note, name_suffix);
        let parameters = PatchParams::default();
        within_deadline(api.patch(&name, &parameters, &patch))
            .await
            .map(drop)
    }

    fn api(&self, note: &Note) -> Api<Event> {
        Api::namespaced(self.client.clone(), namespace_of(note))
    }
}

async fn within_deadline<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(limits::CALL_DEADLINE, call).await {
        Ok(answer) => answer,
        Err(elapsed) => Err(kube::Error::Service(elapsed.into())),
    }
}

/// Events about cluster-scoped objects go to `default`, by convention.
fn namespace_of(note: &Note) -> &str {
    note.regarding
        .namespace
        .as_deref()
        .filter(|namespace| !namespace.is_empty())
        .unwrap_or("default")
}

fn name_of(note: &Note, name_suffix: u64) -> String {
    let mut name = note.regarding.name.clone().unwrap_or_default();
    name.truncate(NAME_BYTES_MAX);
    format!("{}.{name_suffix:016x}", name.trim_end_matches(['.', '-']))
}

fn event_of(note: &Note, reporter: &Reporter, name_suffix: u64, now: jiff::Timestamp) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name_of(note, name_suffix)),
            namespace: Some(namespace_of(note).to_owned()),
            ..ObjectMeta::default()
        },
        action: Some(note.action.to_owned()),
        event_time: Some(MicroTime(now)),
        note: Some(note.note.clone()),
        reason: Some(note.reason.to_owned()),
        regarding: Some(note.regarding.clone()),
        reporting_controller: Some(reporter.controller.clone()),
        reporting_instance: Some(reporter.instance.clone()),
        type_: Some(
            match note.weight {
                Weight::Normal => "Normal",
                Weight::Warning => "Warning",
            }
            .to_owned(),
        ),
        ..Event::default()
    }
}
