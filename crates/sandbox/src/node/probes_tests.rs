//! Tests of `probes`.

use super::*;
