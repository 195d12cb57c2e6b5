//! Messages between nodes that are not consensus.

use std::sync::Arc;

use bytes::Bytes;
use bytestring::ByteString;
use serde::{Deserialize, Serialize};

use crate::mqtt::{GroupId, Message, QoS, SubscriptionIds};
use crate::replica::body::{INLINE_BYTES_MAX, with_payload};
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
    /// The same where the message is large: the member's node takes it from its own replica of the group's queue.
    DispatchStored {
        group: GroupId,
        seq: u64,
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
    /// The member has as many entries of the group as it takes: another is to get this one.
    DispatchRefused {
        group: GroupId,
        seq: u64,
        connection: ConnectionRef,
    },
}

impl PeerMessage {
    /// Takes a large payload out, to be sent behind the message; empty where there is none.
    pub fn cut(&mut self) -> Bytes {
        match self.message_mut() {
            Some(message) if message.payload.len() > INLINE_BYTES_MAX => {
                let payload = message.payload.clone();
                *message = with_payload(message, Bytes::new());
                payload
            }
            _ => Bytes::new(),
        }
    }

    /// Puts the payload back.
    pub fn fill(&mut self, payload: Bytes) {
        if let Some(message) = self.message_mut() {
            *message = with_payload(message, payload);
        }
    }

    /// The protocol version that brought it.
    pub fn since(&self) -> u16 {
        match self {
            Self::Commands { .. }
            | Self::Publish { .. }
            | Self::DeliverShared { .. }
            | Self::Dispatch { .. }
            | Self::DispatchStored { .. }
            | Self::DispatchDone { .. }
            | Self::Settle { .. }
            | Self::Settled { .. } => 2,
            Self::DispatchRefused { .. } => 3,
        }
    }

    /// Whose message it carries, where the order of messages counts.
    pub fn publisher(&self) -> Option<&ByteString> {
        match self {
            Self::Publish { message } | Self::DeliverShared { message, .. } | Self::Dispatch { message, .. } => {
                message.publisher()
            }
            Self::Commands { .. }
            | Self::DispatchStored { .. }
            | Self::DispatchDone { .. }
            | Self::Settle { .. }
            | Self::Settled { .. }
            | Self::DispatchRefused { .. } => None,
        }
    }

    fn message_mut(&mut self) -> Option<&mut Arc<Message>> {
        match self {
            Self::Publish { message } | Self::DeliverShared { message, .. } | Self::Dispatch { message, .. } => Some(message),
            Self::Commands { .. }
            | Self::DispatchStored { .. }
            | Self::DispatchDone { .. }
            | Self::Settle { .. }
            | Self::Settled { .. }
            | Self::DispatchRefused { .. } => None,
        }
    }
}
