//! The session machine of one connection.

use std::sync::Arc;

use criterion::{Criterion, Throughput};
use troupemq::auth::Verdict;
use troupemq::mqtt::packet::PublishAck;
use troupemq::mqtt::{Delivery, Packet, QoS, ReasonCode, Source, SubscriptionIds};
use troupemq::session::{AliasMemory, Effect, KeepAlivePolicy, Machine, Now, Registered, SessionSettings};

use crate::make;

const NOW: Now = Now { mono_ms: 1_000, wall_ms: make::NOW_MS };

pub fn all(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("session");
    group.throughput(Throughput::Elements(1));
    let settings = Arc::new(settings());
    group.bench_function("CONNECT to CONNACK", |bench| bench.iter(|| connected(&settings)));
    for qos in [QoS::AtMostOnce, QoS::AtLeastOnce] {
        let (mut machine, mut out) = (connected(&settings), Vec::new());
        group.bench_function(format!("PUBLISH QoS {} in, acknowledged", qos as u8), |bench| {
            bench.iter(|| {
                machine.handle_packet(Packet::Publish(Box::new(make::publish(qos))), &String::new, NOW, &mut out);
                if let Some(Effect::Publish { ticket, .. }) = out.pop() {
                    machine.handle_published(ticket, ReasonCode::Success, NOW, &mut out);
                }
                out.clear();
            });
        });
        let message = make::message(qos);
        group.bench_function(format!("PUBLISH QoS {} out, acknowledged", qos as u8), |bench| {
            bench.iter(|| {
                let subscription_ids = SubscriptionIds::new();
                let delivery = Delivery {
                    message: Arc::clone(&message),
                    qos,
                    retain: false,
                    subscription_ids,
                    dup: false,
                    source: Source::Local,
                };
                assert!(machine.deliver(delivery, NOW, &mut out));
                if let Some(Effect::Send(Packet::Publish(sent))) = out.pop()
                    && let Some(packet_id) = sent.packet_id
                {
                    let ack = PublishAck {
                        packet_id,
                        reason_code: ReasonCode::Success,
                        reason_string: None,
                        user_properties: Vec::new(),
                    };
                    machine.handle_packet(Packet::Puback(ack), &String::new, NOW, &mut out);
                }
                out.clear();
            });
        });
    }
    group.finish();
}

fn connected(settings: &Arc<SessionSettings>) -> Machine {
    let (mut machine, mut out) = (Machine::new(Arc::clone(settings), NOW), Vec::new());
    machine.handle_packet(Packet::Connect(Box::new(make::connect("gateway"))), &String::new, NOW, &mut out);
    machine.handle_authenticated(Verdict::Accept { principal: Arc::default(), data: None }, NOW, &mut out);
    machine.handle_registered(Ok(Registered::default()), NOW, &mut out);
    assert!(matches!(out.last(), Some(Effect::Send(Packet::Connack(_)))));
    machine
}

/// The defaults of `config.xml`.
fn settings() -> SessionSettings {
    SessionSettings {
        session_expiry_max_s: u32::MAX,
        message_expiry_max_s: None,
        max_packet_size_bytes: 268_435_460,
        server_receive_maximum: 10,
        keep_alive_policy: KeepAlivePolicy::HiveMq { max_s: 65_535, allow_unlimited: true },
        keep_alive_multiplier_milli: 1500,
        topic_alias_max: 5,
        sent_topic_alias_max: 16,
        alias_memory: AliasMemory::default(),
        response_information: None,
        server_reference: None,
        subscription_identifiers: true,
        wildcard_subscriptions: true,
        shared_subscriptions: true,
        max_qos: QoS::ExactlyOnce,
        retained_messages: true,
        allow_empty_client_id: true,
        payload_format_validation: false,
        utf8_validation: true,
        allow_request_problem_information: true,
        max_client_id_length: 65_535,
        max_topic_length: 65_535,
        no_connect_idle_timeout_ms: 10_000,
        max_inflight: 50,
    }
}
