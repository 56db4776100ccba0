//! One task per pod: feeds the machine with what happens, does what it says, shows what it knows.
//!
//! Everything that takes time runs in tasks of its own and comes back as a message, so the worker itself never waits for anything but news.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::ResourceExt as _;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::clock;
use super::container::Exit;
use super::environment::Place;
use super::events::Reason;
use super::launch::{LaunchError, Launched, NodeContext};
use super::limits::{TERMINATION_MESSAGE_BYTES, TOKEN_RETRY_SECONDS, WORKER_QUEUE};
use super::machine::{Event, PodMachine};
use super::model::{Cause, EndReason, Ending, PodPlan, ProbeKind, Slot, Stage, WaitingReason};
use super::probes::Inside;
use super::projection;
use super::status;
use super::volumes::Prepared;
use super::writer::{PodRef, StatusWriter};

/// Conditions that are the node's; all others belong to somebody else.
const OWN_CONDITIONS: [&str; 4] = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
/// Exit code when the end of a container could not be seen.
const EXIT_UNSEEN: i32 = 255;
/// The worker looks at least this often, against clocks that jump.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// What the node tells a worker.
pub enum Order {
    Changed(Box<Pod>),
    Vanished,
    Shutdown,
}

/// What a worker's own tasks tell it.
pub(super) enum Message {
    Prepared {
        service_account: bool,
        result: Result<Prepared, String>,
    },
    Launched {
        slot: Slot,
        result: Result<Box<Launched>, LaunchError>,
    },
    Exited {
        slot: Slot,
        id: String,
        exit: Exit,
        message: Option<String>,
    },
    Probed {
        slot: Slot,
        id: String,
        kind: ProbeKind,
        healthy: bool,
    },
    Refreshed {
        renew_at: Option<Timestamp>,
    },
}

pub(super) struct LiveRun {
    pub(super) id: String,
    pub(super) inside: Inside,
    pub(super) probes: Vec<AbortHandle>,
}

pub struct PodWorker {
    pub(super) context: Arc<NodeContext>,
    pub(super) pod: Pod,
    pub(super) machine: PodMachine,
    /// The API already showed a final phase when we first saw the pod: nothing runs, nothing is shown, only its deletion matters.
    pub(super) settled: bool,
    pub(super) place: Option<Place>,
    pub(super) prepared: Option<Prepared>,
    pub(super) service_account: bool,
    pub(super) renew_at: Option<Timestamp>,
    pub(super) runs: BTreeMap<Slot, LiveRun>,
    pub(super) shown: PodStatus,
    pub(super) writer: Option<StatusWriter>,
    pub(super) tasks: JoinSet<()>,
    pub(super) messages: mpsc::Sender<Message>,
}

/// Runs a pod until it is gone or the node stops.
pub async fn run(context: Arc<NodeContext>, pod: Pod, mut orders: mpsc::Receiver<Order>) {
    let (messages, mut inbox) = mpsc::channel(WORKER_QUEUE);
    let mut worker = PodWorker::new(context, pod, messages);
    loop {
        let now = clock::now();
        let step = if worker.settled && !worker.is_ending() {
            Default::default()
        } else {
            worker.machine.step(now)
        };
        for action in step.actions {
            worker.execute(action);
        }
        worker.publish(now);
        if worker.is_over() {
            break;
        }
        let wake = [step.wake_at, worker.renew_at].into_iter().flatten().min();
        let sleep = wake.map_or(LONGEST_SLEEP, |at| until(at, clock::now()));
        tokio::select! {
            order = orders.recv() => worker.order(order.unwrap_or(Order::Shutdown)),
            Some(message) = inbox.recv() => worker.message(message),
            Some(_) = worker.tasks.join_next(), if !worker.tasks.is_empty() => {}
            () = tokio::time::sleep(sleep) => worker.renew_if_due(),
        }
    }
    worker.clean_up();
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    at.duration_since(now)
        .max(SignedDuration::ZERO)
        .unsigned_abs()
        .min(LONGEST_SLEEP)
}

impl PodWorker {
    fn new(context: Arc<NodeContext>, pod: Pod, messages: mpsc::Sender<Message>) -> Self {
        let now = clock::now();
        let shown = pod.status.clone().unwrap_or_default();
        let settled = matches!(shown.phase.as_deref(), Some("Succeeded" | "Failed"));
        let machine = status::recover(PodPlan::of(&pod), &shown, now);
        let writer = StatusWriter::start(PodRef::of(&context.client, &pod), pod.status.clone());
        let mut worker = Self {
            context,
            pod,
            machine,
            settled,
            place: None,
            prepared: None,
            service_account: false,
            renew_at: None,
            runs: BTreeMap::new(),
            shown,
            writer: Some(writer),
            tasks: JoinSet::new(),
            messages,
        };
        worker.look_for_deletion();
        worker
    }

    pub(super) fn is_ending(&self) -> bool {
        self.machine.ending != Ending::No
    }

    fn is_over(&self) -> bool {
        self.machine.is_done() && self.tasks.is_empty()
    }

    fn order(&mut self, order: Order) {
        let grace = self.machine.plan.grace_seconds;
        let end = match order {
            Order::Changed(pod) => return self.changed(*pod),
            Order::Vanished => Event::End {
                cause: Cause::Vanished,
                grace_seconds: self
                    .pod
                    .metadata
                    .deletion_grace_period_seconds
                    .unwrap_or(grace),
            },
            Order::Shutdown => Event::End {
                cause: Cause::Shutdown,
                grace_seconds: grace,
            },
        };
        self.context.keeper.shared.leaving(&self.uid());
        self.machine.handle(end, clock::now());
        if self.machine.is_done() {
            // What is still under way is a farewell to an object that is gone, or that a later node will bid.
            self.tasks.abort_all();
        }
        if let Some(writer) = &self.writer {
            // Nobody to tell, or nothing to tell: a pod stopped with its node goes on later.
            writer.stop();
        }
    }

    fn changed(&mut self, pod: Pod) {
        let foreign = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let conditions = self.shown.conditions.get_or_insert_default();
        conditions.retain(|condition| OWN_CONDITIONS.contains(&condition.type_.as_str()));
        conditions.extend(
            foreign
                .into_iter()
                .filter(|condition| !OWN_CONDITIONS.contains(&condition.type_.as_str())),
        );
        let plan = PodPlan::of(&pod);
        self.pod = pod;
        for slot in self.machine.slots() {
            let (old, new) = (
                self.machine
                    .container_plan(slot)
                    .map(|plan| plan.image.clone()),
                image_of(&plan, slot),
            );
            if old.is_some() && new.is_some() && old != new {
                self.machine.handle(Event::Redefined { slot }, clock::now());
            }
        }
        if plan.main.len() == self.machine.main.len() && plan.init.len() == self.machine.init.len()
        {
            self.machine.plan = plan;
        }
        self.look_for_deletion();
    }

    fn look_for_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() {
            let grace_seconds = self
                .pod
                .metadata
                .deletion_grace_period_seconds
                .unwrap_or(self.machine.plan.grace_seconds);
            self.context.keeper.shared.leaving(&self.uid());
            self.machine.handle(
                Event::End {
                    cause: Cause::Deleted,
                    grace_seconds,
                },
                clock::now(),
            );
        }
    }

    pub(super) fn uid(&self) -> String {
        self.pod.uid().unwrap_or_default()
    }

    pub(super) fn container_name(&self, slot: Slot) -> String {
        self.machine
            .container_plan(slot)
            .map(|plan| plan.name.clone())
            .unwrap_or_default()
    }

    /// The pod with what the node adds to it.
    pub(super) fn effective(&self) -> Pod {
        let mut pod = self.pod.clone();
        if self.service_account {
            projection::add_service_account(&mut pod);
        }
        pod
    }

    fn message(&mut self, message: Message) {
        let now = clock::now();
        match message {
            Message::Prepared {
                service_account,
                result: Ok(prepared),
            } => {
                self.service_account = service_account;
                self.renew_at = prepared.renew_at;
                self.prepared = Some(prepared);
                self.machine.handle(Event::VolumesReady, now);
            }
            Message::Prepared {
                result: Err(message),
                ..
            } => self.machine.handle(Event::VolumesFailed { message }, now),
            Message::Launched {
                slot,
                result: Ok(launched),
            } => self.launched(slot, *launched),
            Message::Launched {
                slot,
                result: Err(error),
            } => self.launch_failed(slot, error),
            Message::Exited {
                slot,
                id,
                exit,
                message,
            } => self.exited(slot, id, exit, message),
            Message::Probed {
                slot,
                id,
                kind,
                healthy,
            } => self.machine.handle(
                Event::Probed {
                    slot,
                    id,
                    kind,
                    healthy,
                },
                now,
            ),
            Message::Refreshed { renew_at } => self.renew_at = renew_at,
        }
    }

    fn launched(&mut self, slot: Slot, launched: Launched) {
        let Launched {
            id,
            container,
            inside,
            termination_message,
        } = launched;
        let (messages, run) = (self.messages.clone(), id.clone());
        self.tasks.spawn(async move {
            let exit = container.wait().await.unwrap_or_else(|error| Exit {
                code: EXIT_UNSEEN,
                not_executed: Some(format!("failed to wait for the container: {error}")),
            });
            let message = read_message(&termination_message);
            let _ = messages
                .send(Message::Exited {
                    slot,
                    id: run,
                    exit,
                    message,
                })
                .await;
        });
        self.runs.insert(
            slot,
            LiveRun {
                id: id.clone(),
                inside,
                probes: Vec::new(),
            },
        );
        self.machine
            .handle(Event::Started { slot, id }, clock::now());
    }

    fn launch_failed(&mut self, slot: Slot, error: LaunchError) {
        let LaunchError { reason, message } = error;
        let name = self.container_name(slot);
        let text = if reason == WaitingReason::ErrImagePull {
            format!("Failed to pull image: {message}")
        } else {
            format!("Error: {message}")
        };
        self.context
            .events
            .tell(&self.pod, Some(&name), Reason::Failed, text);
        self.machine.handle(
            Event::StartFailed {
                slot,
                reason,
                message,
            },
            clock::now(),
        );
    }

    fn exited(&mut self, slot: Slot, id: String, exit: Exit, message: Option<String>) {
        if let Some(run) = self.runs.remove(&slot) {
            run.probes.iter().for_each(AbortHandle::abort);
        }
        let reason = match (&exit.not_executed, exit.code) {
            (Some(_), _) => EndReason::StartError,
            (None, 0) => EndReason::Completed,
            (None, _) => EndReason::Error,
        };
        let message = exit.not_executed.or(message);
        self.machine.handle(
            Event::Exited {
                slot,
                id,
                exit_code: exit.code,
                reason,
                message,
            },
            clock::now(),
        );
    }

    /// Shows what the node knows, if anybody is to see it.
    pub(super) fn publish(&mut self, now: Timestamp) {
        let silent = matches!(
            self.machine.ending,
            Ending::Stopping {
                cause: Cause::Vanished | Cause::Shutdown,
                ..
            } | Ending::Done {
                cause: Cause::Vanished | Cause::Shutdown
            }
        );
        if silent || self.settled {
            return;
        }
        let Some(writer) = &self.writer else { return };
        let mut pod = self.pod.clone();
        pod.status = Some(self.shown.clone());
        let images = &self.context.images;
        let image_id = |reference: &str| images.resolve(reference).ok().map(|image| image.id);
        let status = status::build(&self.machine, &pod, self.place, &image_id, now);
        writer.want(status.clone());
        self.shown = status;
    }

    fn renew_if_due(&mut self) {
        let now = clock::now();
        if self.renew_at.is_none_or(|at| at > now) || self.is_ending() {
            return;
        }
        self.renew_at = None;
        let (context, pod, messages) = (
            self.context.clone(),
            self.effective(),
            self.messages.clone(),
        );
        self.tasks.spawn(async move {
            let renew_at = match context.keeper.refresh_files(&pod).await {
                Ok(renew_at) => renew_at,
                Err(error) => {
                    context
                        .events
                        .tell(&pod, None, Reason::FailedMount, error.to_string());
                    Some(now + SignedDuration::from_secs(TOKEN_RETRY_SECONDS))
                }
            };
            let _ = messages.send(Message::Refreshed { renew_at }).await;
        });
    }

    /// Gives back what the pod had. Its files stay if it is to run again.
    fn clean_up(self) {
        let uid = self.uid();
        if let Some(place) = self.place {
            self.context.keeper.shared.addresses.release(place.pod_ip);
        }
        self.context.keeper.shared.release(&uid);
        if self.machine.ending
            == (Ending::Done {
                cause: Cause::Shutdown,
            })
        {
            return;
        }
        for directory in [
            self.context.keeper.pod_directory(&uid),
            self.context.logs.pod_directory(&self.pod),
        ] {
            if let Err(error) = remove_tree(&directory) {
                tracing::warn!(directory = %directory.display(), %error, "failed to remove what a pod left");
            }
        }
    }
}

fn image_of(plan: &PodPlan, slot: Slot) -> Option<String> {
    let list = if slot.stage == Stage::Init {
        &plan.init
    } else {
        &plan.main
    };
    list.get(slot.index)
        .map(|container| container.image.clone())
}

/// What the program left as its last words.
fn read_message(path: &Path) -> Option<String> {
    let mut bytes = std::fs::read(path).ok()?;
    bytes.truncate(TERMINATION_MESSAGE_BYTES);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    (!text.is_empty()).then_some(text)
}

/// Removes a directory that may not exist.
pub fn remove_tree(directory: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
