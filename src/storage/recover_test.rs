use super::*;
use crate::storage::{Mode, Storage};

fn open(path: &Path) -> Result<Storage, StorageError> {
    Storage::open(path, Mode::File, "node-1", 2, 1000)
}

fn filled(path: &Path) {
    let storage = open(path).unwrap();
    storage.set_promise(Some("node-1")).unwrap();
    storage.set_cluster_id("c", true).unwrap();
    storage.state(1).unwrap().write(vec![(b"key".to_vec(), Some(b"value".to_vec()))], b"at 5".to_vec()).unwrap();
}

#[test]
fn data_is_set_aside_whole_and_the_node_stays_who_it_is_but_for_its_vote() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    let planned = plan(dir.path(), Who::Stays, 77).unwrap();
    assert!(dir.path().join("raft").is_dir(), "nothing was done");
    let done = run(dir.path(), Who::Stays, 77).unwrap();
    assert_eq!(done, planned);
    assert_eq!(done.moved, ["raft", "state", "flushed"]);
    assert!(done.aside.join("raft/0.jnl").is_file() && done.aside.join("state/0.jnl").is_file());
    undone(dir.path(), &done);
    {
        let storage = open(dir.path()).unwrap();
        let identity = storage.identity();
        assert_eq!((identity.cluster_id.as_deref(), identity.promised_to), (Some("c"), None));
        assert!(storage.is_voteless());
        assert!(identity.incarnation > 1000);
        assert_eq!(storage.state(1).unwrap().applied().unwrap(), None);
        assert!(!storage.votes_in(0) && !storage.votes_in(2));
        storage.set_voting(vec![0, 2]).unwrap();
    }
    {
        let storage = open(dir.path()).unwrap();
        assert!(
            storage.is_voteless() && storage.votes_in(0) && !storage.votes_in(1) && storage.votes_in(2),
            "kept for each group"
        );
        storage.set_voteless(false).unwrap();
    }
    let storage = open(dir.path()).unwrap();
    assert!(!storage.is_voteless() && storage.votes_in(1));
    drop(storage);
    run(dir.path(), Who::Stays, 78).unwrap();
    assert!(!open(dir.path()).unwrap().votes_in(0), "lost again");
}

#[test]
fn a_node_that_has_nobody_to_fill_it_is_known_and_can_begin_anew() {
    for (others, alone) in [(None, false), (Some(vec![]), true), (Some(vec!["node-2".to_owned()]), false)] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        if let Some(others) = others.clone() {
            open(dir.path()).unwrap().set_others(others).unwrap();
        }
        let planned = plan(dir.path(), Who::Stays, 1).unwrap();
        assert_eq!((planned.is_alone(), &planned.others), (alone, &others));
        let done = run(dir.path(), Who::IsNew, 1).unwrap();
        assert_eq!(done.moved, ["raft", "state", "flushed", "identity"]);
        undone(dir.path(), &done);
        let storage = open(dir.path()).unwrap();
        assert!(storage.identity().cluster_id.is_none() && !storage.is_voteless() && storage.others().is_none());
    }
}

/// All that was set aside moved back, in a copy, is what it was.
fn undone(path: &Path, done: &Recovery) {
    let copy = tempfile::tempdir().unwrap();
    for name in ["raft", "state", "flushed", "identity"] {
        let status = std::process::Command::new("cp").arg("-r").arg(done.aside.join(name)).arg(copy.path()).status().unwrap();
        assert!(status.success(), "{name} of {}", path.display());
    }
    let storage = open(copy.path()).unwrap();
    assert!(!storage.is_voteless());
    assert_eq!(storage.state(1).unwrap().applied().unwrap(), Some(b"at 5".to_vec()));
}

#[test]
fn interrupted_anywhere_it_is_run_again_and_nothing_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    filled(dir.path());
    // As far as the first of its moves.
    fs::create_dir(dir.path().join("set-aside-1")).unwrap();
    fs::rename(dir.path().join("raft"), dir.path().join("set-aside-1/raft")).unwrap();
    assert!(matches!(open(dir.path()), Err(StorageError::Damaged { .. })));
    let done = run(dir.path(), Who::Stays, 2).unwrap();
    assert_eq!(done.moved, ["state", "flushed"]);
    assert!(dir.path().join("set-aside-1/raft").is_dir() && done.aside.join("state").is_dir());
    assert!(open(dir.path()).unwrap().is_voteless());
}

#[test]
fn a_node_that_no_longer_knows_who_it_is_starts_as_with_an_empty_directory() {
    for damage in [|path: &Path| fs::write(path, "x"), |path: &Path| fs::remove_file(path)] {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        damage(&dir.path().join("identity")).unwrap();
        assert!(open(dir.path()).is_err());
        let done = run(dir.path(), Who::Stays, 3).unwrap();
        assert!(done.identity.is_none() && done.identity_fault.is_some());
        assert_eq!(open(dir.path()).unwrap().identity().cluster_id, None);
    }
}

#[test]
fn a_directory_in_use_a_newer_one_and_none_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let storage = open(dir.path()).unwrap();
    assert!(matches!(run(dir.path(), Who::Stays, 1), Err(StorageError::Locked { .. })));
    drop(storage);
    fs::write(dir.path().join("identity"), "troupemq-data 99 00000000\n{}").unwrap();
    assert!(matches!(run(dir.path(), Who::Stays, 1), Err(StorageError::NewerFormat { .. })));
    let nowhere = dir.path().join("nowhere");
    assert!(matches!(run(&nowhere, Who::Stays, 1), Err(StorageError::Io { .. })));
    assert!(!nowhere.exists());
}
