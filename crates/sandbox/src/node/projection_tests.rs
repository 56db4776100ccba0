//! Tests of `projection`.

use super::*;
