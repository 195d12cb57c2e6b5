//! What a person sees while it runs: a line a second on standard error, rewritten where that is a terminal.

use std::io::{self, IsTerminal, Write};

use super::report::Slice;
use super::units::{nanos, show};

/// Between two lines.
const EVERY: std::time::Duration = std::time::Duration::from_secs(1);

pub(super) struct Progress {
    is_on: bool,
    is_terminal: bool,
    doing: &'static str,
    last_ns: u64,
    has_line: bool,
}

impl Progress {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, is_terminal: io::stderr().is_terminal(), doing: "starting", last_ns: 0, has_line: false }
    }

    pub(super) fn doing(&mut self, doing: &'static str) {
        self.doing = doing;
    }

    pub(super) fn tick(&mut self, slice: &Slice, now_ns: u64) {
        if !self.is_on || now_ns.saturating_sub(self.last_ns) < nanos(EVERY) * 9 / 10 {
            return;
        }
        self.last_ns = now_ns;
        self.has_line = true;
        let line = line(self.doing, slice, now_ns);
        // Nobody may be reading any more.
        _ = if self.is_terminal { write!(io::stderr(), "\r\x1b[K{line}") } else { writeln!(io::stderr(), "{line}") };
    }

    pub(super) fn end(&mut self) {
        if self.is_on && self.is_terminal && self.has_line {
            _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(doing: &str, slice: &Slice, now_ns: u64) -> String {
    let mut line = format!("{:>4} s  {doing}: {} connected", now_ns / 1_000_000_000, show(slice.connected as f64));
    for (rate, what) in [(slice.connects, "connects/s"), (slice.sent, "sent/s"), (slice.received, "received/s")] {
        if rate > 0.0 {
            line += &format!(", {} {what}", show(rate.round()));
        }
    }
    if slice.max_ms > 0.0 {
        line += &format!(", p99 {} ms, max {} ms", show(slice.p99_ms), show(slice.max_ms));
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_what_happens_and_leaves_out_what_does_not() {
        let slice = Slice { connected: 1000, received: 47_600.4, p99_ms: 1.25, max_ms: 12.0, ..Slice::default() };
        assert_eq!(
            line("measuring", &slice, 3_200_000_000),
            "   3 s  measuring: 1,000 connected, 47,600 received/s, p99 1.25 ms, max 12 ms"
        );
    }
}
