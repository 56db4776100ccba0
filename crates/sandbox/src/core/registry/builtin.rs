//! The built-in kinds as a table. A kind is a row; nothing else in the core knows its name but its strategy.

use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    apps::v1::{Deployment, ReplicaSet, StatefulSet},
    authentication::v1::SelfSubjectReview,
    authorization::v1::{LocalSubjectAccessReview, SelfSubjectAccessReview, SubjectAccessReview},
    batch::v1::{CronJob, Job},
    coordination::v1::Lease,
    core::v1 as core,
    discovery::v1::EndpointSlice,
    events::v1::Event as GroupedEvent,
    networking::v1::NetworkPolicy,
    policy::v1::PodDisruptionBudget,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
    scheduling::v1::PriorityClass,
    storage::v1::StorageClass,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::fields::{EVENT_FIELDS, GROUPED_EVENT_FIELDS, POD_FIELDS};
use crate::core::kind::Scope;
use crate::core::strategy::{self, Strategy};

pub const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// A Namespace is too large a thing to be deleted by a selector.
const NAMESPACES: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];
/// Questions with an answer, never stored.
const CREATE: &[&str] = &["create"];

/// How names of a kind are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    /// RBAC's names may hold colons; only what breaks a path is refused.
    PathSegment,
}

/// What happens with an object besides being stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Everything a client may expect.
    Full,
    /// Stored and served; the text says what nobody does with it, and every creation warns of it.
    StoredOnly(&'static str),
    /// Not accepted: storing it would pretend that something happens. The text says why.
    Refused(&'static str),
    /// Answered at once from the request, never stored.
    Answered,
}

#[derive(Debug)]
pub struct Row {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub singular: &'static str,
    pub short_names: &'static [&'static str],
    pub categories: &'static [&'static str],
    pub scope: Scope,
    pub verbs: &'static [&'static str],
    pub subresources: &'static [&'static str],
    /// `metadata.generation` counts changes of what is wanted.
    pub generation: bool,
    /// PUT to a missing object creates it.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// DELETE answers with the object instead of a `Status`.
    pub returns_deleted: bool,
    /// DELETE without a policy orphans the dependents (Jobs, for old clients).
    pub orphans_by_default: bool,
    pub name_rule: NameRule,
    pub service: Service,
    /// Field selectors besides name and namespace: label and path.
    pub fields: &'static [(&'static str, &'static [&'static str])],
    /// Checks types, drops unknown fields and nulls, writes times in one form: what decoding into the API's own types does.
    pub canonical: fn(Value) -> Result<Value, serde_json::Error>,
    pub strategy: &'static Strategy,
}

fn canonical<T: Serialize + DeserializeOwned>(value: Value) -> Result<Value, serde_json::Error> {
    serde_json::to_value(serde_json::from_value::<T>(value)?)
}

const BASE: Row = Row {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    categories: &[],
    scope: Scope::Namespaced,
    verbs: ALL,
    subresources: &[],
    generation: false,
    create_on_update: false,
    unconditional_update: true,
    returns_deleted: false,
    orphans_by_default: false,
    name_rule: NameRule::Subdomain,
    service: Service::Full,
    fields: &[],
    canonical: canonical::<Value>,
    strategy: &strategy::PLAIN,
};

const POD_SUBRESOURCES: &[&str] = &[
    "attach",
    "binding",
    "eviction",
    "exec",
    "log",
    "portforward",
    "status",
];
const NO_CONTROLLER: Service = Service::StoredOnly(
    "this sandbox stores it and serves it, but runs no controller for this kind: nothing will come of it",
);
const NO_WEBHOOKS: Service = Service::Refused(
    "this sandbox calls no admission webhooks yet, and one that is stored but never called would pretend it does",
);
const NO_AGGREGATION: Service = Service::Refused(
    "this sandbox proxies no aggregated APIs yet, and one that is stored but never reached would pretend it does",
);
const NO_ENFORCEMENT: Service =
    Service::StoredOnly("this sandbox stores network policies and does not enforce them");
const NO_CRON: Service = Service::StoredOnly(
    "this sandbox stores it and serves it, but runs no schedule for this kind yet: no Job will be made",
);

pub static ROWS: &[Row] = &[
    Row {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        canonical: canonical::<core::ConfigMap>,
        strategy: &strategy::config::CONFIG_MAP,
        ..BASE
    },
    Row {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        create_on_update: true,
        canonical: canonical::<core::Endpoints>,
        ..BASE
    },
    Row {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        fields: EVENT_FIELDS,
        canonical: canonical::<core::Event>,
        strategy: &strategy::event::EVENT,
        ..BASE
    },
    Row {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        scope: Scope::Cluster,
        verbs: NAMESPACES,
        subresources: &["finalize", "status"],
        returns_deleted: true,
        name_rule: NameRule::Label,
        fields: &[("status.phase", &["status", "phase"])],
        canonical: canonical::<core::Namespace>,
        strategy: &strategy::namespace::NAMESPACE,
        ..BASE
    },
    Row {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        scope: Scope::Cluster,
        subresources: &["status"],
        fields: &[("spec.unschedulable", &["spec", "unschedulable"])],
        canonical: canonical::<core::Node>,
        strategy: &strategy::namespace::NODE,
        ..BASE
    },
    Row {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        subresources: &["status"],
        returns_deleted: true,
        canonical: canonical::<core::PersistentVolumeClaim>,
        strategy: &strategy::storage::CLAIM,
        ..BASE
    },
    Row {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        scope: Scope::Cluster,
        subresources: &["status"],
        returns_deleted: true,
        canonical: canonical::<core::PersistentVolume>,
        strategy: &strategy::storage::VOLUME,
        ..BASE
    },
    Row {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        categories: &["all"],
        subresources: POD_SUBRESOURCES,
        generation: true,
        returns_deleted: true,
        fields: POD_FIELDS,
        canonical: canonical::<core::Pod>,
        strategy: &strategy::pod::POD,
        ..BASE
    },
    Row {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        fields: &[("type", &["type"])],
        canonical: canonical::<core::Secret>,
        strategy: &strategy::config::SECRET,
        ..BASE
    },
    Row {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        subresources: &["token"],
        returns_deleted: true,
        canonical: canonical::<core::ServiceAccount>,
        ..BASE
    },
    Row {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        categories: &["all"],
        subresources: &["status"],
        create_on_update: true,
        returns_deleted: true,
        name_rule: NameRule::Label,
        fields: &[
            ("spec.clusterIP", &["spec", "clusterIP"]),
            ("spec.type", &["spec", "type"]),
        ],
        canonical: canonical::<core::Service>,
        strategy: &strategy::service::SERVICE,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "Deployment",
        plural: "deployments",
        singular: "deployment",
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &["scale", "status"],
        generation: true,
        service: NO_CONTROLLER,
        canonical: canonical::<Deployment>,
        strategy: &strategy::workload::DEPLOYMENT,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "ReplicaSet",
        plural: "replicasets",
        singular: "replicaset",
        short_names: &["rs"],
        categories: &["all"],
        subresources: &["scale", "status"],
        generation: true,
        service: NO_CONTROLLER,
        fields: &[("status.replicas", &["status", "replicas"])],
        canonical: canonical::<ReplicaSet>,
        strategy: &strategy::workload::REPLICA_SET,
        ..BASE
    },
    Row {
        group: "apps",
        kind: "StatefulSet",
        plural: "statefulsets",
        singular: "statefulset",
        short_names: &["sts"],
        categories: &["all"],
        subresources: &["scale", "status"],
        generation: true,
        service: NO_CONTROLLER,
        canonical: canonical::<StatefulSet>,
        strategy: &strategy::workload::STATEFUL_SET,
        ..BASE
    },
    Row {
        group: "batch",
        kind: "CronJob",
        plural: "cronjobs",
        singular: "cronjob",
        short_names: &["cj"],
        categories: &["all"],
        subresources: &["status"],
        generation: true,
        service: NO_CRON,
        canonical: canonical::<CronJob>,
        strategy: &strategy::workload::CRON_JOB,
        ..BASE
    },
    Row {
        group: "batch",
        kind: "Job",
        plural: "jobs",
        singular: "job",
        categories: &["all"],
        subresources: &["status"],
        generation: true,
        returns_deleted: false,
        orphans_by_default: true,
        fields: &[("status.successful", &["status", "succeeded"])],
        canonical: canonical::<Job>,
        strategy: &strategy::workload::JOB,
        ..BASE
    },
    Row {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        create_on_update: true,
        unconditional_update: false,
        canonical: canonical::<Lease>,
        strategy: &strategy::config::LEASE,
        ..BASE
    },
    Row {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        plural: "endpointslices",
        singular: "endpointslice",
        generation: true,
        canonical: canonical::<EndpointSlice>,
        strategy: &strategy::service::ENDPOINT_SLICE,
        ..BASE
    },
    Row {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        create_on_update: true,
        fields: GROUPED_EVENT_FIELDS,
        canonical: canonical::<GroupedEvent>,
        strategy: &strategy::event::EVENT,
        ..BASE
    },
    Row {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        singular: "networkpolicy",
        short_names: &["netpol"],
        generation: true,
        service: NO_ENFORCEMENT,
        canonical: canonical::<NetworkPolicy>,
        ..BASE
    },
    Row {
        group: "policy",
        kind: "PodDisruptionBudget",
        plural: "poddisruptionbudgets",
        singular: "poddisruptionbudget",
        short_names: &["pdb"],
        subresources: &["status"],
        generation: true,
        unconditional_update: false,
        canonical: canonical::<PodDisruptionBudget>,
        strategy: &strategy::workload::DISRUPTION_BUDGET,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        scope: Scope::Cluster,
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        canonical: canonical::<ClusterRole>,
        strategy: &strategy::rbac::ROLE,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        scope: Scope::Cluster,
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        canonical: canonical::<ClusterRoleBinding>,
        strategy: &strategy::rbac::BINDING,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "Role",
        plural: "roles",
        singular: "role",
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        canonical: canonical::<Role>,
        strategy: &strategy::rbac::ROLE,
        ..BASE
    },
    Row {
        group: "rbac.authorization.k8s.io",
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        create_on_update: true,
        name_rule: NameRule::PathSegment,
        canonical: canonical::<RoleBinding>,
        strategy: &strategy::rbac::BINDING,
        ..BASE
    },
    Row {
        group: "scheduling.k8s.io",
        kind: "PriorityClass",
        plural: "priorityclasses",
        singular: "priorityclass",
        short_names: &["pc"],
        scope: Scope::Cluster,
        generation: true,
        canonical: canonical::<PriorityClass>,
        ..BASE
    },
    Row {
        group: "storage.k8s.io",
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        scope: Scope::Cluster,
        returns_deleted: true,
        canonical: canonical::<StorageClass>,
        strategy: &strategy::storage::CLASS,
        ..BASE
    },
    Row {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        scope: Scope::Cluster,
        subresources: &["status"],
        generation: true,
        unconditional_update: false,
        returns_deleted: true,
        canonical: canonical::<CustomResourceDefinition>,
        strategy: &strategy::definition::DEFINITION,
        ..BASE
    },
    Row {
        group: "apiregistration.k8s.io",
        kind: "APIService",
        plural: "apiservices",
        singular: "apiservice",
        categories: &["api-extensions"],
        scope: Scope::Cluster,
        subresources: &["status"],
        service: NO_AGGREGATION,
        canonical: canonical::<APIService>,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "MutatingWebhookConfiguration",
        plural: "mutatingwebhookconfigurations",
        singular: "mutatingwebhookconfiguration",
        categories: &["api-extensions"],
        scope: Scope::Cluster,
        generation: true,
        service: NO_WEBHOOKS,
        canonical: canonical::<MutatingWebhookConfiguration>,
        ..BASE
    },
    Row {
        group: "admissionregistration.k8s.io",
        kind: "ValidatingWebhookConfiguration",
        plural: "validatingwebhookconfigurations",
        singular: "validatingwebhookconfiguration",
        categories: &["api-extensions"],
        scope: Scope::Cluster,
        generation: true,
        service: NO_WEBHOOKS,
        canonical: canonical::<ValidatingWebhookConfiguration>,
        ..BASE
    },
    Row {
        group: "authentication.k8s.io",
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        scope: Scope::Cluster,
        verbs: CREATE,
        service: Service::Answered,
        canonical: canonical::<SelfSubjectReview>,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        verbs: CREATE,
        service: Service::Answered,
        canonical: canonical::<LocalSubjectAccessReview>,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        scope: Scope::Cluster,
        verbs: CREATE,
        service: Service::Answered,
        canonical: canonical::<SelfSubjectAccessReview>,
        ..BASE
    },
    Row {
        group: "authorization.k8s.io",
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        scope: Scope::Cluster,
        verbs: CREATE,
        service: Service::Answered,
        canonical: canonical::<SubjectAccessReview>,
        ..BASE
    },
];
