//! Counts of requests and watches, as a cluster's `/metrics` shows them and as data for tests ("zero writes at rest").

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

/// Resources are named by clients, also ones that do not exist; beyond this many series new ones are counted as `other`.
const SERIES_LIMIT: usize = 4096;

/// What a request was, as the metric's labels say it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestLabels {
    /// `GET`, `LIST`, `WATCH`, `POST`, `PUT`, `PATCH`, `APPLY`, `DELETE`, `DELETECOLLECTION`, or the method for what is no resource.
    pub verb: String,
    /// Group of the resource; empty for the core group.
    pub group: String,
    /// Plural; empty for what is no resource.
    pub resource: String,
    pub subresource: String,
    pub code: u16,
}

impl RequestLabels {
    /// Whether it asked for a change of stored objects (a token request or a review stores nothing).
    pub fn is_write(&self) -> bool {
        !self.resource.is_empty()
            && self.subresource != "token"
            && matches!(
                self.verb.as_str(),
                "POST" | "PUT" | "PATCH" | "APPLY" | "DELETE" | "DELETECOLLECTION"
            )
    }
}

/// How often something was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestCount {
    pub labels: RequestLabels,
    pub count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Metrics {
    requests: Mutex<BTreeMap<RequestLabels, u64>>,
    watches: AtomicI64,
}

impl Metrics {
    pub(super) fn count(&self, labels: RequestLabels) {
        let mut requests = self.requests.lock();
        if requests.len() >= SERIES_LIMIT && !requests.contains_key(&labels) {
            let other = RequestLabels {
                group: String::new(),
                resource: "other".to_owned(),
                ..labels
            };
            *requests.entry(other).or_default() += 1;
        } else {
            *requests.entry(labels).or_default() += 1;
        }
    }

    pub(super) fn watch_opened(&self) {
        self.watches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn watch_closed(&self) {
        self.watches.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn watches(&self) -> u64 {
        u64::try_from(self.watches.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(super) fn requests(&self) -> Vec<RequestCount> {
        let requests = self.requests.lock();
        requests
            .iter()
            .map(|(labels, count)| RequestCount {
                labels: labels.clone(),
                count: *count,
            })
            .collect()
    }

    /// Prometheus' text format.
    pub(super) fn text(&self, revision: u64) -> String {
        let mut text = String::from(
            "# HELP apiserver_request_total Requests answered, by verb, group, resource, subresource and status code.\n\
             # TYPE apiserver_request_total counter\n",
        );
        for RequestCount { labels, count } in self.requests() {
            let RequestLabels {
                verb,
                group,
                resource,
                subresource,
                code,
            } = labels;
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "apiserver_request_total{{verb=\"{}\",group=\"{}\",resource=\"{}\",subresource=\"{}\",code=\"{code}\"}} {count}",
                escape(&verb),
                escape(&group),
                escape(&resource),
                escape(&subresource),
            );
        }
        let _ = write!(
            text,
            "# HELP apiserver_longrunning_requests Watches that are open now.\n\
             # TYPE apiserver_longrunning_requests gauge\n\
             apiserver_longrunning_requests{{verb=\"WATCH\"}} {}\n\
             # HELP geodb_sandbox_revision The newest resourceVersion.\n\
             # TYPE geodb_sandbox_revision gauge\n\
             geodb_sandbox_revision {revision}\n",
            self.watches(),
        );
        text
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// The verb, resource and subresource a path and its query ask for; for the metric only, `core` decides by itself.
pub(super) fn classify(
    method: &http::Method,
    path: &str,
    watch: bool,
    content_type: &str,
) -> RequestLabels {
    let segments = path
        .split('/')
        .filter(|segment| !segment.is_empty())
        .collect::<Vec<_>>();
    let (group, rest) = match segments.as_slice() {
        ["api", _version, rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        _ => ("", &[][..]),
    };
    let rest = match rest {
        // `namespaces/NAME/status` and `/finalize` are the namespace's own.
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => rest,
        ["namespaces", _, inner @ ..] => inner,
        _ => rest,
    };
    let resource = rest.first().copied().unwrap_or_default();
    let named = rest.len() > 1;
    let verb = match (method.as_str(), resource.is_empty(), named) {
        ("GET", false, _) if watch => "WATCH",
        ("GET", false, false) => "LIST",
        ("DELETE", false, false) => "DELETECOLLECTION",
        ("PATCH", ..) if content_type.starts_with("application/apply-patch") => "APPLY",
        (method, ..) => method,
    };
    RequestLabels {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: rest
            .get(2..)
            .map(|parts| parts.join("/"))
            .unwrap_or_default(),
        code: 0,
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    #[test]
    fn requests_are_named_as_a_cluster_names_them() {
        for (method, path, watch, expected) in [
            (Method::GET, "/api/v1/pods", false, ("LIST", "", "pods", "")),
            (
                Method::GET,
                "/api/v1/namespaces/harbour/pods",
                true,
                ("WATCH", "", "pods", ""),
            ),
            (
                Method::GET,
                "/api/v1/namespaces/harbour/pods/crane/log",
                false,
                ("GET", "", "pods", "log"),
            ),
            (
                Method::PUT,
                "/api/v1/namespaces/harbour/finalize",
                false,
                ("PUT", "", "namespaces", "finalize"),
            ),
            (
                Method::DELETE,
                "/api/v1/namespaces/harbour",
                false,
                ("DELETE", "", "namespaces", ""),
            ),
            (
                Method::POST,
                "/apis/batch/v1/namespaces/harbour/jobs",
                false,
                ("POST", "batch", "jobs", ""),
            ),
            (
                Method::DELETE,
                "/apis/batch/v1/namespaces/harbour/jobs",
                false,
                ("DELETECOLLECTION", "batch", "jobs", ""),
            ),
            (Method::GET, "/healthz", false, ("GET", "", "", "")),
            (
                Method::GET,
                "/apis/batch/v1",
                false,
                ("GET", "batch", "", ""),
            ),
        ] {
            let labels = classify(&method, path, watch, "");
            let found = (
                &*labels.verb,
                &*labels.group,
                &*labels.resource,
                &*labels.subresource,
            );
            assert_eq!(found, expected, "{method} {path}");
        }
        let apply = classify(
            &Method::PATCH,
            "/api/v1/namespaces/a/pods/b",
            false,
            "application/apply-patch+yaml",
        );
        assert_eq!(apply.verb, "APPLY");
        assert!(apply.is_write());
    }
}
