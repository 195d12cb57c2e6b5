//! Whole clusters in one process: real Raft, real TCP over loopback, real storage.

pub mod kit;
mod large;
mod membership;
mod partition;
mod retained;
mod sessions;
mod several;
mod single;
mod versions;
mod visibility;
mod wire;
