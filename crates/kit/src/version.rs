//! Resource versions as numbers. Kubernetes promises since 1.35 that they can be compared within one resource; servers on
//! etcd always worked that way. A version that is no number is "unknown", and whoever asks must do without an order.

use kube::Resource;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
pub struct Version(pub u64);

impl Version {
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    pub fn of<K: Resource>(object: &K) -> Option<Self> {
        object
            .meta()
            .resource_version
            .as_deref()
            .and_then(Self::parse)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}
