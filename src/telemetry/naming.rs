//! How HiveMQ's dotted metric names look in Prometheus (spec/hivemq.md 5.3).

use prometheus::{Gauge, IntCounter, IntGauge, Opts, Registry};

/// What a metric is in HiveMQ's own (Dropwizard) terms. Both are gauges to Prometheus, or have no type ([`untype_reserved`]); the HELP text
/// tells them apart.
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

/// The same for a gauge with a fraction.
pub(super) fn register_float(registry: &Registry, dotted: &str) -> Result<Gauge, prometheus::Error> {
    let help = format!("Generated from Dropwizard metric import (metric={dotted}, type=com.codahale.metrics.Gauge)");
    let gauge = Gauge::with_opts(Opts::new(prometheus_name(dotted), help))?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

/// Registers a meter of HiveMQ's: of all that it measures Prometheus is shown the count.
pub(super) fn register_meter(registry: &Registry, dotted: &str) -> Result<IntCounter, prometheus::Error> {
    let help = format!("Generated from Dropwizard metric import (metric={dotted}, type=com.codahale.metrics.Meter)");
    let counter = IntCounter::with_opts(Opts::new(prometheus_name(dotted) + "_total", help))?;
    registry.register(Box::new(counter.clone()))?;
    Ok(counter)
}

/// Endings that Prometheus keeps for counters, histograms and summaries.
const RESERVED: [&str; 4] = ["_total", "_count", "_sum", "_bucket"];

/// Gives the gauges whose names, which are HiveMQ's, end as those of counters and histograms do no type. HiveMQ calls them gauges, which
/// `promtool check metrics` finds fault with; a server keeps the same samples either way.
pub(super) fn untype_reserved(text: &str) -> String {
    let mut untyped = String::with_capacity(text.len() + 1024);
    for line in text.split_inclusive('\n') {
        let name = line.strip_prefix("# TYPE com_hivemq_").and_then(|rest| rest.strip_suffix(" gauge\n"));
        match name.filter(|name| RESERVED.iter().any(|reserved| name.ends_with(reserved))) {
            Some(name) => {
                untyped.push_str("# TYPE com_hivemq_");
                untyped.push_str(name);
                untyped.push_str(" untyped\n");
            }
            None => untyped.push_str(line),
        }
    }
    untyped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_with_the_names_of_counters_have_no_type() {
        let text = "# HELP com_hivemq_a_count A.\n# TYPE com_hivemq_a_count gauge\ncom_hivemq_a_count 1\n\
                    # TYPE com_hivemq_b_total gauge\n# TYPE com_hivemq_c_current gauge\n# TYPE troupemq_d_total counter\n";
        let expected = text.replace("a_count gauge", "a_count untyped").replace("b_total gauge", "b_total untyped");
        assert_eq!(untype_reserved(text), expected);
    }

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
