//! The wire: Control Packets, properties, Reason Codes, topic names and filters, and the codecs of MQTT 3.1, 3.1.1 and 5.0.
//!
//! Pure data and pure functions. Nothing here knows a socket, a session or a clock.

// What the network sends reaches this room first: no index into it may panic.
#![warn(clippy::indexing_slicing)]
#![cfg_attr(test, allow(clippy::indexing_slicing))]

pub mod codec;
pub mod delivery;
pub mod message;
pub mod packet;
pub mod property;
pub mod reason_code;
pub mod topic_filter;
pub mod topic_name;

pub use delivery::{Delivery, GroupId, Source, SubscriptionIds};
pub use message::{Message, Origin};
pub use packet::{Packet, ProtocolVersion, QoS};
pub use property::UserProperties;
pub use reason_code::ReasonCode;
pub use topic_filter::{ShareName, SubscriptionFilter};
