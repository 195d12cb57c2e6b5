//! `event.log`: what happened to clients and their messages, a line each, in HiveMQ's words (spec/hivemq.md 9.9).
//!
//! Whoever has something to tell makes the line and hands it to one thread, which writes. The way there is bounded: what finds it full is
//! counted, and the log itself says how many lines are missing. Nothing waits for the disk.

mod files;
mod line;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use prometheus::IntCounter;

use super::RateLimited;
use files::Files;
pub use line::{Event, Who};

/// Lines that may wait to be written, and their bytes.
const WAITING_MAX: usize = 16_384;
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes that are written in one go.
const WRITE_BYTES_MAX: usize = 256 * 1024;

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
    sender: SyncSender<Item>,
    counters: Arc<Counters>,
    clock: Clock,
}

/// Wall clock, milliseconds since the epoch.
type Clock = fn() -> u64;

#[derive(Debug)]
struct Counters {
    waiting_bytes: AtomicUsize,
    /// Lines lost that the log does not tell of yet.
    lost: AtomicU64,
    lost_total: IntCounter,
}

enum Item {
    Line(String),
    /// Everything before it is to be written; then it is dropped.
    Flush {
        _done: SyncSender<()>,
    },
}

impl EventLog {
    /// Starts the thread that writes. A folder that cannot be written is said in the log of the program, again and again, and costs lines only.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(files: EventLogFiles, lost_total: IntCounter, clock: Clock) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let counters = Arc::new(Counters { waiting_bytes: AtomicUsize::new(0), lost: AtomicU64::new(0), lost_total });
        let shared = Arc::clone(&counters);
        thread::Builder::new()
            .name("event-log".to_owned())
            .spawn(move || write_all(&receiver, Files::new(files), &shared, clock))?;
        Ok(Self(Some(Arc::new(Way { sender, counters, clock }))))
    }

    /// Whether anything comes of telling.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Has an event written; never waits.
    pub fn tell(&self, event: &Event<'_>) {
        let Some(way) = &self.0 else { return };
        let mut line = String::with_capacity(160);
        line::write(&mut line, (way.clock)(), event);
        let bytes = line.len();
        if way.counters.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes > WAITING_BYTES_MAX {
            way.counters.lose(bytes);
            return;
        }
        match way.sender.try_send(Item::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => way.counters.lose(bytes),
        }
    }

    /// Waits until all that was told is written, `allowed` at most. Blocks.
    pub fn flush(&self, allowed: Duration) {
        let Some(way) = &self.0 else { return };
        let (done, wait) = sync_channel(0);
        // A way that is full has a disk at its end that does not take it.
        if way.sender.try_send(Item::Flush { _done: done }).is_ok() {
            _ = wait.recv_timeout(allowed);
        }
    }
}

impl Counters {
    fn lose(&self, bytes: usize) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.lost.fetch_add(1, Ordering::Relaxed);
        self.lost_total.inc();
    }
}

/// The thread: ends with the last way to it.
fn write_all(receiver: &Receiver<Item>, mut files: Files, counters: &Counters, clock: Clock) {
    let mut text = String::new();
    while let Ok(first) = receiver.recv() {
        let mut next = Some(first);
        let (mut lines, mut flushes) = (0_u64, Vec::new());
        let lost = counters.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            line::write(&mut text, clock(), &Event::LinesLost { count: lost });
        }
        while let Some(item) = next.take() {
            match item {
                Item::Line(line) => {
                    text.push_str(&line);
                    counters.waiting_bytes.fetch_sub(line.len(), Ordering::Relaxed);
                    lines += 1;
                }
                Item::Flush { _done: done } => flushes.push(done),
            }
            if text.len() < WRITE_BYTES_MAX {
                next = receiver.try_recv().ok();
            }
        }
        if let Err(error) = files.append(text.as_bytes()) {
            counters.lost.fetch_add(lost + lines, Ordering::Relaxed);
            counters.lost_total.inc_by(lines);
            crate::warn_limited!(CANNOT_WRITE, path = %files.path().display(), %error, "the event log cannot be written; its lines are lost");
        }
        text.clear();
        text.shrink_to(WRITE_BYTES_MAX);
    }
}

#[cfg(test)]
#[path = "event_log_test.rs"]
mod tests;
