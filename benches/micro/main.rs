//! What the pure rooms cost, each alone: `make bench-micro`, or `cargo bench --bench micro -- FILTER`.
//!
//! Where a cost could grow with what there is, it is measured at sizes that grow by ten: the time of an element must stay about the same.

// A broken assumption ends a bench.
#![allow(clippy::expect_used)]

mod apply;
mod codec;
mod make;
mod queue;
mod routing;
mod session;

use criterion::{criterion_group, criterion_main};

criterion_group!(benches, codec::all, session::all, queue::all, routing::all, apply::all);
criterion_main!(benches);
