//! Every limit of the kit, with its unit and its reason. Where an operator may choose, these are the defaults.

use std::time::Duration;

/// Passes that run at the same time. Passes wait for the API server and not for the processor, so this is more
/// than there are cores; it is bounded because each may hold a connection and a world in memory.
pub const WORKERS: usize = 10;

/// A pass makes a handful of calls of at most `CALL_DEADLINE` each and never sleeps. One that takes longer hangs.
pub const PASS_DEADLINE: Duration = Duration::from_secs(60);

/// One API call. Real servers answer a write in well under a second; their own limit is 60 s, and a caller that
/// waits that long learns nothing that it would not learn from reading again.
pub const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// How long shutdown waits for passes under way before it cuts them off. Less than the 30 s a pod is given.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(15);

/// First delay after a failed pass.
pub const RETRY_BASE: Duration = Duration::from_secs(1);

/// Longest delay after failed passes. Short enough for a person who repaired something to see it noticed.
pub const RETRY_CAP: Duration = Duration::from_secs(300);

/// A change cancels an object's backoff, but a failing object still runs at most this often: its own writes are
/// changes too.
pub const FAILING_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// Every pass of a healthy object is repeated after this long even if nothing was heard, in case a wake-up was
/// never sent (a mapper without an owner, a bug). It reads caches only, so it costs no API call.
pub const RESYNC_INTERVAL: Duration = Duration::from_secs(600);

/// Out of this many entries taken from a queue one is the oldest, whatever its priority: the lowest priority waits,
/// but never for ever.
pub const OLDEST_FIRST_EVERY: u64 = 8;

/// Objects in one page of a list.
pub const LIST_PAGE_SIZE: u32 = 500;

/// One page of a list, and the start of a watch.
pub const LIST_DEADLINE: Duration = Duration::from_secs(60);

/// Asked of the server for one watch call, in seconds. It closes the watch then; we go on from where it was.
pub const WATCH_TIMEOUT_SECONDS: u32 = 290;

/// A watch that stays silent this much longer than the server promised is a dead connection.
pub const WATCH_TIMEOUT_MARGIN: Duration = Duration::from_secs(5);

/// First delay after a failed list or watch.
pub const WATCH_RETRY_BASE: Duration = Duration::from_millis(200);

/// Longest delay after failed lists or watches. Everything waits for the caches, so it is short.
pub const WATCH_RETRY_CAP: Duration = Duration::from_secs(15);

/// After so many failures in a row a watch is not tried again from where it was: a fresh list is.
pub const WATCH_FAILURES_BEFORE_LIST: u32 = 5;

/// A watch that the server closed sooner than this counts as failed, or a server that closes at once would be asked
/// in a loop.
pub const WATCH_LIFE_MIN: Duration = Duration::from_secs(1);

/// Events waiting to be sent. When the server is slow the rest is dropped and counted: passes never wait for Events.
pub const EVENTS_WAITING_MAX: usize = 256;

/// Occurrences remembered so that they are not told twice. The oldest is forgotten first.
pub const EVENTS_REMEMBERED_MAX: usize = 4_096;

/// Events about one object in a burst.
pub const EVENTS_BURST: u32 = 20;

/// One more Event about the same object is allowed after this long.
pub const EVENTS_REFILL: Duration = Duration::from_secs(30);

/// The API's limit for an Event's note, in bytes.
pub const EVENT_NOTE_BYTES_MAX: usize = 1_024;

/// The API's limit for a condition's message, in bytes.
pub const CONDITION_MESSAGE_BYTES_MAX: usize = 32_768;
