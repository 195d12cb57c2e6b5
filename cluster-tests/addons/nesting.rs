//! Add-on topics of add-on topics (spec/hivemq.md 4.8): each pair there is, and none that must not be.

use std::collections::BTreeMap;

use troupemq::mqtt::QoS;

use super::{ear, keeper};
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{QUIET, SOON};

/// Room in the queues of those who keep messages of add-on topics, all of which expire within four seconds: long enough for what comes before that.
const ROOM: usize = 2;
const VISITOR: &str = "$client-events/all/client-id/visitor";

#[tokio::test]
async fn each_namespace_is_told_of_in_the_others_and_never_in_itself() {
    let _permit = acquire(Weight::Node);
    let mqtt = format!(
        "<message-expiry><max-interval>4</max-interval></message-expiry>\
         <queued-messages><max-queue-size>{ROOM}</max-queue-size></queued-messages>"
    );
    let node = Node::ready(Config { mqtt, ..Config::default() });
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for n in 0..=ROOM {
        keeper(&node, &format!("brief-{n}"), "brief").await;
    }
    for topic in ["full", "unheard"] {
        keeper(&node, topic, topic).await;
    }
    for filter in ["$expired/brief", "$dropped/full", "$dead/nobody", VISITOR] {
        keeper(&node, &format!("keeper of {filter}"), filter).await;
    }
    let pairs = ["$dropped/$expired/#", "$expired/$dropped/#", "$dropped/$dead/#", "$expired/$dead/#"];
    let of_clients = ["$dropped/$client-events/#", "$expired/$client-events/#"];
    let never =
        ["$expired/$expired/#", "$dropped/$dropped/#", "$dead/$dead/#", "$dead/$expired/$dead/#", "$dead/$dropped/$dead/#"];
    let of_dead = ["$dead/$expired/unheard", "$dead/$dropped/unheard", "$dead/$client-events/all/client-id/other"];
    let mut told = ear(&node, "told", &[&pairs[..], &of_clients, &never, &of_dead].concat()).await;
    // Neither a wildcard at the first level, nor the name without its namespace.
    let mut outside =
        ear(&node, "outside", &["+/brief", "+/full", "+/nobody", "+/$client-events/#", "$client-events/brief"]).await;

    // Three expire at once, of which the third has no room on $expired/brief; the two expire there.
    let mut packet = publish("brief", b"", QoS::AtLeastOnce);
    packet.properties.message_expiry_interval = Some(1);
    publisher.try_publish(packet).await.expect("acknowledged");
    // The first two fill the queues of `full` and `unheard`, in which they expire; of the others $dropped/full keeps two, until they expire.
    for n in 0..2 * ROOM {
        publisher.publish("full", b"", QoS::AtLeastOnce).await;
        if n <= ROOM {
            publisher.publish("unheard", b"", QoS::AtLeastOnce).await;
            publisher.publish("nobody", b"", QoS::AtLeastOnce).await;
        }
    }
    // Three events, the third of which finds no room.
    let visitor = Options::v5("visitor");
    Client::connect(node.mqtt(), &visitor).await.disconnect().await;
    let _visitor = Client::connect(node.mqtt(), &visitor).await;
    let _other = Client::connect(node.mqtt(), &Options::v5("other")).await;

    let visitor = |namespace: &str| format!("{namespace}/{VISITOR}");
    let expected: BTreeMap<String, usize> = [
        ("$dropped/$expired/brief".to_owned(), 1),
        ("$dropped/$dead/nobody".to_owned(), 1),
        ("$expired/$dead/nobody".to_owned(), 2),
        ("$expired/$dropped/full".to_owned(), 2),
        ("$dead/$dropped/unheard".to_owned(), 1),
        ("$dead/$expired/unheard".to_owned(), 2),
        (visitor("$dropped"), 1),
        (visitor("$expired"), 2),
        ("$dead/$client-events/all/client-id/other".to_owned(), 1),
    ]
    .into();
    let mut came: BTreeMap<String, usize> = BTreeMap::new();
    while came.values().sum::<usize>() < expected.values().sum::<usize>() {
        let message = told.try_message(SOON).await.unwrap_or_else(|gone| panic!("{gone:?} after {came:?}"));
        *came.entry(message.topic.to_string()).or_default() += 1;
    }
    while let Ok(message) = told.try_message(QUIET).await {
        *came.entry(message.topic.to_string()).or_default() += 1;
    }
    assert_eq!(came, expected);
    outside.nothing().await;
}
