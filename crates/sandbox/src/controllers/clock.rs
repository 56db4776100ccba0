//! The one place where the controllers read the wall clock. Decisions get the time as a value.

use jiff::Timestamp;

pub(super) fn now() -> Timestamp {
    Timestamp::now()
}
