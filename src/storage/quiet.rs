//! When a database rests.
//!
//! The engine writes a memtable out when it is full, and keeps the one before it in memory until the next is written out. After a load that leaves
//! tens of MiB of what is on the disk as well, for as long as nothing is written. So they are written out in a quiet moment, seldom enough that
//! a load that comes in bursts does not make many small tables.

/// A database whose buffers grow by less from one look to the next is quiet.
const GROWN_BYTES: u64 = 64 * 1024;
/// Less in memory is not worth a table.
const WORTH_BYTES: u64 = 1024 * 1024;
/// At least so many looks between two times.
const PAUSE_LOOKS: u32 = 20;

/// Looks at one database at regular times.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    /// At the last look.
    buffered_bytes: u64,
    pause: u32,
}

impl Quiet {
    /// Whether what the database has in its memtables, `buffered_bytes`, is to be written out now.
    pub(super) fn look(&mut self, buffered_bytes: u64) -> bool {
        let before = std::mem::replace(&mut self.buffered_bytes, buffered_bytes);
        // Less than before: a memtable was full a moment ago.
        let is_quiet = buffered_bytes.checked_sub(before).is_some_and(|grown| grown < GROWN_BYTES);
        self.pause = self.pause.saturating_sub(1);
        let is_time = is_quiet && self.pause == 0 && buffered_bytes >= WORTH_BYTES;
        if is_time {
            self.pause = PAUSE_LOOKS;
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_left_is_written_out_once_it_ended() {
        let mut quiet = Quiet::default();
        let looks = [2, 4, 1, 3, 3, 3, 3].map(|mib| quiet.look(mib * WORTH_BYTES));
        assert_eq!(looks, [false, false, false, false, true, false, false]);
    }

    #[test]
    fn little_is_left_alone_and_a_trickle_is_no_load() {
        let mut quiet = Quiet::default();
        assert!((0..10).all(|_| !quiet.look(WORTH_BYTES - 1)));
        assert!(quiet.look(WORTH_BYTES + GROWN_BYTES / 2));
    }

    #[test]
    fn bursts_do_not_make_a_table_each() {
        let mut quiet = Quiet::default();
        let mut written = 0;
        for _ in 0..u64::from(PAUSE_LOOKS) {
            // A burst, a rest, and what is written out is gone from memory.
            for mib in [0, 4, 4, 4] {
                written += u32::from(quiet.look(mib * WORTH_BYTES));
            }
        }
        assert_eq!(written, 4, "of {PAUSE_LOOKS} bursts");
    }
}
