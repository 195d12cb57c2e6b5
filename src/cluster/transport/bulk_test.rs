use std::sync::Arc;

use super::*;
use crate::cluster::raft::codec::decode;
use crate::mqtt::{Message, Origin};
use crate::replica::Command;

const LARGE: usize = PIECE_BYTES * 5 - 1;

fn publish(publisher: &str, bytes: usize) -> PeerMessage {
    let Command::Retain { message } = crate::cluster::cluster_test::kit::retain_bytes("t", bytes) else { panic!("a retain") };
    let origin = Origin::Client(publisher.into());
    PeerMessage::Publish { message: Arc::new(Message { origin, ..Message::clone(&message) }) }
}

fn push(bulk: &mut Bulk, mut message: PeerMessage) -> bool {
    let payload = message.cut();
    assert!(bulk.concerns(&payload, message.publisher()));
    bulk.push(message, payload).unwrap()
}

fn frames(bulk: &mut Bulk) -> Vec<Outbound> {
    let mut frames = Vec::new();
    while let Some(bytes) = bulk.next_frame().unwrap() {
        assert!(bytes.len() <= PIECE_BYTES + 64);
        frames.push(decode(&bytes[4..]).unwrap());
    }
    frames
}

#[test]
fn a_large_message_comes_back_whole_and_in_order_of_its_publisher() {
    let mut bulk = Bulk::default();
    assert!(!bulk.concerns(&Bytes::new(), Some(&"p".into())));
    assert!(push(&mut bulk, publish("p", LARGE)));
    assert!(bulk.concerns(&Bytes::new(), Some(&"p".into())));
    assert!(!bulk.concerns(&Bytes::new(), Some(&"q".into())));
    assert!(!bulk.concerns(&Bytes::new(), None));
    assert!(push(&mut bulk, publish("p", 10)));
    let (mut assembly, mut received) = (None, Vec::new());
    for frame in frames(&mut bulk) {
        match frame {
            Outbound::Large { message, bytes } => assembly = Some(Assembly::begin(message, bytes).unwrap()),
            Outbound::Piece(piece) => match assembly.take().unwrap().take(&piece).unwrap() {
                Ok(message) => received.push(message),
                Err(unfinished) => assembly = Some(unfinished),
            },
            Outbound::Message(message) => received.push(message),
            other => panic!("{other:?}"),
        }
    }
    let lengths: Vec<_> = received
        .iter()
        .map(|message| match message {
            PeerMessage::Publish { message } => message.payload.len(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [LARGE, 10]);
    assert!(bulk.is_empty() && bulk.bytes == 0 && bulk.publishers.is_empty());
}

#[test]
fn pieces_that_do_not_fit_end_the_connection() {
    let begin = |bytes: u64| Assembly::begin(publish("p", 0), bytes);
    assert!(begin(BODY_BYTES_MAX as u64 + 1).is_err());
    assert!(begin(u64::MAX).is_err());
    assert!(begin(10).unwrap().take(&[0; 11]).is_err());
    assert!(begin(10).unwrap().take(&[]).is_err());
    let half = begin(10).unwrap().take(&[0; 6]).unwrap().err().unwrap();
    assert!(half.take(&[0; 5]).is_err());
}

#[test]
fn so_many_bytes_may_wait_and_no_more() {
    let mut bulk = Bulk::default();
    let mut message = publish("p", LARGE);
    message.cut();
    let payload = Bytes::from(vec![0; BULK_BYTES_MAX / 2]);
    assert!(bulk.push(message.clone(), payload.clone()).unwrap());
    assert!(bulk.push(message.clone(), payload.clone()).unwrap());
    assert!(!bulk.push(message, payload).unwrap());
}
