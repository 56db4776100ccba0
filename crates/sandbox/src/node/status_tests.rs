//! Tests of `status`.

use super::*;
