//! The doing half of a pod's worker: each action of the machine becomes a task, whose result comes back as a message.

use kube::ResourceExt as _;

use super::clock;
use super::environment::Place;
use super::events::Reason;
use super::launch::{LaunchError, container_of, launch};
use super::machine::Action;
use super::model::{Cause, ProbeKind, Slot, StopReason, WaitingReason};
use super::probes::{ProbePlan, watch};
use super::projection;
use super::worker::{Message, PodWorker};
use super::writer::{self, PodRef};

impl PodWorker {
    pub(super) fn execute(&mut self, action: Action) {
        match action {
            Action::PrepareVolumes => self.prepare(),
            Action::Start { slot, attempt } => self.start(slot, attempt),
            Action::Probe { slot, kind } => self.probe(slot, kind),
            Action::Terminate { slot, reason } => self.terminate(slot, reason),
            Action::Kill { slot } => {
                if let Some(run) = self.runs.get(&slot) {
                    run.inside.process.kill();
                }
            }
            Action::ReportMount { message } => {
                self.context
                    .events
                    .tell(&self.pod, None, Reason::FailedMount, message);
            }
            Action::ReportBackoff { slot } => {
                let name = self.container_name(slot);
                let message = format!(
                    "Back-off restarting failed container {name} in pod {}_{}({})",
                    self.pod.name_any(),
                    self.pod.namespace().unwrap_or_default(),
                    self.uid()
                );
                self.context
                    .events
                    .tell(&self.pod, Some(&name), Reason::BackOff, message);
            }
            Action::Finish { cause } => self.finish(cause),
        }
    }

    fn prepare(&mut self) {
        if self.place.is_none() {
            self.place = self.take_address();
        }
        let (context, mut pod, has_place, messages) = (
            self.context.clone(),
            self.pod.clone(),
            self.place.is_some(),
            self.messages.clone(),
        );
        self.tasks.spawn(async move {
            let mut service_account = false;
            let result = async {
                if !has_place {
                    return Err("every address for pods is in use".to_owned());
                }
                if projection::lacks_service_account(&pod)
                    && context
                        .keeper
                        .sources
                        .mounts_service_account(&pod)
                        .await
                        .map_err(|error| error.to_string())?
                {
                    service_account = projection::add_service_account(&mut pod);
                }
                context
                    .keeper
                    .prepare(&pod)
                    .await
                    .map_err(|error| error.to_string())
            }
            .await;
            let _ = messages
                .send(Message::Prepared {
                    service_account,
                    result,
                })
                .await;
        });
    }

    /// The address the pod had before, if it is still free, else a new one.
    fn take_address(&self) -> Option<Place> {
        let addresses = &self.context.keeper.shared.addresses;
        let before = self
            .shown
            .pod_ip
            .as_deref()
            .and_then(|ip| ip.parse().ok())
            .filter(|ip| addresses.claim(*ip));
        let pod_ip = before.or_else(|| addresses.allocate())?;
        Some(Place {
            pod_ip,
            host_ip: self.context.address,
        })
    }

    fn start(&mut self, slot: Slot, attempt: u32) {
        let (context, pod, messages) = (
            self.context.clone(),
            self.effective(),
            self.messages.clone(),
        );
        let (prepared, place) = (self.prepared.clone().unwrap_or_default(), self.place);
        self.tasks.spawn(async move {
            let result = match place {
                Some(place) => launch(&context, &pod, slot, attempt, &prepared, place).await,
                None => Err(LaunchError {
                    reason: WaitingReason::CreateContainerError,
                    message: "the pod has no address".to_owned(),
                }),
            };
            let _ = messages
                .send(Message::Launched {
                    slot,
                    result: result.map(Box::new),
                })
                .await;
        });
    }

    fn probe(&mut self, slot: Slot, kind: ProbeKind) {
        let (Some(container), Some(place)) = (container_of(&self.pod, slot), self.place) else {
            return;
        };
        let probe = match kind {
            ProbeKind::Startup => &container.startup_probe,
            ProbeKind::Readiness => &container.readiness_probe,
            ProbeKind::Liveness => &container.liveness_probe,
        };
        let Some(probe) = probe else { return };
        let plan = match ProbePlan::of(probe, container, place.pod_ip) {
            Ok(plan) => plan,
            Err(error) => {
                return self.context.events.tell(
                    &self.pod,
                    Some(&container.name),
                    Reason::Unhealthy,
                    format!("{kind} probe errored: {error}"),
                );
            }
        };
        let (context, pod, messages, name) = (
            self.context.clone(),
            self.pod.clone(),
            self.messages.clone(),
            container.name.clone(),
        );
        let Some(run) = self.runs.get_mut(&slot) else {
            return;
        };
        let (inside, id) = (run.inside.clone(), run.id.clone());
        let task = self.tasks.spawn(async move {
            let tell = |text: String| {
                context.events.tell(
                    &pod,
                    Some(&name),
                    Reason::Unhealthy,
                    format!("{kind} probe failed: {text}"),
                );
            };
            let verdict = |healthy: bool| {
                let (messages, id) = (messages.clone(), id.clone());
                async move {
                    let heard = messages
                        .send(Message::Probed {
                            slot,
                            id,
                            kind,
                            healthy,
                        })
                        .await
                        .is_ok();
                    // A startup probe has said all it can once the container has started.
                    heard && !(kind == ProbeKind::Startup && healthy)
                }
            };
            watch(&plan, &inside, &tell, verdict).await;
        });
        run.probes.push(task);
    }

    fn terminate(&mut self, slot: Slot, reason: StopReason) {
        let name = self.container_name(slot);
        let text = match reason {
            StopReason::PodEnds => format!("Stopping container {name}"),
            StopReason::Unhealthy(kind) => format!(
                "Container {name} failed {} probe, will be restarted",
                kind.to_string().to_lowercase()
            ),
            StopReason::Redefined => {
                format!("Container {name} definition changed, will be restarted")
            }
        };
        self.context
            .events
            .tell(&self.pod, Some(&name), Reason::Killing, text);
        if let Some(run) = self.runs.get_mut(&slot) {
            run.probes.drain(..).for_each(|probe| probe.abort());
            let process = run.inside.process;
            self.tasks.spawn(async move {
                process.terminate().await;
            });
        }
    }

    /// Nothing runs any more.
    fn finish(&mut self, cause: Cause) {
        if cause != Cause::Deleted {
            self.tasks.abort_all();
            return;
        }
        self.publish(clock::now());
        let Some(writer) = self.writer.take() else {
            return;
        };
        let reference = PodRef::of(&self.context.client, &self.pod);
        self.tasks.spawn(async move {
            writer.finish().await;
            writer::remove(reference).await;
        });
    }
}
