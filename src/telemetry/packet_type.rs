//! Control Packets by direction, as the packet counters name them (spec/hivemq.md 5.2): two closed lists.

use prometheus::{IntCounter, IntGauge, Registry};

use super::naming::{self, Kind};
use crate::mqtt::Packet;

macro_rules! packets {
    ($(#[$doc:meta])* $name:ident, $prefix:literal: $($variant:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($variant,)* }

        impl $name {
            /// All of them, in the order of their discriminants.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The dotted metric name.
            pub fn metric(self) -> &'static str {
                match self { $(Self::$variant => concat!("com.hivemq.messages.", $prefix, ".", $text, ".count"),)* }
            }
        }
    };
}

packets! {
    /// Packets that clients send. CONNECT is counted by protocol version; `incoming.connect.count` is the sum.
    IncomingPacket, "incoming":
    Auth = "auth",
    ConnectMqtt3 = "connect.mqtt3",
    ConnectMqtt5 = "connect.mqtt5",
    Disconnect = "disconnect",
    Pingreq = "pingreq",
    Puback = "puback",
    Pubcomp = "pubcomp",
    Publish = "publish",
    Pubrec = "pubrec",
    Pubrel = "pubrel",
    Subscribe = "subscribe",
    Unsubscribe = "unsubscribe",
}

packets! {
    /// Packets that the broker sends.
    OutgoingPacket, "outgoing":
    Auth = "auth",
    Connack = "connack",
    Disconnect = "disconnect",
    Pingresp = "pingresp",
    Puback = "puback",
    Pubcomp = "pubcomp",
    Publish = "publish",
    Pubrec = "pubrec",
    Pubrel = "pubrel",
    Suback = "suback",
    Unsuback = "unsuback",
}

impl IncomingPacket {
    /// The counter of a packet; `None` for what only a server sends.
    pub fn of(packet: &Packet) -> Option<Self> {
        Some(match packet {
            Packet::Connect(connect) if connect.protocol.is_v5() => Self::ConnectMqtt5,
            Packet::Connect(_) => Self::ConnectMqtt3,
            Packet::Publish(_) => Self::Publish,
            Packet::Puback(_) => Self::Puback,
            Packet::Pubrec(_) => Self::Pubrec,
            Packet::Pubrel(_) => Self::Pubrel,
            Packet::Pubcomp(_) => Self::Pubcomp,
            Packet::Subscribe(_) => Self::Subscribe,
            Packet::Unsubscribe(_) => Self::Unsubscribe,
            Packet::Pingreq => Self::Pingreq,
            Packet::Disconnect(_) => Self::Disconnect,
            Packet::Auth(_) => Self::Auth,
            Packet::Connack(_) | Packet::Suback(_) | Packet::Unsuback(_) | Packet::Pingresp => return None,
        })
    }
}

impl OutgoingPacket {
    /// The counter of a packet; `None` for what only a client sends.
    pub fn of(packet: &Packet) -> Option<Self> {
        Some(match packet {
            Packet::Connack(_) => Self::Connack,
            Packet::Publish(_) => Self::Publish,
            Packet::Puback(_) => Self::Puback,
            Packet::Pubrec(_) => Self::Pubrec,
            Packet::Pubrel(_) => Self::Pubrel,
            Packet::Pubcomp(_) => Self::Pubcomp,
            Packet::Suback(_) => Self::Suback,
            Packet::Unsuback(_) => Self::Unsuback,
            Packet::Pingresp => Self::Pingresp,
            Packet::Disconnect(_) => Self::Disconnect,
            Packet::Auth(_) => Self::Auth,
            Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::Pingreq => return None,
        })
    }
}

/// Counts of packets in both directions. Moving one is one relaxed atomic addition; the sums are made when they are read.
#[derive(Debug)]
pub(super) struct PacketCounts {
    incoming: Vec<IntGauge>,
    incoming_connect: IntGauge,
    incoming_total: IntGauge,
    outgoing: Vec<IntGauge>,
    outgoing_total: IntGauge,
    /// What counts up beside a gauge of the same number.
    meters: Vec<(IntGauge, IntCounter)>,
}

impl PacketCounts {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name| naming::register(registry, Kind::Counter, name);
        let incoming: Vec<IntGauge> =
            IncomingPacket::ALL.iter().map(|p| counter(p.metric())).collect::<Result<_, prometheus::Error>>()?;
        let incoming_connect = counter("com.hivemq.messages.incoming.connect.count")?;
        let incoming_total = counter("com.hivemq.messages.incoming.total.count")?;
        let outgoing: Vec<IntGauge> =
            OutgoingPacket::ALL.iter().map(|p| counter(p.metric())).collect::<Result<_, prometheus::Error>>()?;
        let outgoing_total = counter("com.hivemq.messages.outgoing.total.count")?;
        let metered = [
            ("incoming.total", Some(&incoming_total)),
            ("incoming.publish", incoming.get(IncomingPacket::Publish as usize)),
            ("incoming.connect", Some(&incoming_connect)),
            ("outgoing.total", Some(&outgoing_total)),
            ("outgoing.publish", outgoing.get(OutgoingPacket::Publish as usize)),
        ];
        let mut meters = Vec::new();
        for (name, gauge) in metered {
            let meter = naming::register_meter(registry, &format!("com.hivemq.messages.{name}.rate"))?;
            meters.extend(gauge.map(|gauge| (gauge.clone(), meter)));
        }
        Ok(Self { incoming, incoming_connect, incoming_total, outgoing, outgoing_total, meters })
    }

    pub(super) fn received(&self, packet: IncomingPacket, count: i64) {
        if let Some(counter) = self.incoming.get(packet as usize) {
            counter.add(count);
        }
    }

    pub(super) fn sent(&self, packet: OutgoingPacket, count: i64) {
        if let Some(counter) = self.outgoing.get(packet as usize) {
            counter.add(count);
        }
    }

    pub(super) fn received_count(&self, packet: IncomingPacket) -> i64 {
        self.incoming.get(packet as usize).map_or(0, IntGauge::get)
    }

    pub(super) fn sent_count(&self, packet: OutgoingPacket) -> i64 {
        self.outgoing.get(packet as usize).map_or(0, IntGauge::get)
    }

    /// Brings the sums up to date.
    pub(super) fn sum_up(&self) {
        let connects = self.received_count(IncomingPacket::ConnectMqtt3) + self.received_count(IncomingPacket::ConnectMqtt5);
        self.incoming_connect.set(connects);
        self.incoming_total.set(self.incoming.iter().map(IntGauge::get).sum());
        self.outgoing_total.set(self.outgoing.iter().map(IntGauge::get).sum());
        for (gauge, meter) in &self.meters {
            let count = u64::try_from(gauge.get()).unwrap_or(0);
            meter.inc_by(count.saturating_sub(meter.get()));
        }
    }
}
