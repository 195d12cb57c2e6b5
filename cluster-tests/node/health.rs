//! Metrics and the health API.

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, http, wait};

/// Names that dashboards of HiveMQ query (spec of its charts), and those of the add-ons.
const NAMES: &[&str] = &[
    "messages_incoming_connect_count",
    "messages_incoming_pingreq_count",
    "messages_incoming_puback_count",
    "messages_incoming_pubcomp_count",
    "messages_incoming_publish_count",
    "messages_incoming_pubrec_count",
    "messages_incoming_pubrel_count",
    "messages_incoming_subscribe_count",
    "messages_incoming_unsubscribe_count",
    "messages_outgoing_connack_count",
    "messages_outgoing_pingresp_count",
    "messages_outgoing_puback_count",
    "messages_outgoing_pubcomp_count",
    "messages_outgoing_publish_count",
    "messages_outgoing_pubrec_count",
    "messages_outgoing_pubrel_count",
    "messages_outgoing_suback_count",
    "messages_outgoing_unsuback_count",
    "messages_dropped_count",
    "messages_dropped_queue_full_count",
    "messages_queued_count",
    "messages_retained_current",
    "networking_connections_current",
    "sessions_overall_current",
    "subscriptions_overall_current",
    "cluster_nodes_count",
    "overload_protection_level",
    "overload_protection_clients_backpressure_active",
    "messages_expired_messages",
    "messages_expired_topic_enqueued_count",
    "messages_dropped_topic_message_created_client_count",
    "messages_dead_count",
    "messages_dead_topic_enqueued_count",
    "messages_client_lifecycle_topic_published_count",
    "messages_client_lifecycle_topic_skipped_count",
];

#[tokio::test]
async fn metrics_have_their_names_and_move() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let before = node.metrics();
    let full = |name: &str| format!("com_hivemq_{name}");
    for name in NAMES {
        assert!(before.contains_key(&full(name)), "no {name}");
    }
    for name in ["troupemq_raft_is_leader", "troupemq_raft_term", "troupemq_raft_applied_index"] {
        assert!(before.keys().any(|key| key.starts_with(name)), "no {name}");
    }

    let mut sleeper = Client::connect(node.mqtt(), &Options::v5("sleeper").persistent()).await;
    sleeper.subscribe("queue", QoS::AtLeastOnce).await;
    sleeper.disconnect().await;
    let mut client = Client::connect(node.mqtt(), &Options::v5("client")).await;
    client.subscribe("echo", QoS::ExactlyOnce).await;
    client.publish("echo", b"x", QoS::ExactlyOnce).await;
    client.message().await;
    client.publish("queue", b"x", QoS::AtLeastOnce).await;
    client.publish_retained("echo", b"kept", QoS::AtLeastOnce).await;
    client.message().await;
    client.publish("nobody", b"x", QoS::AtLeastOnce).await;
    client.ping().await;

    let moved = [
        ("messages_incoming_connect_count", 2.0),
        ("messages_incoming_publish_count", 4.0),
        ("messages_incoming_pubrel_count", 1.0),
        ("messages_outgoing_publish_count", 2.0),
        ("messages_outgoing_puback_count", 3.0),
        ("messages_dead_count", 1.0),
        ("messages_client_lifecycle_topic_published_count", 3.0),
        ("networking_connections_current", 1.0),
        ("sessions_overall_current", 2.0),
        ("subscriptions_overall_current", 2.0),
        ("messages_queued_count", 1.0),
        ("messages_retained_current", 1.0),
        ("persistence_retained_messages_in_memory_total_size", 1.0),
    ];
    for (name, by) in moved {
        let was = before[&full(name)];
        wait::until(&format!("{name} has risen by {by} from {was}"), SOON, || {
            (node.metric(&full(name)) - was >= by).then_some(())
        });
    }
    client.disconnect().await;
    let name = full("networking_connections_current");
    wait::until("no connection is counted", SOON, || (node.metric(&name) == 0.0).then_some(()));
}

#[test]
fn a_node_is_up_when_it_has_announced_itself() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for path in ["", "/", "/liveness", "/readiness", "/cluster", "/mqtt"] {
        let (status, body) = http::get(node.http(), &format!("/api/v1/health{path}")).expect("an answer");
        let json: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, json["status"].as_str()), (200, Some("UP")), "{path}: {body}");
    }
    let (status, _) = http::get(node.http(), "/api/v1/health/unknown").expect("an answer");
    assert_eq!(status, 404);
}
