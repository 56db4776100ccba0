//! Tests of `logread`.

use super::*;
