//! Keys of records: one byte for the kind, then the fields. Part of the data format.
//!
//! Kinds are ordered so that in key order an owner comes before what belongs to it. Numbers are big-endian, so that the order of keys is
//! the order of a queue or the outbox. A name that is followed by another name has its length before it; a name followed by a number
//! needs none, since the number has a fixed size.

use bytestring::ByteString;

use super::body::BodyId;
use super::event::Position;
use crate::mqtt::{GroupId, SubscriptionFilter};

/// The owner of a queue.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum QueueOwner {
    Session(ByteString),
    Group(GroupId),
}

/// The key of a record.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum RecordKey {
    Head,
    /// Of a large payload, by number; before everything that refers to it.
    BodyPart(BodyId, u32),
    Session(ByteString),
    QueueHead(ByteString),
    Subscription(ByteString, SubscriptionFilter),
    Received(ByteString, u16),
    /// The group that an entry of a session's queue was assigned from.
    Assigned(ByteString, u64),
    /// How many messages a client takes at a time, where those are few.
    Window(ByteString),
    Group(GroupId),
    Entry(QueueOwner, u64),
    /// The nodes that declare a shared subscription.
    Declared(GroupId),
    Retained(ByteString),
    Outbox(Position),
}

const HEAD: u8 = 0x01;
const BODY_PART: u8 = 0x02;
const SESSION: u8 = 0x10;
const QUEUE_HEAD: u8 = 0x11;
const SUBSCRIPTION: u8 = 0x12;
const RECEIVED: u8 = 0x13;
const SESSION_ENTRY: u8 = 0x14;
const ASSIGNED: u8 = 0x15;
const WINDOW: u8 = 0x16;
const GROUP: u8 = 0x20;
const GROUP_ENTRY: u8 = 0x21;
const DECLARED: u8 = 0x22;
const RETAINED: u8 = 0x30;
const OUTBOX: u8 = 0x40;

/// Whether a record is a message of a queue.
pub fn is_queue_entry(key: &[u8]) -> bool {
    matches!(key.first(), Some(&SESSION_ENTRY | &GROUP_ENTRY))
}

impl RecordKey {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Head => vec![HEAD],
            Self::BodyPart(id, ordinal) => joined(BODY_PART, &[&id.encode(), &ordinal.to_be_bytes()]),
            Self::Session(client) => joined(SESSION, &[client.as_ref()]),
            Self::QueueHead(client) => joined(QUEUE_HEAD, &[client.as_ref()]),
            Self::Subscription(client, SubscriptionFilter { share, filter }) => {
                let share_flag = [u8::from(share.is_some())];
                let share = share.as_ref().map_or("", |share| share);
                let lengths = (length(client), length(share));
                let fields: [&[u8]; 6] =
                    [&lengths.0, client.as_ref(), &share_flag, &lengths.1, share.as_bytes(), filter.as_ref()];
                joined(SUBSCRIPTION, &fields)
            }
            Self::Received(client, packet_id) => joined(RECEIVED, &[client.as_ref(), &packet_id.to_be_bytes()]),
            Self::Entry(QueueOwner::Session(client), seq) => joined(SESSION_ENTRY, &[client.as_ref(), &seq.to_be_bytes()]),
            Self::Assigned(client, seq) => joined(ASSIGNED, &[client.as_ref(), &seq.to_be_bytes()]),
            Self::Window(client) => joined(WINDOW, &[client.as_ref()]),
            Self::Group(GroupId { share, filter }) => joined(GROUP, &[&length(share), share.as_ref(), filter.as_ref()]),
            Self::Declared(GroupId { share, filter }) => joined(DECLARED, &[&length(share), share.as_ref(), filter.as_ref()]),
            Self::Entry(QueueOwner::Group(GroupId { share, filter }), seq) => {
                joined(GROUP_ENTRY, &[&length(share), share.as_ref(), filter.as_ref(), &seq.to_be_bytes()])
            }
            Self::Retained(topic) => joined(RETAINED, &[topic.as_ref()]),
            Self::Outbox(Position { index, ordinal }) => joined(OUTBOX, &[&index.to_be_bytes(), &ordinal.to_be_bytes()]),
        }
    }

    /// Reads a key back; says what is wrong with it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (kind, rest) = bytes.split_first().ok_or("the key is empty")?;
        Ok(match *kind {
            HEAD if rest.is_empty() => Self::Head,
            HEAD => return Err("the key is too long"),
            BODY_PART => {
                let (id, ordinal) = rest.split_last_chunk().ok_or(SHORT)?;
                Self::BodyPart(BodyId::decode(id).ok_or("the body's id has a wrong size")?, u32::from_be_bytes(*ordinal))
            }
            SESSION => Self::Session(name(rest)?),
            QUEUE_HEAD => Self::QueueHead(name(rest)?),
            SUBSCRIPTION => {
                let (client, rest) = counted_name(rest)?;
                let (flag, rest) = rest.split_first().ok_or(SHORT)?;
                let (share, rest) = counted_name(rest)?;
                let share = (*flag != 0).then_some(share);
                Self::Subscription(client, SubscriptionFilter { share, filter: name(rest)? })
            }
            RECEIVED => {
                let (client, packet_id) = rest.split_last_chunk().ok_or(SHORT)?;
                Self::Received(name(client)?, u16::from_be_bytes(*packet_id))
            }
            SESSION_ENTRY => {
                let (client, seq) = rest.split_last_chunk().ok_or(SHORT)?;
                Self::Entry(QueueOwner::Session(name(client)?), u64::from_be_bytes(*seq))
            }
            ASSIGNED => {
                let (client, seq) = rest.split_last_chunk().ok_or(SHORT)?;
                Self::Assigned(name(client)?, u64::from_be_bytes(*seq))
            }
            WINDOW => Self::Window(name(rest)?),
            GROUP => Self::Group(group(rest)?),
            DECLARED => Self::Declared(group(rest)?),
            GROUP_ENTRY => {
                let (id, seq) = rest.split_last_chunk().ok_or(SHORT)?;
                Self::Entry(QueueOwner::Group(group(id)?), u64::from_be_bytes(*seq))
            }
            RETAINED => Self::Retained(name(rest)?),
            OUTBOX => {
                let (index, ordinal) = rest.split_first_chunk().ok_or(SHORT)?;
                let ordinal = ordinal.try_into().map_err(|_| "the position has a wrong size")?;
                Self::Outbox(Position { index: u64::from_be_bytes(*index), ordinal: u32::from_be_bytes(ordinal) })
            }
            _ => return Err("the kind of record is unknown"),
        })
    }
}

const SHORT: &str = "the key is too short";

fn joined(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + fields.iter().map(|field| field.len()).sum::<usize>());
    key.push(kind);
    for field in fields {
        key.extend_from_slice(field);
    }
    key
}

/// Names are MQTT strings, at most 65,535 bytes; four bytes hold what edges may invent.
fn length(name: &str) -> [u8; 4] {
    u32::try_from(name.len()).unwrap_or(u32::MAX).to_be_bytes()
}

fn name(bytes: &[u8]) -> Result<ByteString, &'static str> {
    ByteString::try_from(bytes).map_err(|_| "a name is no UTF-8")
}

fn counted_name(bytes: &[u8]) -> Result<(ByteString, &[u8]), &'static str> {
    let (length, rest) = bytes.split_first_chunk().ok_or(SHORT)?;
    let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| SHORT)?;
    let (text, rest) = rest.split_at_checked(length).ok_or(SHORT)?;
    Ok((name(text)?, rest))
}

fn group(bytes: &[u8]) -> Result<GroupId, &'static str> {
    let (share, filter) = counted_name(bytes)?;
    Ok(GroupId { share, filter: name(filter)? })
}
