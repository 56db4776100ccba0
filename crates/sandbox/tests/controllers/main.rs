//! The controllers against the API server in this process: what a person sees of them through the API.
//!
//! There is no node here; where one is needed the test plays it by writing a pod's status.

#![allow(clippy::needless_pass_by_value)] // JSON literals read best when handed over.

mod cleaning;
mod connect;
mod jobs;
mod network;
mod scheduling;
mod stage;
mod storage;
