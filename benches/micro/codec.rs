//! Bytes to packets and back.

use bytes::{Bytes, BytesMut};
use criterion::{BatchSize, Criterion, Throughput};
use std::hint::black_box;
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, codec};

use crate::make;

const MAX: usize = 1 << 28;

pub fn all(criterion: &mut Criterion) {
    let packets = [
        ("CONNECT", Packet::Connect(Box::new(make::connect("gateway-000001")))),
        ("PUBLISH QoS 0, 64 bytes", Packet::Publish(Box::new(make::publish(QoS::AtMostOnce)))),
        ("PUBLISH QoS 1, 64 bytes", Packet::Publish(Box::new(make::publish(QoS::AtLeastOnce)))),
        ("PINGREQ", Packet::Pingreq),
    ];
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for (name, packet) in &packets {
        let bytes = encoded(packet);
        group.bench_function(*name, |bench| {
            bench.iter_batched(
                || bytes.clone(),
                |bytes| {
                    let frame = codec::frame(&bytes, MAX).ok().flatten().expect("a frame");
                    codec::decode(frame, bytes, Some(ProtocolVersion::V5)).expect("a packet")
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(1));
    for (name, packet) in &packets[1..3] {
        let mut out = BytesMut::with_capacity(4096);
        group.bench_function(*name, |bench| {
            bench.iter(|| {
                out.clear();
                codec::encode(black_box(packet), ProtocolVersion::V5, &mut out);
            });
        });
    }
    group.finish();
}

pub fn encoded(packet: &Packet) -> Bytes {
    let mut out = BytesMut::new();
    codec::encode(packet, ProtocolVersion::V5, &mut out);
    out.freeze()
}
