//! The operator kit: what every operator needs, done once. Knows nothing of geodb.
//!
//! An operator's author writes `observe`, which reads caches, and `decide`, which is pure. The kit does the rest:
//!
//! | part | what it is for |
//! |---|---|
//! | [`hub`] | one watch per kind fills a typed [`hub::Store`] with indexes, listeners and a high-water version |
//! | [`barrier`] | our own writes are visible in the stores before the next pass looks |
//! | [`queue`] | which object next: one entry each, FIFO within a priority, fair between namespaces, backoff |
//! | [`runner`] | bounded workers, a deadline per pass, panics caught, [`outcome::Outcome`] as a sum type |
//! | [`operator`] | observe, decide, act, report: the usual pass |
//! | [`executor`] | plans as data; one API call a step, with preconditions; nothing is written that is so already |
//! | [`status`], [`conditions`] | written only when they mean something else |
//! | [`events`] | told once, counted when repeated, rate-limited, in the background |
//! | [`finalizer`] | duties with a name, as steps |
//!
//! Not here yet: leadership, metrics, the webhook server, storage migration.
//!
//! # A complete operator
//! Every Service with the label `greet` gets a ConfigMap with a greeting.
//! ```no_run
//! use std::{collections::BTreeMap, sync::Arc};
//! use geodb_kit::{
//!     Key,
//!     executor::{Desired, Executor, ExecutorConfig, Ours, Step},
//!     hub::{Hub, Scope, Store},
//!     operator::{Decision, Driver, Operator, Part, Wait},
//!     outcome::PassError,
//!     runner::{Runner, RunnerConfig, by_owner},
//! };
//! use k8s_openapi::{api::core::v1::{ConfigMap, Service}, jiff::Timestamp};
//! use kube::{Resource, ResourceExt, api::ObjectMeta, core::Expression};
//! use tokio_util::sync::CancellationToken;
//!
//! struct Greeter {
//!     services: Store<Service>,
//! }
//!
//! impl Operator for Greeter {
//!     type World = Arc<Service>;
//!
//!     async fn observe(&self, key: &Key) -> Result<Option<Self::World>, PassError> {
//!         Ok(self.services.get(key))
//!     }
//!
//!     fn decide(&self, service: &Self::World, _now: Timestamp) -> Decision {
//!         let uid = service.uid().unwrap_or_default();
//!         let greeting = ConfigMap {
//!             metadata: ObjectMeta {
//!                 name: Some(format!("{}-greeting", service.name_any())),
//!                 namespace: service.namespace(),
//!                 owner_references: service.controller_owner_ref(&()).map(|owner| vec![owner]),
//!                 ..ObjectMeta::default()
//!             },
//!             data: Some(BTreeMap::from([("text".into(), format!("Hello, {}!", service.name_any()))])),
//!             ..ConfigMap::default()
//!         };
//!         match Desired::new(&greeting, Ours::owner(uid)) {
//!             Ok(desired) => Decision::new(Wait::Nothing).part("greeting", vec![Step::Apply(desired)]),
//!             Err(error) => Decision::new(Wait::Refused { reason: "BadPlan", message: error.to_string() }),
//!         }
//!     }
//! }
//!
//! # async fn run(config: kube::Config) -> Result<(), kube::Error> {
//! let cancel = CancellationToken::new();
//! let hub = Hub::new(geodb_kit::client(config)?, cancel.clone());
//! let services = hub.watch(Scope::<Service>::all().labels(Expression::Exists("greet".into()).into()));
//! let greetings = hub.watch(Scope::<ConfigMap>::all());
//! hub.synced().await;
//!
//! let settings = ExecutorConfig::new("greeter", "greeter.example/meant");
//! let executor = Arc::new(Executor::new(hub.client(), hub.barrier(), settings));
//! let greeter = Greeter { services: services.clone() };
//! let runner = Runner::new(Driver::new(greeter, executor), RunnerConfig::default());
//! runner.primary(&services);
//! runner.related(&greetings, by_owner::<ConfigMap, Service>());
//! runner.run(cancel).await;
//! # Ok(())
//! # }
//! ```

pub mod backoff;
pub mod barrier;
mod client;
pub mod clock;
pub mod conditions;
pub mod events;
pub mod executor;
pub mod finalizer;
pub mod hub;
pub mod key;
pub mod limits;
pub mod operator;
pub mod outcome;
pub mod queue;
pub mod runner;
pub mod status;
pub mod version;

pub use client::client;
pub use key::Key;
