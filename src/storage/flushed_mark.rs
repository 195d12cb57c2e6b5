//! The file `flushed`: the number of the last batch of the log that was flushed, kept outside of the log.
//!
//! After a crash a log that ends early looks the same whether the power cut a write short that nobody was told of, or something took away what
//! a majority was told is here. The first is cut off; with the second the node must not vote as if nothing were missing. This number
//! tells them apart: it is written after the flush of a batch and before anybody hears of it.
//!
//! The write itself is flushed once a second only. So after the end of the process, however sudden, the number is exact; after a power cut it
//! may lack the last second, never be ahead.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::StorageError;

pub(super) const FILE_NAME: &str = "flushed";
const MAGIC: &str = "troupemq-flushed 1";
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The open file. All of it is one line of fixed length, less than a sector, so a power cut leaves the old or the new one.
#[derive(Debug)]
pub(super) struct FlushedMark {
    path: PathBuf,
    file: File,
    synced: Instant,
}

impl FlushedMark {
    /// The stored number; `None` if there is no such file.
    pub(super) fn read(dir: &Path) -> Result<Option<u64>, StorageError> {
        let path = dir.join(FILE_NAME);
        match std::fs::read(&path) {
            Ok(bytes) => {
                parse(&bytes).map(Some).ok_or_else(|| StorageError::damaged(&path, "byte 0", "it does not hold a number"))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StorageError::io(&path, error)),
        }
    }

    /// Opens or creates the file with this number in it, durably.
    pub(super) fn create(dir: &Path, number: u64) -> Result<Self, StorageError> {
        let path = dir.join(FILE_NAME);
        let create = || {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
            file.write_all_at(line(number).as_bytes(), 0)?;
            file.sync_all()?;
            File::open(dir)?.sync_all()?;
            Ok(file)
        };
        let file = create().map_err(|error| StorageError::io(&path, error))?;
        Ok(Self { path, file, synced: Instant::now() })
    }

    /// The batch of this number is flushed. Kept by the system at once, on the disk within a second of further batches.
    pub(super) fn advance(&mut self, number: u64) -> Result<(), StorageError> {
        let write = || -> io::Result<bool> {
            self.file.write_all_at(line(number).as_bytes(), 0)?;
            let due = self.synced.elapsed() >= SYNC_INTERVAL;
            if due {
                self.file.sync_data()?;
            }
            Ok(due)
        };
        if write().map_err(|error| StorageError::io(&self.path, error))? {
            self.synced = Instant::now();
        }
        Ok(())
    }
}

fn line(number: u64) -> String {
    let digits = format!("{number:016x}");
    format!("{MAGIC} {digits} {:08x}\n", crc32fast::hash(digits.as_bytes()))
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let number = u64::from_str_radix(text.strip_prefix(MAGIC)?.get(1..17)?, 16).ok()?;
    (text == line(number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_read_back_and_any_flipped_bit_or_cut_is_found() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FlushedMark::read(dir.path()).unwrap(), None);
        let mut mark = FlushedMark::create(dir.path(), 7).unwrap();
        mark.advance(0x1234).unwrap();
        assert_eq!(FlushedMark::read(dir.path()).unwrap(), Some(0x1234));
        let path = dir.path().join(FILE_NAME);
        let good = std::fs::read(&path).unwrap();
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, bad).unwrap();
            assert!(FlushedMark::read(dir.path()).is_err(), "bit {bit}");
        }
        for len in 0..good.len() {
            std::fs::write(&path, &good[..len]).unwrap();
            assert!(FlushedMark::read(dir.path()).is_err(), "len {len}");
        }
    }
}
