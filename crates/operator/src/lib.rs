//! Controllers: observe, decide, act, report.
