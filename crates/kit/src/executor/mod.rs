//! Runs steps: one API call each, with a deadline and preconditions, and tells the barrier what came back.
//!
//! Decides nothing about the world: what to do is the plan's, this only makes sure that it is done to the object that the
//! plan meant, at most once, and not at all if it is so already.

mod compare;
mod error;
mod meant;
mod quantity;
mod step;

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions},
};
use serde::Serialize;
use serde_json::{Value, json};

pub use compare::first_difference;
pub use error::{StepError, Who};
pub use meant::fingerprint;
pub use quantity::parse_nano;
pub use step::{Desired, DesiredError, Effect, EffectKind, Ours, Seen, Step, Target};

use crate::{
    barrier::{Barrier, Cached, has_ended},
    key::Key,
    limits,
};

#[derive(Clone, Debug)]
pub struct ExecutorConfig {
    /// Under this name the server knows which fields are ours.
    pub field_manager: String,
    /// The annotation that holds the fingerprint of what we meant.
    pub meant_annotation: String,
    pub call_deadline: Duration,
}

impl ExecutorConfig {
    pub fn new(field_manager: impl Into<String>, meant_annotation: impl Into<String>) -> Self {
        Self {
            field_manager: field_manager.into(),
            meant_annotation: meant_annotation.into(),
            call_deadline: limits::CALL_DEADLINE,
        }
    }
}

/// What the executor asked of the server so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorCounts {
    pub reads: u64,
    pub writes: u64,
    /// Applies that needed no call.
    pub skipped: u64,
}

pub struct Executor {
    client: Client,
    barrier: Arc<Barrier>,
    config: ExecutorConfig,
    reads: AtomicU64,
    writes: AtomicU64,
    skipped: AtomicU64,
}

impl Executor {
    /// Use a client from [`crate::client`]: one that retries by itself would turn a lost answer into a conflict.
    pub fn new(client: Client, barrier: Arc<Barrier>, config: ExecutorConfig) -> Self {
        Self {
            client,
            barrier,
            config,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// Runs one step.
    ///
    /// # Errors
    /// Says which object, why, and through [`StepError::who`] who must act.
    pub async fn run(&self, step: &Step) -> Result<Effect, StepError> {
        let result = match step {
            Step::Create(desired) => self.create(desired).await,
            Step::Apply(desired) => self.apply(desired).await,
            Step::Delete {
                target,
                seen,
                grace_period_seconds,
            } => self.delete(target, seen, *grace_period_seconds).await,
            Step::Patch {
                target,
                seen,
                patch,
                ..
            } => self.patch(target, seen, patch, false).await,
            Step::PatchStatus {
                target,
                seen,
                patch,
            } => self.patch(target, seen, patch, true).await,
        };
        match &result {
            Ok(effect) if effect.kind.wrote() => {
                tracing::info!(%step, effect = ?effect.kind, "step done");
            }
            Ok(effect) => tracing::debug!(%step, effect = ?effect.kind, "step had nothing to do"),
            Err(error) => tracing::debug!(%step, reason = error.reason(), "step failed"),
        }
        result
    }

    /// Runs steps in order and stops at the first that fails.
    ///
    /// # Errors
    /// The first error; what was done before it stays done.
    pub async fn run_all(&self, steps: &[Step]) -> Result<Vec<Effect>, StepError> {
        let mut effects = Vec::with_capacity(steps.len());
        for step in steps {
            effects.push(self.run(step).await?);
        }
        Ok(effects)
    }

    pub fn counts(&self) -> ExecutorCounts {
        ExecutorCounts {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            skipped: self.skipped.load(Ordering::Relaxed),
        }
    }

    async fn create(&self, desired: &Desired) -> Result<Effect, StepError> {
        const VERB: &str = "create";
        let target = &desired.target;
        let body: DynamicObject = self.marked_object(VERB, desired)?;
        let parameters = PostParams {
            field_manager: Some(self.config.field_manager.clone()),
            ..PostParams::default()
        };
        match self
            .write(self.api(target).create(&parameters, &body))
            .await
        {
            Ok(object) => Ok(self.laid_over(target, EffectKind::Created, object)),
            Err(CallError::Api(kube::Error::Api(status))) if status.is_already_exists() => {
                match self.read_ours(VERB, desired).await? {
                    Some(object) => Ok(self.laid_over(target, EffectKind::AlreadyThere, object)),
                    None => Err(StepError::Conflict {
                        verb: VERB,
                        target: target.clone(),
                        message: "it was there, and then it was not".to_owned(),
                    }),
                }
            }
            Err(error) => Err(error.into_step(VERB, target)),
        }
    }

    async fn apply(&self, desired: &Desired) -> Result<Effect, StepError> {
        const VERB: &str = "apply";
        let target = &desired.target;
        let body = self.marked(desired);
        let live = match self.barrier.cached(&target.resource, &target.key) {
            Cached::Present(live) => Some(live),
            // Absent from a cache may be outside its scope, and an apply would merge into whatever is there.
            Cached::Absent | Cached::Unknown => {
                let read = self.read(VERB, target).await?;
                if let Some(object) = &read {
                    self.barrier.wrote(&target.resource, object);
                }
                read.map(to_json)
            }
        };
        if let Some(live) = live {
            return self.apply_over(desired, body, &live).await;
        }
        match self.send_apply(target, &body, None).await {
            Ok(object) => Ok(self.laid_over(target, EffectKind::Created, object)),
            Err(CallError::Api(kube::Error::Api(status))) if status.is_conflict() => {
                // Somebody made one since we read, and it disagrees with ours.
                match self.read_ours(VERB, desired).await? {
                    Some(object) => {
                        self.barrier.wrote(&target.resource, &object);
                        self.apply_over(desired, body, &to_json(object)).await
                    }
                    None => Err(StepError::from_kube(VERB, target, kube::Error::Api(status))),
                }
            }
            Err(error) => Err(error.into_step(VERB, target)),
        }
    }

    async fn apply_over(
        &self,
        desired: &Desired,
        body: Value,
        live: &Value,
    ) -> Result<Effect, StepError> {
        const VERB: &str = "apply";
        let target = &desired.target;
        self.check_ours(VERB, desired, live)?;
        let Some(difference) = first_difference(&body, live) else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return Ok(Effect {
                kind: EffectKind::Unchanged,
                object: None,
            });
        };
        tracing::debug!(%target, %difference, "not as meant");
        // The UID makes the server refuse if the object was replaced by another one of its name.
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let object = self
            .send_apply(target, &body, Some(uid))
            .await
            .map_err(|error| error.into_step(VERB, target))?;
        let before = live["metadata"]["resourceVersion"].as_str();
        let kind = if object.metadata.resource_version.as_deref() == before {
            EffectKind::Unchanged
        } else {
            EffectKind::Changed
        };
        Ok(self.laid_over(target, kind, object))
    }

    /// With a UID it changes that incarnation and takes back what others changed of ours. Without, it is to create, and must
    /// not force its way into an object that somebody else makes at the same moment.
    async fn send_apply(
        &self,
        target: &Target,
        body: &Value,
        uid: Option<&str>,
    ) -> Result<DynamicObject, CallError> {
        let mut body = body.clone();
        let mut parameters = PatchParams::apply(&self.config.field_manager).validation_strict();
        if let Some(uid) = uid {
            body["metadata"]["uid"] = Value::from(uid);
            parameters = parameters.force();
        }
        let api = self.api(target);
        let patch = Patch::Apply(body);
        self.write(api.patch(&target.key.name, &parameters, &patch))
            .await
    }

    async fn delete(
        &self,
        target: &Target,
        seen: &Seen,
        grace_period_seconds: Option<u32>,
    ) -> Result<Effect, StepError> {
        const VERB: &str = "delete";
        let parameters = DeleteParams {
            grace_period_seconds,
            preconditions: Some(Preconditions {
                uid: Some(seen.uid.clone()),
                resource_version: Some(seen.resource_version.clone()),
            }),
            ..DeleteParams::background()
        };
        let answer = self
            .write(self.api(target).delete(&target.key.name, &parameters))
            .await;
        match answer {
            Ok(answer) => Ok(match answer.left() {
                // Some kinds return the object even when it is gone already.
                Some(object)
                    if object.metadata.deletion_timestamp.is_some() && !has_ended(&object) =>
                {
                    self.laid_over(target, EffectKind::Deleting, object)
                }
                _ => self.ended(target, seen, EffectKind::Deleted),
            }),
            Err(CallError::Api(kube::Error::Api(status))) if status.is_not_found() => {
                Ok(self.ended(target, seen, EffectKind::AlreadyGone))
            }
            Err(error) => Err(error.into_step(VERB, target)),
        }
    }

    async fn patch(
        &self,
        target: &Target,
        seen: &Seen,
        patch: &Value,
        status: bool,
    ) -> Result<Effect, StepError> {
        const VERB: &str = "patch";
        let mut body = patch.clone();
        if !body.is_object() {
            body = json!({});
        }
        body["metadata"]["uid"] = Value::from(seen.uid.clone());
        body["metadata"]["resourceVersion"] = Value::from(seen.resource_version.clone());
        let parameters = PatchParams {
            field_manager: Some(self.config.field_manager.clone()),
            ..PatchParams::default()
        };
        let patch = Patch::Merge(body);
        let api = self.api(target);
        let answer = if status {
            self.write(api.patch_status(&target.key.name, &parameters, &patch))
                .await
        } else {
            self.write(api.patch(&target.key.name, &parameters, &patch))
                .await
        };
        let object = answer.map_err(|error| error.into_step(VERB, target))?;
        let unchanged =
            object.metadata.resource_version.as_deref() == Some(seen.resource_version.as_str());
        let kind = if unchanged {
            EffectKind::Unchanged
        } else {
            EffectKind::Changed
        };
        Ok(self.laid_over(target, kind, object))
    }

    /// Reads the object afresh and makes sure that it is ours and there to stay.
    async fn read_ours(
        &self,
        verb: &'static str,
        desired: &Desired,
    ) -> Result<Option<DynamicObject>, StepError> {
        let Some(object) = self.read(verb, &desired.target).await? else {
            return Ok(None);
        };
        self.check_ours(verb, desired, &to_json(object.clone()))?;
        Ok(Some(object))
    }

    fn check_ours(
        &self,
        verb: &'static str,
        desired: &Desired,
        live: &Value,
    ) -> Result<(), StepError> {
        if !desired.ours.is(live) {
            return Err(StepError::Foreign {
                verb,
                target: desired.target.clone(),
                ours: desired.ours.clone(),
            });
        }
        if live["metadata"]["deletionTimestamp"].is_string() {
            return Err(StepError::StillDeleting {
                verb,
                target: desired.target.clone(),
            });
        }
        Ok(())
    }

    async fn read(
        &self,
        verb: &'static str,
        target: &Target,
    ) -> Result<Option<DynamicObject>, StepError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let api = self.api(target);
        self.call(api.get_opt(&target.key.name))
            .await
            .map_err(|error| error.into_step(verb, target))
    }

    async fn write<T>(
        &self,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.call(call).await
    }

    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, kube::Error>>,
    ) -> Result<T, CallError> {
        match tokio::time::timeout(self.config.call_deadline, call).await {
            Ok(answer) => answer.map_err(CallError::Api),
            Err(_) => Err(CallError::Timeout(self.config.call_deadline)),
        }
    }

    /// The desired object with its fingerprint.
    fn marked(&self, desired: &Desired) -> Value {
        let mut body = desired.body.clone();
        body["metadata"]["annotations"][&self.config.meant_annotation] =
            Value::from(fingerprint(&desired.body));
        body
    }

    fn marked_object(
        &self,
        verb: &'static str,
        desired: &Desired,
    ) -> Result<DynamicObject, StepError> {
        serde_json::from_value(self.marked(desired)).map_err(|error| StepError::Rejected {
            verb,
            target: desired.target.clone(),
            reason: "Malformed".to_owned(),
            message: error.to_string(),
        })
    }

    fn api(&self, target: &Target) -> Api<DynamicObject> {
        if target.key.namespace.is_empty() {
            Api::all_with(self.client.clone(), target.resource.as_ref())
        } else {
            Api::namespaced_with(
                self.client.clone(),
                &target.key.namespace,
                target.resource.as_ref(),
            )
        }
    }

    fn laid_over(&self, target: &Target, kind: EffectKind, object: DynamicObject) -> Effect {
        debug_assert_eq!(
            Key::of(&object),
            target.key,
            "the server answers about the object it was asked about"
        );
        self.barrier.wrote(&target.resource, &object);
        Effect {
            kind,
            object: Some(object),
        }
    }

    fn ended(&self, target: &Target, seen: &Seen, kind: EffectKind) -> Effect {
        self.barrier.gone(&target.resource, &target.key, &seen.uid);
        Effect { kind, object: None }
    }
}

/// What came of a call, before anybody knows what it means for the step.
enum CallError {
    Timeout(Duration),
    Api(kube::Error),
}

impl CallError {
    fn into_step(self, verb: &'static str, target: &Target) -> StepError {
        match self {
            Self::Timeout(deadline) => StepError::Timeout {
                verb,
                target: target.clone(),
                deadline,
            },
            Self::Api(error) => StepError::from_kube(verb, target, error),
        }
    }
}

fn to_json(object: DynamicObject) -> Value {
    // A DynamicObject came from JSON; Null would compare as different from everything.
    serde_json::to_value(object).unwrap_or(Value::Null)
}
