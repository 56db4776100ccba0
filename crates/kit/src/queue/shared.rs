//! The queue behind a lock, for callers that wait. All decisions are the queue's; this only sleeps and wakes.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Depth, Next, Priority, Queue, QueueConfig, Taken};
use crate::{
    clock::{Moment, Stopwatch},
    key::Key,
};

/// Cheap to clone; all clones are the same queue. Many may add, one may wait for the next entry.
#[derive(Clone, Debug)]
pub struct SharedQueue {
    queue: Arc<Mutex<Queue>>,
    changed: Arc<Notify>,
    stopwatch: Stopwatch,
}

impl SharedQueue {
    pub fn new(config: QueueConfig) -> Self {
        Self {
            queue: Arc::new(Mutex::new(Queue::new(config, rand::random()))),
            changed: Arc::new(Notify::new()),
            stopwatch: Stopwatch::start(),
        }
    }

    pub fn now(&self) -> Moment {
        self.stopwatch.now()
    }

    pub fn add(&self, key: &Key, priority: Priority) {
        self.queue.lock().add(key, priority, self.now());
        self.changed.notify_one();
    }

    pub fn finish(&self, key: &Key, next: Next) {
        self.queue.lock().finish(key, next, self.now());
        self.changed.notify_one();
    }

    pub fn forget(&self, key: &Key) {
        self.queue.lock().forget(key);
    }

    pub fn depth(&self) -> Depth {
        self.queue.lock().depth()
    }

    /// Waits for the next entry. Safe to drop at any point: an entry is only taken together with returning it.
    pub async fn next(&self) -> Taken {
        loop {
            let (taken, due) = {
                let mut queue = self.queue.lock();
                let now = self.now();
                (queue.take(now), queue.due(now))
            };
            if let Some(taken) = taken {
                return taken;
            }
            match due {
                None => self.changed.notified().await,
                Some(due) => {
                    tokio::select! {
                        () = self.changed.notified() => {}
                        () = self.stopwatch.sleep_until(due) => {}
                    }
                }
            }
        }
    }
}
