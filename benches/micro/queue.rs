//! The queue of one connection in memory, at several lengths.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput};
use troupemq::mqtt::{Delivery, QoS, Source, SubscriptionIds};
use troupemq::queue::{ClientQueue, Pop, Push, QueueLimits};

use crate::make;

const LIMITS: QueueLimits = QueueLimits { max_queue_size: 1_000_000, discard_oldest: false, qos0_bytes_max: 1 << 30 };

pub fn all(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue: one in, one out, at so many waiting");
    group.throughput(Throughput::Elements(1));
    let message = make::message(QoS::AtLeastOnce);
    for waiting in [1_usize, 1_000, 10_000, 100_000] {
        let mut queue = ClientQueue::new();
        let delivery = || Delivery {
            message: Arc::clone(&message),
            qos: QoS::AtLeastOnce,
            retain: false,
            subscription_ids: SubscriptionIds::new(),
            dup: false,
            source: Source::Local,
        };
        for _ in 0..waiting {
            assert_eq!(queue.push(delivery(), false, 0, &LIMITS), Push::Accepted);
        }
        group.bench_with_input(BenchmarkId::from_parameter(waiting), &waiting, |bench, _| {
            bench.iter(|| {
                queue.push(delivery(), false, 0, &LIMITS);
                assert!(matches!(queue.pop(50, make::NOW_MS), Pop::Deliver(_)));
            });
        });
    }
    group.finish();
}
