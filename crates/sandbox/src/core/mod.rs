//! The API server as a pure function: `handle(&mut State, &Request, now, rng) -> (Response, Vec<Change>)`.
//!
//! The caller owns time, randomness, durability and the network. A write is one call; its `Change`s are what storage has to make
//! durable before the response goes out, and what watches are fed with.

mod convert;
mod crd;
mod decode;
pub mod error;
mod fields;
pub mod kind;
pub mod limits;
mod meta;
mod metadata;
mod names;
mod negotiate;
mod path;
mod registry;
pub mod request;
pub mod response;
mod schema;
mod selector;
pub mod state;
mod strategy;
mod verbs;

pub use request::{Request, User};
pub use response::{Change, Event, EventType, Response, View, Watch, WatchFilter};
pub use state::{Config, LoadError, State};
pub use verbs::handle;
