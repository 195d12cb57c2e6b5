//! Encodings that were released: what they are must not change, for logs and peers of the release before have them.
//!
//! A failure here means that a field or variant was added in the middle, removed or changed. New kinds are new variants at the end (`versions`).

use std::fmt::Write;
use std::sync::Arc;

use serde::Serialize;

use super::control::Control;
use super::peer_message::PeerMessage;
use super::raft::codec::encode;
use super::raft::state_machine::AppliedMarker;
use super::raft::type_config::Vote;
use super::raft::{Payload, PeerNode};
use super::transport::frame::Outbound;
use crate::mqtt::{Message, Origin, QoS};
use crate::replica::event::Position;
use crate::replica::meta::{Member, MetaCommand};
use crate::replica::{Batch, Command, Proposal, ShardId};

fn hex(value: &impl Serialize) -> String {
    encode(value).unwrap().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn batch() -> Batch {
    let message = Message {
        topic: "t/1".into(),
        payload: vec![1, 2, 3].into(),
        qos: QoS::ExactlyOnce,
        retain: true,
        payload_format_indicator: None,
        content_type: Some("c".into()),
        response_topic: None,
        correlation_data: Some(vec![9].into()),
        user_properties: Default::default(),
        message_expiry_interval: Some(60),
        received_at_ms: 1_000,
        origin: Origin::Extension,
    };
    let commands = vec![
        Command::NodeDown { node: 5, incarnation: 6 },
        Command::Retain { message: Arc::new(message) },
        Command::TrimOutbox { through: Position { index: 300, ordinal: 2 } },
        Command::Expire { limit: 1_000 },
        Command::RemoveSession { client: "c".into(), reason_code: 0x98, will: true },
        Command::Kick { client: "c".into(), reason_code: 0x98, will: false },
    ];
    Batch { node: 1, incarnation: 2, first_seq: 3, commands: Arc::new(commands) }
}

fn meta_commands() -> Vec<MetaCommand> {
    let member = Member { name: "n".into(), address: "n:1".into(), incarnation: 4, alive: true };
    vec![
        MetaCommand::NodeUp { node: 1, member },
        MetaCommand::NodeDown { node: 1, incarnation: 4 },
        MetaCommand::NodeRemoved { node: 1 },
    ]
}

#[test]
fn released_encodings_are_as_they_were() {
    let proposal = Proposal { at_ms: 77, batches: vec![batch()] };
    let join = Control::Join { name: "n".into(), address: "n:1".into() };
    let found: Vec<(&str, String)> = vec![
        ("log entry of a shard", hex(&Payload::Shard(Arc::new(proposal)))),
        ("log entry of meta", hex(&Payload::Meta(meta_commands()))),
        ("member of a group", hex(&PeerNode { name: "n".into(), address: "n:1".into() })),
        ("vote", hex(&Vote::new(3, 7))),
        ("applied", hex(&AppliedMarker::default())),
        ("ping", hex(&Outbound::Ping)),
        ("commands", hex(&Outbound::Message(PeerMessage::Commands { shard: ShardId(2), batch: batch() }))),
        ("settled", hex(&Outbound::Message(PeerMessage::Settled { ticket: 7 }))),
        ("meta commands", hex(&Outbound::Control(Control::Meta(meta_commands())))),
        ("join", hex(&Outbound::Control(join))),
        ("remove", hex(&Outbound::Control(Control::Remove { node: 9 }))),
        ("cluster", hex(&Outbound::Control(Control::Cluster { id: "i".into(), members: vec![("n".into(), "n:1".into())] }))),
        ("promise request", hex(&Outbound::Control(Control::PromiseRequest { founder: "n".into() }))),
        ("promise reply", hex(&Outbound::Control(Control::PromiseReply { promised_to: "n".into() }))),
    ];
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster-tests/fixtures/format-2/encodings.txt");
    let released = std::fs::read_to_string(file).unwrap();
    let released: Vec<(&str, &str)> = released.lines().filter_map(|line| line.split_once(": ")).collect();
    let found_lines: String = found.iter().map(|(name, hex)| format!("{name}: {hex}\n")).collect();
    assert!(found.iter().map(|(name, hex)| (*name, hex.as_str())).eq(released), "found:\n{found_lines}");
}
