//! Where time comes from: the only place in the kit that reads a clock. Everything else is handed a `Moment`
//! (for waiting) or a `Timestamp` (for people to read), so that tests and the simulator decide what time it is.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use parking_lot::Mutex;

/// A point on a monotonic time line whose zero is when its owner started. It is meaningless outside its process,
/// which is why it is not a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    pub const START: Self = Self(Duration::ZERO);

    /// Saturates instead of overflowing: a wait that long is "never".
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// Zero if `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    pub fn since_start(self) -> Duration {
        self.0
    }
}

/// Wall-clock time, for conditions and Events.
pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that stands still until told otherwise.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<Mutex<Timestamp>>);

impl ManualClock {
    pub fn at(timestamp: Timestamp) -> Self {
        Self(Arc::new(Mutex::new(timestamp)))
    }

    pub fn set(&self, timestamp: Timestamp) {
        *self.0.lock() = timestamp;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

/// Turns tokio's clock, which tests can pause and advance, into moments.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(tokio::time::Instant);

impl Stopwatch {
    pub fn start() -> Self {
        Self(tokio::time::Instant::now())
    }

    pub fn now(&self) -> Moment {
        Moment(self.0.elapsed())
    }

    /// Sleeps until the moment; returns at once if it has passed.
    pub async fn sleep_until(&self, moment: Moment) {
        tokio::time::sleep(moment.since(self.now())).await;
    }
}
