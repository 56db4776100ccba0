//! Server-side apply, strategic merge and JSON merge patch over serde_json values, as a Kubernetes API server does them. Pure: no clock, no
//! I/O, no client; time comes in as a value. What is not here is said in each module, and in the crate's README.

pub mod apply;
pub mod builtin;
pub mod field_set;
pub mod fields_v1;
mod managed;
pub mod merge_patch;
mod normalise;
pub mod schema;
pub mod strategic;
mod typed;
pub mod validate;
mod value;

pub use managed::{ManagedFieldsError, Operation};
