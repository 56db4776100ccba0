//! Tables of the cluster's own furniture: namespaces, nodes, configuration, identities, events, leases, webhooks.

use jiff::Timestamp;
use serde_json::Value;

use super::cell::{self, array, text};
use super::{AGE, CREATED_AT, Column, NAME, Printer, integer, text as column, wide};
use crate::present::age;

const ROLE_LABEL_PREFIX: &str = "node-role.kubernetes.io/";

pub(super) fn printer(kind: &str) -> Option<&'static Printer> {
    Some(match kind {
        "Namespace" => &NAMESPACE,
        "Node" => &NODE,
        "ConfigMap" => &CONFIG_MAP,
        "Secret" => &SECRET,
        "ServiceAccount" => &SERVICE_ACCOUNT,
        "Event" => &EVENT,
        "Lease" => &LEASE,
        "PodDisruptionBudget" => &DISRUPTION_BUDGET,
        "PriorityClass" => &PRIORITY_CLASS,
        "RoleBinding" | "ClusterRoleBinding" => &ROLE_BINDING,
        "APIService" => &API_SERVICE,
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => &WEBHOOKS,
        "CustomResourceDefinition" => &DEFINITION,
        _ => return None,
    })
}

const NAMESPACE: Printer = Printer {
    columns: &[NAME, column("Status", "Active, or Terminating."), AGE],
    cells: |object, now| {
        vec![
            cell::name(object),
            text(object, "/status/phase").into(),
            cell::age(object, now),
        ]
    },
};

const CONFIG_MAP: Printer = Printer {
    columns: &[NAME, column("Data", "How many entries it has."), AGE],
    cells: |object, now| {
        let entries = cell::size(object, "/data") + cell::size(object, "/binaryData");
        vec![cell::name(object), entries.into(), cell::age(object, now)]
    },
};

const SECRET: Printer = Printer {
    columns: &[
        NAME,
        column("Type", "What it is for."),
        column("Data", "How many entries it has."),
        AGE,
    ],
    cells: |object, now| {
        vec![
            cell::name(object),
            text(object, "/type").into(),
            cell::size(object, "/data").into(),
            cell::age(object, now),
        ]
    },
};

const SERVICE_ACCOUNT: Printer = Printer {
    columns: &[NAME, AGE],
    cells: |object, now| vec![cell::name(object), cell::age(object, now)],
};

const LEASE: Printer = Printer {
    columns: &[NAME, column("Holder", "Who holds it."), AGE],
    cells: |object, now| {
        vec![
            cell::name(object),
            text(object, "/spec/holderIdentity").into(),
            cell::age(object, now),
        ]
    },
};

const DEFINITION: Printer = Printer {
    columns: &[NAME, CREATED_AT],
    cells: |object, _| {
        vec![
            cell::name(object),
            object
                .pointer("/metadata/creationTimestamp")
                .cloned()
                .unwrap_or_default(),
        ]
    },
};

const NODE: Printer = Printer {
    columns: &[
        NAME,
        column("Status", "Whether it can run pods."),
        column("Roles", "What it is for."),
        AGE,
        column("Version", "The version of its kubelet."),
        wide("Internal-IP", "Its address inside the cluster."),
        wide("External-IP", "Its address outside."),
        wide("OS-Image", "Its operating system."),
        wide("Kernel-Version", "Its kernel."),
        wide("Container-Runtime", "What runs its containers."),
    ],
    cells: node,
};

fn node(object: &Value, now: Timestamp) -> Vec<Value> {
    let ready = array(object, "/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "Ready");
    let mut status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if cell::flag(object, "/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let labels = object
        .pointer("/metadata/labels")
        .and_then(Value::as_object);
    let mut roles = labels.map_or_else(Vec::new, |labels| {
        labels
            .keys()
            .filter_map(|key| key.strip_prefix(ROLE_LABEL_PREFIX))
            .filter(|role| !role.is_empty())
            .collect::<Vec<_>>()
    });
    roles.sort_unstable();
    let address = |kind: &str| {
        let mut addresses = array(object, "/status/addresses").iter();
        let found = addresses
            .find(|address| text(address, "/type") == kind)
            .map(|address| text(address, "/address"));
        Value::from(found.unwrap_or(cell::NONE))
    };
    let unknown = |pointer: &str| {
        Value::from(match text(object, pointer) {
            "" => age::UNKNOWN,
            value => value,
        })
    };
    vec![
        cell::name(object),
        status.into(),
        cell::or_none(&roles.join(",")).into(),
        cell::age(object, now),
        text(object, "/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        unknown("/status/nodeInfo/osImage"),
        unknown("/status/nodeInfo/kernelVersion"),
        unknown("/status/nodeInfo/containerRuntimeVersion"),
    ]
}

const EVENT: Printer = Printer {
    columns: &[
        column("Last Seen", "How long ago it last happened."),
        column("Type", "Normal or Warning."),
        column("Reason", "Why it was recorded, in one word."),
        column("Object", "What it is about."),
        wide("Subobject", "Which part of that object."),
        wide("Source", "Who recorded it."),
        column("Message", "What happened."),
        wide("First Seen", "How long ago it first happened."),
        wide("Count", "How often it happened."),
        Column {
            name: "Name",
            kind: "string",
            priority: 1,
            description: "The event's own name.",
        },
    ],
    cells: event,
};

/// Reads both shapes of an Event: the core group's and that of `events.k8s.io`.
fn event(object: &Value, now: Timestamp) -> Vec<Value> {
    let present = |pointer: &str| object.pointer(pointer).filter(|value| !value.is_null());
    let either = |one: &str, other: &str| present(one).or_else(|| present(other));
    let word = |one: &str, other: &str| match text(object, one) {
        "" => text(object, other).to_owned(),
        value => value.to_owned(),
    };
    let first =
        either("/firstTimestamp", "/deprecatedFirstTimestamp").or_else(|| present("/eventTime"));
    let series = present("/series/lastObservedTime");
    let last = series
        .or_else(|| either("/lastTimestamp", "/deprecatedLastTimestamp"))
        .or(first);
    let target = present("/involvedObject")
        .or_else(|| present("/regarding"))
        .cloned()
        .unwrap_or_default();
    let subject = format!(
        "{}/{}",
        text(&target, "/kind").to_lowercase(),
        text(&target, "/name")
    );
    let component = match word("/source/component", "/reportingComponent") {
        empty if empty.is_empty() => word("/deprecatedSource/component", "/reportingController"),
        found => found,
    };
    let host = word("/source/host", "/reportingInstance");
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    let count = present("/series/count")
        .or_else(|| either("/count", "/deprecatedCount"))
        .and_then(Value::as_i64);
    vec![
        age::since(last, now).into(),
        text(object, "/type").into(),
        text(object, "/reason").into(),
        subject.into(),
        text(&target, "/fieldPath").into(),
        source.into(),
        word("/message", "/note").trim().into(),
        age::since(first, now).into(),
        count.unwrap_or(1).to_string().into(),
        cell::name(object),
    ]
}

const DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        column("Min Available", "How many pods must stay."),
        column("Max Unavailable", "How many pods may go."),
        integer("Allowed Disruptions", "How many pods may be evicted now."),
        AGE,
    ],
    cells: |object, now| {
        let limit = |pointer: &str| match object.pointer(pointer) {
            Some(value) if !value.is_null() => Value::from(cell::scalar(value)),
            _ => "N/A".into(),
        };
        vec![
            cell::name(object),
            limit("/spec/minAvailable"),
            limit("/spec/maxUnavailable"),
            cell::integer(object, "/status/disruptionsAllowed").into(),
            cell::age(object, now),
        ]
    },
};

const PRIORITY_CLASS: Printer = Printer {
    columns: &[
        NAME,
        integer("Value", "Larger goes first."),
        Column {
            name: "Global-Default",
            kind: "boolean",
            priority: 0,
            description: "Whether pods get it unasked.",
        },
        AGE,
        column("PreemptionPolicy", "Whether others make room for it."),
    ],
    cells: |object, now| {
        let policy = match text(object, "/preemptionPolicy") {
            "" => "PreemptLowerPriority",
            policy => policy,
        };
        vec![
            cell::name(object),
            cell::integer(object, "/value").into(),
            cell::flag(object, "/globalDefault").into(),
            cell::age(object, now),
            policy.into(),
        ]
    },
};

const ROLE_BINDING: Printer = Printer {
    columns: &[
        NAME,
        column("Role", "The role that is given."),
        AGE,
        wide("Users", "To which users."),
        wide("Groups", "To which groups."),
        wide("ServiceAccounts", "To which service accounts."),
    ],
    cells: |object, now| {
        let subjects = |kind: &str| {
            let chosen = array(object, "/subjects")
                .iter()
                .filter(|subject| text(subject, "/kind") == kind);
            let named = |subject: &Value| match text(subject, "/namespace") {
                "" => text(subject, "/name").to_owned(),
                namespace => format!("{namespace}/{}", text(subject, "/name")),
            };
            Value::from(chosen.map(named).collect::<Vec<_>>().join(", "))
        };
        vec![
            cell::name(object),
            format!(
                "{}/{}",
                text(object, "/roleRef/kind"),
                text(object, "/roleRef/name")
            )
            .into(),
            cell::age(object, now),
            subjects("User"),
            subjects("Group"),
            subjects("ServiceAccount"),
        ]
    },
};

const API_SERVICE: Printer = Printer {
    columns: &[
        NAME,
        column("Service", "Who serves it."),
        column("Available", "Whether it answers."),
        AGE,
    ],
    cells: |object, now| {
        let service = match object.pointer("/spec/service") {
            Some(service) if !service.is_null() => {
                format!("{}/{}", text(service, "/namespace"), text(service, "/name"))
            }
            _ => "Local".to_owned(),
        };
        let condition = array(object, "/status/conditions")
            .iter()
            .find(|condition| text(condition, "/type") == "Available");
        let available = match condition {
            Some(condition) if text(condition, "/status") == "True" => "True".to_owned(),
            Some(condition) => format!(
                "{} ({})",
                text(condition, "/status"),
                text(condition, "/reason")
            ),
            None => "Unknown".to_owned(),
        };
        vec![
            cell::name(object),
            service.into(),
            available.into(),
            cell::age(object, now),
        ]
    },
};

const WEBHOOKS: Printer = Printer {
    columns: &[NAME, integer("Webhooks", "How many webhooks it has."), AGE],
    cells: |object, now| {
        vec![
            cell::name(object),
            array(object, "/webhooks").len().into(),
            cell::age(object, now),
        ]
    },
};
