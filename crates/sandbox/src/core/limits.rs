//! Every limit of the core in one place: what it bounds, in which unit, and why it has this value.

/// Bytes of one request body. A real API server answers 413 above 3 MiB.
pub const BODY_BYTES: usize = 3 * 1024 * 1024;

/// Changes kept for watches that resume and lists that continue. At 2 KiB a change this is 40 MiB at the very worst (the values are shared
/// with the objects themselves), and several minutes of the busiest sandbox.
pub const HISTORY_CHANGES: usize = 20_000;

/// Levels of nesting of a request body. Recursive walks over it stay far from the end of a thread's stack (2 MiB).
pub const DEPTH_LEVELS: usize = 96;

/// Operations in one JSON patch: a real API server's limit.
pub const JSON_PATCH_OPERATIONS: usize = 10_000;

/// Bytes of all annotations of one object: a real API server's limit.
pub const ANNOTATION_BYTES: usize = 256 * 1024;

/// Bytes of all values of one ConfigMap or Secret: a real API server's limit.
pub const DATA_BYTES: usize = 1024 * 1024;

/// How often a generated name may clash before the client is told to try again; a real API server tries eight times.
pub const NAME_ATTEMPTS: usize = 8;

/// Bytes of a generated name's base, so that base and suffix fit into a label (63).
pub const GENERATED_BASE_BYTES: usize = 58;

/// Causes in one refusal. A body of 3 MiB can be wrong in a million places; nobody reads more than these.
pub const CAUSES: usize = 100;

/// Bytes of a field manager's name: a real API server's limit.
pub const FIELD_MANAGER_BYTES: usize = 128;
