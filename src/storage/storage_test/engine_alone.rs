//! What the engine does with damage by itself: the reason for `journal_check`, and the second column of the table in `storage`.
//! Should a newer engine do better, these tests say so.

use super::*;

const KEYS: u8 = 20;

/// A copy of a running database with one flushed batch a key; the journal's bytes and where its batches begin.
fn running(to: &Path) -> (PathBuf, Vec<u8>, Vec<usize>) {
    let dir = tempfile::tempdir().unwrap();
    let db = fjall::Database::builder(dir.path()).worker_threads(1).open().unwrap();
    let keyspace = db.keyspace("log", Default::default).unwrap();
    for key in 0..KEYS {
        let mut batch = db.batch().durability(Some(fjall::PersistMode::SyncData));
        batch.insert(&keyspace, [key], [key; 50]);
        batch.commit().unwrap();
    }
    copy_directory(dir.path(), to);
    let path = to.join("0.jnl");
    let bytes = fs::read(&path).unwrap();
    let ends = bytes.windows(4).enumerate().filter(|(_, bytes)| bytes == b"FJL\x03").map(|(at, _)| at + 4);
    let starts: Vec<_> = std::iter::once(0).chain(ends).collect();
    assert_eq!(starts.len(), usize::from(KEYS) + 1);
    (path, bytes, starts)
}

/// Keys found, or that it did not open.
fn keys(dir: &Path) -> Option<usize> {
    let open = || fjall::Database::builder(dir).worker_threads(1).open();
    let db = std::panic::catch_unwind(open).ok()?.ok()?;
    Some(db.keyspace("log", Default::default).unwrap().iter().map(|entry| entry.into_inner().unwrap()).count())
}

#[test]
fn what_the_engine_alone_does_with_a_damaged_journal() {
    let middle = 10;
    // Where in a batch, which batch, what is left of 20 keys.
    let cases = [
        ("tag of the batch", 0, middle, Some(middle)),
        ("sequence number", 5, middle, Some(20)),
        ("tag of the item", 13, middle, Some(middle)),
        ("key", 13 + 21, middle, None),
        ("value", 13 + 21 + 30, middle, None),
        ("tag of the end", 13 + 21 + 51, middle, Some(middle)),
        ("end magic", 13 + 21 + 51 + 9, middle, Some(middle)),
        ("value of the last batch", 13 + 21 + 30, 19, None),
    ];
    for (what, at, batch, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (path, mut bytes, starts) = running(dir.path());
        bytes[starts[batch] + at] ^= 0x40;
        fs::write(path, bytes).unwrap();
        assert_eq!(keys(dir.path()), expected, "{what}");
    }
}

#[test]
fn what_the_engine_alone_does_with_a_cut_journal() {
    for by in [1, 40, 90] {
        let dir = tempfile::tempdir().unwrap();
        let (path, bytes, starts) = running(dir.path());
        fs::write(path, &bytes[..starts[20] - by]).unwrap();
        assert_eq!(keys(dir.path()), Some(19), "cut by {by}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, bytes, starts) = running(dir.path());
    fs::write(path, &bytes[..starts[10]]).unwrap();
    assert_eq!(keys(dir.path()), Some(10));
}

#[test]
fn what_the_engine_alone_does_without_one_of_its_files() {
    for (file, expected) in [("0.jnl", Some(0)), ("keyspaces/1/current", Some(0)), ("version", None)] {
        let dir = tempfile::tempdir().unwrap();
        running(dir.path());
        fs::remove_file(dir.path().join(file)).unwrap();
        assert_eq!(keys(dir.path()), expected, "{file}");
    }
}
