//! What happened, in order: a hash of all of it, to compare two runs of a seed, and the end of it in words.

use std::collections::VecDeque;
use std::fmt;

use xxhash_rust::xxh3::Xxh3;

/// Lines kept, to be shown with a failure and to be compared.
const LINES_MAX: usize = 100_000;

pub struct Trace {
    hash: Xxh3,
    lines: VecDeque<String>,
    /// Every line goes to standard error as well.
    pub aloud: bool,
}

impl Trace {
    pub fn new(aloud: bool) -> Self {
        Self { hash: Xxh3::new(), lines: VecDeque::new(), aloud }
    }

    pub fn say(&mut self, now_ms: u64, what: fmt::Arguments<'_>) {
        let line = format!("{:>9.3} {what}", now_ms as f64 / 1000.0);
        self.hash.update(line.as_bytes());
        if self.aloud {
            eprintln!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    pub fn hash(&self) -> u64 {
        self.hash.digest()
    }

    pub fn last(&self, lines: usize) -> Vec<String> {
        self.lines.iter().skip(self.lines.len().saturating_sub(lines)).cloned().collect()
    }
}
