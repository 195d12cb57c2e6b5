//! A histogram whose numbers come from elsewhere, as a whole ([`Tally`]).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};

use super::tally::Tally;

/// Stands where there is no label.
const NO_LABEL: &str = "";
const NO_LABELS: &[&str] = &[NO_LABEL];

/// One histogram, or one for each value of a label.
#[derive(Debug, Clone)]
pub struct Distribution(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    desc: Desc,
    /// Its values come from a closed set.
    label: Option<&'static str>,
    shown: Mutex<BTreeMap<&'static str, Tally>>,
}

impl Distribution {
    /// Registers `troupemq_<name>`, empty for each of `values` of the label, so that all series are there from the start.
    pub(super) fn register(
        registry: &Registry,
        (name, help): (&str, &str),
        bounds: &'static [f64],
        label: Option<(&'static str, &[&'static str])>,
    ) -> Result<Self, prometheus::Error> {
        let labels = label.iter().map(|(label, _)| (*label).to_owned()).collect();
        let desc = Desc::new(format!("troupemq_{name}"), help.to_owned(), labels, HashMap::new())?;
        let values = label.map_or(NO_LABELS, |(_, values)| values);
        let shown = values.iter().map(|value| (*value, Tally::new(bounds))).collect();
        let distribution = Self(Arc::new(Inner { desc, label: label.map(|(label, _)| label), shown: Mutex::new(shown) }));
        registry.register(Box::new(distribution.clone()))?;
        Ok(distribution)
    }

    /// Shows other numbers from now on.
    pub fn set(&self, tally: Tally) {
        self.set_for(NO_LABEL, tally);
    }

    /// The same for one value of the label.
    pub fn set_for(&self, value: &'static str, tally: Tally) {
        self.0.shown.lock().insert(value, tally);
    }
}

impl Collector for Distribution {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Inner { desc, label, shown } = self.0.as_ref();
        let shown = shown.lock();
        let metrics = shown.iter().map(|(value, tally)| {
            let mut metric = Metric::default();
            let pair = label.map(|label| {
                let mut pair = LabelPair::default();
                pair.set_name(label.to_owned());
                pair.set_value((*value).to_owned());
                pair
            });
            metric.set_label(pair.into_iter().collect());
            metric.set_histogram(histogram(tally));
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(desc.fq_name.clone());
        family.set_help(desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

fn histogram(tally: &Tally) -> Histogram {
    let mut histogram = Histogram::default();
    histogram.set_sample_count(tally.count());
    histogram.set_sample_sum(tally.sum());
    let buckets = tally.cumulative().map(|(bound, count)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound);
        bucket.set_cumulative_count(count);
        bucket
    });
    histogram.set_bucket(buckets.collect());
    histogram
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn what_is_set_is_shown_as_prometheus_wants_it() {
        let registry = Registry::new();
        let label = Some(("queue", &["session", "shared"][..]));
        let queues = Distribution::register(&registry, ("queues", "Queues."), &[0.0, 10.0], label).unwrap();
        let mut tally = Tally::new(&[0.0, 10.0]);
        for length in [0.0, 4.0, 99.0] {
            tally.observe(length);
        }
        queues.set_for("session", tally);
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let expected = "# HELP troupemq_queues Queues.\n# TYPE troupemq_queues histogram\n\
            troupemq_queues_bucket{queue=\"session\",le=\"0\"} 1\n\
            troupemq_queues_bucket{queue=\"session\",le=\"10\"} 2\n\
            troupemq_queues_bucket{queue=\"session\",le=\"+Inf\"} 3\n\
            troupemq_queues_sum{queue=\"session\"} 103\n\
            troupemq_queues_count{queue=\"session\"} 3\n\
            troupemq_queues_bucket{queue=\"shared\",le=\"0\"} 0\n\
            troupemq_queues_bucket{queue=\"shared\",le=\"10\"} 0\n\
            troupemq_queues_bucket{queue=\"shared\",le=\"+Inf\"} 0\n\
            troupemq_queues_sum{queue=\"shared\"} 0\n\
            troupemq_queues_count{queue=\"shared\"} 0\n";
        assert_eq!(text, expected);
    }
}
