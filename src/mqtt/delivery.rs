//! One copy of an Application Message on its way to one receiver.

use std::sync::Arc;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

use super::{Message, QoS};

/// Subscription Identifiers of the subscriptions that matched, in no particular order.
pub type SubscriptionIds = SmallVec<[u32; 2]>;

/// A message as one client is to receive it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub message: Arc<Message>,
    /// Minimum of the publisher's and the granted QoS.
    pub qos: QoS,
    /// RETAIN as sent: set for a retained message at subscribe time, else the publisher's flag where the subscription has
    /// Retain As Published [MQTT-3.3.1-8] to [MQTT-3.3.1-13].
    pub retain: bool,
    pub subscription_ids: SubscriptionIds,
    /// Sent before on an earlier connection of the session [MQTT-3.3.1-1].
    pub dup: bool,
    pub source: Source,
}

/// Where the copy waits until it is acknowledged, and so who is told.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Source {
    /// The connection's own queue in memory: QoS 0, and QoS 1/2 of a clean session.
    Local,
    /// The session's replicated queue, at this position. The Packet Identifier is a function of `seq`, so that no failover can
    /// change it: `1 + (seq - 1) mod 32,767`. Identifiers from 32,768 on belong to the other sources.
    Queue { seq: u64 },
    /// The replicated queue of a shared subscription.
    Share { group: GroupId, seq: u64 },
    /// The connection's own queue in memory: QoS 0 of a shared subscription.
    Member { group: GroupId },
}

/// A shared subscription of the cluster: messages for it are handed to one member each.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GroupId {
    pub share: ByteString,
    pub filter: ByteString,
}

impl GroupId {
    /// `$share/<name>/<filter>`.
    pub fn full(&self) -> ByteString {
        format!("$share/{}/{}", self.share, self.filter).into()
    }
}
