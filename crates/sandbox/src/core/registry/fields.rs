//! Field selectors of the built-in kinds that have many: label, and path in the stored object.

pub const POD_FIELDS: &[(&str, &[&str])] = &[
    ("spec.nodeName", &["spec", "nodeName"]),
    ("spec.restartPolicy", &["spec", "restartPolicy"]),
    ("spec.schedulerName", &["spec", "schedulerName"]),
    ("spec.serviceAccountName", &["spec", "serviceAccountName"]),
    ("spec.hostNetwork", &["spec", "hostNetwork"]),
    ("status.phase", &["status", "phase"]),
    ("status.podIP", &["status", "podIP"]),
    ("status.nominatedNodeName", &["status", "nominatedNodeName"]),
];
pub const EVENT_FIELDS: &[(&str, &[&str])] = &[
    ("involvedObject.kind", &["involvedObject", "kind"]),
    ("involvedObject.namespace", &["involvedObject", "namespace"]),
    ("involvedObject.name", &["involvedObject", "name"]),
    ("involvedObject.uid", &["involvedObject", "uid"]),
    (
        "involvedObject.apiVersion",
        &["involvedObject", "apiVersion"],
    ),
    (
        "involvedObject.resourceVersion",
        &["involvedObject", "resourceVersion"],
    ),
    ("involvedObject.fieldPath", &["involvedObject", "fieldPath"]),
    ("reason", &["reason"]),
    ("reportingComponent", &["reportingComponent"]),
    ("source", &["source", "component"]),
    ("type", &["type"]),
];
/// The same stored fields under the names of the other group.
pub const GROUPED_EVENT_FIELDS: &[(&str, &[&str])] = &[
    ("regarding.kind", &["involvedObject", "kind"]),
    ("regarding.namespace", &["involvedObject", "namespace"]),
    ("regarding.name", &["involvedObject", "name"]),
    ("regarding.uid", &["involvedObject", "uid"]),
    ("regarding.apiVersion", &["involvedObject", "apiVersion"]),
    (
        "regarding.resourceVersion",
        &["involvedObject", "resourceVersion"],
    ),
    ("regarding.fieldPath", &["involvedObject", "fieldPath"]),
    ("reason", &["reason"]),
    ("reportingController", &["reportingComponent"]),
    ("type", &["type"]),
];
