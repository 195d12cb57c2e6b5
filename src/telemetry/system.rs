//! The machine that the node runs on, under HiveMQ's names, read when somebody looks. Linux only: elsewhere the series stay at 0.

use std::fs;

use parking_lot::Mutex;
use prometheus::{Gauge, IntGauge, Registry};

use super::naming::{self, Kind};

/// Processors and memory of the machine, and the memory that the process uses by itself.
#[derive(Debug)]
pub(super) struct SystemMetrics {
    cpu_percent: Gauge,
    memory_total_bytes: IntGauge,
    memory_available_bytes: IntGauge,
    heap_used_bytes: IntGauge,
    heap_max_bytes: IntGauge,
    /// Of the look before.
    processors: Mutex<Processors>,
}

/// Ticks since the machine started, of all processors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Processors {
    busy: u64,
    all: u64,
}

impl SystemMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str| naming::register(registry, Kind::Gauge, &format!("com.hivemq.{name}"));
        Ok(Self {
            cpu_percent: naming::register_float(registry, "com.hivemq.system.os.global.cpu.total.total")?,
            memory_total_bytes: gauge("system.os.global.memory.total")?,
            memory_available_bytes: gauge("system.os.global.memory.available")?,
            heap_used_bytes: gauge("jvm.memory.heap.used")?,
            heap_max_bytes: gauge("jvm.memory.heap.max")?,
            processors: Mutex::default(),
        })
    }

    /// Reads `/proc`; what cannot be read keeps its last value.
    pub(super) fn sample(&self) {
        if let Some(now) = read("/proc/stat").as_deref().and_then(processors) {
            let before = std::mem::replace(&mut *self.processors.lock(), now);
            if let Some(percent) = percent(before, now) {
                self.cpu_percent.set(percent);
            }
        }
        let memory = read("/proc/meminfo").unwrap_or_default();
        let total = bytes_of(&memory, "MemTotal:");
        if let Some(bytes) = total {
            self.memory_total_bytes.set(bytes);
        }
        if let Some(bytes) = bytes_of(&memory, "MemAvailable:") {
            self.memory_available_bytes.set(bytes);
        }
        if let Some(bytes) = read("/proc/self/status").as_deref().and_then(|status| bytes_of(status, "RssAnon:")) {
            self.heap_used_bytes.set(bytes);
        }
        // A container's limit, where there is one below what the machine has.
        let limit = read("/sys/fs/cgroup/memory.max").and_then(|limit| limit.trim().parse().ok());
        if let Some(bytes) = limit.into_iter().chain(total).min() {
            self.heap_max_bytes.set(bytes);
        }
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// `NAME   12345 kB` of a text, in bytes.
pub(super) fn bytes_of(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: i64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; the two that follow are in the first two already.
fn processors(stat: &str) -> Option<Processors> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().take(8).map_while(|number| number.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (ticks.len() >= 4).then_some(Processors { busy: all - idle, all })
}

/// Between two looks.
#[expect(clippy::cast_precision_loss, reason = "ticks between two looks")]
fn percent(before: Processors, now: Processors) -> Option<f64> {
    let (busy, all) = (now.busy.checked_sub(before.busy)?, now.all.checked_sub(before.all)?);
    (all > 0).then(|| busy as f64 * 100.0 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_busy_with_all_but_idling_and_waiting() {
        let before = processors("cpu  10 0 10 80 0 0 0 0 5 5\ncpu0 1 1 1 1\n").unwrap();
        assert_eq!(before, Processors { busy: 20, all: 100 });
        let now = processors("cpu  20 10 10 120 20 10 5 5 5 5\n").unwrap();
        assert_eq!(percent(before, now).map(|percent| percent.to_string()), Some("40".to_owned()));
        assert_eq!((percent(now, now), percent(now, before)), (None, None));
        assert_eq!(processors("cpu  1 2\n"), None);
    }

    #[test]
    fn memory_is_read_from_the_texts_of_proc() {
        let text = "MemTotal:        2048 kB\nMemAvailable:   1 kB\nHugePages_Total:       0\n";
        assert_eq!((bytes_of(text, "MemTotal:"), bytes_of(text, "MemAvailable:")), (Some(2_097_152), Some(1024)));
        assert_eq!((bytes_of(text, "HugePages_Total:"), bytes_of(text, "RssAnon:")), (None, None));
    }
}
