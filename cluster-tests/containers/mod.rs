//! The image, `compose.yaml`, and three and more containers that stand in for the pods of a StatefulSet: stable host names by the engine's DNS,
//! one volume each, a new address after every start, SIGTERM with a grace period, probes called as the kubelet calls them and clients sent to
//! those only that are ready.
//!
//! `engine` starts a Docker engine that touches nothing of the machine's network but bridges of its own, and ends it with the test run.
//! Where that cannot be, the tests are skipped, with the reason.

mod alone;
mod compose;
mod cut;
mod engine;
mod image;
mod killed;
mod load;
mod names;
mod pods;
mod rolling;
mod scale;
mod service;
