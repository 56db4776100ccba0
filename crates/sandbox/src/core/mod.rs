//! The API server as a pure function: `handle(&mut State, &Request, now, rng) -> (Response, Vec<Change>)`.
//!
//! The caller owns time, randomness, durability and the network. A write is one call; its `Change`s are what storage has to make
//! durable before the response goes out, and what watches are fed with.

pub mod request;
pub mod response;

pub use request::{Request, User};
pub use response::{Change, Event, EventType, Response, View, Watch};
