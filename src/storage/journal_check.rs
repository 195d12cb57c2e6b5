//! Reads the engine's journals before the engine does, and tells a torn tail from damage.
//!
//! fjall 3 ends its recovery at the first byte it cannot decode and cuts the file there without a word, wherever that is: one flipped
//! tag in the middle and every later batch is gone. A flipped byte of a key or value makes it refuse the database instead, even
//! in a last batch that was never flushed and is torn only because the power failed. Both are wrong here, so this file decides first:
//!
//! - Zeros up to the end, or the end itself, after a whole batch: the journal ends here (journals are allocated ahead).
//! - Something else, and later bytes **prove** that this place had been flushed: damage. The open is refused, file and byte named.
//! - Something else without such proof: a write the power cut short. The tail is cut off, with a warning, before the engine sees it.
//!
//! The sequence number of a batch is outside of the engine's checksum, and a wrong one hides or revives records. It only ever grows, so one
//! that does not is refused too.
//!
//! What proves that a place had been flushed: a later journal file (the engine flushes one before it begins the next), a later batch that is written only after
//! a flush ([`Proof`]), or a clean close.
//!
//! Format of a journal (fjall 3, little endian): batches of `1 | items u32 | seqno u64`, the items, and
//! `3 | xxh3 of the items u64 | "FJL" 3`. An item is `2 | type u8 | compression u8 | keyspace u64 | key len u16 | value len u32 |
//! stored len u32 | key | value`, or `4 | keyspace u64`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::Xxh3;

use super::StorageError;

const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
const START_LEN: usize = 1 + 4 + 8;
const END_MAGIC: &[u8] = b"FJL\x03";
const CHUNK: usize = 64 * 1024;

/// Which later batch in the same file proves that everything before it was flushed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Proof {
    /// Any: each batch is flushed before the next is written. Those that write this key number themselves by it, without a gap: the last eight
    /// bytes of its value, big endian.
    Numbered(&'static [u8]),
    /// One that writes this key.
    Key(&'static [u8]),
}

/// Checks all journals of the database at `dir`; cuts a torn tail. `closed` says that the database was closed cleanly.
pub(super) fn check(dir: &Path, proof: Proof, closed: bool) -> Result<(), StorageError> {
    let journals = journals(dir).map_err(|error| StorageError::io(dir, error))?;
    let Some((active, sealed)) = journals.split_last() else {
        return Err(StorageError::damaged(dir, "journal", "there is none"));
    };
    let mut last_seqno = Last::default();
    for (number, path) in sealed {
        check_one(path, proof, true, &mut last_seqno)?;
        // The engine removes journals from the oldest on.
        let next = dir.join(format!("{}.jnl", number + 1));
        if !next.is_file() {
            return Err(StorageError::damaged(&next, "byte 0", "it is missing"));
        }
    }
    check_one(&active.1, proof, closed, &mut last_seqno)
}

fn journals(dir: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut numbered = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        if let Some(number) = number {
            numbered.push((number, path));
        }
    }
    numbered.sort();
    Ok(numbered)
}

fn check_one(path: &Path, proof: Proof, flushed: bool, last_seqno: &mut Last) -> Result<(), StorageError> {
    let io = |error| StorageError::io(path, error);
    let file = File::open(path).map_err(io)?;
    let (at, mut reader, fault) = end_of_whole_batches(file, proof, last_seqno).map_err(io)?;
    if let Some(fault) = fault {
        return Err(StorageError::damaged(path, format!("byte {at}"), fault));
    }
    if only_zeros(&mut reader).map_err(io)? {
        return Ok(());
    }
    let refuse = |what: &str| StorageError::damaged(path, format!("byte {at}"), what);
    if flushed {
        return Err(refuse("a batch is not readable although all of this journal had been flushed"));
    }
    reader.seek(SeekFrom::Start(at)).map_err(io)?;
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).map_err(io)?;
    if let Some(later) = proof_within(&rest, proof) {
        let later = at + later as u64;
        return Err(refuse(&format!("a batch is not readable, the one at byte {later} shows that it had been flushed")));
    }
    tracing::warn!(file = %path.display(), at, "journal ends in an incomplete write, which was never acknowledged: cut off");
    let file = OpenOptions::new().write(true).open(path).map_err(io)?;
    file.set_len(at).and_then(|()| file.sync_all()).map_err(io)
}

/// What the batch before was.
#[derive(Debug, Default)]
struct Last {
    seqno: Option<u64>,
    number: Option<u64>,
}

impl Last {
    /// Why this batch cannot follow, if so.
    fn follow(&mut self, batch: &Batch) -> Option<&'static str> {
        if Some(batch.seqno) <= self.seqno {
            return Some("the sequence number of this batch, or of the one before, is wrong");
        }
        self.seqno = Some(batch.seqno);
        if let Some(number) = batch.number {
            if self.number.is_some_and(|last| last.checked_add(1) != Some(number)) {
                return Some("batches before this one are missing");
            }
            self.number = Some(number);
        }
        None
    }
}

/// Position after the last of the whole batches the file begins with, and what is wrong with the batch there.
fn end_of_whole_batches(file: File, proof: Proof, last: &mut Last) -> io::Result<(u64, BufReader<File>, Option<&'static str>)> {
    let numbered = if let Proof::Numbered(key) = proof { Some(key) } else { None };
    let mut reader = BufReader::with_capacity(CHUNK, file);
    let mut at = 0;
    while let Some(batch) = read_batch(&mut reader, numbered)? {
        let fault = last.follow(&batch);
        if fault.is_some() {
            return Ok((at, reader, fault));
        }
        at += batch.len;
    }
    reader.seek(SeekFrom::Start(at))?;
    Ok((at, reader, None))
}

fn only_zeros(reader: &mut impl Read) -> io::Result<bool> {
    static ZEROS: [u8; CHUNK] = [0; CHUNK];
    let mut chunk = vec![0; CHUNK];
    loop {
        match reader.read(&mut chunk)? {
            0 => return Ok(true),
            len if chunk[..len] != ZEROS[..len] => return Ok(false),
            _ => {}
        }
    }
}

/// Position in `rest` of a whole batch that is proof. `rest` begins with a broken one.
pub(super) fn proof_within(rest: &[u8], proof: Proof) -> Option<usize> {
    let key = match proof {
        Proof::Numbered(_) => None,
        Proof::Key(key) => Some(key),
    };
    let mut from = 1;
    while let Some(found) = rest.get(from..)?.iter().position(|byte| *byte == TAG_START) {
        let at = from + found;
        let begins_like_a_batch = matches!(rest.get(at + START_LEN), Some(&(TAG_ITEM | TAG_CLEAR)));
        if begins_like_a_batch
            && let Ok(Some(batch)) = read_batch(&mut &rest[at..], key)
            && (key.is_none() || batch.has_key)
        {
            return Some(at);
        }
        from = at + 1;
    }
    None
}

struct Batch {
    seqno: u64,
    len: u64,
    has_key: bool,
    /// The last eight bytes of the value under the key asked for.
    number: Option<u64>,
}

/// `None` if what follows is not a whole, undamaged batch.
fn read_batch(reader: &mut impl Read, key: Option<&[u8]>) -> io::Result<Option<Batch>> {
    match try_read_batch(reader, key) {
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData) => Ok(None),
        other => other.map(Some),
    }
}

fn try_read_batch(reader: &mut impl Read, wanted: Option<&[u8]>) -> io::Result<Batch> {
    let [tag, a, b, c, d, seqno @ ..] = array::<START_LEN>(reader)?;
    ensure(tag == TAG_START)?;
    let mut batch = Batch { seqno: u64::from_le_bytes(seqno), len: START_LEN as u64, has_key: false, number: None };
    let mut hasher = Xxh3::new();
    let mut body = Vec::new();
    for _ in 0..u32::from_le_bytes([a, b, c, d]) {
        let [tag] = array(reader)?;
        hasher.update(&[tag]);
        batch.len += 1;
        if tag == TAG_CLEAR {
            hasher.update(&array::<8>(reader)?);
            batch.len += 8;
            continue;
        }
        ensure(tag == TAG_ITEM)?;
        let header: [u8; 20] = array(reader)?;
        let [.., k0, k1, _, _, _, _, s0, s1, s2, s3] = header;
        let key_len = u64::from(u16::from_le_bytes([k0, k1]));
        let body_len = key_len + u64::from(u32::from_le_bytes([s0, s1, s2, s3]));
        body.clear();
        // `take` grows the buffer with what is there: a damaged length cannot make it ask for 4 GiB.
        ensure(reader.by_ref().take(body_len).read_to_end(&mut body)? as u64 == body_len)?;
        hasher.update(&header);
        hasher.update(&body);
        batch.len += header.len() as u64 + body_len;
        let found = wanted.filter(|wanted| key_len == wanted.len() as u64);
        if let Some(value) = found.and_then(|wanted| body.strip_prefix(wanted)) {
            batch.has_key = true;
            batch.number = value.last_chunk().map(|number| u64::from_be_bytes(*number));
        }
    }
    let [tag] = array(reader)?;
    ensure(tag == TAG_END)?;
    ensure(u64::from_le_bytes(array(reader)?) == hasher.digest())?;
    ensure(array::<4>(reader)? == END_MAGIC)?;
    batch.len += 1 + 8 + END_MAGIC.len() as u64;
    Ok(batch)
}

fn array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn ensure(holds: bool) -> io::Result<()> {
    if holds { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"flushed";
    const ANY: Proof = Proof::Numbered(b"number");

    fn batch(seqno: u64, key: &[u8], value: &[u8]) -> Vec<u8> {
        let mut item = vec![TAG_ITEM, 0, 0];
        item.extend_from_slice(&1u64.to_le_bytes());
        item.extend_from_slice(&u16::try_from(key.len()).unwrap().to_le_bytes());
        for _ in 0..2 {
            item.extend_from_slice(&u32::try_from(value.len()).unwrap().to_le_bytes());
        }
        item.extend_from_slice(key);
        item.extend_from_slice(value);
        let mut bytes = vec![TAG_START, 1, 0, 0, 0];
        bytes.extend_from_slice(&seqno.to_le_bytes());
        bytes.extend_from_slice(&item);
        bytes.push(TAG_END);
        bytes.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&item).to_le_bytes());
        bytes.extend_from_slice(END_MAGIC);
        bytes
    }

    /// Three batches, the second with `KEY`, then zeros. Also the length of one batch.
    fn journal() -> (Vec<u8>, usize) {
        let one = batch(0x1111, b"key-abc", &[5; 50]);
        let mut bytes = [one.clone(), batch(0x1112, KEY, &[6; 50]), batch(0x1113, b"key-xyz", &[7; 50])].concat();
        bytes.extend_from_slice(&[0; 1000]);
        (bytes, one.len())
    }

    fn outcome(bytes: &[u8], proof: Proof, closed: bool) -> Result<usize, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("3.jnl");
        fs::write(&path, bytes).unwrap();
        check(dir.path(), proof, closed).map_err(|error| error.to_string())?;
        Ok(usize::try_from(fs::metadata(path).unwrap().len()).unwrap())
    }

    #[test]
    fn whole_batches_followed_by_zeros_or_nothing_are_left_alone() {
        let (bytes, one) = journal();
        for len in [0, one, 2 * one, 3 * one, bytes.len()] {
            assert_eq!(outcome(&bytes[..len], ANY, true), Ok(len));
        }
    }

    #[test]
    fn a_torn_tail_is_cut_unless_the_database_was_closed() {
        let (bytes, one) = journal();
        for len in 2 * one + 1..3 * one {
            assert_eq!(outcome(&bytes[..len], ANY, false), Ok(2 * one), "len {len}");
            assert!(outcome(&bytes[..len], ANY, true).is_err(), "len {len}");
        }
    }

    #[test]
    fn any_flipped_byte_before_the_last_batch_is_refused_and_in_the_last_one_is_a_torn_tail() {
        let (bytes, one) = journal();
        for at in 0..3 * one {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            let seqno = (at % one).checked_sub(5).is_some_and(|at| at < 8);
            match outcome(&bad, ANY, false) {
                // The first may be too small and the last too large: they stay the first and the last.
                Ok(len) if seqno => assert!((at < one || at >= 2 * one) && len == bytes.len(), "byte {at}"),
                Ok(len) => assert!(at >= 2 * one && len == 2 * one, "byte {at} len {len}"),
                Err(error) if seqno => assert!(error.contains("sequence number"), "{at}: {error}"),
                Err(error) => assert!(at < 2 * one && error.contains(&format!("byte {}", at / one * one)), "{at}: {error}"),
            }
        }
    }

    #[test]
    fn only_the_batch_with_the_key_is_proof_if_one_is_asked_for() {
        let (bytes, one) = journal();
        for (at, refused) in [(20, true), (one + 20, false), (2 * one + 20, false)] {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(outcome(&bad, Proof::Key(KEY), false).is_err(), refused, "byte {at}");
        }
    }

    #[test]
    fn damage_in_a_journal_before_the_last_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (bytes, one) = journal();
        fs::write(dir.path().join("9.jnl"), &bytes[..3 * one - 1]).unwrap();
        fs::write(dir.path().join("10.jnl"), batch(0x2000, b"k", b"v")).unwrap();
        let error = check(dir.path(), ANY, false).unwrap_err().to_string();
        assert!(error.contains("9.jnl") && error.contains(&format!("byte {}", 2 * one)), "{error}");
    }

    #[test]
    fn a_missing_journal_and_batches_out_of_order_between_two_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check(dir.path(), ANY, false).is_err());
        let write = |name: &str, seqno| fs::write(dir.path().join(name), batch(seqno, b"k", b"v")).unwrap();
        write("7.jnl", 5);
        write("9.jnl", 7);
        let error = check(dir.path(), ANY, false).unwrap_err().to_string();
        assert!(error.contains("8.jnl"), "{error}");
        write("8.jnl", 6);
        check(dir.path(), ANY, false).unwrap();
        write("8.jnl", 8);
        let error = check(dir.path(), ANY, false).unwrap_err().to_string();
        assert!(error.contains("9.jnl"), "{error}");
    }

    #[test]
    fn batches_missing_between_two_journals_are_noticed_by_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let numbered = |seqno: u64| batch(seqno, b"number", &(seqno - 10).to_be_bytes());
        let write = |name: &str, seqnos: &[u64]| {
            let bytes: Vec<u8> = seqnos.iter().flat_map(|seqno| numbered(*seqno)).collect();
            fs::write(dir.path().join(name), bytes).unwrap();
        };
        write("0.jnl", &[11, 12, 13]);
        write("1.jnl", &[14, 15]);
        check(dir.path(), ANY, false).unwrap();
        // The end of a journal that was closed, cut between two batches.
        write("0.jnl", &[11, 12]);
        let error = check(dir.path(), ANY, false).unwrap_err().to_string();
        assert!(error.contains("1.jnl is damaged at byte 0") && error.contains("missing"), "{error}");
    }
}
