//! Subscriptions that are replaced while messages flow.

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const MESSAGES: u32 = 400;
const REPLACEMENTS: usize = 60;

/// [MQTT-3.8.4-4] of MQTT 5.0, [MQTT-3.8.4-3] of MQTT 3.1.1.
#[tokio::test]
async fn no_message_is_lost_while_a_subscription_is_replaced() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for options in
        [Options::v5("clean-5"), Options::v3("clean-3"), Options::v5("kept-5").persistent(), Options::v3("kept-3").persistent()]
    {
        let mut subscriber = Client::connect(node.mqtt(), &options).await;
        subscriber.subscribe("t/#", QoS::AtLeastOnce).await;
        let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        let publishing = tokio::spawn(async move {
            for number in 0..MESSAGES {
                publisher.publish("t/x", number.to_string().as_bytes(), QoS::AtLeastOnce).await;
            }
        });
        for turn in 0..REPLACEMENTS {
            subscriber.subscribe("t/#", if turn % 2 == 0 { QoS::ExactlyOnce } else { QoS::AtLeastOnce }).await;
        }
        for number in 0..MESSAGES {
            assert_eq!(subscriber.text().await, number.to_string(), "{}", options.client_id());
        }
        publishing.await.expect("all published");
        subscriber.nothing().await;
    }
}
