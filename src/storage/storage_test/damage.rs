use super::*;

/// Group 1 has 60 entries and a vote, group 2's state 60 records; in the journals.
fn filled(dir: &Path) {
    let storage = open(dir);
    let (log, state) = (storage.log(1).unwrap(), storage.state(2).unwrap());
    log.save_vote(Bytes::from("vote")).unwrap();
    for index in 0..60 {
        append(&log, entries(index..index + 1)).unwrap();
        state.write(vec![(format!("key {index:02}").into_bytes(), Some(vec![7; 20]))], vec![1]).unwrap();
    }
    state.flush().unwrap();
}

/// Whether everything put by `filled` is there. `Err`: refused.
fn look(dir: &Path) -> Result<bool, StorageError> {
    let storage = try_open(dir)?;
    let (log, state) = (storage.log(1)?, storage.state(2)?);
    let mut found = 0;
    state.load(&mut |_, value| {
        found += usize::from(value == [7; 20]);
        Ok(())
    })?;
    let whole = log.read(0..=u64::MAX)? == entries(0..60) && log.vote()? == Some(Bytes::from("vote"));
    Ok(whole && found == 60 && state.applied()? == Some(vec![1]))
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x20;
    fs::write(path, bytes).unwrap();
}

/// A running database's directory: not closed.
fn crashed(to: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    for index in 0..60 {
        append(&log, entries(index..index + 1)).unwrap();
    }
    copy_directory(dir.path(), to);
}

fn journal(dir: &Path) -> (PathBuf, usize) {
    let path = dir.join("raft/0.jnl");
    let bytes = fs::read(&path).unwrap();
    let len = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    (path, len)
}

/// The last batch was reported, and the file `flushed` says so; were it not, the power would have cut the write of that batch short.
#[test]
fn after_a_crash_a_cut_journal_tail_is_refused_where_it_was_reported_and_cut_off_where_it_was_not() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    crashed(&whole);
    let (_, len) = journal(&whole);
    let flushed = flushed_mark::FlushedMark::read(&whole).unwrap().unwrap();
    for by in [1, 5, 20, 60, 130, len] {
        copy_directory(&whole, &cut);
        let (path, _) = journal(&cut);
        fs::File::options().write(true).open(path).unwrap().set_len((len - by) as u64).unwrap();
        for _ in 0..2 {
            let error = try_open(&cut).err().unwrap_or_else(|| panic!("cut by {by} is not noticed"));
            assert!(matches!(error, StorageError::Damaged { .. }), "cut by {by}: {error}");
            let text = error.to_string();
            assert!(text.contains(&format!("flushed up to batch {flushed}")) && text.contains("storage recover"), "{text}");
        }
        if by < 100 {
            drop(flushed_mark::FlushedMark::create(&cut, flushed - 1).unwrap());
            assert_eq!(all(&open(&cut).log(1).unwrap()), entries(0..59), "cut by {by}");
        }
        fs::remove_dir_all(&cut).unwrap();
    }
}

/// A directory that a version without the file `flushed` wrote.
#[test]
fn a_directory_without_a_mark_is_taken_and_gets_one() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let file = identity::IdentityFile::in_directory(dir.path());
    let stored = file.read().unwrap().unwrap();
    file.write(&identity::Stored { marked: false, ..stored }).unwrap();
    fs::remove_file(dir.path().join("flushed")).unwrap();
    assert!(look(dir.path()).unwrap());
    fs::remove_file(dir.path().join("flushed")).unwrap();
    let error = try_open(dir.path()).err().unwrap().to_string();
    assert!(error.contains("flushed is damaged") && error.contains("missing"), "{error}");
}

#[test]
fn after_a_crash_damage_before_the_last_batch_is_refused_with_file_and_place_named() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, bad) = (dir.path().join("whole"), dir.path().join("bad"));
    crashed(&whole);
    let (_, len) = journal(&whole);
    // Nineteen is prime to the length of a batch: all kinds of bytes are hit.
    for at in (0..len - 150).step_by(19 * 7) {
        copy_directory(&whole, &bad);
        flip(&journal(&bad).0, at);
        let error = try_open(&bad).err().unwrap_or_else(|| panic!("byte {at} not found"));
        assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("raft/0.jnl is damaged at byte "), "{text}");
        fs::remove_dir_all(&bad).unwrap();
    }
}

#[test]
fn a_closed_directory_with_a_cut_or_damaged_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, bad) = (dir.path().join("whole"), dir.path().join("bad"));
    filled(&whole);
    assert!(look(&whole).unwrap());
    for (database, part) in [("raft", 0), ("raft", 3), ("raft", 10), ("state", 0), ("state", 5), ("state", 10)] {
        copy_directory(&whole, &bad);
        let path = bad.join(database).join("0.jnl");
        let len = fs::read(&path).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
        let keep = len * part / 10;
        fs::File::options().write(true).open(path).unwrap().set_len(keep as u64).unwrap();
        for _ in 0..2 {
            let error = look(&bad).unwrap_err();
            assert!(matches!(error, StorageError::Damaged { .. }), "{database} {keep}: {error}");
        }
        fs::remove_dir_all(&bad).unwrap();
    }
}

#[test]
fn after_a_crash_a_damaged_state_is_cut_where_it_was_not_flushed_and_refused_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, bad) = (dir.path().join("whole"), dir.path().join("bad"));
    {
        let running = tempfile::tempdir().unwrap();
        let storage = open(running.path());
        let state = storage.state(1).unwrap();
        for n in 1..=10u8 {
            state.write(vec![(format!("record-{n:02}").into_bytes(), Some(vec![n]))], vec![n]).unwrap();
            if n == 5 {
                state.flush().unwrap();
            }
        }
        copy_directory(running.path(), &whole);
    }
    for n in 1..=10u8 {
        copy_directory(&whole, &bad);
        let path = bad.join("state/0.jnl");
        let key = format!("record-{n:02}").into_bytes();
        flip(&path, fs::read(&path).unwrap().windows(key.len()).position(|bytes| bytes == key).unwrap());
        match try_open(&bad) {
            Ok(storage) => {
                assert!(n > 5, "record {n}");
                let state = storage.state(1).unwrap();
                assert_eq!(state.applied().unwrap(), Some(vec![n - 1]));
                assert_eq!(records(&state).len(), usize::from(n - 1));
            }
            Err(error) => assert!(n <= 5 && error.to_string().contains("state/0.jnl is damaged at byte"), "record {n}: {error}"),
        }
        fs::remove_dir_all(&bad).unwrap();
    }
}

#[test]
fn a_damaged_table_is_reported_with_group_and_index() {
    let dir = tempfile::tempdir().unwrap();
    append(&open(dir.path()).log(1).unwrap(), entries(0..5000)).unwrap();
    to_tables(dir.path());
    let tables = files(&dir.path().join("raft/keyspaces/1/tables"));
    flip(&tables[0], fs::read(&tables[0]).unwrap().windows(10).position(|bytes| bytes == b"entry 3000").unwrap());
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    assert_eq!(log.read(0..=100).unwrap(), entries(0..101));
    let error = log.read(0..=u64::MAX).unwrap_err();
    assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("/raft is damaged at group 1 index 2"), "{error}");
}

/// Whoever needs the record cannot go on without: nothing is written any more.
#[test]
fn a_damaged_record_that_is_read_is_reported_with_its_key_and_stops_the_storage() {
    type Read = fn(&Arc<dyn StateStore>) -> Result<(), StorageError>;
    let reads: [Read; 2] = [
        |state| state.get(b"key 30").map(|_| ()),
        |state| {
            state.range(b"key 25", b"key 35", &mut |key, _| {
                assert_ne!(key, b"key 30");
                true
            })
        },
    ];
    for read in reads {
        let dir = tempfile::tempdir().unwrap();
        let storage = open(dir.path());
        let state = storage.state(2).unwrap();
        for index in 0..60 {
            state
                .write(vec![(format!("key {index:02}").into_bytes(), Some(format!("value {index:02}").into_bytes()))], vec![1])
                .unwrap();
        }
        drop((state, storage));
        to_tables(dir.path());
        let tables = files(&dir.path().join("state/keyspaces"));
        let place = |path: &PathBuf| fs::read(path).unwrap().windows(8).position(|bytes| bytes == b"value 30");
        let (table, at) = tables.iter().find_map(|path| Some((path, place(path)?))).unwrap();
        flip(table, at);
        let storage = open(dir.path());
        let state = storage.state(2).unwrap();
        let error = read(&state).unwrap_err().to_string();
        assert!(error.contains("is damaged at group 2"), "{error}");
        assert!(storage.stats().poisoned);
        assert!(matches!(state.write(Vec::new(), vec![2]), Err(StorageError::Poisoned(_))));
        assert!(storage.log(1).unwrap().save_vote(Bytes::from("vote")).is_err());
    }
}

/// Changes the log's keyspace behind the storage's back.
fn tamper(dir: &Path, change: impl FnOnce(&fjall::Keyspace)) {
    let db = fjall::Database::builder(dir.join("raft")).open().unwrap();
    change(&db.keyspace("log", Default::default).unwrap());
}

#[test]
fn an_interrupted_purge_is_finished_at_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    tamper(dir.path(), |log| {
        let key = committer::purged_key(1);
        let value = [&19u64.to_be_bytes()[..], b"marker"].concat();
        log.insert(key.as_slice(), record::seal(&key, &value)).unwrap();
        log.remove(committer::entry_key(1, 0).as_slice()).unwrap();
    });
    let storage = open(dir.path());
    let log = storage.log(1).unwrap();
    assert_eq!(log.purged().unwrap(), Some(Bytes::from("marker")));
    assert_eq!(all(&log), entries(20..60));
    drop(storage);
    tamper(dir.path(), |log| assert!(log.get(committer::entry_key(1, 19).as_slice()).unwrap().is_none()));
}

#[test]
fn a_missing_a_foreign_and_a_changed_entry_are_reported_with_their_index() {
    let key = |index| committer::entry_key(1, index);
    let cases: [(&str, &dyn Fn(&fjall::Keyspace)); 3] = [
        ("missing", &|log| log.remove(key(30).as_slice()).unwrap()),
        ("checksum", &|log| log.insert(key(30).as_slice(), log.get(key(31).as_slice()).unwrap().unwrap()).unwrap()),
        ("version", &|log| log.insert(key(30).as_slice(), b"nonsense").unwrap()),
    ];
    for (what, change) in cases {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        tamper(dir.path(), change);
        let storage = open(dir.path());
        let log = storage.log(1).unwrap();
        assert_eq!(log.read(0..=29).unwrap(), entries(0..30));
        let error = log.read(0..=59).unwrap_err().to_string();
        assert!(error.contains("group 1 index 30") && error.contains(what), "{error}");
    }
}

const CHILD: &str = "TROUPEMQ_STORAGE_TEST_CHILD";

/// Not a test by itself: what the next one kills.
#[test]
fn child_that_appends_until_it_is_killed() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let storage = open(Path::new(&dir));
    for index in 0.. {
        for group in 0..=SHARDS {
            append(&storage.log(group).unwrap(), entries(index..index + 1)).unwrap();
            storage
                .state(group)
                .unwrap()
                .write(vec![(vec![1], Some(index.to_be_bytes().to_vec()))], index.to_be_bytes().to_vec())
                .unwrap();
        }
        eprintln!("done {index}");
    }
}

#[test]
fn a_killed_process_loses_nothing_it_reported() {
    use std::io::BufRead;
    let dir = tempfile::tempdir().unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--nocapture", "--exact", "storage::storage_test::damage::child_that_appends_until_it_is_killed"])
        .env(CHILD, dir.path())
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let lines = std::io::BufReader::new(child.stderr.take().unwrap()).lines();
    let mut done = None;
    for line in lines {
        if let Some(index) = line.unwrap().strip_prefix("done ") {
            done = Some(index.parse::<u64>().unwrap());
            if done == Some(300) {
                child.kill().unwrap();
            }
        }
    }
    child.wait().unwrap();
    let done = done.unwrap();
    let storage = open(dir.path());
    for group in 0..=SHARDS {
        let found = all(&storage.log(group).unwrap());
        assert!(found.len() as u64 > done && found == entries(0..found.len() as u64), "group {group}: {} of {done}", found.len());
        let applied = storage.state(group).unwrap().applied().unwrap().unwrap();
        assert_eq!(records(&storage.state(group).unwrap()), vec![(vec![1], applied)]);
    }
}

/// Every file, several places each: an error, or all is there (the place did not matter); never less than all.
#[test]
fn no_flipped_byte_in_a_closed_directory_loses_anything_silently() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, bad) = (dir.path().join("whole"), dir.path().join("bad"));
    filled(&whole);
    to_tables(&whole);
    assert!(look(&whole).unwrap());
    let (mut refused, mut harmless) = (0, Vec::new());
    for file in files(&whole) {
        let name = file.strip_prefix(&whole).unwrap();
        let len = usize::try_from(fs::metadata(&file).unwrap().len()).unwrap();
        let places = if len < 64 { 2 } else { 6 };
        for at in (0..len).step_by((len / places).max(1)) {
            copy_directory(&whole, &bad);
            flip(&bad.join(name), at);
            match look(&bad) {
                Err(_) => refused += 1,
                Ok(true) => harmless.push(format!("{} {at}", name.display())),
                Ok(false) => panic!("{} byte {at} of {len}: something is missing", name.display()),
            }
            fs::remove_dir_all(&bad).unwrap();
        }
    }
    assert!(refused > harmless.len(), "{harmless:?}");
}

#[test]
fn no_missing_file_in_a_closed_directory_loses_anything_silently() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, bad) = (dir.path().join("whole"), dir.path().join("bad"));
    filled(&whole);
    to_tables(&whole);
    for file in files(&whole) {
        let name = file.strip_prefix(&whole).unwrap();
        copy_directory(&whole, &bad);
        fs::remove_file(bad.join(name)).unwrap();
        if let Ok(false) = look(&bad) {
            panic!("{} removed: something is missing", name.display());
        }
        fs::remove_dir_all(&bad).unwrap();
    }
}

/// Moves what is in memory and journals to tables.
fn to_tables(dir: &Path) {
    for (database, keyspaces) in [("raft", vec!["log"]), ("state", vec!["control", "shard-1-g0"])] {
        let db = fjall::Database::builder(dir.join(database)).open().unwrap();
        for name in keyspaces {
            let keyspace = db.keyspace(name, Default::default).unwrap();
            keyspace.rotate_memtable_and_wait().unwrap();
        }
    }
}
