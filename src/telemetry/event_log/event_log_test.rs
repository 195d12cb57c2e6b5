//! What becomes of lines when files and disks do not behave.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

const LONG: Duration = Duration::from_secs(20);

fn settings(folder: &Path) -> EventLogFiles {
    EventLogFiles { folder: folder.to_owned(), file_bytes_max: 1_000, kept_max: 3 }
}

fn clock() -> u64 {
    1_700_000_000_000
}

fn counter() -> IntCounter {
    IntCounter::new("lost", "lost").unwrap()
}

fn tell(log: &EventLog, client_id: &str) {
    log.tell(&Event::SessionExpired { client_id, at_ms: 0 });
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap_or_default()
}

#[test]
fn lines_are_written_in_order_and_behind_those_of_an_earlier_start() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("home/log");
    fs::create_dir_all(&inside).unwrap();
    // Its machine lost power in the middle of a line.
    fs::write(inside.join("event.log"), "half a li").unwrap();
    let log =
        EventLog::start(EventLogFiles { file_bytes_max: 1_000_000, ..settings(&inside) }, counter(), clock, |_| false).unwrap();
    for number in 0..500 {
        tell(&log, &format!("<{number}>"));
    }
    log.flush(LONG);
    let text = read(&inside, "event.log");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0]), (501, "half a li"));
    assert!((0..500).all(|number| lines[number + 1].contains(&format!("<{number}> session"))), "{text}");
}

#[test]
fn a_full_file_is_put_aside_and_the_oldest_goes() {
    let folder = tempfile::tempdir().unwrap();
    let log = EventLog::start(settings(folder.path()), counter(), clock, |_| false).unwrap();
    for number in 0..60 {
        tell(&log, &format!("<{number}>"));
        log.flush(LONG);
    }
    let mut names: Vec<String> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["event-1.log", "event-2.log", "event-3.log", "event.log"]);
    let all: String = ["event-3.log", "event-2.log", "event-1.log", "event.log"].map(|name| read(folder.path(), name)).concat();
    let first = 60 - all.lines().count();
    assert!(first > 0 && all.lines().zip(first..).all(|(line, number)| line.contains(&format!("<{number}> "))), "{all}");
    for name in &names {
        assert!(fs::metadata(folder.path().join(name)).unwrap().len() <= 1_000, "{name}");
    }
}

#[test]
fn a_file_that_is_removed_or_moved_is_made_anew() {
    let folder = tempfile::tempdir().unwrap();
    let log = EventLog::start(settings(folder.path()), counter(), clock, |_| false).unwrap();
    tell(&log, "one");
    log.flush(LONG);
    fs::remove_file(folder.path().join("event.log")).unwrap();
    tell(&log, "two");
    log.flush(LONG);
    assert!(read(folder.path(), "event.log").contains("two"));
    fs::rename(folder.path().join("event.log"), folder.path().join("moved")).unwrap();
    tell(&log, "three");
    log.flush(LONG);
    let text = read(folder.path(), "event.log");
    assert!(text.contains("three") && !text.contains("two"), "{text}");
    assert_eq!(fs::metadata(folder.path().join("event.log")).unwrap().permissions().mode() & 0o007, 0);
}

#[test]
fn what_cannot_be_written_is_counted_and_told_once_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let blocked = folder.path().join("log");
    fs::write(&blocked, "a file where the folder is to be").unwrap();
    let lost = counter();
    let log = EventLog::start(EventLogFiles { file_bytes_max: 1_000_000, ..settings(&blocked) }, lost.clone(), clock, |_| false)
        .unwrap();
    for number in 0..7 {
        tell(&log, &format!("<{number}>"));
        log.flush(LONG);
    }
    assert_eq!(lost.get(), 7);
    fs::remove_file(&blocked).unwrap();
    tell(&log, "again");
    log.flush(LONG);
    let text = read(&blocked, "event.log");
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("- 7 events are missing here") && lines[1].contains("again"), "{text}");
    assert_eq!(lost.get(), 7);
}

#[test]
fn a_disk_that_hangs_costs_lines_and_nobody_waits() {
    let folder = tempfile::tempdir().unwrap();
    // Nobody reads: the write never ends.
    let fifo = folder.path().join("event.log");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status();
    assert!(made.is_ok_and(|status| status.success()));
    let hold = fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let lost = counter();
    let files = EventLogFiles { file_bytes_max: u64::MAX, ..settings(folder.path()) };
    let log = EventLog::start(files, lost.clone(), clock, |_| false).unwrap();
    let began = std::time::Instant::now();
    let long = "x".repeat(1_000);
    for _ in 0..WAITING_BYTES_MAX * 2 / long.len() {
        tell(&log, &long);
    }
    log.flush(Duration::from_millis(1));
    assert!(lost.get() > 0);
    assert!(began.elapsed() < LONG);
    let waiting = log.0.as_ref().unwrap().shared.waiting.lock().text.len();
    assert!(waiting <= WAITING_BYTES_MAX, "{waiting}");
    drop(hold);
}

#[test]
fn a_log_that_is_off_takes_everything() {
    let log = EventLog::default();
    assert!(!log.is_on());
    tell(&log, "c");
    log.flush(LONG);
}
