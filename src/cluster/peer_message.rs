//! Messages between nodes that are not consensus.

use std::sync::Arc;

use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::mqtt::{GroupId, Message, QoS, SubscriptionIds};
use crate::replica::{Batch, ConnectionRef, ShardId};

/// One message to another node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Commands for the leader of a shard, from their origin.
    Commands {
        shard: ShardId,
        batch: Batch,
    },
    /// A message for the receiver's own clients that are not served by a replicated queue. Never forwarded again.
    Publish {
        message: Arc<Message>,
    },
    /// A QoS 0 message of a shared subscription for one chosen member.
    DeliverShared {
        message: Arc<Message>,
        group: GroupId,
        client: ByteString,
        qos: QoS,
        retain: bool,
        subscription_ids: SubscriptionIds,
    },
    /// An entry of a shared subscription's queue for one member, from its dispatcher.
    Dispatch {
        group: GroupId,
        seq: u64,
        message: Arc<Message>,
        qos: QoS,
        retain: bool,
        subscription_ids: SubscriptionIds,
        dup: bool,
        client: ByteString,
        connection: ConnectionRef,
    },
    /// The member is done with entries (`true`) or gives them back (`false`).
    DispatchDone {
        group: GroupId,
        entries: Vec<(u64, bool)>,
    },
    /// The client connects at the sender: the receiver reads its old connection out and answers when all of that is applied.
    Settle {
        ticket: u64,
        shard: ShardId,
        client: ByteString,
        connection: ConnectionRef,
    },
    Settled {
        ticket: u64,
    },
}
