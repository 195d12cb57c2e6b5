//! What clients sent and received, and what was done to the nodes meanwhile, with the time of each.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use troupemq::mqtt::Packet;

use crate::harness::client::{Seen, Tap};
use crate::harness::repository;

#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Since the history began.
    pub at_ms: u64,
    /// Empty where it is no client that did it.
    pub client: Arc<str>,
    /// Attempts to connect, of all clients, counted from 1; 0 where there is none.
    pub connection: u32,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq)]
pub enum What {
    Sent(Packet),
    Received(Packet),
    /// The client closed the socket without a word.
    Dropped,
    /// The socket ended.
    Closed(String),
    /// Something was done to nodes or links, or undone.
    Fault(String),
}

/// Writes a history; clones write the same one.
#[derive(Clone)]
pub struct Recorder(Arc<Inner>);

struct Inner {
    began: Instant,
    records: Mutex<Vec<Record>>,
    connections: AtomicU32,
}

/// One connection's pen.
#[derive(Clone)]
pub struct Pen {
    recorder: Recorder,
    client: Arc<str>,
    connection: u32,
}

impl Recorder {
    pub fn new() -> Self {
        Self(Arc::new(Inner { began: Instant::now(), records: Mutex::default(), connections: AtomicU32::new(0) }))
    }

    /// For the next connection of a client.
    pub fn pen(&self, client: &str) -> Pen {
        let connection = self.0.connections.fetch_add(1, Ordering::Relaxed) + 1;
        Pen { recorder: self.clone(), client: client.into(), connection }
    }

    pub fn fault(&self, what: impl Into<String>) {
        self.write(Arc::from(""), 0, What::Fault(what.into()));
    }

    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// All records so far.
    pub fn records(&self) -> Vec<Record> {
        self.0.records.lock().expect("not poisoned").clone()
    }

    fn write(&self, client: Arc<str>, connection: u32, what: What) {
        let mut records = self.0.records.lock().expect("not poisoned");
        // Inside the lock, so that the records stand in the order of their times.
        records.push(Record { at_ms: self.now_ms(), client, connection, what });
    }

    /// Writes the history to `target/histories/`; where.
    pub fn save(&self, name: &str) -> PathBuf {
        let folder = repository().join("target/histories");
        let path = folder.join(format!("{name}.txt"));
        let mut text = String::new();
        for Record { at_ms, client, connection, what } in self.records() {
            _ = writeln!(text, "{at_ms:>8} {client} #{connection} {what:?}");
        }
        fs::create_dir_all(&folder).and_then(|()| fs::write(&path, text)).expect("the history can be written");
        path
    }
}

impl Pen {
    /// Sees what the connection's client sends and receives.
    pub fn tap(&self) -> Tap {
        let pen = self.clone();
        Tap::new(move |seen| {
            pen.write(match seen {
                Seen::Sent(packet) => What::Sent(packet.clone()),
                Seen::Received(packet) => What::Received(packet.clone()),
                Seen::Closed(how) => What::Closed(how.to_owned()),
            })
        })
    }

    /// The client closes the socket.
    pub fn dropped(&self) {
        self.write(What::Dropped);
    }

    fn write(&self, what: What) {
        self.recorder.write(Arc::clone(&self.client), self.connection, what);
    }
}
