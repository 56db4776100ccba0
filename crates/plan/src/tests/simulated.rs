//! A cluster in a hundred lines: executes steps on a World, plays the agents and the node, and can stop after any step.

use geodb_api::names::{self, Credential};
use geodb_api::v2::DatabaseStatus;

use super::{UID, now};
use crate::step::{Step, Target, TargetKind};
use crate::world::{Claim, Pod, Register, Seen, World};

/// More passes than this to settle would be a loop.
const PASSES_MAX: usize = 60;

pub struct Cluster {
    pub world: World,
    /// Every claim name ever created, to see that none is used twice.
    pub claims_made: Vec<String>,
    next_uid: u32,
}

/// How far a pass gets before the operator dies.
#[derive(Clone, Copy)]
pub enum Crash {
    Never,
    /// In pass `pass`, after `steps` steps; the status of that pass is never written.
    After {
        pass: usize,
        steps: usize,
    },
}

/// What the executor's comparison does: applies that change nothing are not sent.
fn would_change(step: &Step) -> bool {
    !matches!(step, Step::Apply(_))
}

impl Cluster {
    pub fn new(world: World) -> Self {
        Self {
            world,
            claims_made: Vec::new(),
            next_uid: 0,
        }
    }

    /// Passes until nothing changes. Returns how many steps each pass had.
    pub fn settle(&mut self, crash: Crash) -> Vec<usize> {
        let mut counts = Vec::new();
        for pass in 0..PASSES_MAX {
            let decision = crate::decide(&self.world, now());
            let changes: Vec<Step> = decision.steps.into_iter().filter(would_change).collect();
            counts.push(changes.len());
            let settled =
                changes.is_empty() && self.world.database.status.as_ref() == Some(&decision.status);
            let cut = match crash {
                Crash::After { pass: at, steps } if at == pass => Some(steps),
                _ => None,
            };
            for step in changes.into_iter().take(cut.unwrap_or(usize::MAX)) {
                self.execute(step);
            }
            if cut.is_none() {
                self.report(decision.status);
            }
            let moved = self.play_agents_and_node();
            let gone = self.world.being_deleted() && !self.world.has_finalizer();
            if gone || (settled && !moved) {
                return counts;
            }
        }
        panic!("not settled after {PASSES_MAX} passes: {counts:?}");
    }

    fn report(&mut self, status: DatabaseStatus) {
        if self.world.has_finalizer() {
            self.world.database.status = Some(status);
        }
    }

    fn uid(&mut self, prefix: &str) -> String {
        self.next_uid += 1;
        format!("{prefix}-uid-{}", self.next_uid)
    }

    fn execute(&mut self, step: Step) {
        match step {
            Step::AddFinalizer => {
                self.world.database.metadata.finalizers =
                    Some(vec![geodb_api::labels::FINALIZER.to_owned()]);
            }
            Step::RemoveFinalizer => self.world.database.metadata.finalizers = None,
            Step::MakeCredential(credential) => {
                self.world.credentials.insert(credential, Seen::Present(()));
                if credential == Credential::Authority {
                    self.world.authority_pem = Some("PEM".to_owned());
                }
            }
            Step::Create(manifest) => self.create(&manifest),
            Step::Apply(_) => {}
            Step::Patch { target, patch, .. } => self.patch(&target, &patch),
            Step::Delete { target, .. } => match target.kind {
                TargetKind::Pod => {
                    let pod = self
                        .world
                        .pods
                        .iter_mut()
                        .find(|pod| pod.uid == target.uid)
                        .expect("a pod that is there");
                    pod.terminating = true;
                }
                TargetKind::Claim => {
                    let in_use = self.world.pods.iter().any(|pod| pod.name == target.name);
                    assert!(!in_use, "claim {} deleted under its pod", target.name);
                    self.world.claims.retain(|claim| claim.uid != target.uid);
                }
            },
        }
    }

    fn create(&mut self, manifest: &serde_json::Value) {
        let name = manifest["metadata"]["name"]
            .as_str()
            .expect("a name")
            .to_owned();
        match manifest["kind"].as_str().expect("a kind") {
            "Lease" => self.world.register = Seen::Present(Register::default()),
            "PersistentVolumeClaim" if self.world.claims.iter().all(|claim| claim.name != name) => {
                assert!(!self.claims_made.contains(&name), "{name} is used twice");
                self.claims_made.push(name.clone());
                let requested = manifest["spec"]["resources"]["requests"]["storage"]
                    .as_str()
                    .map(|size| size.parse().expect("a size"));
                let uid = self.uid("claim");
                self.world.claims.push(Claim {
                    name,
                    uid,
                    resource_version: "1".to_owned(),
                    database_uid: UID.to_owned(),
                    terminating: false,
                    removal_requested: false,
                    requested,
                });
            }
            "Pod" if self.world.pods.iter().all(|pod| pod.name != name) => {
                let role = manifest["metadata"]["labels"][geodb_api::labels::ROLE]
                    .as_str()
                    .map(str::to_owned);
                let uid = self.uid("pod");
                self.world.pods.push(Pod {
                    name,
                    uid,
                    resource_version: "1".to_owned(),
                    database_uid: UID.to_owned(),
                    terminating: false,
                    ended: false,
                    ready: false,
                    waiting_for: None,
                    role,
                });
            }
            _ => {}
        }
    }

    fn patch(&mut self, target: &Target, patch: &serde_json::Value) {
        match target.kind {
            TargetKind::Pod => {
                let pod = self
                    .world
                    .pods
                    .iter_mut()
                    .find(|pod| pod.uid == target.uid)
                    .expect("a pod");
                let role = patch["metadata"]["labels"][geodb_api::labels::ROLE].as_str();
                pod.role = role.map(str::to_owned);
            }
            TargetKind::Claim => {
                let claim = self
                    .world
                    .claims
                    .iter_mut()
                    .find(|claim| claim.uid == target.uid)
                    .expect("a claim");
                if patch["metadata"]["annotations"][geodb_api::labels::REMOVAL].is_string() {
                    claim.removal_requested = true;
                }
                if let Some(size) = patch["spec"]["resources"]["requests"]["storage"].as_str() {
                    claim.requested = Some(size.parse().expect("a size"));
                }
            }
        }
    }

    /// Terminating pods go; the first agent with a volume makes the database; pods with a volume become ready.
    fn play_agents_and_node(&mut self) -> bool {
        let before = (self.world.pods.clone(), self.world.register.clone());
        self.world.pods.retain(|pod| !pod.terminating);
        let claims: Vec<String> = self
            .world
            .claims
            .iter()
            .map(|claim| claim.name.clone())
            .collect();
        if let Seen::Present(register) = &mut self.world.register
            && register.epoch == 0
            && let Some(pod) = self
                .world
                .pods
                .iter()
                .find(|pod| claims.contains(&pod.name))
        {
            *register = Register {
                epoch: 1,
                primary: Some(pod.name.clone()),
                version: Some("15.18".to_owned()),
            };
        }
        for pod in &mut self.world.pods {
            pod.ready = claims.contains(&pod.name);
        }
        before != (self.world.pods.clone(), self.world.register.clone())
    }

    pub fn pod_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .world
            .pods
            .iter()
            .map(|pod| pod.name.as_str())
            .collect();
        names.sort_unstable();
        names
    }

    pub fn claim_names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .world
            .claims
            .iter()
            .map(|claim| claim.name.as_str())
            .collect();
        names.sort_unstable();
        names
    }

    pub fn scale(&mut self, replicas: u32) {
        self.world.database.spec.replicas = replicas;
        self.world.database.metadata.generation = Some(self.world.generation() + 1);
    }

    pub fn delete(&mut self) {
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now());
        self.world.database.metadata.deletion_timestamp = Some(now);
    }

    pub fn lose_pod(&mut self, serial: u32) {
        let name = names::instance(self.world.name(), serial);
        self.world.pods.retain(|pod| pod.name != name);
    }
}
