//! What may have been sent comes again with DUP, however little the survivors know of it.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::Signal;
use troupemq::mqtt::QoS;

use super::node_loss::connect_soon;
use crate::harness::client::{Client, Options};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{QUIET, SOON};

const MESSAGES: usize = 300;

/// [MQTT-3.3.1-1]: the acknowledgements made room for more messages on the node that then died, and died with it.
#[tokio::test]
async fn messages_sent_after_acknowledgements_that_were_lost_come_again_with_dup() {
    let mut trio = Trio::ready(Weight::Cluster);
    let options = Options::v5("subscriber").persistent().manual_ack();
    let mut subscriber = Client::connect(trio.mqtt(0), &options).await;
    subscriber.subscribe("t", QoS::AtLeastOnce).await;
    let mut publisher = Client::connect(trio.mqtt(0), &Options::v5("publisher")).await;
    for number in 0..MESSAGES {
        publisher.publish("t", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
    }
    let mut seen = HashSet::new();
    let mut window = Vec::new();
    while let Ok(message) = subscriber.try_message(QUIET).await {
        seen.insert(message.payload.clone());
        window.push(message);
    }
    // Nothing can be agreed on from here.
    trio.nodes[1].signal(Signal::STOP);
    trio.nodes[2].signal(Signal::STOP);
    for message in &window {
        subscriber.puback(message).await;
    }
    while let Ok(message) = subscriber.try_message(Duration::from_millis(200)).await {
        seen.insert(message.payload.clone());
    }
    println!("{} messages in the first window, {} in all", window.len(), seen.len());
    trio.nodes[0].kill();
    trio.nodes[1].signal(Signal::CONT);
    trio.nodes[2].signal(Signal::CONT);
    let mut subscriber = connect_soon(&trio, 1, &Options::v5("subscriber").persistent()).await;
    assert!(subscriber.session_present());
    let mut without_dup = Vec::new();
    let mut unseen = MESSAGES - seen.len();
    // The acknowledgements may have been on their way to the survivors: of the messages seen, any number comes again.
    while unseen > 0 {
        let message = subscriber.try_message(SOON).await;
        let message = message.unwrap_or_else(|gone| panic!("{unseen} of {MESSAGES} messages do not come: {gone:?}"));
        if !seen.contains(&message.payload) {
            unseen -= 1;
        } else if !message.dup {
            without_dup.push(String::from_utf8_lossy(&message.payload).into_owned());
        }
    }
    assert_eq!(without_dup, Vec::<String>::new(), "of {} seen before", seen.len());
}
