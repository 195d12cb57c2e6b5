use bytes::Bytes;

use super::*;
use crate::storage::{Mode, Storage};

/// Group 1 has 60 entries, group 2's state 60 records; in tables and closed, or in journals as a crash leaves them.
fn filled(path: &Path, in_tables: bool) {
    let running = tempfile::tempdir().unwrap();
    let storage = Storage::open(running.path(), Mode::File, "node-1", 2, 1000).unwrap();
    let (log, state) = (storage.log(1).unwrap(), storage.state(2).unwrap());
    for index in 0..60_u64 {
        let (done, wait) = std::sync::mpsc::channel();
        let entry = Bytes::from(format!("entry {index:02}"));
        log.append(vec![(index, entry)], Box::new(move |result| done.send(result).unwrap())).unwrap();
        wait.recv().unwrap().unwrap();
        state.write(vec![(format!("key {index:02}").into_bytes(), Some(vec![7; 20]))], vec![1]).unwrap();
    }
    state.flush().unwrap();
    if in_tables {
        drop(storage);
        for (database, name) in [("raft", "log"), ("state", "shard-1-g0")] {
            let db = fjall::Database::builder(running.path().join(database)).open().unwrap();
            db.keyspace(name, Default::default).unwrap().rotate_memtable_and_wait().unwrap();
        }
    }
    copy_folder(running.path(), path).unwrap();
}

fn check(path: &Path) -> Report {
    let beside = path.parent().unwrap().to_owned();
    let report = run(path, std::slice::from_ref(&beside)).unwrap();
    let left: Vec<_> = fs::read_dir(&beside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["data"], "the copy is removed");
    report
}

fn content(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(content(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

fn flip(path: &Path, pattern: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.windows(pattern.len()).position(|window| window == pattern).unwrap();
    bytes[at] ^= 0x20;
    // A new file: the old one may be linked.
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn undamaged_data_is_counted_and_left_as_it_is() {
    for in_tables in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        filled(&data, in_tables);
        let before = content(&data);
        let report = check(&data);
        assert_eq!(report.damage, Vec::<String>::new());
        assert_eq!(report.closed, in_tables);
        assert_eq!((report.groups[1].entries, report.groups[2].records), (60, 60));
        assert!(content(&data) == before, "nothing was written");
    }
}

#[test]
fn damage_in_both_databases_is_told_with_file_and_place_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    filled(&data, false);
    flip(&data.join("raft/0.jnl"), b"entry 07");
    flip(&data.join("state/0.jnl"), b"key 09");
    let report = check(&data);
    assert_eq!(report.damage.len(), 2, "{:?}", report.damage);
    for (text, file) in report.damage.iter().zip(["raft/0.jnl", "state/0.jnl"]) {
        let place = format!("{} is damaged at byte ", data.join(file).display());
        assert!(text.starts_with(&place) && !text.contains("recover"), "{text}");
    }
}

#[test]
fn all_damaged_entries_and_records_of_tables_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    filled(&data, true);
    // Through the engine: two values under keys they were not sealed for.
    let foreign = |database: &str, name: &str, keys: &[&[u8]]| {
        let db = fjall::Database::builder(data.join(database)).open().unwrap();
        let keyspace = db.keyspace(name, Default::default).unwrap();
        keys.iter().for_each(|key| keyspace.insert(*key, b"nonsense").unwrap());
    };
    let entry = |index: u64| crate::storage::committer::entry_key(1, index);
    foreign("raft", "log", &[&entry(10), &entry(50)]);
    foreign("state", "shard-1-g0", &[b"key 03", b"key 30"]);
    let report = check(&data);
    assert_eq!((report.groups[1].entries, report.groups[2].records), (58, 58));
    let text = report.damage.join("\n");
    for place in ["group 1 index 10:", "group 1 index 50:", "group 2 key key 03:", "group 2 key key 30:"] {
        assert!(text.contains(place), "{place} in {text}");
    }
}

#[test]
fn a_lost_end_of_the_log_an_unreadable_identity_and_a_missing_part_are_damage() {
    let cases: [(&str, fn(&Path)); 5] = [
        ("the end of the log is missing", |data| {
            let path = data.join("raft/0.jnl");
            let bytes = fs::read(&path).unwrap();
            let ends: Vec<_> = bytes.windows(4).enumerate().filter(|(_, end)| end == b"FJL\x03").map(|(at, _)| at + 4).collect();
            fs::write(&path, &bytes[..ends[ends.len() - 3]]).unwrap();
        }),
        ("identity is damaged", |data| fs::write(data.join("identity"), "x").unwrap()),
        ("identity is damaged", |data| fs::remove_file(data.join("identity")).unwrap()),
        ("flushed is damaged", |data| fs::remove_file(data.join("flushed")).unwrap()),
        ("state", |data| fs::remove_dir_all(data.join("state")).unwrap()),
    ];
    for (expected, damage) in cases {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        filled(&data, false);
        damage(&data);
        let report = check(&data);
        assert!(report.damage.iter().any(|text| text.contains(expected)), "{expected}: {:?}", report.damage);
    }
}
