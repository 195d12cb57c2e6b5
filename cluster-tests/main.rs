//! Black-box tests: they start the built program as real processes on free ports and drive it with real clients.
//!
//! `harness` starts nodes and waits for conditions; `node` tests one node; `cluster` three; `interop` with clients written by others;
//! `transports` goes every way a client can come; `conformance` runs the checks of the specification's normative statements;
//! `addons` are the add-on topics sentence by sentence; `cases` repeats inputs that showed faults on other brokers; `faults` breaks nodes and
//! links; `containers` does so to containers that stand in for pods; `load` plays `troupemq bench`; `stories` plays the examples of `config/examples`; `kubernetes` checks
//! the manifests of `k8s/`, and starts nodes as their pods would. `make test` prepares what all of them need; `TROUPEMQ_BIN` names another program
//! to test.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation, reason = "tests")]

mod addons;
mod cases;
mod cluster;
mod conformance;
mod containers;
mod faults;
mod harness;
mod interop;
mod kubernetes;
mod load;
mod node;
mod stories;
mod transports;
