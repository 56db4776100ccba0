//! Stories about the queue, all in virtual time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

fn queue() -> Queue {
    Queue::new(QueueConfig::default(), 1)
}

fn key(text: &str) -> Key {
    let (namespace, name) = text
        .split_once('/')
        .expect("tests write keys as namespace/name");
    Key::new(namespace, name)
}

fn at(seconds: u64) -> Moment {
    Moment::START.after(Duration::from_secs(seconds))
}

fn drain(queue: &mut Queue, now: Moment) -> Vec<String> {
    let mut order = Vec::new();
    while let Some(taken) = queue.take(now) {
        queue.finish(&taken.key, Next::Rest, now);
        order.push(taken.key.to_string());
    }
    order
}

#[test]
fn first_in_first_out_within_a_priority() {
    let mut queue = queue();
    for name in ["a/3", "a/1", "a/2", "a/1"] {
        queue.add(&key(name), Priority::Change, at(0));
    }
    assert_eq!(drain(&mut queue, at(0)), ["a/3", "a/1", "a/2"]);
}

#[test]
fn the_most_urgent_priority_goes_first() {
    let mut queue = queue();
    queue.add(&key("a/resync"), Priority::Resync, at(0));
    queue.add(&key("a/failing"), Priority::Failing, at(0));
    queue.add(&key("a/deleted"), Priority::Deletion, at(0));
    queue.add(&key("a/changed"), Priority::Change, at(0));
    assert_eq!(
        drain(&mut queue, at(0)),
        ["a/deleted", "a/changed", "a/resync", "a/failing"]
    );
}

#[test]
fn a_waiting_entry_is_raised_and_never_lowered() {
    let mut queue = queue();
    queue.add(&key("a/first"), Priority::Change, at(0));
    queue.add(&key("a/second"), Priority::Resync, at(0));
    queue.add(&key("a/second"), Priority::Deletion, at(0));
    queue.add(&key("a/second"), Priority::Failing, at(0));
    assert_eq!(queue.depth().ready, 2);
    assert_eq!(drain(&mut queue, at(0)), ["a/second", "a/first"]);
}

#[test]
fn a_crowded_namespace_does_not_delay_the_others() {
    let mut queue = queue();
    for number in 0..100 {
        queue.add(&key(&format!("crowd/{number}")), Priority::Change, at(0));
    }
    queue.add(&key("quiet/one"), Priority::Change, at(0));
    queue.add(&key("still/one"), Priority::Change, at(0));
    let order = drain(&mut queue, at(0));
    assert!(
        order.iter().take(4).any(|name| name == "quiet/one"),
        "{:?}",
        &order[..6]
    );
    assert!(
        order.iter().take(4).any(|name| name == "still/one"),
        "{:?}",
        &order[..6]
    );
}

#[test]
fn a_flood_of_deletions_does_not_starve_what_failed() {
    let mut queue = queue();
    queue.add(&key("a/failing"), Priority::Failing, at(0));
    for number in 0..100 {
        queue.add(&key(&format!("a/{number}")), Priority::Deletion, at(0));
    }
    let order = drain(&mut queue, at(0));
    let position = order
        .iter()
        .position(|name| name == "a/failing")
        .expect("it was taken");
    assert!(
        position < usize::try_from(limits::OLDEST_FIRST_EVERY).expect("small"),
        "it came {position}th"
    );
}

#[test]
fn what_changes_during_a_pass_is_looked_at_after_it() {
    let mut queue = queue();
    queue.add(&key("a/1"), Priority::Change, at(0));
    let taken = queue.take(at(0)).expect("it is ready");
    queue.add(&key("a/1"), Priority::Change, at(1));
    assert_eq!(
        queue.take(at(1)),
        None,
        "never two passes of one object at a time"
    );
    queue.finish(&taken.key, Next::Rest, at(2));
    assert_eq!(queue.take(at(2)).map(|taken| taken.key), Some(key("a/1")));
}

#[test]
fn a_change_wakes_what_waits_for_time() {
    let mut queue = queue();
    queue.add(&key("a/1"), Priority::Change, at(0));
    let taken = queue.take(at(0)).expect("it is ready");
    queue.finish(&taken.key, Next::At(at(100)), at(0));
    assert_eq!(queue.due(at(1)), Some(at(100)));
    assert_eq!(queue.take(at(99)), None);
    queue.add(&key("a/1"), Priority::Change, at(5));
    assert!(queue.take(at(5)).is_some());
    queue.finish(&key("a/1"), Next::Rest, at(6));
    assert_eq!(
        queue.take(at(1_000)),
        None,
        "the old wait went with the change"
    );
}

#[test]
fn time_wakes_it_without_a_change() {
    let mut queue = queue();
    queue.add_at(&key("a/1"), Priority::Resync, at(10), at(0));
    queue.add_at(&key("a/1"), Priority::Resync, at(20), at(0));
    assert_eq!(queue.take(at(9)), None);
    let taken = queue.take(at(12)).expect("due since 10");
    assert_eq!(taken.waited, Duration::from_secs(2));
    queue.finish(&taken.key, Next::Rest, at(12));
    assert_eq!(
        queue.depth(),
        Depth::default(),
        "the later of two waits is not kept"
    );
}

#[test]
fn failures_back_off_and_success_forgets_them() {
    let mut queue = queue();
    let key = key("a/1");
    queue.add(&key, Priority::Change, at(0));
    let mut now = at(0);
    let mut delays = Vec::new();
    for failures in 0..12 {
        let taken = queue.take(now).expect("it is due");
        assert_eq!(taken.failures, failures);
        queue.finish(&key, Next::Backoff, now);
        let due = queue.due(now).expect("it waits");
        delays.push(due.since(now));
        now = due;
    }
    assert!(
        delays[0] <= limits::RETRY_BASE && delays[0] >= limits::RETRY_BASE / 2,
        "{delays:?}"
    );
    assert!(
        delays.iter().all(|delay| *delay <= limits::RETRY_CAP),
        "{delays:?}"
    );
    assert!(delays[11] >= limits::RETRY_CAP / 2, "{delays:?}");
    assert_eq!(
        queue.take(now).map(|taken| taken.priority),
        Some(Priority::Failing)
    );
    queue.finish(&key, Next::Rest, now);
    assert_eq!(queue.failures(&key), 0);
}

#[test]
fn a_change_cuts_a_long_backoff_short_but_own_writes_make_no_hot_loop() {
    let mut queue = queue();
    let key = key("a/1");
    queue.add(&key, Priority::Change, at(0));
    let mut now = at(0);
    let mut passes = 0;
    // Each pass fails and writes something, so each is followed by a change.
    while now < at(60) {
        queue.take(now).expect("it is due");
        passes += 1;
        queue.add(&key, Priority::Change, now);
        queue.finish(&key, Next::Backoff, now);
        now = queue.due(now).expect("it waits").max(now);
    }
    assert!((30..=125).contains(&passes), "{passes} passes in a minute");
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut queue = queue();
    for (name, place) in [("a/ready", 0), ("a/delayed", 1), ("a/running", 2)] {
        queue.add(&key(name), Priority::Change, at(0));
        if place > 0 {
            while let Some(taken) = queue.take(at(0)) {
                if taken.key == key(name) && place == 2 {
                    break;
                }
                let next = if place == 1 && taken.key == key(name) {
                    Next::Backoff
                } else {
                    Next::Rest
                };
                queue.finish(&taken.key, next, at(0));
            }
        }
    }
    queue.add(&key("a/running"), Priority::Change, at(0));
    for name in ["a/ready", "a/delayed", "a/running", "a/never"] {
        queue.forget(&key(name));
    }
    queue.finish(&key("a/running"), Next::Rest, at(0));
    assert_eq!(queue.depth(), Depth::default());
    assert!(queue.entries.is_empty(), "{:?}", queue.entries);
}

/// Ten workers, passes of one second, 200 objects that fail for ever and 300 healthy ones that change now and then:
/// every healthy one is served within a minute, and none that fails is given up.
#[test]
fn failing_objects_do_not_starve_healthy_ones() {
    const WORKERS: usize = 10;
    const HOUR_SECONDS: u64 = 3_600;
    let mut queue = queue();
    let mut random = StdRng::seed_from_u64(7);
    let failing: Vec<Key> = (0..200)
        .map(|n| Key::new(format!("team-{}", n % 7), format!("bad-{n}")))
        .collect();
    let healthy: Vec<Key> = (0..300)
        .map(|n| Key::new(format!("team-{}", n % 11), format!("good-{n}")))
        .collect();
    let bad: BTreeSet<&Key> = failing.iter().collect();
    let mut asked_at: HashMap<Key, u64> = HashMap::new();
    for key in &failing {
        queue.add(key, Priority::Change, at(0));
    }
    for key in &healthy {
        queue.add(key, Priority::Change, at(0));
        asked_at.insert(key.clone(), 0);
    }
    let mut longest_wait = 0;
    let mut tries: BTreeMap<Key, u64> = BTreeMap::new();
    for second in 0..HOUR_SECONDS {
        // About two healthy objects change each second: a third of what the workers could do.
        for _ in 0..2 {
            let key = &healthy[random.random_range(0..healthy.len())];
            queue.add(key, Priority::Change, at(second));
            asked_at.entry(key.clone()).or_insert(second);
        }
        let batch: Vec<Taken> = std::iter::from_fn(|| queue.take(at(second)))
            .take(WORKERS)
            .collect();
        for taken in batch {
            if bad.contains(&taken.key) {
                *tries.entry(taken.key.clone()).or_default() += 1;
                queue.finish(&taken.key, Next::Backoff, at(second + 1));
            } else {
                let asked = asked_at
                    .remove(&taken.key)
                    .expect("a healthy object runs only when asked");
                longest_wait = longest_wait.max(second - asked);
                queue.finish(&taken.key, Next::Rest, at(second + 1));
            }
        }
    }
    let oldest = asked_at.values().min().copied().unwrap_or(HOUR_SECONDS);
    assert!(
        longest_wait < 60,
        "a healthy object waited {longest_wait} s"
    );
    assert!(
        oldest + 60 > HOUR_SECONDS,
        "a healthy object still waits since {oldest}"
    );
    assert!(
        failing
            .iter()
            .all(|key| tries.get(key).is_some_and(|tries| *tries >= 10)),
        "{tries:?}"
    );
}

/// Random operations against a simple model: nothing asked for is lost, nothing runs twice at a time, nothing is left over.
#[test]
fn whatever_happens_nothing_is_lost_and_nothing_runs_twice() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut queue = Queue::new(QueueConfig::default(), seed);
        let mut running: BTreeSet<Key> = BTreeSet::new();
        let mut owed: BTreeSet<Key> = BTreeSet::new();
        let mut now = at(0);
        for _ in 0..400 {
            let key = Key::new(
                format!("n{}", random.random_range(0..3)),
                format!("o{}", random.random_range(0..5)),
            );
            match random.random_range(0..6) {
                0 | 1 => {
                    let priority = Priority::ALL[random.random_range(0..4)];
                    queue.add(&key, priority, now);
                    owed.insert(key);
                }
                2 | 3 => {
                    if let Some(taken) = queue.take(now) {
                        assert!(
                            running.insert(taken.key.clone()),
                            "seed {seed}: {} runs twice",
                            taken.key
                        );
                        owed.remove(&taken.key);
                    }
                }
                4 => {
                    if let Some(key) = running.pop_first() {
                        let next = [
                            Next::Rest,
                            Next::Backoff,
                            Next::At(now.after(Duration::from_secs(3))),
                        ];
                        queue.finish(&key, next[random.random_range(0..3)], now);
                    }
                }
                _ => now = now.after(Duration::from_millis(random.random_range(0..2_000))),
            }
            let depth = queue.depth();
            assert_eq!(depth.running, running.len(), "seed {seed}");
            assert!(
                depth.ready + depth.delayed <= 15,
                "seed {seed}: more entries than objects"
            );
        }
        for key in std::mem::take(&mut running) {
            queue.finish(&key, Next::Rest, now);
        }
        let later = now.after(limits::RETRY_CAP * 2);
        while let Some(taken) = queue.take(later) {
            owed.remove(&taken.key);
            queue.finish(&taken.key, Next::Rest, later);
        }
        assert!(owed.is_empty(), "seed {seed}: lost {owed:?}");
        assert!(
            queue.entries.is_empty() && queue.by_age.is_empty() && queue.delayed.is_empty(),
            "seed {seed}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_wakes_for_time_and_for_news() {
    let queue = SharedQueue::new(QueueConfig::default());
    queue.add(&key("a/1"), Priority::Change);
    let taken = queue.next().await;
    queue.finish(
        &taken.key,
        Next::At(queue.now().after(Duration::from_secs(30))),
    );
    let before = queue.now();
    assert_eq!(queue.next().await.key, key("a/1"));
    assert!(queue.now().since(before) >= Duration::from_secs(30));

    let adder = queue.clone();
    let waiter = tokio::spawn(async move { queue.next().await.key });
    tokio::task::yield_now().await;
    adder.add(&key("a/2"), Priority::Change);
    assert_eq!(waiter.await.expect("the waiter does not panic"), key("a/2"));
}
