//! Stories about a whole operator: each Service gets a ConfigMap with a greeting, a condition and an Event.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use geodb_kit::{
    Key,
    conditions::{self, Statement, Truth},
    events::{Note, Recorder, Reporter, Weight},
    executor::{Desired, Ours, Step, StepError, Target},
    hub::{Hub, Scope, Store},
    operator::{Decision, Driver, Operator, Report, Wait},
    outcome::{OutcomeKind, PassError},
    queue::Priority,
    runner::{Runner, RunnerConfig, by_owner},
};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{ConfigMap, Service},
        events::v1::Event,
    },
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{DeleteParams, ListParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::stage::{DEADLINE, Stage, until};

struct Greeter {
    services: Store<Service>,
    passes: Arc<AtomicUsize>,
}

fn conditions_of(service: &Service) -> Vec<Condition> {
    service
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default()
}

fn ready(truth: Truth, reason: &'static str, message: impl Into<String>) -> Statement {
    Statement {
        type_: "Greeted",
        truth,
        reason,
        message: message.into(),
        observed_generation: None,
    }
}

impl Operator for Greeter {
    type World = Arc<Service>;

    async fn observe(&self, key: &Key) -> Result<Option<Self::World>, PassError> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        Ok(self.services.get(key))
    }

    fn decide(&self, service: &Self::World, now: Timestamp) -> Decision {
        let part = |suffix: &str| {
            let map = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(format!("{}-{suffix}", service.name_any())),
                    namespace: service.namespace(),
                    owner_references: service.controller_owner_ref(&()).map(|owner| vec![owner]),
                    ..ObjectMeta::default()
                },
                data: Some(
                    [(
                        "text".to_owned(),
                        format!("{suffix}, {}!", service.name_any()),
                    )]
                    .into(),
                ),
                ..ConfigMap::default()
            };
            let ours = Ours::owner(service.uid().expect("it came from the server"));
            vec![Step::Apply(
                Desired::new(&map, ours).expect("it names its owner"),
            )]
        };
        let old = conditions_of(service);
        let said = conditions::all(&old, &[ready(Truth::True, "Greeted", "")], now);
        let decision = Decision::new(Wait::Nothing)
            .part("hello", part("hello"))
            .part("goodbye", part("goodbye"));
        let decision = decision.report(Report {
            target: Target::of(service.as_ref()),
            live: serde_json::to_value(service.as_ref()).expect("it serialises"),
            status: json!({"loadBalancer": {}, "conditions": said}),
        });
        if conditions::is_true(&old, "Greeted") {
            return decision;
        }
        decision.event(Note::about(
            service.as_ref(),
            Weight::Normal,
            "Greeted",
            "Greet",
            "said hello",
        ))
    }

    fn explain(&self, status: &mut Value, errors: &[StepError], now: Timestamp) {
        let statement = ready(Truth::False, "GreetingFailed", errors[0].to_string());
        status["conditions"] = json!(conditions::all(&[], &[statement], now));
    }
}

struct Running {
    services: Store<Service>,
    maps: Store<ConfigMap>,
    runner: Runner<Driver<Greeter>>,
    passes: Arc<AtomicUsize>,
    cancel: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Running {
    /// A fresh operator with its own caches over the stage's server.
    async fn start(stage: &Stage) -> Self {
        let cancel = stage.cancel.child_token();
        let hub = Hub::new(stage.hub.client(), cancel.clone());
        let services = hub.watch(Scope::<Service>::all().namespace(&stage.namespace));
        let maps = hub.watch(
            Scope::<ConfigMap>::all()
                .namespace(&stage.namespace)
                .index_owner(),
        );
        hub.synced().await;
        let config = geodb_kit::executor::ExecutorConfig::new("greeter", "greeter.example/meant");
        let executor = geodb_kit::executor::Executor::new(hub.client(), hub.barrier(), config);
        let passes = Arc::new(AtomicUsize::new(0));
        let greeter = Greeter {
            services: services.clone(),
            passes: passes.clone(),
        };
        let reporter = Reporter {
            controller: "example.com/greeter".into(),
            instance: "greeter-0".into(),
        };
        let recorder = Recorder::start(hub.client(), reporter, cancel.clone());
        let driver = Driver::new(greeter, Arc::new(executor)).with_recorder(recorder);
        let runner = Runner::new(driver, RunnerConfig::default());
        runner.primary(&services);
        runner.related(&maps, by_owner::<ConfigMap, Service>());
        tokio::spawn(runner.clone().run(cancel.clone()));
        Self {
            services,
            maps,
            runner,
            passes,
            cancel,
        }
    }

    /// Makes the operator look at the object so many times more.
    async fn look_again(&self, key: &Key, times: usize) {
        for _ in 0..times {
            let before = self.passes.load(Ordering::SeqCst);
            self.runner.wake(key, Priority::Change);
            let looked = async {
                while self.passes.load(Ordering::SeqCst) == before
                    || self.runner.report().queue.running > 0
                {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            assert!(
                tokio::time::timeout(DEADLINE, looked).await.is_ok(),
                "it does not look"
            );
        }
    }

    async fn greeted(&self, key: &Key) {
        until(&self.services, "the service is greeted", |services| {
            services
                .get(key)
                .is_some_and(|service| conditions::is_true(&conditions_of(&service), "Greeted"))
        })
        .await;
    }
}

async fn make_service(stage: &Stage, name: &str) -> Service {
    let service = Service {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        spec: serde_json::from_value(json!({"ports": [{"port": 80}]})).expect("a service's spec"),
        ..Service::default()
    };
    services(stage)
        .create(&PostParams::default(), &service)
        .await
        .expect("the service is made")
}

fn services(stage: &Stage) -> Api<Service> {
    Api::namespaced(stage.others.clone(), &stage.namespace)
}

#[tokio::test]
async fn it_makes_what_is_missing_reports_once_and_then_rests() {
    let stage = Stage::new("rest").await;
    let service = make_service(&stage, "a").await;
    let key = Key::of(&service);
    let running = Running::start(&stage).await;
    running.greeted(&key).await;
    assert_eq!(
        running.maps.by_owner(&service.uid().expect("a UID")).len(),
        2
    );

    let events: Api<Event> = Api::namespaced(stage.others.clone(), &stage.namespace);
    let told = async {
        while events
            .list(&ListParams::default())
            .await
            .expect("events")
            .items
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, told).await.is_ok(),
        "no Event came"
    );
    let writes = stage.faults.writes();
    assert_eq!(
        writes.len(),
        4,
        "two maps, one status, one Event: {writes:?}"
    );

    let reads = stage.faults.reads();
    running.look_again(&key, 20).await;
    assert_eq!(stage.faults.writes(), writes, "at rest nothing is written");
    assert_eq!(
        stage.faults.reads(),
        reads,
        "nor read: looking means looking into the caches"
    );

    drop(running);
    let again = Running::start(&stage).await;
    again.look_again(&key, 3).await;
    assert_eq!(stage.faults.writes(), writes, "nor after a restart");
    assert_eq!(again.runner.report().count(OutcomeKind::Retry), 0);
}

#[tokio::test]
async fn it_never_acts_twice_while_its_caches_lag_behind_its_own_writes() {
    let stage = Stage::new("behind").await;
    let key = Key::of(&make_service(&stage, "a").await);
    stage.faults.hold_watches();
    let running = Running::start(&stage).await;
    running.greeted(&key).await;
    running.look_again(&key, 10).await;
    let without_events = |writes: Vec<String>| -> Vec<String> {
        writes
            .into_iter()
            .filter(|write| !write.contains("/events"))
            .collect()
    };
    let writes = without_events(stage.faults.writes());
    assert_eq!(writes.len(), 3, "{writes:?}");
    stage.faults.release_watches();
    stage
        .config_maps()
        .create(&PostParams::default(), &stage.config_map("mark", &[]))
        .await
        .expect("made");
    until(&running.maps, "the watch has caught up", |maps| {
        maps.get(&Key::new(&stage.namespace, "mark")).is_some()
    })
    .await;
    running.look_again(&key, 3).await;
    assert_eq!(without_events(stage.faults.writes()), writes);
    assert_eq!(
        running.runner.report().count(OutcomeKind::Retry),
        0,
        "{:?}",
        running.runner.report()
    );
}

#[tokio::test]
async fn a_part_that_fails_is_explained_and_does_not_starve_the_others() {
    let stage = Stage::new("part").await;
    let mut foreign = stage.config_map("a-hello", &[("text", "mine!")]);
    foreign.metadata.labels = None;
    stage
        .config_maps()
        .create(&PostParams::default(), &foreign)
        .await
        .expect("somebody's");
    let key = Key::of(&make_service(&stage, "a").await);
    let running = Running::start(&stage).await;
    let reason = |services: &Store<Service>| {
        let service = services.get(&key)?;
        conditions::get(&conditions_of(&service), "Greeted")
            .map(|condition| (condition.reason.clone(), condition.message.clone()))
    };
    until(&running.services, "the failure is explained", |services| {
        reason(services).is_some_and(|(reason, message)| {
            reason == "GreetingFailed" && message.contains("a-hello")
        })
    })
    .await;
    let goodbye = Key::new(&stage.namespace, "a-goodbye");
    until(&running.maps, "the other part is done", |maps| {
        maps.get(&goodbye).is_some()
    })
    .await;
    let text = stage
        .config_maps()
        .get("a-hello")
        .await
        .expect("there")
        .data
        .expect("data")["text"]
        .clone();
    assert_eq!(text, "mine!", "what is foreign is left alone");

    // Nothing tells the operator that the foreign object went, so this is the backoff's next try.
    stage
        .config_maps()
        .delete("a-hello", &DeleteParams::default())
        .await
        .expect("removed");
    running.greeted(&key).await;
}

#[tokio::test]
async fn what_somebody_else_removes_is_made_again_and_what_is_deleted_is_forgotten() {
    let stage = Stage::new("again").await;
    let key = Key::of(&make_service(&stage, "a").await);
    let running = Running::start(&stage).await;
    running.greeted(&key).await;
    let hello = Key::new(&stage.namespace, "a-hello");
    let first = running.maps.get(&hello).and_then(|map| map.uid());
    stage
        .config_maps()
        .delete("a-hello", &DeleteParams::default())
        .await
        .expect("removed");
    until(&running.maps, "it is made again", |maps| {
        maps.get(&hello).is_some_and(|map| map.uid() != first)
    })
    .await;

    services(&stage)
        .delete("a", &DeleteParams::default())
        .await
        .expect("the service is deleted");
    until(&running.services, "the deletion is seen", |services| {
        services.get(&key).is_none()
    })
    .await;
    let rests = async {
        while running.runner.report().queue != geodb_kit::queue::Depth::default() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(
        tokio::time::timeout(DEADLINE, rests).await.is_ok(),
        "an object that is gone is kept awake"
    );
}

#[tokio::test]
async fn what_happens_again_is_counted_on_its_event() {
    let stage = Stage::new("series").await;
    let service = make_service(&stage, "a").await;
    let reporter = Reporter {
        controller: "example.com/greeter".into(),
        instance: "greeter-0".into(),
    };
    let recorder = Recorder::start(stage.hub.client(), reporter, stage.cancel.clone());
    for occurrence in ["one", "one", "two", "three", "three"] {
        let note = Note::about(
            &service,
            Weight::Warning,
            "Restarted",
            "Restart",
            "it was restarted",
        );
        recorder.record(note.occurrence(occurrence));
    }
    let events: Api<Event> = Api::namespaced(stage.others.clone(), &stage.namespace);
    let counted = async {
        loop {
            let listed = events
                .list(&ListParams::default())
                .await
                .expect("events")
                .items;
            if listed.iter().any(|event| {
                event
                    .series
                    .as_ref()
                    .is_some_and(|series| series.count == 3)
            }) {
                return listed;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let listed = tokio::time::timeout(DEADLINE, counted)
        .await
        .expect("it is counted");
    assert_eq!(listed.len(), 1, "{listed:?}");
    let regarding = listed[0].regarding.as_ref().expect("it is about something");
    assert_eq!(
        (regarding.kind.as_deref(), regarding.uid.clone()),
        (Some("Service"), service.uid())
    );
    assert_eq!(listed[0].type_.as_deref(), Some("Warning"));
    assert_eq!(
        (recorder.counts().written, recorder.counts().failed),
        (3, 0)
    );
    assert_eq!(
        stage.faults.writes().len(),
        3,
        "{:?}",
        stage.faults.writes()
    );
}
