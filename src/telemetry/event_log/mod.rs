//! `event.log`: what happened to clients and their messages, a line each, in HiveMQ's words (spec/hivemq.md 9.9).
//!
//! Whoever has something to tell makes the line and hands it to one thread, which writes what gathers. The way there is bounded: what finds it
//! full is counted, and the log itself says how many lines are missing. Nothing waits for the disk.

mod files;
mod line;

use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use prometheus::IntCounter;

use super::RateLimited;
use files::Files;
pub use line::{Event, IsSecret, Who};

/// Bytes of lines that may wait to be written.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Lines gather so long before they are written, or until there are so many bytes of them: a write and a waking of the thread for each
/// line were a tenth of what a connection cost.
const GATHER: Duration = Duration::from_millis(20);
const GATHER_BYTES: usize = 256 * 1024;

static CANNOT_WRITE: RateLimited = RateLimited::new(Duration::from_secs(60));

/// Where the log is, and how large it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLogFiles {
    pub folder: PathBuf,
    /// A file that would become larger is put aside, bytes.
    pub file_bytes_max: u64,
    /// Files put aside that are kept.
    pub kept_max: usize,
}

/// The way to the log; clones share it. Without a thread behind it, nothing is written.
#[derive(Debug, Clone, Default)]
pub struct EventLog(Option<Arc<Way>>);

#[derive(Debug)]
struct Way {
    shared: Arc<Shared>,
    lost_total: IntCounter,
    clock: Clock,
    is_secret: IsSecret,
}

/// Wall clock, milliseconds since the epoch.
type Clock = fn() -> u64;

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is something in `waiting` that there was not before.
    changed: Condvar,
}

/// What the thread has to do.
#[derive(Debug, Default)]
struct Waiting {
    text: String,
    lines: u64,
    /// Lines lost that the log does not tell of yet.
    lost: u64,
    /// Each is dropped when all that is in `text` now is written.
    flushes: Vec<SyncSender<()>>,
    /// Nobody will add to it.
    closed: bool,
}

impl Waiting {
    fn is_urgent(&self) -> bool {
        self.text.len() >= GATHER_BYTES || !self.flushes.is_empty() || self.closed
    }
}

impl EventLog {
    /// Starts the thread that writes. What `is_secret` is not written. A folder that cannot be written is said in the log of the program, again and again, and costs lines only.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(files: EventLogFiles, lost_total: IntCounter, clock: Clock, is_secret: IsSecret) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let way = Way { shared: Arc::clone(&shared), lost_total: lost_total.clone(), clock, is_secret };
        thread::Builder::new()
            .name("event-log".to_owned())
            .spawn(move || write_all(&shared, Files::new(files), &lost_total, clock))?;
        Ok(Self(Some(Arc::new(way))))
    }

    /// Whether anything comes of telling.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Has an event written; never waits for the disk.
    pub fn tell(&self, event: &Event<'_>) {
        let Some(way) = &self.0 else { return };
        let mut line = String::with_capacity(192);
        line::write(&mut line, (way.clock)(), way.is_secret, event);
        let mut waiting = way.shared.waiting.lock();
        if waiting.text.len() + line.len() > WAITING_BYTES_MAX {
            waiting.lost += 1;
            way.lost_total.inc();
            return;
        }
        let before = waiting.text.len();
        waiting.text.push_str(&line);
        waiting.lines += 1;
        let is_first = before == 0 || (before < GATHER_BYTES && waiting.text.len() >= GATHER_BYTES);
        drop(waiting);
        if is_first {
            way.shared.changed.notify_one();
        }
    }

    /// Waits until all that was told is written, `allowed` at most. Blocks.
    pub fn flush(&self, allowed: Duration) {
        let Some(way) = &self.0 else { return };
        let (done, wait) = sync_channel(0);
        way.shared.waiting.lock().flushes.push(done);
        way.shared.changed.notify_one();
        _ = wait.recv_timeout(allowed);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.shared.waiting.lock().closed = true;
        self.shared.changed.notify_one();
    }
}

/// The thread: ends with the last way to it.
fn write_all(shared: &Shared, mut files: Files, lost_total: &IntCounter, clock: Clock) {
    let mut spare = String::new();
    loop {
        let mut taken = take(shared, spare);
        let told = mem::take(&mut taken.lost);
        if told > 0 {
            let mut line = String::new();
            line::write(&mut line, clock(), |_| false, &Event::LinesLost { count: told });
            taken.text.insert_str(0, &line);
        }
        if let Err(error) = files.append(taken.text.as_bytes()) {
            shared.waiting.lock().lost += told + taken.lines;
            lost_total.inc_by(taken.lines);
            crate::warn_limited!(CANNOT_WRITE, path = %files.path().display(), %error, "the event log cannot be written; its lines are lost");
        }
        if taken.closed {
            return;
        }
        taken.text.clear();
        taken.text.shrink_to(GATHER_BYTES);
        spare = taken.text;
    }
}

/// Waits for lines, and a little more for others; `spare` is an empty text to gather the next in.
fn take(shared: &Shared, spare: String) -> Waiting {
    let mut waiting = shared.waiting.lock();
    while waiting.text.is_empty() && !waiting.is_urgent() {
        shared.changed.wait(&mut waiting);
    }
    if !waiting.is_urgent() {
        _ = shared.changed.wait_while_for(&mut waiting, |waiting| !waiting.is_urgent(), GATHER);
    }
    let closed = waiting.closed;
    mem::replace(&mut *waiting, Waiting { text: spare, closed, ..Waiting::default() })
}

#[cfg(test)]
#[path = "event_log_test.rs"]
mod tests;
