//! Shared subscriptions.

use std::time::Duration;

use tokio::time::sleep;
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{Packet, QoS};

use super::Passage;
use super::scenario::{Stage, finish, packet};
use crate::harness::client::{Client, Gone, Options, Session};
use crate::harness::{QUIET, SOON};

/// [MQTT-4.8.2-4]
pub async fn a_shared_message_is_completed_with_its_member(mut stage: Stage) {
    let (options, mut members, holder, begun) = begun_with_a_member(&stage).await;
    let member = members.swap_remove(holder);
    let mut holding = stage.pass(member, &options[holder]).await;
    if stage.passage != Passage::SameConnection {
        let Packet::Publish(again) = packet(&mut holding).await else { panic!("no PUBLISH") };
        assert_eq!((again.packet_id, again.dup, &*again.payload), (begun.packet_id, true, b"begun".as_slice()));
    }
    finish(&mut holding, &begun).await;
    let mut other = match stage.passage {
        Passage::SameConnection | Passage::Reconnect => members.remove(0),
        _ => stage.connect(&options[1 - holder], Session::default()).await,
    };
    assert_eq!(other.next_packet(QUIET).await, Err(Gone::Timeout), "the message is not the other member's");
}

/// [MQTT-4.8.2-5]
pub async fn a_shared_message_ends_with_its_members_session(mut stage: Stage) {
    let (options, mut members, holder, _) = begun_with_a_member(&stage).await;
    drop(members.swap_remove(holder));
    let other = members.remove(0);
    stage.turn().await;
    let fresh = stage.connect(&options[holder].clone().clean_start(true), Session::default()).await;
    assert!(!fresh.session_present());
    let mut other = match stage.passage {
        Passage::Reconnect => other,
        _ => stage.connect(&options[1 - holder], Session::default()).await,
    };
    assert_eq!(other.next_packet(2 * QUIET).await, Err(Gone::Timeout), "the message is gone with the session");
}

/// Two members of a shared subscription with a session each, and the index of the one to which a QoS 2 message was sent.
async fn begun_with_a_member(stage: &Stage) -> ([Options; 2], Vec<Client>, usize, Publish) {
    let filter = format!("$share/g/{}", stage.topic("t"));
    let options = [stage.kept("member 0").manual_ack(), stage.kept("member 1").manual_ack()];
    let mut members = Vec::new();
    for options in &options {
        let mut member = stage.connect(options, Session::default()).await;
        member.subscribe(&filter, QoS::ExactlyOnce).await;
        members.push(member);
    }
    let mut publisher = stage.helper("publisher").await;
    publisher.publish(&stage.topic("t"), b"begun", QoS::ExactlyOnce).await;
    let (holder, begun) = tokio::select! {
        begun = first_message(&mut members) => begun,
        () = sleep(SOON) => panic!("no member has the message"),
    };
    (options, members, holder, begun)
}

/// The PUBLISH that one of the clients gets, and which of them.
async fn first_message(members: &mut [Client]) -> (usize, Publish) {
    loop {
        for (index, member) in members.iter_mut().enumerate() {
            match member.next_packet(Duration::from_millis(20)).await {
                Ok(Packet::Publish(message)) => return (index, *message),
                Ok(other) => panic!("unexpected {other:?}"),
                Err(Gone::Timeout) => {}
                Err(gone) => panic!("{gone:?}"),
            }
        }
    }
}
