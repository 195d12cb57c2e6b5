//! How HiveMQ's dotted metric names look in Prometheus (spec/hivemq.md 5.3).

use prometheus::{IntGauge, Opts, Registry};

/// What a metric is in HiveMQ's own (Dropwizard) terms. Both are exposed with `TYPE gauge`; only the HELP text tells them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
}

/// The name with every character outside `[a-zA-Z0-9:_]` replaced by `_`, and `_` before a leading digit.
pub(super) fn prometheus_name(dotted: &str) -> String {
    let mut name = String::with_capacity(dotted.len() + 1);
    if dotted.starts_with(|c: char| c.is_ascii_digit()) {
        name.push('_');
    }
    name.extend(dotted.chars().map(|c| if c.is_ascii_alphanumeric() || c == ':' || c == '_' { c } else { '_' }));
    name
}

/// Registers one metric of HiveMQ's under its dotted name.
pub(super) fn register(registry: &Registry, kind: Kind, dotted: &str) -> Result<IntGauge, prometheus::Error> {
    let help = format!("Generated from Dropwizard metric import (metric={dotted}, type=com.codahale.metrics.{kind:?})");
    let gauge = IntGauge::with_opts(Opts::new(prometheus_name(dotted), help))?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_mapped_character_by_character() {
        let table = [
            ("com.hivemq.qos-0-memory.used", "com_hivemq_qos_0_memory_used"),
            ("com.hivemq.messages.dropped.queue-full.count", "com_hivemq_messages_dropped_queue_full_count"),
            ("a:b_C9", "a:b_C9"),
            ("9lives", "_9lives"),
            ("grün/x", "gr_n_x"),
        ];
        for (dotted, expected) in table {
            assert_eq!(prometheus_name(dotted), expected);
        }
    }
}
