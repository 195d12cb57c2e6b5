//! Queued messages that are on disk, read beside the arbiters: few at a time on the node, one at a time for a queue.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::cluster::blocking::blocking;
use crate::replica::session::QueueEntry;
use crate::replica::{Fetch, ReadError};

use super::node::Node;

/// Reads of all queues of the node at a time.
pub(super) const FETCHES_MAX: usize = 4;

/// Before a read that gave nothing, or failed, is tried again. (Where the disk fails the node ends.)
pub(super) const RETRY: Duration = Duration::from_millis(100);

/// Reads entries; waits until it is their turn.
pub(super) async fn run(turns: Arc<Semaphore>, fetch: Fetch) -> Result<Vec<QueueEntry>, ReadError> {
    let Ok(turn) = turns.acquire_owned().await else { return Ok(Vec::new()) };
    let reading = blocking(move || {
        let read = fetch.run();
        drop(turn);
        read
    });
    reading.await.unwrap_or_else(|error| Err(ReadError(format!("a read did not end: {error}"))))
}

/// Entries that were read for a queue and not handed out yet, and whether more are on their way.
#[derive(Debug, Default)]
pub(super) struct Fetched {
    queue: u64,
    entries: VecDeque<QueueEntry>,
    under_way: bool,
    /// The entry that the read begins with, and how often in a row it was not there.
    first: u64,
    missed: u32,
}

/// In about 10 s an entry that is only being replaced, with the whole state, is there.
const MISSED_MAX: u32 = 100;

impl Fetched {
    /// An entry that is in the queue now, if it was read.
    pub(super) fn take(&mut self, queue: u64, seq: u64) -> Option<QueueEntry> {
        if queue != self.queue {
            self.entries.clear();
        }
        while self.entries.pop_front_if(|entry| entry.seq < seq).is_some() {}
        self.entries.pop_front_if(|entry| entry.seq == seq)
    }

    /// A read that begins with entry `first` begins, unless one is under way.
    pub(super) fn begin(&mut self, queue: u64, first: u64) -> bool {
        if self.under_way {
            return false;
        }
        if (self.queue, self.first) != (queue, first) {
            self.missed = 0;
        }
        (self.queue, self.first, self.under_way) = (queue, first, true);
        true
    }

    /// A read ended. False where it did not give what was asked for, which may be gone meanwhile: another is to begin after a pause (and
    /// `resume`).
    pub(super) fn end(&mut self, read: Result<Vec<QueueEntry>, ReadError>) -> bool {
        match read {
            Ok(entries) => {
                let is_there = entries.first().is_some_and(|entry| entry.seq == self.first);
                self.entries = entries.into();
                self.under_way = !is_there;
                self.missed += u32::from(!is_there);
                is_there
            }
            Err(error) => {
                tracing::error!(%error, "a queued message cannot be read");
                false
            }
        }
    }

    /// Number of the entry that stays missing: the disk lost what is acknowledged.
    fn lost(&self) -> Option<u64> {
        (self.missed >= MISSED_MAX).then_some(self.first)
    }

    /// Ends the node where what was asked for stays missing: its next start tells what is damaged, and others have it.
    pub(super) fn stop_where_missing(&self, node: &Node) {
        if let (Some(number), Some(cluster)) = (self.lost(), node.cluster()) {
            cluster.stop_storage(format!("message {number} of a queue is missing on disk"));
        }
    }

    pub(super) fn resume(&mut self) {
        self.under_way = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::{QoS, SubscriptionIds};

    fn entries(seqs: &[u64]) -> Vec<QueueEntry> {
        let entry = |seq: &u64| QueueEntry {
            seq: *seq,
            qos: QoS::AtLeastOnce,
            retain: false,
            retained_origin: false,
            subscription_ids: SubscriptionIds::new(),
            message: None,
        };
        seqs.iter().map(entry).collect()
    }

    #[test]
    fn what_was_read_is_found_by_number_and_what_is_gone_is_passed_over() {
        let mut fetched = Fetched::default();
        assert!(fetched.begin(1, 3) && !fetched.begin(1, 3));
        assert!(fetched.end(Ok(entries(&[3, 4, 6, 9]))));
        let found = [4, 5, 6, 8, 9, 10].map(|seq| fetched.take(1, seq).map(|entry| entry.seq));
        assert_eq!(found, [Some(4), None, Some(6), None, Some(9), None]);
    }

    #[test]
    fn what_was_read_of_another_queue_of_the_same_name_is_dropped() {
        let mut fetched = Fetched::default();
        assert!(fetched.begin(1, 1));
        assert!(fetched.end(Ok(entries(&[1, 2]))));
        assert_eq!(fetched.take(2, 1), None);
        assert_eq!(fetched.take(1, 1), None);
    }

    #[test]
    fn only_an_entry_that_is_missing_again_and_again_is_lost() {
        let mut fetched = Fetched::default();
        let mut miss = |first, times| {
            for _ in 0..times {
                assert!(fetched.begin(1, first) && !fetched.end(Ok(Vec::new())));
                fetched.resume();
            }
            fetched.lost()
        };
        assert_eq!(miss(5, MISSED_MAX - 1), None);
        assert_eq!(miss(6, MISSED_MAX - 1), None, "another entry");
        assert_eq!(miss(6, 1), Some(6));
    }

    #[test]
    fn nothing_else_is_read_until_a_pause_after_a_failure_is_over() {
        let mut fetched = Fetched::default();
        assert!(fetched.begin(1, 5));
        assert!(!fetched.end(Err(ReadError("broken".to_owned()))));
        assert!(!fetched.begin(1, 5));
        fetched.resume();
        assert!(fetched.begin(1, 5));
        assert!(!fetched.end(Ok(Vec::new())));
        fetched.resume();
        assert!(fetched.begin(1, 5));
        assert!(!fetched.end(Ok(entries(&[6]))), "the first is gone, or being replaced");
        assert_eq!(fetched.take(1, 6).map(|entry| entry.seq), Some(6));
    }
}
