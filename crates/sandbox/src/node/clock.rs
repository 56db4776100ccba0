//! The node's only door to the wall clock. Decisions get the time as a value; who needs it asks here, once, at the edge.

use jiff::Timestamp;

pub fn now() -> Timestamp {
    Timestamp::now()
}
