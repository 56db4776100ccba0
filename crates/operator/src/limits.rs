//! Limits of the operator, each with its unit and its reason.

use std::time::Duration;

/// A read by name answers in milliseconds; a server that needs longer is better asked again later.
pub const READ_DEADLINE: Duration = Duration::from_secs(10);
