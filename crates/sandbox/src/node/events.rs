//! Events about pods, as people know them from a kubelet: bounded, deduplicated, never waited for.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;

use super::clock;
use super::limits::{
    API_REQUEST_DEADLINE, EVENT_BURST, EVENT_MEMORY, EVENT_QUEUE, EVENT_REFILL_SECONDS,
    EVENT_REPEAT_SECONDS,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    Pulled,
    Created,
    Started,
    Killing,
    BackOff,
    Unhealthy,
    Failed,
    FailedMount,
}

impl Reason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Pulled => "Pulled",
            Self::Created => "Created",
            Self::Started => "Started",
            Self::Killing => "Killing",
            Self::BackOff => "BackOff",
            Self::Unhealthy => "Unhealthy",
            Self::Failed => "Failed",
            Self::FailedMount => "FailedMount",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Pulled | Self::Created | Self::Started | Self::Killing => "Normal",
            Self::BackOff | Self::Unhealthy | Self::Failed | Self::FailedMount => "Warning",
        }
    }
}

/// Something to tell about a pod.
#[derive(Clone, Debug)]
struct Note {
    pod: ObjectReference,
    reason: Reason,
    message: String,
    at: Timestamp,
}

/// Where the node's parts leave their notes.
#[derive(Clone, Debug)]
pub struct EventSink(mpsc::Sender<Note>);

impl EventSink {
    /// A sink and the task that empties it; the task ends when all sinks are gone.
    pub fn start(client: Client, node: Arc<str>) -> (Self, tokio::task::JoinHandle<()>) {
        let (sender, notes) = mpsc::channel(EVENT_QUEUE);
        (Self(sender), tokio::spawn(write_all(client, node, notes)))
    }

    /// Tells it, if there is room; an event is never worth waiting for.
    pub fn tell(&self, pod: &Pod, container: Option<&str>, reason: Reason, message: String) {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: pod.metadata.name.clone(),
            namespace: pod.metadata.namespace.clone(),
            uid: pod.metadata.uid.clone(),
            field_path: container.map(|name| format!("spec.containers{{{name}}}")),
            resource_version: None,
        };
        if self
            .0
            .try_send(Note {
                pod: reference,
                reason,
                message,
                at: clock::now(),
            })
            .is_err()
        {
            tracing::debug!(pod = %pod.name_any(), reason = reason.as_str(), "dropped an event: too many are waiting");
        }
    }
}

/// What to do about a note.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Create { name: String },
    Count { name: String, count: i32 },
    Nothing,
}

/// Which events were written, so that the same one again is a count, seldom written. Pure.
#[derive(Debug, Default)]
struct Memory {
    known: HashMap<(String, Reason, String), Known>,
    budgets: HashMap<String, Budget>,
}

#[derive(Debug)]
struct Known {
    name: String,
    count: i32,
    written: Timestamp,
}

#[derive(Debug)]
struct Budget {
    tokens: u32,
    refilled: Timestamp,
}

impl Memory {
    fn judge(&mut self, note: &Note) -> Verdict {
        if self.known.len() >= EVENT_MEMORY {
            // Forgetting everything costs at most one more event of each kind; keeping an order would cost memory for ever.
            self.known.clear();
            self.budgets.clear();
        }
        let uid = note.pod.uid.clone().unwrap_or_default();
        let key = (uid.clone(), note.reason, note.message.clone());
        if let Some(known) = self.known.get_mut(&key) {
            known.count = known.count.saturating_add(1);
            if note.at.duration_since(known.written)
                < SignedDuration::from_secs(EVENT_REPEAT_SECONDS)
            {
                return Verdict::Nothing;
            }
            known.written = note.at;
            return Verdict::Count {
                name: known.name.clone(),
                count: known.count,
            };
        }
        let budget = self.budgets.entry(uid).or_insert(Budget {
            tokens: EVENT_BURST,
            refilled: note.at,
        });
        let earned =
            u32::try_from(note.at.duration_since(budget.refilled).as_secs() / EVENT_REFILL_SECONDS)
                .unwrap_or(0);
        if earned > 0 {
            budget.tokens = (budget.tokens + earned).min(EVENT_BURST);
            budget.refilled = note.at;
        }
        if budget.tokens == 0 {
            return Verdict::Nothing;
        }
        budget.tokens -= 1;
        let name = format!(
            "{}.{:x}",
            note.pod.name.as_deref().unwrap_or("pod"),
            note.at.as_nanosecond()
        );
        self.known.insert(
            key,
            Known {
                name: name.clone(),
                count: 1,
                written: note.at,
            },
        );
        Verdict::Create { name }
    }
}

async fn write_all(client: Client, node: Arc<str>, mut notes: mpsc::Receiver<Note>) {
    let mut memory = Memory::default();
    while let Some(note) = notes.recv().await {
        let events: Api<Event> = Api::namespaced(
            client.clone(),
            note.pod.namespace.as_deref().unwrap_or("default"),
        );
        let written = match memory.judge(&note) {
            Verdict::Nothing => continue,
            Verdict::Create { name } => {
                let event = event(&note, name, &node);
                let parameters = PostParams::default();
                tokio::time::timeout(API_REQUEST_DEADLINE, events.create(&parameters, &event))
                    .await
                    .map(|answer| answer.map(|_| ()))
            }
            Verdict::Count { name, count } => {
                let patch = serde_json::json!({"count": count, "lastTimestamp": Time(note.at)});
                let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
                let request = events.patch(&name, &parameters, &patch);
                tokio::time::timeout(API_REQUEST_DEADLINE, request)
                    .await
                    .map(|answer| answer.map(|_| ()))
            }
        };
        // A namespace that is going away takes no events; nothing depends on them.
        if !matches!(written, Ok(Ok(()))) {
            tracing::debug!(
                reason = note.reason.as_str(),
                message = note.message,
                ?written,
                "failed to write an event"
            );
        }
    }
}

fn event(note: &Note, name: String, node: &str) -> Event {
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: note.pod.namespace.clone(),
            ..ObjectMeta::default()
        },
        involved_object: note.pod.clone(),
        reason: Some(note.reason.as_str().to_owned()),
        message: Some(note.message.clone()),
        type_: Some(note.reason.kind().to_owned()),
        count: Some(1),
        first_timestamp: Some(Time(note.at)),
        last_timestamp: Some(Time(note.at)),
        source: Some(EventSource {
            component: Some("kubelet".to_owned()),
            host: Some(node.to_owned()),
        }),
        reporting_component: Some("kubelet".to_owned()),
        reporting_instance: Some(node.to_owned()),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(message: &str, second: i64) -> Note {
        let pod = ObjectReference {
            name: Some("p".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectReference::default()
        };
        Note {
            pod,
            reason: Reason::BackOff,
            message: message.to_owned(),
            at: Timestamp::from_second(second).expect("a time"),
        }
    }

    #[test]
    fn the_same_again_is_counted_and_written_seldom() {
        let mut memory = Memory::default();
        assert!(matches!(
            memory.judge(&note("a", 0)),
            Verdict::Create { .. }
        ));
        assert_eq!(memory.judge(&note("a", 10)), Verdict::Nothing);
        assert!(matches!(
            memory.judge(&note("a", EVENT_REPEAT_SECONDS)),
            Verdict::Count { count: 3, .. }
        ));
    }

    #[test]
    fn a_pod_that_says_something_new_for_ever_runs_out_of_budget() {
        let mut memory = Memory::default();
        let created = (0..EVENT_BURST + 10)
            .filter(|number| {
                matches!(
                    memory.judge(&note(&number.to_string(), 0)),
                    Verdict::Create { .. }
                )
            })
            .count();
        assert_eq!(created, EVENT_BURST as usize);
        assert!(matches!(
            memory.judge(&note("later", EVENT_REFILL_SECONDS)),
            Verdict::Create { .. }
        ));
    }
}
