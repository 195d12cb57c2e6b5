//! Gives back what is needed no more, also where nothing happens any more: the log behind what all have, and on the disk the room of what was
//! deleted.
//!
//! Under load the log is cut by its length (openraft) and its size (`ticker`), and the engine compacts as it writes. Both keep a reserve for
//! followers that were away for a moment, which stays when the load ends: hundreds of MiB on the disk, tens in memory. Here the log is cut to what
//! the last seconds brought while all members are alive and have it; while one is away, everything stays that the limits allow, so that it
//! need not be sent the whole state. States of which much was deleted are compacted in a quiet moment, and so are logs that were cut.

use std::sync::Arc;
use std::time::Duration;

use super::blocking::blocking;
use super::group::Group;
use super::node::Node;

const INTERVAL: Duration = Duration::from_secs(5);
/// A log that grew less since it was cut is left alone.
const CUT_BYTES: u64 = 1024 * 1024;
/// Less of one group between two looks is quiet.
const QUIET_BYTES: u64 = 256 * 1024;
/// So much of all logs must have been cut since they were compacted last.
const COMPACT_BYTES: u64 = 4 * 1024 * 1024;

/// What was seen of one group; bytes are those of `Group::appended_bytes`.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// At the last look, and the last entry of the log then, applied or not: what is behind it was appended since.
    bytes: u64,
    last: u64,
    /// When the log was cut last; `None` before the first time, where it holds what earlier processes left.
    cut_bytes: Option<u64>,
    /// The last entry that is being cut, and the bytes then. It stays while later ones are appended, or a log that grows slowly would never
    /// get there.
    cutting: Option<(u64, u64)>,
}

impl Seen {
    /// What is to be cut now: the last entry, and the bytes up to it. `last`: of the log's entries now.
    fn next_cut(&mut self, bytes: u64, last: u64) -> Option<(u64, u64)> {
        // An entry that a new leader took back will not be there before another takes its place.
        self.cutting = self.cutting.filter(|(through, _)| *through <= last);
        let is_worth_it = self.last > 0 && self.cut_bytes.is_none_or(|cut_bytes| bytes - cut_bytes >= CUT_BYTES);
        if self.cutting.is_none() && is_worth_it {
            self.cutting = Some((self.last, self.bytes));
        }
        self.cutting
    }

    fn cut(&mut self) {
        if let Some((_, cut_bytes)) = self.cutting.take() {
            self.cut_bytes = Some(cut_bytes);
        }
    }
}

pub async fn run(node: Arc<Node>) {
    // The bytes cut when all logs were compacted last; what earlier processes left is cut and compacted once.
    let mut compacted_bytes = (node.storage.log_table_bytes() < COMPACT_BYTES).then_some(0);
    let at_start = Seen { cut_bytes: compacted_bytes, ..Seen::default() };
    let mut seen: Vec<Seen> = node.groups.iter().map(|_| at_start).collect();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let all_here = all_here(&node);
        let mut quiet = true;
        for (group, seen) in node.groups.iter().zip(&mut seen) {
            let (bytes, last) = (group.appended_bytes(), group.last_index());
            quiet &= bytes - seen.bytes < QUIET_BYTES;
            if all_here
                && let Some((through, _)) = seen.next_cut(bytes, last)
                && group.cut_log(through).await
            {
                seen.cut();
            }
            (seen.bytes, seen.last) = (bytes, last);
        }
        if !quiet {
            continue;
        }
        for group in &node.groups {
            compact_state(&node, group).await;
        }
        // The bytes of logs that were cut: what was appended since is still needed.
        let Some(cut_bytes) = seen.iter().map(|seen| seen.cut_bytes).sum::<Option<u64>>() else { continue };
        if compacted_bytes.is_none_or(|compacted_bytes| cut_bytes - compacted_bytes >= COMPACT_BYTES) {
            let storage = Arc::clone(&node.storage);
            if done("logs", blocking(move || storage.compact_logs()).await) {
                compacted_bytes = Some(cut_bytes);
            }
        }
    }
}

/// All members are alive and in reach: nobody is going to ask for what has been applied for some time.
fn all_here(node: &Node) -> bool {
    let here = |id| node.transport.as_ref().is_some_and(|transport| transport.connected(id));
    node.is_ready() && node.meta.members().iter().all(|(id, member)| *id == node.id || (member.alive && here(*id)))
}

async fn compact_state(node: &Node, group: &Group) {
    let Ok(state) = node.storage.state(group.index) else { return };
    done("state", blocking(move || state.compact()).await);
}

/// False where it failed: what is not given back now is given back later.
fn done(what: &str, outcome: Result<Result<(), crate::storage::StorageError>, tokio::task::JoinError>) -> bool {
    match &outcome {
        Ok(Ok(())) => tracing::debug!(what, "compacted"),
        Ok(Err(error)) => tracing::warn!(what, %error, "not compacted"),
        Err(error) => tracing::warn!(what, %error, "not compacted"),
    }
    matches!(outcome, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_cut_does_not_move_with_what_is_appended_meanwhile() {
        let mut seen = Seen { bytes: CUT_BYTES, last: 100, cut_bytes: Some(0), ..Seen::default() };
        assert_eq!(seen.next_cut(CUT_BYTES - 1, 100), None, "too little");
        assert_eq!(seen.next_cut(CUT_BYTES, 100), Some((100, CUT_BYTES)));
        (seen.bytes, seen.last) = (CUT_BYTES + 10, 101);
        assert_eq!(seen.next_cut(CUT_BYTES + 20, 102), Some((100, CUT_BYTES)));
        seen.cut();
        assert_eq!(seen.next_cut(CUT_BYTES + 30, 103), None);
    }

    #[test]
    fn what_earlier_processes_left_is_cut_once() {
        let mut seen = Seen::default();
        assert_eq!(seen.next_cut(10, 90), None, "not looked at before");
        (seen.bytes, seen.last) = (10, 90);
        assert_eq!(seen.next_cut(20, 91), Some((90, 10)));
        seen.cut();
        assert_eq!(seen.next_cut(CUT_BYTES, 92), None);
    }

    #[test]
    fn entries_that_were_taken_back_are_not_waited_for() {
        let mut seen = Seen { bytes: CUT_BYTES, last: 100, cut_bytes: Some(0), ..Seen::default() };
        assert_eq!(seen.next_cut(CUT_BYTES, 100), Some((100, CUT_BYTES)));
        (seen.bytes, seen.last) = (CUT_BYTES, 95);
        assert_eq!(seen.next_cut(CUT_BYTES, 96), Some((95, CUT_BYTES)));
    }
}
