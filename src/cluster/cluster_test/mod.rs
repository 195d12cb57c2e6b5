//! Whole clusters in one process: real Raft, real TCP over loopback, real storage.

mod kit;
mod partition;
mod sessions;
mod several;
mod single;
mod visibility;
mod wire;
