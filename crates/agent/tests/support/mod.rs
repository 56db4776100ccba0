//! A database's instances as pods would run them: each agent is PID 1 of its own namespaces, as user 999, with its volume, Secrets and
//! environment at the paths of a pod, on an address of its own. Nothing that a test starts survives it.

pub mod api;
pub mod instance;
pub mod secrets;
pub mod sql;

use std::future::Future;
use std::time::{Duration, Instant};

use geodb_ha::Register;
use geodb_ha::register::{BOOTSTRAP_ALLOWED, BOOTSTRAP_ANNOTATION, REGISTER_ANNOTATION};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tempfile::TempDir;

use api::ApiServer;
use instance::Instance;
use secrets::Secrets;

/// How long anything in these tests may take: two loaded cores, PostGIS included.
pub const PATIENCE: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub const DATABASE: &str = "lake";
pub const NAMESPACE: &str = "default";

/// Waits until `probe` gives something.
pub async fn eventually<T, F>(what: &str, mut probe: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let began = Instant::now();
    loop {
        if let Some(value) = probe().await {
            return value;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "not within {} s: {what}",
            PATIENCE.as_secs()
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// One database: an API server with its register, its Secrets, and a place for volumes.
pub struct Cluster {
    pub api: ApiServer,
    pub secrets: Secrets,
    pub extensions: &'static str,
    directory: TempDir,
}

impl Cluster {
    /// An API server with the register as the operator makes it: empty, with a new database allowed.
    pub async fn start() -> Self {
        let directory = tempfile::Builder::new()
            .prefix("geodb-agent-")
            .tempdir()
            .unwrap();
        let directory = keep(directory);
        let api = ApiServer::start(&directory.path().join("api")).await;
        let secrets = Secrets::make(&directory.path().join("secrets"));
        let cluster = Self {
            api,
            secrets,
            extensions: "",
            directory,
        };
        cluster.create_register(true).await;
        cluster
    }

    pub async fn with_extensions(extensions: &'static str) -> Self {
        Self {
            extensions,
            ..Self::start().await
        }
    }

    /// An instance with an empty volume; it does not run yet.
    pub fn instance(&self, serial: u8) -> Instance {
        Instance::new(
            self,
            serial,
            &self.directory.path().join(format!("{DATABASE}-{serial}")),
        )
    }

    /// Instances 1 to `count`, started together, when all are ready.
    pub async fn ready_instances(&self, count: u8) -> Vec<Instance> {
        let mut instances: Vec<Instance> =
            (1..=count).map(|serial| self.instance(serial)).collect();
        for instance in &mut instances {
            instance.start(self);
        }
        for instance in &instances {
            instance.ready().await;
        }
        instances
    }

    pub fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.api.client(), NAMESPACE)
    }

    pub async fn create_register(&self, bootstrap: bool) {
        let annotations = if bootstrap {
            json!({ BOOTSTRAP_ANNOTATION: BOOTSTRAP_ALLOWED })
        } else {
            json!({})
        };
        let lease = json!({ "metadata": { "name": DATABASE, "annotations": annotations, "labels": { "app.kubernetes.io/managed-by": "geodb" } } });
        self.leases()
            .create(
                &PostParams::default(),
                &serde_json::from_value(lease).unwrap(),
            )
            .await
            .unwrap();
    }

    pub async fn delete_register(&self) {
        self.leases()
            .delete(DATABASE, &DeleteParams::default())
            .await
            .unwrap();
    }

    pub async fn register(&self) -> Register {
        let lease = self.leases().get(DATABASE).await.unwrap();
        let annotations = lease.metadata.annotations.unwrap_or_default();
        Register::from_lease(annotations.get(REGISTER_ANNOTATION).map(String::as_str)).unwrap()
    }

    /// The address behind the read-write Service.
    pub async fn endpoint(&self) -> Option<String> {
        let slices: Api<EndpointSlice> = Api::namespaced(self.api.client(), NAMESPACE);
        let slice = slices.get_opt(&format!("{DATABASE}-rw")).await.unwrap()?;
        Some(slice.endpoints.first()?.addresses.first()?.clone())
    }

    /// The instance that the register names, and the others.
    pub async fn split<'a>(
        &self,
        instances: &'a mut [Instance],
    ) -> (&'a mut Instance, Vec<&'a mut Instance>) {
        let leader = self
            .register()
            .await
            .record
            .expect("a published leader")
            .leader;
        let (mut leaders, others): (Vec<_>, Vec<_>) = instances
            .iter_mut()
            .partition(|instance| instance.name == leader.instance());
        (leaders.remove(0), others)
    }
}

fn keep(mut directory: TempDir) -> TempDir {
    // For a person who looks for the cause: everything of a run stays, and its place is said.
    if std::env::var_os("GEODB_TEST_KEEP").is_some() {
        directory.disable_cleanup(true);
    }
    directory
}
