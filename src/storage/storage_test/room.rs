//! The room of what was deleted is given back, also when nothing is written afterwards.

use super::*;

const VALUES: u64 = 300;
const VALUE_BYTES: usize = 32 * 1024;
/// What a table of nothing, or of a few marks, takes with its neighbours.
const EMPTY_MAX: u64 = 256 * 1024;

/// Nothing that compression would make small.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33).to_le_bytes()
    };
    std::iter::repeat_with(&mut next).flat_map(|bytes| [bytes[0], bytes[1], bytes[2]]).take(VALUE_BYTES).collect()
}

fn tables_bytes(dir: &Path, database: &str) -> u64 {
    disk_bytes(&dir.join(database).join("keyspaces"))
}

#[test]
fn a_log_that_was_purged_gives_its_tables_back_in_one_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    for index in 0..VALUES {
        append(&log, vec![(index, Bytes::from(noise(index)))]).unwrap();
    }
    // Readers leave their marks in the engine.
    assert_eq!(log.read(0..=10).unwrap().len(), 11);
    storage.compact_logs().unwrap();
    assert!(tables_bytes(dir.path(), "raft") >= VALUES * VALUE_BYTES as u64);

    log.purge_through(VALUES - 2, Bytes::from("marker")).unwrap();
    storage.compact_logs().unwrap();
    let left = tables_bytes(dir.path(), "raft");
    assert!(left <= EMPTY_MAX, "{left} bytes of tables are left");
    assert_eq!(all(&log), vec![(VALUES - 1, Bytes::from(noise(VALUES - 1)))]);

    drop((log, storage));
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    assert_eq!(log.last().unwrap(), Some((VALUES - 1, Bytes::from(noise(VALUES - 1)))));
}

#[test]
fn a_state_of_which_much_was_deleted_gives_its_tables_back_in_one_compaction() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let state = storage.state(1).unwrap();
    let key = |number: u64| number.to_be_bytes().to_vec();
    for number in 0..VALUES {
        state.write(vec![(key(number), Some(noise(number)))], b"written".to_vec()).unwrap();
    }
    for number in 0..VALUES - 1 {
        state.write(vec![(key(number), None)], b"deleted".to_vec()).unwrap();
    }
    state.compact().unwrap();
    let left = tables_bytes(dir.path(), "state");
    assert!(left <= EMPTY_MAX, "{left} bytes of tables are left");
    assert_eq!(records(&state), vec![(key(VALUES - 1), noise(VALUES - 1))]);

    drop((state, storage));
    let storage = open(dir.path());
    let state = storage.state(1).unwrap();
    assert_eq!(records(&state), vec![(key(VALUES - 1), noise(VALUES - 1))]);
    assert_eq!(state.applied().unwrap(), Some(b"deleted".to_vec()));
}

#[test]
fn a_few_large_records_are_worth_a_compaction_and_a_few_small_ones_are_not() {
    for (value, worth) in [(noise(1), true), (vec![7; 100], false)] {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        let state = storage.state(1).unwrap();
        let key = |number: u64| number.to_be_bytes().to_vec();
        let delete = |numbers: std::ops::Range<u64>| {
            for number in numbers {
                state.write(vec![(key(number), None)], b"deleted".to_vec()).unwrap();
            }
            state.compact().unwrap();
            tables_bytes(dir.path(), "state")
        };
        for number in 0..VALUES {
            state.write(vec![(key(number), Some(value.clone()))], b"written".to_vec()).unwrap();
        }
        // What is left of that is in one table.
        let before = delete(60..VALUES);
        let after = delete(20..60);
        assert_eq!(before.saturating_sub(after) > 30 * value.len() as u64, worth, "{before} {after}");
    }
}

#[test]
fn what_a_load_left_in_memory_is_written_out_once_it_ended() {
    const LEFT: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let (log, state) = (storage.log(1).unwrap(), storage.state(1).unwrap());
    let key = |number: u64| number.to_be_bytes().to_vec();
    for number in 0..LEFT {
        append(&log, vec![(number, Bytes::from(noise(number)))]).unwrap();
        state.write(vec![(key(number), Some(noise(number)))], b"written".to_vec()).unwrap();
        // Not so often that the load looks like a rest.
        if number % 3 == 0 {
            storage.rest().unwrap();
        }
    }
    let (of_log, of_state) = storage.memtable_bytes();
    assert!(of_log.min(of_state) >= LEFT * VALUE_BYTES as u64, "written out while it was written to: {of_log} {of_state}");
    for _ in 0..3 {
        storage.rest().unwrap();
    }
    let (of_log, of_state) = storage.memtable_bytes();
    assert!(
        of_log.max(of_state) < VALUE_BYTES as u64,
        "{of_log} bytes of the log and {of_state} of the state are left in memory"
    );

    let kept: Vec<_> = (0..LEFT).map(|number| (key(number), noise(number))).collect();
    assert_eq!((records(&state), all(&log).len() as u64), (kept.clone(), LEFT));
    drop((log, state, storage));
    let storage = open(dir.path());
    let state = storage.state(1).unwrap();
    assert_eq!((records(&state), state.applied().unwrap()), (kept, Some(b"written".to_vec())));
    assert_eq!(all(&storage.log(1).unwrap()).len() as u64, LEFT);
}
