//! The whole product, from outside: the built binary, real PostgreSQL, real kubectl. Each test is a story a user could live through.
//!
//! One test binary, because linking is slow and the stories share their harness. Every story has a sandbox of its own, in a
//! directory and an address range of its own, and leaves nothing behind.

mod harness;
mod kubectl;
mod machine;
mod one_line;
mod recovery;
mod rest;
mod restart;
mod scale;
