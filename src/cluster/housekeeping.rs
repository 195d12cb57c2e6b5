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
const COMPACT_BYTES: u64 = 8 * 1024 * 1024;

/// What was seen of one group; bytes are those of `Group::appended_bytes`.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// At the last look, and the last entry applied then.
    bytes: u64,
    applied: u64,
    /// When the log was cut last.
    cut_bytes: u64,
    /// The last entry that is being cut, and the bytes then. It stays while later ones are applied, or a log that grows slowly would never
    /// get there.
    cutting: Option<(u64, u64)>,
}

impl Seen {
    /// What is to be cut now: the last entry, and the bytes up to it.
    fn next_cut(&mut self, bytes: u64) -> Option<(u64, u64)> {
        if self.cutting.is_none() && bytes - self.cut_bytes >= CUT_BYTES {
            self.cutting = Some((self.applied, self.bytes));
        }
        self.cutting
    }
}

pub async fn run(node: Arc<Node>) {
    let mut seen: Vec<Seen> = node.groups.iter().map(|_| Seen::default()).collect();
    let mut log_compacted_bytes = 0;
    loop {
        tokio::time::sleep(INTERVAL).await;
        let all_here = all_here(&node);
        let mut quiet = true;
        for (group, seen) in node.groups.iter().zip(&mut seen) {
            let bytes = group.appended_bytes();
            quiet &= bytes - seen.bytes < QUIET_BYTES;
            if all_here
                && let Some((through, cut_bytes)) = seen.next_cut(bytes)
                && group.cut_log(through).await
            {
                (seen.cut_bytes, seen.cutting) = (cut_bytes, None);
            }
            seen.bytes = bytes;
            seen.applied = group.applied_index();
        }
        if !quiet {
            continue;
        }
        for group in &node.groups {
            compact_state(&node, group).await;
        }
        // The bytes of logs that were cut: what was appended since is still needed.
        let cut_bytes: u64 = seen.iter().map(|seen| seen.cut_bytes).sum();
        if cut_bytes - log_compacted_bytes >= COMPACT_BYTES {
            log_compacted_bytes = cut_bytes;
            let storage = Arc::clone(&node.storage);
            done("logs", blocking(move || storage.compact_logs()).await);
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

/// What is not given back now is given back later.
fn done(what: &str, outcome: Result<Result<(), crate::storage::StorageError>, tokio::task::JoinError>) {
    match outcome {
        Ok(Ok(())) => tracing::debug!(what, "compacted"),
        Ok(Err(error)) => tracing::warn!(what, %error, "not compacted"),
        Err(error) => tracing::warn!(what, %error, "not compacted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_being_cut_does_not_move_with_what_is_applied_meanwhile() {
        let mut seen = Seen { bytes: CUT_BYTES, applied: 100, ..Seen::default() };
        assert_eq!(seen.next_cut(CUT_BYTES - 1), None, "too little");
        assert_eq!(seen.next_cut(CUT_BYTES), Some((100, CUT_BYTES)));
        (seen.bytes, seen.applied) = (CUT_BYTES + 10, 101);
        assert_eq!(seen.next_cut(CUT_BYTES + 20), Some((100, CUT_BYTES)));
        (seen.cut_bytes, seen.cutting) = (CUT_BYTES, None);
        assert_eq!(seen.next_cut(CUT_BYTES + 30), None);
    }
}
