//! One PostgreSQL: its programs, its data directory, its configuration, its server, and sessions with it.
//!
//! Every module does what it is told; what to do when is decided in `geodb-ha`. It never connects to anything but its own socket.

pub mod make;
pub mod prepare;
pub mod programs;
pub mod server;
pub mod session;
pub mod settings;
pub mod tls;
