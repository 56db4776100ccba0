//! Events about objects, as people see them in `kubectl describe` and `kubectl get events`.
//!
//! Callers record on a change of mind only, so there is no aggregation here. An event that cannot be written is logged and forgotten:
//! events are news, not state.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use rand::Rng;

use super::clock;

/// Where events about cluster-scoped objects live, as in a cluster.
const DEFAULT_NAMESPACE: &str = "default";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Severity {
    Normal,
    Warning,
}

impl Severity {
    fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}

/// Writes events in the name of one component.
#[derive(Clone)]
pub(super) struct Recorder {
    client: Client,
    component: &'static str,
}

impl Recorder {
    pub(super) fn new(client: Client, component: &'static str) -> Self {
        Recorder { client, component }
    }

    pub(super) async fn record<K>(&self, about: &K, severity: Severity, reason: &str, message: &str)
    where
        K: Resource<DynamicType = ()>,
    {
        let reference = ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: about.meta().name.clone(),
            namespace: about.meta().namespace.clone(),
            resource_version: about.meta().resource_version.clone(),
            uid: about.meta().uid.clone(),
            field_path: None,
        };
        let event = self.event(reference, severity, reason, message);
        let namespace = event
            .metadata
            .namespace
            .clone()
            .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned());
        let api: Api<Event> = Api::namespaced(self.client.clone(), &namespace);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::debug!(component = self.component, reason, message, %error, "failed to write an event");
        }
    }

    fn event(
        &self,
        about: ObjectReference,
        severity: Severity,
        reason: &str,
        message: &str,
    ) -> Event {
        let now = Time(clock::now());
        let suffix: u64 = rand::rng().random();
        Event {
            metadata: ObjectMeta {
                name: Some(format!(
                    "{}.{suffix:016x}",
                    about.name.clone().unwrap_or_default()
                )),
                namespace: Some(
                    about
                        .namespace
                        .clone()
                        .unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()),
                ),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            type_: Some(severity.as_str().to_owned()),
            source: Some(EventSource {
                component: Some(self.component.to_owned()),
                host: None,
            }),
            reporting_component: Some(self.component.to_owned()),
            reporting_instance: Some(String::new()),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            count: Some(1),
            ..Event::default()
        }
    }
}
