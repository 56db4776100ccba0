//! The operator kit: hub, queue, runner, barrier, executor, conditions, events. Knows nothing of geodb.
