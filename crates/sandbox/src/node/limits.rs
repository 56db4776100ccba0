//! Every limit of the node in one place, with its unit and its reason.

use std::time::Duration;

/// Port of the kubelet's endpoint on the node's address: the number everybody knows from real clusters.
pub const KUBELET_PORT: u16 = 10250;

/// Pods one node says it can hold: the default of a real kubelet.
pub const PODS_PER_NODE: u32 = 110;

/// First delay of a crash loop and of a failing start, in seconds: as a real kubelet.
pub const BACKOFF_FIRST_SECONDS: i64 = 10;
/// Longest delay of a crash loop, in seconds: as a real kubelet.
pub const BACKOFF_LONGEST_SECONDS: i64 = 300;
/// A container that ran this long starts with a fresh back-off, in seconds: as a real kubelet.
pub const BACKOFF_FORGOTTEN_AFTER_SECONDS: i64 = 600;

/// First wait for a volume, Secret or ConfigMap that is not there yet, in milliseconds. Short, because within a sandbox
/// controllers answer in milliseconds and a person waits for the first database.
pub const MOUNT_RETRY_FIRST_MS: i64 = 50;
/// Longest such wait, in milliseconds: a person who creates the missing object should not wait long.
pub const MOUNT_RETRY_LONGEST_MS: i64 = 2_000;
/// A missing volume becomes an event only after this long, in milliseconds: at first it is merely not there yet.
pub const MOUNT_REPORT_AFTER_MS: i64 = 5_000;

/// Grace of a pod that does not say, in seconds: Kubernetes' default.
pub const GRACE_DEFAULT_SECONDS: i64 = 30;
/// Longest grace that is taken at its word, in seconds: a century, far from the end of what a time can be.
pub const GRACE_LONGEST_SECONDS: i64 = 3_155_760_000;
/// Longest wait for a container to become able to take signals, i.e. for bubblewrap to have executed the program.
pub const SIGNAL_READY_DEADLINE: Duration = Duration::from_secs(2);
/// How often that is looked at: there is nothing to await, the kernel does not tell.
pub const SIGNAL_READY_POLL: Duration = Duration::from_millis(3);

/// Wait between two tries of a status write that failed, first and longest.
pub const WRITE_RETRY_FIRST: Duration = Duration::from_millis(200);
pub const WRITE_RETRY_LONGEST: Duration = Duration::from_secs(5);
/// An API request that takes longer than this is given up and tried again.
pub const API_REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// Longest piece of a log line in one record, in bytes: as CRI runtimes, longer lines are cut into `P` records.
pub const LOG_LINE_BYTES: usize = 16 * 1024;
/// A log file that grew to this size is rotated, in bytes: kubelet's default.
pub const LOG_FILE_BYTES: u64 = 10 * 1024 * 1024;
/// Files kept per container run, the current one included: kubelet's default.
pub const LOG_FILES: usize = 5;
/// Longest termination message that reaches the status, in bytes: as Kubernetes documents.
pub const TERMINATION_MESSAGE_BYTES: usize = 4096;

/// Size of a container's `/dev/shm`, in bytes: what container runtimes give.
pub const SHARED_MEMORY_BYTES: u64 = 64 * 1024 * 1024;
/// Size of a container's own root layer, in bytes. It is memory, so it has to end somewhere.
pub const ROOT_LAYER_BYTES: u64 = 1024 * 1024 * 1024;

/// Longest life a token is asked for when the volume does not say, in seconds: Kubernetes' default.
pub const TOKEN_SECONDS: i64 = 3600;
/// A token is renewed after this share of its life, in percent: as a real kubelet.
pub const TOKEN_RENEW_PERCENT: i64 = 80;
/// Wait after a failed renewal, in seconds; a fifth of the shortest life (10 min) holds several tries.
pub const TOKEN_RETRY_SECONDS: i64 = 30;

/// Bytes of an HTTP probe's answer that are read: the status line is all that counts.
pub const PROBE_ANSWER_BYTES: usize = 10 * 1024;
/// Bytes of an exec probe's output that reach an event.
pub const PROBE_OUTPUT_BYTES: usize = 1024;

/// Events waiting to be written; more are dropped and counted, never waited for.
pub const EVENT_QUEUE: usize = 256;
/// The same event about the same pod is written again (as a count) only after this long, in seconds.
pub const EVENT_REPEAT_SECONDS: i64 = 60;
/// Different events remembered for that: enough for hundreds of pods, bounded for ever.
pub const EVENT_MEMORY: usize = 4096;
/// New events a pod may have at once, and the seconds until it gets another: as the spam filter of a real client.
pub const EVENT_BURST: u32 = 25;
pub const EVENT_REFILL_SECONDS: i64 = 300;

/// Messages waiting for a pod's worker: containers times probes, with room.
pub const WORKER_QUEUE: usize = 64;
/// Requests waiting for the thread that starts processes.
pub const SPAWN_QUEUE: usize = 256;

/// Longest time a stopping node gives its pods beyond their own grace.
pub const SHUTDOWN_SLACK: Duration = Duration::from_secs(5);
/// Longest wait at start for processes of a killed predecessor to be gone; they are already dying.
pub const LEFTOVER_DEADLINE: Duration = Duration::from_secs(10);
pub const LEFTOVER_POLL: Duration = Duration::from_millis(20);
