//! What the fuzz targets do. `fuzz/` hands each function what cargo-fuzz makes up; `replay_test` hands it the corpus and the inputs of
//! former findings, with the compiler and in the test run that everybody has.
//!
//! A finding is mended, and its input kept as `fuzz/regressions/<target>/<what it showed>`.
//!
//! A target panics where the broker breaks a promise. One whose subject is private to a room stands in that room, as `fuzz`.

mod config;
mod decode;
mod draw;
mod proxy;
mod session;
mod topic_match;

#[cfg(test)]
mod replay_test;

pub use config::config;
pub use decode::{decode_v3_1, decode_v3_1_1, decode_v5};
pub use draw::Draw;
pub use proxy::proxy;
pub use session::session;
pub use topic_match::topic_match;

pub use crate::cluster::fuzz::peer_frame;
pub use crate::listener::websocket::fuzz::websocket;
pub use crate::replica::fuzz::replica;
pub use crate::storage::fuzz::stored_record;
