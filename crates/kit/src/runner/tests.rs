//! Stories about passes that end badly, in paused time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::outcome::PassError;

/// Behaves as the object's name says.
#[derive(Clone, Default)]
struct Actor {
    passes: Arc<Mutex<Vec<String>>>,
    at_once: Arc<AtomicUsize>,
    at_once_max: Arc<AtomicUsize>,
}

impl Actor {
    fn count(&self, name: &str) -> usize {
        self.passes
            .lock()
            .iter()
            .filter(|pass| *pass == name)
            .count()
    }
}

impl Reconciler for Actor {
    async fn pass(&self, key: Key) -> Outcome {
        self.passes.lock().push(key.name.clone());
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_once_max.fetch_max(now, Ordering::SeqCst);
        // Dropped when the pass is cut off or unwinds, too.
        let _leave = Leave(self.at_once.clone());
        match key.name.as_str() {
            "panics" => panic!("as asked"),
            "hangs" => std::future::pending::<Outcome>().await,
            "fails" => Outcome::Retry(PassError::new("AsAsked", "it failed")),
            "refuses" => Outcome::Refused(PassError::new("AsAsked", "change the spec")),
            "waits" => Outcome::Await {
                what: "a friend".into(),
                deadline: Duration::from_secs(20),
            },
            name if name.starts_with("slow") => {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Outcome::Done
            }
            _ => Outcome::Done,
        }
    }
}

struct Leave(Arc<AtomicUsize>);

impl Drop for Leave {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn key(name: &str) -> Key {
    Key::new("ns", name)
}

struct Stage {
    actor: Actor,
    runner: Runner<Actor>,
    cancel: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn stage(config: RunnerConfig, names: &[&str]) -> Stage {
    let actor = Actor::default();
    let runner = Runner::new(actor.clone(), config);
    for name in names {
        runner.wake(&key(name), Priority::Change);
    }
    let cancel = CancellationToken::new();
    let task = tokio::spawn(runner.clone().run(cancel.clone()));
    Stage {
        actor,
        runner,
        cancel,
        task,
    }
}

async fn pass_time(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_a_hang_and_an_error_delay_nobody_else() {
    let config = RunnerConfig {
        workers: 3,
        ..RunnerConfig::default()
    };
    let stage = stage(config, &["panics", "hangs", "fails", "healthy"]);
    pass_time(1).await;
    assert_eq!(stage.actor.count("healthy"), 1);
    pass_time(600).await;
    let report = stage.runner.report();
    for kind in [
        OutcomeKind::Panicked,
        OutcomeKind::TimedOut,
        OutcomeKind::Retry,
    ] {
        assert!(
            report.count(kind) >= 3,
            "each is tried again after a backoff: {report:?}"
        );
    }
    assert!(
        report.unfinished["ns/panics"].contains("as asked"),
        "{report:?}"
    );
    assert!(
        report.unfinished["ns/hangs"].contains("cut off after 60 s"),
        "{report:?}"
    );
    assert_eq!(report.unfinished["ns/fails"], "AsAsked: it failed");
    assert!(!report.unfinished.contains_key("ns/healthy"));
    stage.cancel.cancel();
    stage.task.await.expect("the runner ends");
}

#[tokio::test(start_paused = true)]
async fn no_more_passes_at_once_than_workers() {
    let names: Vec<String> = (0..20).map(|number| format!("slow-{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let config = RunnerConfig {
        workers: 4,
        ..RunnerConfig::default()
    };
    let stage = stage(config, &names);
    pass_time(6).await;
    assert_eq!(stage.actor.at_once_max.load(Ordering::SeqCst), 4);
    assert_eq!(stage.actor.passes.lock().len(), 20);
    stage.cancel.cancel();
    stage.task.await.expect("the runner ends");
}

#[tokio::test(start_paused = true)]
async fn waiting_has_a_deadline_and_refusing_none() {
    let config = RunnerConfig {
        resync: None,
        ..RunnerConfig::default()
    };
    let stage = stage(config, &["waits", "refuses", "done"]);
    pass_time(19).await;
    assert_eq!(
        (stage.actor.count("waits"), stage.actor.count("refuses")),
        (1, 1)
    );
    pass_time(2).await;
    assert_eq!(stage.actor.count("waits"), 2, "its deadline has passed");
    pass_time(36_000).await;
    assert_eq!(
        (stage.actor.count("refuses"), stage.actor.count("done")),
        (1, 1)
    );
    stage.runner.wake(&key("refuses"), Priority::Change);
    pass_time(1).await;
    assert_eq!(stage.actor.count("refuses"), 2, "a change is looked at");
    stage.cancel.cancel();
    stage.task.await.expect("the runner ends");
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_passes_end_and_cuts_off_what_hangs() {
    let stage = stage(RunnerConfig::default(), &["slow-one", "hangs"]);
    tokio::task::yield_now().await;
    pass_time(0).await;
    let watch = crate::clock::Stopwatch::start();
    stage.cancel.cancel();
    stage.task.await.expect("the runner ends");
    let took = watch.now().since_start();
    assert!(
        took >= limits::SHUTDOWN_GRACE && took < limits::SHUTDOWN_GRACE * 2,
        "{took:?}"
    );
    assert_eq!(
        stage.actor.at_once.load(Ordering::SeqCst),
        0,
        "nothing runs on"
    );
    assert_eq!(
        stage.runner.report().count(OutcomeKind::Done),
        1,
        "the slow one was let end"
    );
}
