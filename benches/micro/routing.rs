//! Matching a topic among up to a million filters, and changing them.

use bytestring::ByteString;
use criterion::{BenchmarkId, Criterion, Throughput};
use std::hint::black_box;
use troupemq::mqtt::packet::{RetainHandling, SubscriptionOptions};
use troupemq::mqtt::{QoS, SubscriptionFilter};
use troupemq::routing::Table;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
const OPTIONS: SubscriptionOptions = SubscriptionOptions {
    qos: QoS::AtLeastOnce,
    no_local: false,
    retain_as_published: false,
    retain_handling: RetainHandling::Send,
};

pub fn all(criterion: &mut Criterion) {
    for size in SIZES {
        let table = filled(size);
        let topics: Vec<String> = (0..1_000).map(|n| format!("site/{}/sensor/{}", (n * 7_919) % size, n % 10)).collect();
        let mut group = criterion.benchmark_group("match a topic among so many filters, a tenth of them with wildcards");
        group.throughput(Throughput::Elements(1));
        let mut next = 0;
        group.bench_function(BenchmarkId::from_parameter(size), |bench| {
            bench.iter(|| {
                next = (next + 1) % topics.len();
                black_box(table.matches(&topics[next], None))
            });
        });
        group.finish();
        let mut group = criterion.benchmark_group("subscribe and unsubscribe among so many filters");
        group.throughput(Throughput::Elements(1));
        let (client, filter) = (ByteString::from_static("changing"), filter("site/+/changing"));
        group.bench_function(BenchmarkId::from_parameter(size), |bench| {
            bench.iter(|| {
                table.subscribe(0, &client, &filter, OPTIONS, None);
                table.unsubscribe(&client, &filter);
            });
        });
        group.finish();
    }
}

/// Ten filters for each client; each topic of the bench matches about two.
fn filled(size: usize) -> Table {
    let table = Table::new();
    for n in 0..size {
        let client = ByteString::from(format!("client-{}", n / 10));
        let text = if n % 10 == 0 { format!("site/{n}/+/{}", n % 7) } else { format!("site/{n}/sensor/{}", n % 10) };
        table.subscribe(0, &client, &filter(&text), OPTIONS, None);
    }
    table
}

fn filter(text: &str) -> SubscriptionFilter {
    SubscriptionFilter { share: None, filter: text.into() }
}
