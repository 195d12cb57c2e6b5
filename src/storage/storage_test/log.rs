use super::*;

#[test]
fn entries_are_readable_when_append_returns_and_reported_in_order() {
    both_modes(|storage| {
        let log = storage.log(1).unwrap();
        let reported = Arc::new(Mutex::new(Vec::new()));
        for batch in 0..20 {
            let reported = reported.clone();
            let flushed = Box::new(move |result: Result<(), StorageError>| {
                result.unwrap();
                reported.lock().unwrap().push(batch);
            });
            log.append(entries(batch * 5..batch * 5 + 5), flushed).unwrap();
            assert_eq!(log.last().unwrap(), Some((batch * 5 + 4, entry(batch * 5 + 4))));
        }
        append(&log, vec![]).unwrap();
        assert_eq!(*reported.lock().unwrap(), (0..20).collect::<Vec<_>>());
        assert_eq!(all(&log), entries(0..100));
        assert_eq!(log.read(95..=200).unwrap(), entries(95..100));
        assert_eq!(log.read(200..=300).unwrap(), vec![]);
        assert!(log.append(entries(101..102), ignore()).is_err(), "a gap");
    });
}

#[test]
fn changes_take_effect_in_the_order_of_the_calls() {
    both_modes(|storage| {
        let log = storage.log(2).unwrap();
        for round in 0..20 {
            log.append(entries(round..round + 10), ignore()).unwrap();
            log.truncate_from(round + 1).unwrap();
        }
        let other = (20, Bytes::from("other"));
        log.append(vec![other.clone()], ignore()).unwrap();
        log.save_vote(Bytes::from("v1")).unwrap();
        log.save_vote(Bytes::from("v2")).unwrap();
        log.purge_through(4, Bytes::from("marker")).unwrap();
        assert_eq!(log.last().unwrap(), Some(other.clone()));
        assert_eq!(all(&log), [entries(5..20), vec![other]].concat());
        assert_eq!(log.vote().unwrap(), Some(Bytes::from("v2")));
        assert_eq!(log.purged().unwrap(), Some(Bytes::from("marker")));
    });
}

#[test]
fn a_log_is_found_again_as_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for group in 0..=SHARDS {
        let log = storage.log(group).unwrap();
        log.save_vote(Bytes::from(format!("vote {group}"))).unwrap();
        log.append(entries(0..50), ignore()).unwrap();
        log.truncate_from(40).unwrap();
        log.append(vec![(40, Bytes::from("new"))], ignore()).unwrap();
        log.purge_through(u64::from(group) * 10, Bytes::from("m")).unwrap();
    }
    storage.log(0).unwrap().purge_through(100, Bytes::from("beyond")).unwrap();
    drop(storage);
    let storage = open(dir.path());
    for group in 0..=SHARDS {
        let log = storage.log(group).unwrap();
        assert_eq!(log.vote().unwrap(), Some(Bytes::from(format!("vote {group}"))));
        if group == 0 {
            assert_eq!((log.last().unwrap(), log.purged().unwrap()), (None, Some(Bytes::from("beyond"))));
            append(&log, entries(101..103)).unwrap();
            assert_eq!(all(&log), entries(101..103));
        } else {
            let expected = [entries(u64::from(group) * 10 + 1..40), vec![(40, Bytes::from("new"))]].concat();
            assert_eq!(all(&log), expected);
            assert_eq!(log.last().unwrap(), Some((40, Bytes::from("new"))));
        }
    }
}

#[test]
fn many_groups_share_flushes() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Storage::open(dir.path(), Mode::File, NODE, 16, 0).unwrap();
    let before = storage.stats().flushes;
    let flushed = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for group in 0..17 {
            let (log, flushed) = (storage.log(group).unwrap(), flushed.clone());
            scope.spawn(move || {
                for index in 0..200 {
                    let flushed = flushed.clone();
                    let count = Box::new(move |result: Result<(), StorageError>| {
                        result.unwrap();
                        flushed.fetch_add(1, Ordering::SeqCst);
                    });
                    log.append(entries(index..index + 1), count).unwrap();
                }
                append(&log, vec![]).unwrap();
            });
        }
    });
    let stats = storage.stats();
    assert_eq!(flushed.load(Ordering::SeqCst), 17 * 200);
    assert!(stats.flushes - before < 17 * 200 / 4, "{stats:?}");
    assert!(stats.flush_seconds_total > 0.0 && stats.last_flush_us > 0 && stats.log_bytes_appended > 17 * 200 * 7, "{stats:?}");
}

#[test]
fn what_was_reported_flushed_is_in_a_copy_taken_while_running() {
    let dir = tempfile::tempdir().unwrap();
    let copies = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    for round in 0..5u64 {
        for group in 0..=SHARDS {
            append(&storage.log(group).unwrap(), entries(round * 10..round * 10 + 10)).unwrap();
        }
        storage.log(1).unwrap().save_vote(Bytes::from(round.to_string())).unwrap();
        let copy = copies.path().join(round.to_string());
        copy_directory(dir.path(), &copy);
        let copied = open(&copy);
        for group in 0..=SHARDS {
            assert_eq!(all(&copied.log(group).unwrap()), entries(0..round * 10 + 10));
        }
        assert_eq!(copied.log(1).unwrap().vote().unwrap(), Some(Bytes::from(round.to_string())));
    }
}

#[test]
fn entries_that_left_the_memory_are_read_from_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    let large = |index: u64| (index, Bytes::from(vec![u8::try_from(index).unwrap(); 1024 * 1024]));
    for index in 0..24 {
        append(&log, vec![large(index)]).unwrap();
    }
    assert_eq!(all(&log), (0..24).map(large).collect::<Vec<_>>());
    log.truncate_from(5).unwrap();
    append(&log, entries(5..7)).unwrap();
    assert_eq!(log.read(4..=6).unwrap(), [vec![large(4)], entries(5..7)].concat());
}

#[test]
fn purging_keeps_the_directory_small() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    let body = Bytes::from(vec![1; 100]);
    for round in 0..200u64 {
        let first = round * 1000;
        log.append((first..first + 1000).map(|index| (index, body.clone())).collect(), ignore()).unwrap();
        if round % 10 == 9 {
            log.purge_through(first, Bytes::new()).unwrap();
        }
    }
    append(&log, vec![]).unwrap();
    let before = disk_bytes(dir.path());
    drop(storage);
    let storage = open(dir.path());
    assert_eq!(storage.log(1).unwrap().read(0..=u64::MAX).unwrap().len(), 999);
    // 30 MB were appended; a journal ends at 64 MB, and one more may wait for its tables.
    for bytes in [before, disk_bytes(dir.path())] {
        assert!(bytes < 160 * 1024 * 1024, "{bytes}");
    }
}

#[test]
fn a_failed_write_stops_everything_with_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    append(&log, entries(0..3)).unwrap();
    storage.fail_next_log_write();
    let error = append(&log, entries(3..4)).unwrap_err();
    assert!(matches!(error, StorageError::Poisoned(_)) && error.to_string().contains("raft"), "{error}");
    assert!(storage.stats().poisoned);
    let state = storage.state(1).unwrap();
    for result in [
        log.append(entries(4..5), ignore()),
        log.truncate_from(0),
        log.purge_through(1, Bytes::new()),
        log.save_vote(Bytes::new()),
        log.read(0..=1).map(drop),
        log.last().map(drop),
        log.vote().map(drop),
        storage.log(2).unwrap().save_vote(Bytes::new()),
        state.write(vec![], vec![]),
        state.flush(),
    ] {
        assert!(matches!(result, Err(StorageError::Poisoned(_))), "{result:?}");
    }
    drop(storage);
    assert_eq!(all(&open(dir.path()).log(1).unwrap()), entries(0..3));
}

#[test]
fn the_last_reference_may_be_dropped_by_a_callback() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Arc::new(open(dir.path()));
    let log = storage.log(1).unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let (gone, wait_gone) = mpsc::channel();
    let flushed = Box::new(move |_: Result<(), StorageError>| {
        wait.recv().unwrap();
        drop(storage);
        gone.send(()).unwrap();
    });
    log.append(entries(0..3), flushed).unwrap();
    go.send(()).unwrap();
    wait_gone.recv().unwrap();
    // The thread closes the database a moment later.
    let storage = loop {
        match try_open(dir.path()) {
            Err(StorageError::Locked { .. }) => std::thread::yield_now(),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(all(&storage.log(1).unwrap()), entries(0..3));
}

#[test]
fn a_panic_in_a_callback_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    log.append(entries(0..1), Box::new(|_| panic!("by the test"))).unwrap();
    append(&log, entries(1..2)).unwrap();
    assert_eq!(all(&log), entries(0..2));
}

/// Both modes and a reopened directory agree on any sequence of operations.
#[test]
fn file_and_memory_agree() {
    for seed in 1..=4u64 {
        let dir = tempfile::tempdir().unwrap();
        let memory = Storage::open(dir.path(), Mode::InMemory, NODE, SHARDS, 0).unwrap().log(1).unwrap();
        let mut storage = open(dir.path());
        let mut random = seed;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let mut end = 0u64;
        for step in 0..150u64 {
            let file = storage.log(1).unwrap();
            match next(10) {
                0..=4 => {
                    let batch: Vec<_> =
                        (end..end + next(6)).map(|index| (index, Bytes::from(format!("{step} {index}")))).collect();
                    end += batch.len() as u64;
                    for log in [&memory, &file] {
                        log.append(batch.clone(), ignore()).unwrap();
                    }
                }
                5..=6 => {
                    let first = memory.read(0..=u64::MAX).unwrap().first().map_or(end, |(index, _)| *index);
                    let from = first + next(end - first + 2);
                    end = end.min(from);
                    for log in [&memory, &file] {
                        log.truncate_from(from).unwrap();
                    }
                }
                7 => {
                    let through = (end + 3).saturating_sub(next(12) + 1);
                    for log in [&memory, &file] {
                        log.purge_through(through, Bytes::from(through.to_string())).unwrap();
                    }
                    end = end.max(through + 1);
                }
                8 => {
                    for log in [&memory, &file] {
                        log.save_vote(Bytes::from(step.to_string())).unwrap();
                    }
                }
                _ => {
                    drop(storage);
                    storage = open(dir.path());
                }
            }
            let file = storage.log(1).unwrap();
            assert_eq!(all(&file), all(&memory), "seed {seed} step {step}");
            assert_eq!(file.last().unwrap(), memory.last().unwrap(), "seed {seed} step {step}");
            assert_eq!(file.purged().unwrap(), memory.purged().unwrap(), "seed {seed} step {step}");
            assert_eq!(file.vote().unwrap(), memory.vote().unwrap(), "seed {seed} step {step}");
        }
    }
}
