use super::*;
use crate::mqtt::ProtocolVersion;
use crate::mqtt::packet::{Connect, ConnectProperties};
use crate::telemetry::{RaftGroupSample, SubmitFailure};

fn connect(protocol: ProtocolVersion) -> Packet {
    Packet::Connect(Box::new(Connect {
        protocol,
        clean_start: true,
        keep_alive: 0,
        client_id: "c".into(),
        will: None,
        username: None,
        password: None,
        properties: ConnectProperties::default(),
    }))
}

/// The value of a sample line, by its name with labels.
fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn every_name_that_dashboards_ask_for_is_there_from_the_start() {
    let text = Metrics::new().unwrap().encode();
    let packets_in =
        ["connect", "pingreq", "puback", "pubcomp", "publish", "pubrec", "pubrel", "subscribe", "unsubscribe", "total"];
    let packets_out = ["connack", "pingresp", "puback", "pubcomp", "publish", "pubrec", "pubrel", "suback", "unsuback", "total"];
    let others = [
        "messages_dropped_count",
        "messages_dropped_queue_full_count",
        "messages_dropped_qos_0_memory_exceeded_count",
        "messages_dropped_not_writable_count",
        "messages_dropped_message_too_large_count",
        "messages_dropped_mqtt_packet_too_large_count",
        "messages_dropped_publish_inbound_intercepted_count",
        "messages_dropped_internal_error_count",
        "messages_queued_count",
        "messages_retained_current",
        "persistence_retained_messages_in_memory_total_size",
        "messages_will_count_current",
        "messages_will_published_count_total",
        "networking_connections_current",
        "networking_connections_closed_total_count",
        "networking_connections_closed_graceful_count",
        "networking_connections_closed_ungraceful_count",
        "networking_bytes_read_total",
        "networking_bytes_write_total",
        "sessions_overall_current",
        "sessions_persistent_active",
        "subscriptions_overall_current",
        "publish_without_matching_subscribers",
        "keep_alive_disconnect_count",
        "cluster_nodes_count",
        "overload_protection_level",
        "overload_protection_clients_backpressure_active",
        "messages_expired_messages",
        "messages_expired_topic_dead_count",
        "messages_dropped_topic_message_created_shared_count",
        "messages_client_lifecycle_topic_skipped_count",
    ];
    let names = packets_in
        .iter()
        .map(|p| format!("messages_incoming_{p}_count"))
        .chain(packets_out.iter().map(|p| format!("messages_outgoing_{p}_count")))
        .chain(others.iter().map(|name| (*name).to_owned()));
    for name in names {
        assert_eq!(value(&text, &format!("com_hivemq_{name}")), Some(0.0), "{name}");
        // What ends as a counter's name does, and is HiveMQ's gauge, has no type: promtool would complain.
        let kind = if name.ends_with("_count") || name.ends_with("_total") { "untyped" } else { "gauge" };
        assert!(text.contains(&format!("# TYPE com_hivemq_{name} {kind}\n")), "{name}");
    }
}

#[test]
fn help_is_the_one_of_the_dropwizard_import() {
    let text = Metrics::new().unwrap().encode();
    assert!(text.contains(
        "# HELP com_hivemq_messages_expired_topic_dead_count Generated from Dropwizard metric import \
         (metric=com.hivemq.messages.expired.topic.dead.count, type=com.codahale.metrics.Counter)\n"
    ));
    assert!(text.contains("(metric=com.hivemq.networking.connections.current, type=com.codahale.metrics.Gauge)\n"));
}

#[test]
fn packets_are_counted_by_type_and_in_total() {
    let metrics = Metrics::new().unwrap();
    metrics.received(&connect(ProtocolVersion::V5));
    metrics.received(&connect(ProtocolVersion::V3_1_1));
    metrics.received(&connect(ProtocolVersion::V3_1));
    metrics.received(&Packet::Pingreq);
    metrics.sent(&Packet::Pingresp);
    metrics.sent_many(OutgoingPacket::Publish, 64);
    // What a peer cannot send in that direction moves nothing.
    metrics.received(&Packet::Pingresp);
    metrics.sent(&Packet::Pingreq);
    let text = metrics.encode();
    for (series, expected) in [
        ("com_hivemq_messages_incoming_connect_mqtt5_count", 1.0),
        ("com_hivemq_messages_incoming_connect_mqtt3_count", 2.0),
        ("com_hivemq_messages_incoming_connect_count", 3.0),
        ("com_hivemq_messages_incoming_pingreq_count", 1.0),
        ("com_hivemq_messages_incoming_total_count", 4.0),
        ("com_hivemq_messages_outgoing_pingresp_count", 1.0),
        ("com_hivemq_messages_outgoing_publish_count", 64.0),
        ("com_hivemq_messages_outgoing_total_count", 65.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
}

#[test]
fn closed_connections_are_counted_by_how_they_ended() {
    let metrics = Metrics::new().unwrap();
    let ends = [
        (Initiator::Client, Some(ReasonCode::Success)),
        (Initiator::Server, Some(ReasonCode::KeepAliveTimeout)),
        (Initiator::Server, Some(ReasonCode::ProtocolError)),
        (Initiator::SessionTakenOver, Some(ReasonCode::SessionTakenOver)),
        (Initiator::Unspecified, None),
    ];
    for _ in &ends {
        metrics.connection_opened();
    }
    metrics.connection_opened();
    for (initiator, reason_code) in ends {
        metrics.connection_closed(initiator, reason_code);
    }
    let hivemq = &metrics.hivemq;
    assert_eq!(hivemq.connections_current.get(), 1);
    assert_eq!(hivemq.connections_closed_total.get(), 5);
    assert_eq!(hivemq.connections_closed_graceful.get(), 1);
    assert_eq!(hivemq.connections_closed_ungraceful.get(), 4);
    assert_eq!(hivemq.keep_alive_disconnects.get(), 1);
}

#[test]
fn each_drop_reason_has_its_counter() {
    let metrics = Metrics::new().unwrap();
    let reasons = [
        (DropReason::ClientMessageQueueFull, "queue_full"),
        (DropReason::Qos0MemoryExceeded, "qos_0_memory_exceeded"),
        (DropReason::Qos0ChannelNotWritable, "not_writable"),
        (DropReason::MaximumPacketSizeExceeded, "message_too_large"),
        (DropReason::ExtensionPreventedInbound, "publish_inbound_intercepted"),
        (DropReason::InternalError, "internal_error"),
    ];
    for (reason, _) in reasons {
        metrics.dropped_because(reason);
    }
    metrics.dropped_because(DropReason::ExtensionPreventedOutbound);
    let text = metrics.encode();
    for (_, name) in reasons {
        assert_eq!(value(&text, &format!("com_hivemq_messages_dropped_{name}_count")), Some(1.0), "{name}");
    }
}

#[test]
fn addon_counters_move_under_their_names() {
    let metrics = Metrics::new().unwrap();
    for (n, counter) in AddonCounter::ALL.iter().enumerate() {
        metrics.addon(*counter, n + 1);
    }
    let text = metrics.encode();
    for (n, counter) in AddonCounter::ALL.iter().enumerate() {
        let count = i64::try_from(n + 1).unwrap();
        assert_eq!(metrics.addon_count(*counter), count);
        let series = counter.name().replace(['.', '-'], "_");
        assert_eq!(value(&text, &series).map(|v| v.to_string()), Some(count.to_string()), "{series}");
    }
}

#[test]
fn raft_groups_are_labelled_and_leave_with_their_group() {
    let metrics = Metrics::new().unwrap();
    let group = |group: &str, is_leader| RaftGroupSample {
        group: group.to_owned(),
        has_leader: true,
        is_leader,
        term: 3,
        last_log_index: 12,
        committed_index: Some(11),
        applied_index: 10,
        snapshot_index: 5,
        lag: 1,
        leader_changes: 2,
    };
    metrics.own.set_raft_groups(&[group("meta", true), group("0", false)]);
    let text = metrics.encode();
    for (series, expected) in [
        (r#"troupemq_raft_is_leader{group="meta"}"#, 1.0),
        (r#"troupemq_raft_is_leader{group="0"}"#, 0.0),
        (r#"troupemq_raft_has_leader{group="0"}"#, 1.0),
        (r#"troupemq_raft_term{group="0"}"#, 3.0),
        (r#"troupemq_raft_last_log_index{group="0"}"#, 12.0),
        (r#"troupemq_raft_committed_index{group="0"}"#, 11.0),
        (r#"troupemq_raft_applied_index{group="0"}"#, 10.0),
        (r#"troupemq_raft_snapshot_index{group="0"}"#, 5.0),
        (r#"troupemq_raft_lag_entries{group="0"}"#, 1.0),
        (r#"troupemq_raft_leader_changes_total{group="0"}"#, 2.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}");
    }
    metrics.own.set_raft_groups(&[group("meta", true)]);
    assert!(!metrics.encode().contains(r#"group="0""#));
}

#[test]
fn own_metrics_keep_to_prometheus_conventions() {
    let metrics = Metrics::new().unwrap();
    metrics.own.set_flushes(2, 0.5);
    metrics.own.set_flushes(3, 0.75);
    metrics.own.submit_failed(SubmitFailure::Overloaded);
    let text = metrics.encode();
    assert_eq!(value(&text, r#"troupemq_submit_failures_total{cause="overloaded"}"#), Some(1.0));
    assert_eq!(value(&text, r#"troupemq_submit_failures_total{cause="unavailable"}"#), Some(0.0));
    assert_eq!(value(&text, "troupemq_storage_flushes_total"), Some(3.0));
    assert_eq!(value(&text, "troupemq_storage_flush_seconds_total"), Some(0.75));
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE troupemq_")?.split_once(' '));
    for (name, kind) in types {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} {kind}");
    }
}

#[test]
fn a_scrape_samples_first() {
    struct Nodes;
    impl Sampled for Nodes {
        fn sample(&self, metrics: &Metrics) {
            metrics.hivemq.cluster_nodes.set(3);
        }
    }
    let text = Metrics::new().unwrap().scrape(&Nodes);
    assert_eq!(value(&text, "com_hivemq_cluster_nodes_count"), Some(3.0));
}

#[test]
fn two_nodes_in_one_process_count_apart() {
    let (one, other) = (Metrics::new().unwrap(), Metrics::new().unwrap());
    one.transferred(10, 0);
    one.transferred(0, 7);
    assert_eq!(one.hivemq.bytes_read_total.get(), 10);
    assert_eq!(one.hivemq.bytes_written_total.get(), 7);
    assert_eq!(other.hivemq.bytes_read_total.get(), 0);
}

#[test]
fn meters_count_what_their_counters_do() {
    let metrics = Metrics::new().unwrap();
    metrics.received_many(IncomingPacket::Publish, 3);
    metrics.received_many(IncomingPacket::ConnectMqtt5, 1);
    metrics.sent_many(OutgoingPacket::Publish, 2);
    metrics.encode();
    metrics.sent_many(OutgoingPacket::Puback, 3);
    let text = metrics.encode();
    let expected = [
        ("incoming_total", 4.0),
        ("incoming_publish", 3.0),
        ("incoming_connect", 1.0),
        ("outgoing_total", 5.0),
        ("outgoing_publish", 2.0),
    ];
    for (name, count) in expected {
        assert_eq!(value(&text, &format!("com_hivemq_messages_{name}_rate_total")), Some(count), "{name}");
        assert!(text.contains(&format!("# TYPE com_hivemq_messages_{name}_rate_total counter\n")), "{name}");
    }
}
