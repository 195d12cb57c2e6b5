//! Metrics with HiveMQ's names (spec/hivemq.md 5.1, 5.2) that are plain numbers. Packet counters are in `packet_type`, those of the
//! add-ons in `addon_counter`.

use prometheus::{IntGauge, Registry};

use super::naming::{self, Kind};
use crate::signal::DropReason;

macro_rules! hivemq_metrics {
    ($($(#[$doc:meta])* $field:ident: $kind:ident $name:literal;)*) => {
        /// Numbers of this node; dashboards add the nodes up.
        #[derive(Debug)]
        pub struct HiveMqMetrics { $($(#[$doc])* pub $field: IntGauge,)* }

        impl HiveMqMetrics {
            pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
                Ok(Self { $($field: naming::register(registry, Kind::$kind, concat!("com.hivemq.", $name))?,)* })
            }
        }
    };
}

hivemq_metrics! {
    /// Clients whose CONNECT was accepted and whose connection is open. Moved by `Metrics::connection_opened` and `_closed`.
    connections_current: Gauge "networking.connections.current";
    connections_closed_total: Counter "networking.connections-closed.total.count";
    connections_closed_graceful: Counter "networking.connections-closed.graceful.count";
    connections_closed_ungraceful: Counter "networking.connections-closed.ungraceful.count";
    keep_alive_disconnects: Counter "keep-alive.disconnect.count";
    /// Bytes on client connections since the start.
    bytes_read_total: Gauge "networking.bytes.read.total";
    bytes_written_total: Gauge "networking.bytes.write.total";
    not_writable_current: Counter "mqtt.connection.not-writable.current";

    dropped_queue_full: Counter "messages.dropped.queue-full.count";
    dropped_qos0_memory_exceeded: Counter "messages.dropped.qos-0-memory-exceeded.count";
    dropped_not_writable: Counter "messages.dropped.not-writable.count";
    dropped_message_too_large: Counter "messages.dropped.message-too-large.count";
    /// Packets other than PUBLISH that exceeded a client's Maximum Packet Size; not a dropped message.
    dropped_packet_too_large: Counter "messages.dropped.mqtt-packet-too-large.count";
    dropped_inbound_intercepted: Counter "messages.dropped.publish-inbound-intercepted.count";
    dropped_internal_error: Counter "messages.dropped.internal-error.count";
    without_matching_subscribers: Counter "publish.without-matching-subscribers";

    retained_current: Gauge "messages.retained.current";
    /// Of the shards this node leads, as the count is.
    retained_memory_bytes: Gauge "persistence.retained-messages.in-memory.total-size";
    /// Queued messages that are kept in memory although they are on disk.
    queued_memory_bytes: Gauge "persistence.queued-messages.in-memory.total-size";
    /// Messages waiting in the queues this node holds.
    queued_current: Gauge "messages.queued.count";
    /// Wills of connected clients and those whose delay runs.
    wills_current: Counter "messages.will.count.current";
    wills_published_total: Counter "messages.will.published.count.total";
    subscriptions_current: Counter "subscriptions.overall.current";
    /// Connected clients and offline persistent sessions.
    sessions_current: Gauge "sessions.overall.current";
    sessions_persistent_active: Gauge "sessions.persistent.active";
    qos0_memory_used_bytes: Gauge "qos-0-memory.used";
    qos0_memory_max_bytes: Gauge "qos-0-memory.max";
    /// Aliases of both directions.
    topic_alias_count: Gauge "topic-alias.count.total";
    topic_alias_memory_bytes: Gauge "topic-alias.memory.usage";

    cluster_nodes: Gauge "cluster.nodes.count";
    /// Cores the process may use; HiveMQ's licence count has no counterpart.
    cpu_cores_used: Gauge "cpu-cores.used";
    /// 0 to 9: `actor::overload` says what it comes from.
    overload_level: Gauge "overload-protection.level";
    /// Clients that are not read because of the node's load or `restrictions/incoming-bandwidth-throttling`.
    backpressure_active: Gauge "overload-protection.clients.backpressure-active";
}

impl HiveMqMetrics {
    /// The counter of a drop reason; HiveMQ is not known to have one for messages prevented outbound or not retained.
    pub(super) fn drop_reason(&self, reason: DropReason) -> Option<&IntGauge> {
        match reason {
            DropReason::ClientMessageQueueFull => Some(&self.dropped_queue_full),
            DropReason::Qos0MemoryExceeded => Some(&self.dropped_qos0_memory_exceeded),
            DropReason::Qos0ChannelNotWritable => Some(&self.dropped_not_writable),
            DropReason::MaximumPacketSizeExceeded => Some(&self.dropped_message_too_large),
            DropReason::ExtensionPreventedInbound => Some(&self.dropped_inbound_intercepted),
            DropReason::ExtensionPreventedOutbound | DropReason::RetainedMessageLimitReached => None,
            DropReason::InternalError => Some(&self.dropped_internal_error),
        }
    }
}
