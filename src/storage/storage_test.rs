//! The storage as its users see it, in both modes where both make sense, and what damage does to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;

use super::log::Flushed;
use super::*;

mod damage;
mod engine_alone;
mod log;
mod room;
mod state;

const NODE: &str = "node-1";
const SHARDS: u16 = 3;

fn open(path: &Path) -> Storage {
    try_open(path).unwrap()
}

fn try_open(path: &Path) -> Result<Storage, StorageError> {
    Storage::open(path, Mode::File, NODE, SHARDS, 1000)
}

fn both_modes(test: impl Fn(&Storage)) {
    let dir = tempfile::tempdir().unwrap();
    for mode in [Mode::File, Mode::InMemory] {
        test(&Storage::open(dir.path(), mode, NODE, SHARDS, 1000).unwrap());
    }
}

fn entries(range: std::ops::Range<u64>) -> Vec<(u64, Bytes)> {
    range.map(|index| (index, entry(index))).collect()
}

fn entry(index: u64) -> Bytes {
    Bytes::from(format!("entry {index}"))
}

fn ignore() -> Flushed {
    Box::new(|_| ())
}

/// Appends and waits for the flush.
fn append(log: &Arc<dyn LogStore>, entries: Vec<(u64, Bytes)>) -> Result<(), StorageError> {
    let (done, wait) = mpsc::channel();
    log.append(entries, Box::new(move |result| done.send(result).unwrap()))?;
    wait.recv().unwrap()
}

fn all(log: &Arc<dyn LogStore>) -> Vec<(u64, Bytes)> {
    log.read(0..=u64::MAX).unwrap()
}

fn records(state: &Arc<dyn StateStore>) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    state
        .load(&mut |key, value| {
            records.push((key.to_vec(), value.to_vec()));
            Ok(())
        })
        .unwrap();
    records
}

fn pair(key: &str, value: &str) -> (Vec<u8>, Vec<u8>) {
    (key.into(), value.into())
}

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        // Tables may be deleted by the engine between listing and copying; tests that copy a running database keep it small.
        let mut bytes = fs::read(&file).unwrap();
        // Journals are allocated ahead, 64 MiB of zeros; a little of it does as well and is faster.
        let zeros = bytes.rchunks(4096).take_while(|chunk| **chunk == [0; 4096]).count();
        bytes.truncate(bytes.len() - zeros.saturating_sub(1) * 4096);
        fs::write(target, bytes).unwrap();
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Blocks in use, as `du` counts them: journals are sparse.
fn disk_bytes(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    files(dir).iter().filter_map(|file| fs::metadata(file).ok()).map(|metadata| metadata.blocks() * 512).sum()
}

#[test]
fn the_incarnation_grows_with_each_start_whatever_the_clock_says() {
    let dir = tempfile::tempdir().unwrap();
    for (now_ms, expected) in [(5000, 5000), (5000, 5001), (10, 5002), (9000, 9000)] {
        let storage = Storage::open(dir.path(), Mode::File, NODE, SHARDS, now_ms).unwrap();
        assert_eq!(storage.identity().incarnation, expected);
    }
    let storage = open(dir.path());
    assert_eq!(storage.renew_incarnation(20).unwrap(), 9002);
    assert_eq!(storage.renew_incarnation(9500).unwrap(), 9500);
    drop(storage);
    assert_eq!(open(dir.path()).identity().incarnation, 9501);
}

#[test]
fn cluster_id_and_promise_are_kept_and_the_cluster_id_cannot_change() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    storage.set_promise(Some("node-0")).unwrap();
    storage.set_cluster_id("c1", true).unwrap();
    drop(storage);
    let storage = open(dir.path());
    let identity = storage.identity();
    assert_eq!((identity.cluster_id.as_deref(), identity.promised_to.as_deref()), (Some("c1"), Some("node-0")));
    storage.set_cluster_id("c1", true).unwrap();
    assert!(matches!(storage.set_cluster_id("c2", true), Err(StorageError::WrongOwner { .. })));
    storage.set_promise(None).unwrap();
    drop(storage);
    assert_eq!(open(dir.path()).identity().promised_to, None);
}

#[test]
fn a_promise_gives_a_vote_only_in_the_cluster_its_founder_founded() {
    for (promised, founded, may_vote) in [(true, true, true), (true, false, false), (false, false, false), (false, true, false)] {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        storage.set_promise(promised.then_some("node-0")).unwrap();
        storage.set_cluster_id("c", founded).unwrap();
        drop(storage);
        let storage = open(dir.path());
        assert_eq!(storage.is_voteless(), !may_vote, "{promised} {founded}");
        assert_eq!(storage.identity().promised_to.is_some(), may_vote, "{promised} {founded}");
    }
}

#[test]
fn a_foreign_directory_is_refused_and_stays_usable_for_its_owner() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path()).log(1).unwrap(), entries(0..3)).unwrap();
    for (node, shards) in [("node-2", SHARDS), (NODE, SHARDS + 1)] {
        let error = Storage::open(dir.path(), Mode::File, node, shards, 0).err().unwrap();
        assert!(matches!(error, StorageError::WrongOwner { .. }), "{error}");
    }
    assert_eq!(all(&open(dir.path()).log(1).unwrap()), entries(0..3));
}

#[test]
fn data_keep_their_shards_where_no_number_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let open = |shards| Storage::open(dir.path(), Mode::File, NODE, shards, 1000).map(|storage| storage.identity().shards);
    assert_eq!(open(ShardCount::StoredOr(5)).unwrap(), 5);
    assert_eq!(open(ShardCount::StoredOr(2)).unwrap(), 5, "stored");
    let all_groups = Storage::open(dir.path(), Mode::File, NODE, ShardCount::StoredOr(2), 1000).unwrap();
    assert!(all_groups.log(5).is_ok() && all_groups.log(6).is_err(), "meta and five shards");
    all_groups.set_cluster_id("c", true).unwrap();
    drop(all_groups);
    assert!(matches!(open(ShardCount::Exactly(2)), Err(StorageError::WrongOwner { .. })));
}

#[test]
fn a_node_that_was_in_no_cluster_takes_another_number_of_shards() {
    let dir = tempfile::tempdir().unwrap();
    let open = |shards: u16| Storage::open(dir.path(), Mode::File, NODE, shards, 1000);
    let before = open(SHARDS).unwrap().identity();
    for shards in [SHARDS + 3, SHARDS - 1, SHARDS] {
        let storage = open(shards).unwrap();
        assert_eq!(storage.identity().shards, shards);
        assert!(storage.identity().incarnation > before.incarnation);
        assert!(storage.log(shards).is_ok() && storage.log(shards + 1).is_err());
        if shards == SHARDS {
            append(&storage.log(1).unwrap(), entries(0..3)).unwrap();
        }
    }
    // Now there is something.
    assert!(matches!(open(SHARDS + 1), Err(StorageError::WrongOwner { .. })));
    assert_eq!(all(&open(SHARDS).unwrap().log(1).unwrap()), entries(0..3));

    for promised in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let open = |shards: u16| Storage::open(dir.path(), Mode::File, NODE, shards, 1000);
        let storage = open(SHARDS).unwrap();
        if promised {
            storage.set_promise(Some("node-0")).unwrap();
        } else {
            storage.set_cluster_id("c", false).unwrap();
        }
        drop(storage);
        assert!(matches!(open(SHARDS + 1), Err(StorageError::WrongOwner { .. })), "promised {promised}");
    }
}

#[test]
fn a_directory_in_use_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    assert!(matches!(try_open(dir.path()), Err(StorageError::Locked { .. })));
    drop(storage);
    open(dir.path());
}

#[test]
fn handles_that_outlive_the_storage_refuse_everything_and_do_not_hold_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let (log, state) = (storage.log(1).unwrap(), storage.state(1).unwrap());
    log.append(entries(0..2), ignore()).unwrap();
    drop(storage);
    assert!(matches!(log.append(entries(2..3), ignore()), Err(StorageError::Poisoned(_))));
    assert!(matches!(log.save_vote(Bytes::new()), Err(StorageError::Poisoned(_))));
    assert!(matches!(state.write(vec![], vec![]), Err(StorageError::Poisoned(_))));
    assert_eq!(all(&open(dir.path()).log(1).unwrap()), entries(0..2));
}

#[test]
fn a_first_start_that_did_not_get_to_its_end_is_started_over() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    let file = identity::IdentityFile::in_directory(dir.path());
    let stored = file.read().unwrap().unwrap();
    file.write(&identity::Stored { initialised: false, closed_at: None, marked: false, ..stored }).unwrap();
    fs::remove_file(dir.path().join("raft/version")).unwrap();
    fs::remove_dir_all(dir.path().join("state/keyspaces")).unwrap();
    open(dir.path());
}

#[test]
fn in_memory_mode_does_not_touch_the_path() {
    let storage = Storage::open(Path::new("/proc/nowhere"), Mode::InMemory, NODE, SHARDS, 77).unwrap();
    assert_eq!(storage.identity().incarnation, 77);
    assert!(storage.log(SHARDS).is_ok() && storage.log(SHARDS + 1).is_err());
    assert!(storage.state(SHARDS).is_ok() && storage.state(SHARDS + 1).is_err());
    storage.set_cluster_id("c", true).unwrap();
    assert_eq!(storage.identity().cluster_id.as_deref(), Some("c"));
}
