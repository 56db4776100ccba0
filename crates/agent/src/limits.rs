//! Every limit of the agent, in one place: how long it waits, how often it looks, how much it keeps.

use std::time::Duration;

/// Threads for file access and name resolution; they end when idle.
pub const BLOCKING_THREADS_MAX: usize = 2;

/// One request to the Kubernetes API, connection included. The agent asks rarely, and every answer is small.
pub const API_REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// How long the server keeps one watch open, in seconds; servers end longer ones anyway.
pub const WATCH_SECONDS: u32 = 285;
/// A watch that is silent for longer than the server keeps it open is dead, whatever the connection says.
pub const WATCH_SILENCE_MAX: Duration = Duration::from_secs(300);
/// Pauses after failures: the first one, doubled each time, up to the last; a random part keeps instances apart.
pub const RETRY_FIRST: Duration = Duration::from_millis(200);
pub const RETRY_LAST: Duration = Duration::from_secs(15);
/// A server that ran this long before it died is restarted without a pause.
pub const STABLE_AFTER: Duration = Duration::from_secs(30);

/// How long another process may hold the volume before the agent gives up and lets the pod be restarted.
pub const VOLUME_LOCK_DEADLINE: Duration = Duration::from_secs(60);
pub const VOLUME_LOCK_INTERVAL: Duration = Duration::from_millis(250);

/// `initdb` copies 40 MB and syncs it; slow disks take a minute.
pub const INITIALISE_DEADLINE: Duration = Duration::from_secs(600);
/// A base backup of a large database over a slow link. A dead connection ends it much earlier, by keep-alives.
pub const CLONE_DEADLINE: Duration = Duration::from_secs(24 * 3600);
/// `postgres --version`.
pub const VERSION_DEADLINE: Duration = Duration::from_secs(10);
/// Bytes of that answer.
pub const VERSION_BYTES_MAX: u64 = 256;

/// How often to look whether a starting server answers. A look is one small file.
pub const STARTING_INTERVAL: Duration = Duration::from_millis(50);
/// How often to ask a replica whether it streams: readiness follows within this time.
pub const REPLICA_INTERVAL: Duration = Duration::from_secs(1);
/// The same while it does not stream: that passes, and readiness waits for it.
pub const NOT_STREAMING_INTERVAL: Duration = Duration::from_millis(250);
/// How often to ask a primary whether it answers. Its death is seen at once, without asking.
pub const PRIMARY_INTERVAL: Duration = Duration::from_secs(2);
/// Connecting to the local socket, and one look at the server.
pub const QUERY_DEADLINE: Duration = Duration::from_secs(5);
/// One statement of the preparation; `CREATE EXTENSION postgis` runs 8,000 statements.
pub const PREPARE_DEADLINE: Duration = Duration::from_secs(300);
/// A reload: the server reads its files when it gets to it.
pub const RELOAD_DEADLINE: Duration = Duration::from_secs(10);
pub const RELOAD_INTERVAL: Duration = Duration::from_millis(20);

/// Fast shutdown (with its checkpoint) when the pod ends. With the two below it stays within the grace period of 30 s.
pub const FAST_SHUTDOWN_DEADLINE: Duration = Duration::from_secs(22);
/// Immediate shutdown after that, and whenever PostgreSQL must not go on.
pub const IMMEDIATE_SHUTDOWN_DEADLINE: Duration = Duration::from_secs(3);
/// How long killed processes may take to disappear; longer means a stuck disk, and only the end of the container helps.
pub const KILL_DEADLINE: Duration = Duration::from_secs(3);

/// Bytes of a file in a mounted Secret: a certificate chain is a few thousand.
pub const SECRET_BYTES_MAX: u64 = 64 * 1024;
