//! What a node keeps on disk: the Raft log and votes of all groups, the state of all shards, and who the node is.
//!
//! Knows bytes, keys and indexes, not Raft and not MQTT. Two modes: `file` (fjall) and `in-memory`.
//!
//! ```text
//! <data>/lock       pid of the process that holds the directory; the lock is on the open file and dies with the process
//! <data>/flushed    number of the last flushed batch of the log
//! <data>/identity   who it belongs to, format version, incarnation, how far the databases were at a clean close
//! <data>/raft/      log entries and votes of all groups: flushed before anything is reported (`committer`)
//! <data>/state/     records of all groups, each with its `applied` in one atomic batch: flushed by `StateStore::flush`
//! ```
//!
//! Threads: the committer and one worker of the engine for each database; all end when the `Storage` is dropped, after what is pending was
//! written. A write or flush that fails stops everything (`stats::Health`): the process must end and start again from the disk.
//!
//! # What damage does
//!
//! Found by trying: `storage_test/engine_alone.rs` for the engine by itself, `storage_test/damage.rs` for both together.
//!
//! | what | the engine alone | here |
//! |---|---|---|
//! | journal of the log cut anywhere, after a crash | last whole batch is the end, silently | `Damaged` where a batch was reported that is gone |
//! | journal of the state cut anywhere, after a crash | the same, silently | replayed from the log; `Damaged` where the log no longer has it |
//! | journal cut anywhere, after a clean close | the same, silently | `Damaged`, from the numbers in `identity` |
//! | last batch torn in its middle, after a crash | refuses to open | cut off, with a warning, if it was not reported |
//! | journal cut between two batches, a later one there | the rest is taken, silently | `Damaged` (the log's batches are numbered) |
//! | tag or length flipped in a journal's middle | all later batches dropped silently | `Damaged` with file and byte (`journal_check`) |
//! | key or value flipped in a journal's middle | refuses to open | `Damaged` with file and byte |
//! | sequence number of a batch flipped | accepts it | `Damaged` with file and byte |
//! | journal removed | the rest is taken, silently | `Damaged`, but for the last of several after a crash |
//! | byte of a table flipped | - | `Damaged`, naming group and index or key |
//! | a keyspace's `current` removed | deletes the keyspace silently | `Damaged`, naming it |
//! | `version` removed | refuses to open, for another reason | `Damaged`, naming it |
//! | entry missing between purged and last | - | `Damaged`, naming group and index |
//! | `identity` damaged or removed | - | `Damaged` |
//!
//! A dash: not tried without the checks here. A sequence number is found wrong by its neighbours, so one too small in the very first batch
//! or too large in the very last passes.
//!
//! The file `flushed` says how far the log was flushed (`flushed_mark`): exactly after the end of a process, at most a second less after a
//! power cut. So what is **not** found: that a disk lost what it had reported as flushed within the last second before a power cut; and, after
//! a crash, that the oldest of several journals of the log is gone, until one of its entries is read.
//!
//! `check` reads all of a stopped node's data; `recover` sets it aside, so that the node's peers fill it again.

pub mod check;
mod committer;
mod directory;
mod engine;
pub mod error;
mod file_log;
mod file_state;
mod flushed_mark;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod identity;
mod journal_check;
pub mod log;
mod log_index;
mod long_key;
mod memory;
mod pacing;
mod quiet;
mod record;
pub mod recover;
pub mod state;
pub mod stats;
pub mod store;

pub use error::StorageError;
pub use identity::Identity;
pub use log::LogStore;
pub use state::StateStore;
pub use stats::StorageStats;
pub use store::{Mode, ShardCount, Storage};

#[cfg(test)]
mod storage_test;
