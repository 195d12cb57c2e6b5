//! Keeps a log line that would repeat from filling the log.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

const INTERVAL: Duration = Duration::from_secs(30);
const LINES_MAX: usize = 256;

/// Says whether a line is due, by its text.
#[derive(Default)]
pub struct RateLimit {
    said: Mutex<HashMap<String, Instant>>,
}

impl RateLimit {
    /// True the first time, then at most once in 30 s.
    pub fn due(&self, line: &str) -> bool {
        let mut said = self.said.lock();
        said.retain(|_, at| at.elapsed() < INTERVAL);
        if said.contains_key(line) || said.len() >= LINES_MAX {
            return false;
        }
        said.insert(line.to_owned(), Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_and_another_line_still_is() {
        let limit = RateLimit::default();
        assert!(limit.due("a"));
        assert!(!limit.due("a"));
        assert!(limit.due("b"));
    }
}
