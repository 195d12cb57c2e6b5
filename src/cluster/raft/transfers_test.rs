use std::path::Path;

use super::*;
use crate::storage::{Mode, Storage};

fn record(key: u8) -> Record {
    (vec![key], vec![key])
}

fn kept(received: &mut Received) -> Vec<u8> {
    let mut keys = Vec::new();
    received
        .incoming()
        .load(&mut |key, _| {
            keys.push(key[0]);
            Ok(())
        })
        .unwrap();
    keys
}

/// With the storage, which must live as long.
fn transfers(mode: Mode, dir: &Path) -> (Transfers, Storage) {
    let storage = Storage::open(dir, mode, "a", 1, 0).unwrap();
    (Transfers::new(0, storage.state(0).unwrap()), storage)
}

#[tokio::test]
async fn chunks_are_joined_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for mode in [Mode::InMemory, Mode::File] {
        let (transfers, _storage) = transfers(mode, dir.path());
        assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]).await.unwrap());
        assert!(transfers.take_chunk(1, 9, 1, vec![record(2)]).await.unwrap());
        assert_eq!(kept(&mut transfers.finish(1, 9, 2).unwrap()), [1, 2]);
        assert!(transfers.finish(1, 9, 2).is_none());
    }
}

#[tokio::test]
async fn a_missing_chunk_and_a_wrong_count_are_noticed() {
    let (transfers, _storage) = transfers(Mode::InMemory, Path::new(""));
    assert!(!transfers.take_chunk(1, 9, 1, vec![record(1)]).await.unwrap());
    assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]).await.unwrap());
    assert!(!transfers.take_chunk(1, 9, 2, vec![record(3)]).await.unwrap());
    assert!(transfers.finish(1, 9, 3).is_none());
}

#[tokio::test]
async fn a_new_transfer_of_a_sender_replaces_its_old_one_and_a_third_sender_waits() {
    let (transfers, _storage) = transfers(Mode::InMemory, Path::new(""));
    assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]).await.unwrap());
    assert!(transfers.take_chunk(1, 10, 0, vec![record(2)]).await.unwrap());
    assert!(transfers.take_chunk(2, 9, 0, vec![record(3)]).await.unwrap());
    assert!(!transfers.take_chunk(3, 9, 0, vec![record(4)]).await.unwrap());
    assert!(transfers.finish(1, 9, 1).is_none());
    assert_eq!(kept(&mut transfers.finish(1, 10, 1).unwrap()), [2]);
    assert!(transfers.take_chunk(3, 9, 0, vec![record(4)]).await.unwrap());
}

#[tokio::test]
async fn a_whole_snapshot_ends_what_a_sender_that_died_had_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (transfers, _storage) = transfers(Mode::File, dir.path());
    let keyspaces = || std::fs::read_dir(dir.path().join("state/keyspaces")).unwrap().count();
    let before = keyspaces();
    assert!(transfers.take_chunk(1, 9, 0, vec![record(1)]).await.unwrap());
    assert!(transfers.take_chunk(2, 9, 0, vec![record(2)]).await.unwrap());
    drop(transfers.finish(2, 9, 1).unwrap());
    assert!(!transfers.take_chunk(1, 9, 1, vec![record(1)]).await.unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    while keyspaces() != before {
        assert!(Instant::now() < until, "{} keyspaces, {before} before", keyspaces());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_is_given_up_leaves_the_disk_and_the_present_state_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (transfers, storage) = transfers(Mode::File, dir.path());
    let state = storage.state(0).unwrap();
    state.write(vec![(vec![7], Some(vec![7]))], b"before".to_vec()).unwrap();
    let keyspaces = || std::fs::read_dir(dir.path().join("state/keyspaces")).unwrap().count();
    let before = keyspaces();
    for number in 0..5 {
        assert!(transfers.take_chunk(1, number, 0, vec![record(1)]).await.unwrap());
    }
    drop(transfers.finish(1, 4, 1).unwrap());
    let until = Instant::now() + Duration::from_secs(20);
    while keyspaces() != before {
        assert!(Instant::now() < until, "{} keyspaces, {before} before", keyspaces());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(state.applied().unwrap(), Some(b"before".to_vec()));
}

const CHILD: &str = "TROUPEMQ_TRANSFERS_TEST_CHILD";
/// As many as the sender makes of 200 MB.
const CHUNKS: u32 = 800;
const CHUNK_BYTES: usize = 256 * 1024;

/// Not a test by itself: the process whose memory the next one looks at.
#[tokio::test]
async fn child_that_receives_and_installs() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let (transfers, _storage) = transfers(Mode::File, Path::new(&dir));
    let before = resident_bytes();
    for ordinal in 0..CHUNKS {
        let records = (0..64_u32).map(|n| ([ordinal, n].map(u32::to_be_bytes).concat(), random_bytes(CHUNK_BYTES / 64)));
        assert!(transfers.take_chunk(1, 1, ordinal, records.collect()).await.unwrap());
    }
    let mut received = transfers.finish(1, 1, CHUNKS).unwrap();
    let mut count = 0;
    let load = &mut |_: &[u8], _: &[u8]| {
        count += 1;
        Ok(())
    };
    received.incoming().load(load).unwrap();
    assert_eq!(count, CHUNKS * 64);
    received.incoming().make_current(Vec::new()).unwrap();
    eprintln!("grew by {}", highest_bytes() - before);
}

#[test]
fn receiving_200_mb_takes_the_memory_of_a_few_chunks_and_the_engine_s_buffers() {
    let dir = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "cluster::raft::transfers::tests::child_that_receives_and_installs"])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let grew: usize = text.lines().find_map(|line| line.strip_prefix("grew by ")).unwrap().parse().unwrap();
    println!("200 MB received: {} MiB more at the most", grew / 1024 / 1024);
    assert!(grew < 130 * 1024 * 1024, "{grew} bytes");
}

fn random_bytes(len: usize) -> Vec<u8> {
    use rand::RngCore;
    let mut bytes = vec![0; len];
    rand::rng().fill_bytes(&mut bytes);
    bytes
}

fn status_bytes(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

fn resident_bytes() -> usize {
    status_bytes("VmRSS:")
}

fn highest_bytes() -> usize {
    status_bytes("VmHWM:")
}
