//! The kit against an API server: the sandbox's, or with `GEODB_TEST_KUBECONFIG` a real one.

mod executor;
mod hub;
mod operator;
mod stage;
