//! What the operator watches: one watch per kind, scoped to what it made, and nothing it does not use.

use geodb_api::labels;
use geodb_api::v2::Database;
use geodb_kit::hub::{Hub, Scope, Store};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::core::{Expression, Selector};

/// One store per kind. Secrets are not among them: the operator reads those it needs by name and keeps none.
pub struct Caches {
    pub databases: Store<Database>,
    pub pods: Store<Pod>,
    pub claims: Store<PersistentVolumeClaim>,
    pub registers: Store<Lease>,
    pub services: Store<Service>,
    pub config_maps: Store<ConfigMap>,
    pub service_accounts: Store<ServiceAccount>,
    pub roles: Store<Role>,
    pub role_bindings: Store<RoleBinding>,
}

impl Caches {
    pub fn watch(hub: &Hub) -> Self {
        Self {
            databases: hub.watch(Scope::all()),
            pods: hub.watch(ours().index_label(labels::DATABASE).project(slim_pod)),
            claims: hub.watch(ours().index_label(labels::DATABASE)),
            registers: hub.watch(ours()),
            services: hub.watch(ours()),
            config_maps: hub.watch(ours()),
            service_accounts: hub.watch(ours()),
            roles: hub.watch(ours()),
            role_bindings: hub.watch(ours()),
        }
    }
}

fn ours<K: kube::Resource<DynamicType = ()>>() -> Scope<K> {
    let managed = Expression::Equal(
        labels::MANAGED_BY.to_owned(),
        labels::MANAGED_BY_VALUE.to_owned(),
    );
    Scope::all().labels(Selector::from(managed))
}

/// A pod's spec is most of its size, and nothing here reads it: it was frozen when the pod was made.
fn slim_pod(pod: &mut Pod) {
    pod.spec = None;
    if let Some(status) = &mut pod.status {
        status.pod_ips = None;
        status.host_ips = None;
    }
}
