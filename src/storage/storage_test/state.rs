use super::*;

#[test]
fn records_and_applied_change_together_and_load_in_key_order() {
    both_modes(|storage| {
        let state = storage.state(1).unwrap();
        assert_eq!(state.applied().unwrap(), None);
        let change = |key: &str, value: Option<&str>| (key.as_bytes().to_vec(), value.map(|value| value.as_bytes().to_vec()));
        state.write(vec![change("b", Some("1")), change("a", Some("2")), change("c", Some("3"))], b"at 1".to_vec()).unwrap();
        state.write(vec![change("c", None), change("b", Some("x")), change("b", Some("y"))], b"at 2".to_vec()).unwrap();
        assert_eq!(records(&state), vec![pair("a", "2"), pair("b", "y")]);
        assert_eq!(state.applied().unwrap(), Some(b"at 2".to_vec()));
        assert_eq!(records(&storage.state(2).unwrap()), vec![]);
        state.flush().unwrap();
    });
}

/// Receives a whole state, some records at a time.
fn replace(
    state: &Arc<dyn StateStore>,
    records: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
    applied: Vec<u8>,
) -> Result<(), StorageError> {
    let mut incoming = state.receive()?;
    loop {
        let chunk: Vec<_> = records.take(100).collect();
        if chunk.is_empty() {
            return incoming.make_current(applied);
        }
        incoming.write(chunk)?;
    }
}

#[test]
fn records_are_found_by_key_and_by_range_as_they_are_now() {
    both_modes(|storage| {
        let state = storage.state(1).unwrap();
        let write = |key: &[u8], value: &[u8]| state.write(vec![(key.to_vec(), Some(value.to_vec()))], Vec::new()).unwrap();
        for key in ["a", "b", "b1", "b2", "c"] {
            write(key.as_bytes(), key.as_bytes());
        }
        let range = |first: &str, last: &str, max: usize| {
            let mut found = Vec::new();
            let visit = &mut |key: &[u8], value: &[u8]| {
                assert_eq!(key, value);
                found.push(String::from_utf8(key.to_vec()).unwrap());
                found.len() < max
            };
            state.range(first.as_bytes(), last.as_bytes(), visit).unwrap();
            found
        };
        assert_eq!(range("b", "b2", 9), ["b", "b1", "b2"]);
        assert_eq!(range("b", "b2", 2), ["b", "b1"]);
        assert_eq!(range("aa", "az", 9), [""; 0]);
        assert_eq!(range("c", "a", 9), [""; 0]);
        assert_eq!(range("a", "\u{7f}", 9).len(), 5, "nothing but records");
        assert_eq!(state.get(b"b1").unwrap(), Some(b"b1".to_vec()));
        assert_eq!(state.get(b"b3").unwrap(), None);
        assert_eq!(storage.state(2).unwrap().get(b"a").unwrap(), None);
        state.write(vec![(b"b1".to_vec(), None)], Vec::new()).unwrap();
        assert_eq!((state.get(b"b1").unwrap(), range("b", "b2", 9)), (None, vec!["b".to_owned(), "b2".to_owned()]));
        let mut incoming = state.receive().unwrap();
        incoming.write(vec![pair("b", "b"), pair("d", "d")]).unwrap();
        let reads = incoming.reads();
        assert_eq!((reads.get(b"d").unwrap(), reads.get(b"c").unwrap()), (Some(b"d".to_vec()), None), "what was received");
        let mut seen = Vec::new();
        let visit = &mut |key: &[u8], _: &[u8]| {
            seen.push(key.to_vec());
            true
        };
        reads.range(b"a", b"z", visit).unwrap();
        assert_eq!(
            (seen, state.get(b"d").unwrap()),
            (vec![b"b".to_vec(), b"d".to_vec()], None),
            "the present state is as before"
        );
        incoming.make_current(Vec::new()).unwrap();
        assert_eq!(state.get(b"d").unwrap(), Some(b"d".to_vec()));
        assert_eq!((range("a", "z", 9), state.get(b"c").unwrap()), (vec!["b".to_owned(), "d".to_owned()], None));
    });
}

/// The names of an owner may be longer than the engine takes for a key.
#[test]
fn entries_of_an_owner_with_a_long_name_are_found_by_key_and_by_range() {
    both_modes(|storage| {
        let state = storage.state(1).unwrap();
        let key = |seq: u64| [&[b'n'; 65_535][..], &seq.to_be_bytes()].concat();
        let changes = (0..300).map(|seq| (key(seq), Some(seq.to_be_bytes().to_vec()))).collect();
        state.write(changes, Vec::new()).unwrap();
        assert_eq!(state.get(&key(256)).unwrap(), Some(256_u64.to_be_bytes().to_vec()));
        let mut found = Vec::new();
        state
            .range(&key(254), &key(257), &mut |found_key, value| {
                found.push(u64::from_be_bytes(value.try_into().unwrap()));
                assert_eq!(found_key, key(found[found.len() - 1]));
                true
            })
            .unwrap();
        assert_eq!(found, [254, 255, 256, 257]);
    });
}

#[test]
fn replace_leaves_nothing_of_what_was_before() {
    let dir = tempfile::tempdir().unwrap();
    for round in 0..4u32 {
        let storage = open(dir.path());
        let state = storage.state(2).unwrap();
        state.write(vec![(b"old".to_vec(), Some(vec![1; 100]))], b"old".to_vec()).unwrap();
        let new: Vec<_> = (0..3000u32).map(|key| (key.to_be_bytes().to_vec(), vec![0; 1000])).collect();
        replace(&state, &mut new.clone().into_iter(), round.to_be_bytes().to_vec()).unwrap();
        state.write(vec![(b"zzz".to_vec(), Some(vec![9]))], round.to_be_bytes().to_vec()).unwrap();
        let expected = [new, vec![(b"zzz".to_vec(), vec![9])]].concat();
        assert!(records(&state) == expected);
        drop(storage);
        let storage = open(dir.path());
        let state = storage.state(2).unwrap();
        assert!(records(&state) == expected);
        assert_eq!(state.applied().unwrap(), Some(round.to_be_bytes().to_vec()));
    }
}

#[test]
fn a_replace_that_is_interrupted_has_not_begun() {
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let state = storage.state(1).unwrap();
    state.write(vec![(b"old".to_vec(), Some(b"1".to_vec()))], b"before".to_vec()).unwrap();
    state.flush().unwrap();
    // A copy of the directory in the middle of the new records is what a crash there leaves.
    let mut new = (0..5000u32).map(|key| {
        if key == 4000 {
            copy_directory(dir.path(), &copies.path().join("middle"));
        }
        (key.to_be_bytes().to_vec(), vec![0; 1000])
    });
    replace(&state, &mut new, b"after".to_vec()).unwrap();
    copy_directory(dir.path(), &copies.path().join("end"));
    for round in 0..3 {
        let copied = open(&copies.path().join("middle"));
        let state = copied.state(1).unwrap();
        assert_eq!(records(&state), vec![pair("old", "1")], "round {round}");
        assert_eq!(state.applied().unwrap(), Some(b"before".to_vec()));
        let keyspaces = fs::read_dir(copies.path().join("middle/state/keyspaces")).unwrap().count();
        assert_eq!(keyspaces, 2 + usize::from(SHARDS) + 1, "the abandoned generation is deleted");
    }
    let copied = open(&copies.path().join("end"));
    assert_eq!(records(&copied.state(1).unwrap()).len(), 5000);
    assert_eq!(copied.state(1).unwrap().applied().unwrap(), Some(b"after".to_vec()));
    // A replace after an interrupted one.
    drop(copied);
    let copied = open(&copies.path().join("middle"));
    replace(&copied.state(1).unwrap(), &mut [pair("n", "1")].into_iter(), b"again".to_vec()).unwrap();
    drop(copied);
    let copied = open(&copies.path().join("middle"));
    assert_eq!(records(&copied.state(1).unwrap()), vec![pair("n", "1")]);
}

#[test]
fn keys_are_refused_or_come_back_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let state = storage.state(1).unwrap();
    for key in [vec![], vec![0; 1_048_577], vec![0xFF; 8], vec![0xFF; 20]] {
        assert!(state.write(vec![(key.clone(), Some(vec![1]))], vec![]).is_err());
        assert!(replace(&state, &mut [(key, vec![1])].into_iter(), vec![]).is_err());
    }
    // Two names of 65,535 bytes: more than the engine takes for a key.
    for key in [vec![0xFF; 7], vec![7; 65_535], vec![7; 65_536], vec![7; 131_080]] {
        state.write(vec![(key.clone(), Some(vec![1]))], vec![]).unwrap();
        assert_eq!(records(&state), vec![(key.clone(), vec![1])]);
        state.write(vec![(key, None)], vec![]).unwrap();
        assert_eq!(records(&state), vec![]);
    }
    replace(&state, &mut [pair("n", "1")].into_iter(), b"x".to_vec()).unwrap();
    assert_eq!(records(&state), vec![pair("n", "1")]);
}

#[test]
fn a_flushed_state_is_in_a_copy_taken_while_running() {
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for round in 0..3u8 {
        for group in 0..=SHARDS {
            storage.state(group).unwrap().write(vec![(vec![round + 1], Some(vec![round]))], vec![round]).unwrap();
        }
        storage.state(0).unwrap().flush().unwrap();
        let copy = copies.path().join(round.to_string());
        copy_directory(dir.path(), &copy);
        let copied = open(&copy);
        for group in 0..=SHARDS {
            let state = copied.state(group).unwrap();
            assert_eq!(state.applied().unwrap(), Some(vec![round]));
            assert_eq!(records(&state).len(), usize::from(round) + 1);
        }
    }
}

#[test]
fn deleted_records_do_not_keep_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let state = storage.state(1).unwrap();
    for round in 0..200u64 {
        let key = |round: u64, n: u64| (round * 1000 + n).to_be_bytes().to_vec();
        let mut changes: Vec<_> = (0..500).map(|n| (key(round, n), Some(vec![3; 1000]))).collect();
        if let Some(before) = round.checked_sub(2) {
            changes.extend((0..500).map(|n| (key(before, n), None)));
        }
        state.write(changes, round.to_be_bytes().to_vec()).unwrap();
    }
    state.flush().unwrap();
    let bytes = disk_bytes(dir.path());
    // 100 MB went through, 1 MB is left.
    assert!(bytes < 220 * 1024 * 1024, "{bytes}");
    assert_eq!(records(&state).len(), 1000);
}

#[test]
fn after_a_flush_of_the_state_failed_nothing_is_taken_and_what_was_flushed_is_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let (log, state) = (storage.log(1).unwrap(), storage.state(1).unwrap());
    state.write(vec![(b"a".to_vec(), Some(b"1".to_vec()))], b"at 1".to_vec()).unwrap();
    state.flush().unwrap();
    copy_directory(dir.path(), copies.path());
    state.write(vec![(b"b".to_vec(), Some(b"2".to_vec()))], b"at 2".to_vec()).unwrap();
    storage.fail_next_state_flush();
    assert!(state.flush().unwrap_err().to_string().contains("Input/output error"));
    assert!(storage.stats().poisoned);
    assert!(matches!(state.write(vec![], vec![]), Err(StorageError::Poisoned(_))));
    assert!(matches!(state.flush(), Err(StorageError::Poisoned(_))));
    assert!(matches!(state.receive().err().unwrap(), StorageError::Poisoned(_)));
    assert!(matches!(log.save_vote(Bytes::new()), Err(StorageError::Poisoned(_))));
    // As if the pages of the failed flush were gone.
    drop(storage);
    let storage = open(copies.path());
    assert_eq!(records(&storage.state(1).unwrap()), vec![pair("a", "1")]);
}

#[test]
fn an_incoming_state_is_none_until_it_is_current_and_its_predecessor_is_served_until_then() {
    both_modes(|storage| {
        let state = storage.state(1).unwrap();
        state.write(vec![(b"old".to_vec(), Some(b"1".to_vec()))], b"before".to_vec()).unwrap();
        let (mut first, mut second) = (state.receive().unwrap(), state.receive().unwrap());
        first.write(vec![pair("first", "1")]).unwrap();
        second.write(vec![pair("second", "2")]).unwrap();
        state.write(vec![(b"more".to_vec(), Some(b"2".to_vec()))], b"still".to_vec()).unwrap();
        assert_eq!(records(&state), vec![pair("more", "2"), pair("old", "1")]);
        second.make_current(b"after".to_vec()).unwrap();
        drop(second);
        assert_eq!(records(&state), vec![pair("second", "2")]);
        assert_eq!(state.applied().unwrap(), Some(b"after".to_vec()));
        drop(first);
        state.write(vec![(b"on".to_vec(), Some(b"3".to_vec()))], b"goes on".to_vec()).unwrap();
        assert_eq!(records(&state), vec![pair("on", "3"), pair("second", "2")]);
    });
}
