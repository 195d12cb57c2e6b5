//! The result: figures and times, what was wrong, and whether the tool itself was too slow. As a table and as JSON.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::latency::Times;
use super::units::show;

/// From this part of a thread's time on the tool itself may be what was measured.
pub const BUSY_MAX: f64 = 0.9;
/// An open loop that is later than this at p99 is none; milliseconds.
pub const LAG_P99_MS_MAX: f64 = 10.0;

/// One number.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Stable, for programs.
    pub key: &'static str,
    pub label: &'static str,
    pub unit: &'static str,
    pub value: f64,
}

/// A part of the run, for a plot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Slice {
    /// Its end, since the run began.
    pub at_ms: f64,
    /// Belongs to what is measured.
    pub measured: bool,
    pub connects: f64,
    pub sent: f64,
    pub acknowledged: f64,
    pub received: f64,
    /// Connections at its end.
    pub connected: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

/// The tool's own part in it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ToolUse {
    pub threads: usize,
    /// The largest part of the measured time that one thread was busy, 0 to 1.
    pub busiest: Option<f64>,
    /// How late the open loop was at p99, milliseconds; `None` for closed loops.
    pub lag_p99_ms: Option<f64>,
}

/// What came of a scene.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub scene: &'static str,
    /// What was asked for.
    pub settings: Map<String, Value>,
    pub figures: Vec<Figure>,
    /// By key and label.
    pub times: Vec<(&'static str, &'static str, Times)>,
    pub series: Vec<Slice>,
    /// What must not be: the exit status is 1 where there is any.
    pub faults: Vec<String>,
    /// What a reader should know.
    pub notes: Vec<String>,
    pub interrupted: bool,
    pub tool: ToolUse,
}

impl ToolUse {
    /// Why the figures may be the tool's and not the server's.
    pub fn bottleneck(&self) -> Option<String> {
        let busy = self.busiest.filter(|busy| *busy >= BUSY_MAX);
        let late = self.lag_p99_ms.filter(|lag| *lag > LAG_P99_MS_MAX);
        let mut why = Vec::new();
        if let Some(busy) = busy {
            why.push(format!("one of its {} thread(s) was busy {:.0} % of the time", self.threads, busy * 100.0));
        }
        if let Some(late) = late {
            why.push(format!("its open loop was {} ms late at p99", show(late)));
        }
        (!why.is_empty()).then(|| format!("the load tool may have been the bottleneck: {}", why.join("; ")))
    }
}

impl Outcome {
    pub fn is_fine(&self) -> bool {
        self.faults.is_empty()
    }

    /// The figure of that key.
    pub fn figure(&self, key: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.key == key).map(|figure| figure.value)
    }

    /// The times of that key.
    pub fn times(&self, key: &str) -> Option<Times> {
        self.times.iter().find(|(of, _, _)| *of == key).map(|(_, _, times)| *times)
    }

    pub(super) fn add(&mut self, key: &'static str, label: &'static str, unit: &'static str, value: f64) {
        self.figures.push(Figure { key, label, unit, value });
    }

    pub(super) fn fault_if(&mut self, count: u64, what: &str) {
        if count > 0 {
            self.faults.push(format!("{} {what}", show(count as f64)));
        }
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!("{}{}\n", self.scene, if self.interrupted { " (interrupted)" } else { "" });
        let width = self
            .figures
            .iter()
            .map(|figure| figure.label.len())
            .chain(self.times.iter().map(|(_, label, _)| label.len()))
            .max()
            .unwrap_or(0);
        for Figure { label, unit, value, .. } in &self.figures {
            _ = writeln!(text, "  {label:<width$}  {:>12} {unit}", show(*value));
        }
        if self.times.iter().any(|(_, _, times)| times.count > 0) {
            _ = writeln!(
                text,
                "  {:<width$}  {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
                "milliseconds", "count", "p50", "p90", "p99", "p99.9", "max"
            );
        }
        for (_, label, times) in self.times.iter().filter(|(_, _, times)| times.count > 0) {
            let [p50, p90, p99, p999, max] = [times.p50, times.p90, times.p99, times.p999, times.max].map(show);
            _ = writeln!(
                text,
                "  {label:<width$}  {:>12} {p50:>9} {p90:>9} {p99:>9} {p999:>9} {max:>9}",
                show(times.count as f64)
            );
        }
        if let Some(busy) = self.tool.busiest {
            _ = writeln!(text, "  {:<width$}  {:>12} % of its busiest thread", "load tool", show((busy * 100.0).round()));
        }
        for note in self.notes.iter().chain(&self.tool.bottleneck()) {
            _ = writeln!(text, "note: {note}");
        }
        for fault in &self.faults {
            _ = writeln!(text, "FAILED: {fault}");
        }
        text
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let figures: Map<String, Value> =
            self.figures.iter().map(|figure| (figure.key.to_owned(), json!(figure.value))).collect();
        let units: Map<String, Value> = self.figures.iter().map(|figure| (figure.key.to_owned(), json!(figure.unit))).collect();
        let times: Map<String, Value> = self.times.iter().map(|(key, _, times)| ((*key).to_owned(), times_json(times))).collect();
        let series: Vec<Value> = self.series.iter().map(slice_json).collect();
        json!({
            "scene": self.scene,
            "version": env!("CARGO_PKG_VERSION"),
            "settings": self.settings,
            "figures": figures,
            "units": units,
            "times_ms": times,
            "series": series,
            "load_tool": {
                "threads": self.tool.threads, "busiest_thread": self.tool.busiest, "lag_p99_ms": self.tool.lag_p99_ms,
                "bottleneck": self.tool.bottleneck(),
            },
            "notes": self.notes,
            "faults": self.faults,
            "interrupted": self.interrupted,
            "ok": self.is_fine(),
        })
    }
}

fn times_json(times: &Times) -> Value {
    let Times { count, min, mean, p50, p90, p99, p999, max } = times;
    json!({"count": count, "min": min, "mean": mean, "p50": p50, "p90": p90, "p99": p99, "p99_9": p999, "max": max})
}

fn slice_json(slice: &Slice) -> Value {
    let Slice { at_ms, measured, connects, sent, acknowledged, received, connected, p50_ms, p99_ms, max_ms } = slice;
    json!({"at_ms": at_ms, "measured": measured, "connects_per_s": connects, "sent_per_s": sent, "acknowledged_per_s": acknowledged,
        "received_per_s": received, "connected": connected, "p50_ms": p50_ms, "p99_ms": p99_ms, "max_ms": max_ms})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tool_says_when_it_may_have_been_the_bottleneck() {
        let tool = |busiest, lag_p99_ms| ToolUse { threads: 2, busiest, lag_p99_ms }.bottleneck();
        assert_eq!(tool(Some(0.89), Some(10.0)), None);
        assert_eq!(tool(None, None), None);
        assert!(tool(Some(0.9), None).unwrap().contains("busy 90 %"));
        assert!(tool(Some(0.1), Some(10.1)).unwrap().contains("10.1 ms late"));
    }

    #[test]
    fn table_and_json_tell_the_same() {
        let mut outcome = Outcome { scene: "pubsub", ..Outcome::default() };
        outcome.add("messages_per_s", "messages", "per second", 47_600.0);
        outcome.times.push(("latency", "latency", Times { count: 3, p99: 1.5, ..Times::default() }));
        assert!(outcome.is_fine());
        outcome.fault_if(0, "doubled");
        outcome.fault_if(2, "acknowledged messages lost");
        let (table, json) = (outcome.table(), outcome.json());
        for part in ["messages", "47,600 per second", "1.50", "FAILED: 2 acknowledged messages lost"] {
            assert!(table.contains(part), "{part}: {table}");
        }
        assert_eq!(json["figures"]["messages_per_s"], 47_600.0);
        assert_eq!(json["times_ms"]["latency"]["p99"], 1.5);
        assert_eq!((json["ok"].as_bool(), json["faults"].as_array().map(Vec::len)), (Some(false), Some(1)));
        assert_eq!(outcome.figure("messages_per_s"), Some(47_600.0));
        assert_eq!(outcome.times("latency").map(|times| times.count), Some(3));
    }
}
