//! Tests of `volumes`.

use super::*;
