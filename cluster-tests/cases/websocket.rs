//! WebSocket transport.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use troupemq::mqtt::QoS;

use super::kit::{CONNECTIONS, publisher, wait_metric};
use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::transports::relay::{Way, client_frame};

/// CONNECT of client `ws`, and SUBSCRIBE to `t` with QoS 1.
const CONNECT: &[u8] = &[0x10, 0x0F, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 0, 0, 0, 2, b'w', b's'];
const SUBSCRIBE: &[u8] = &[0x82, 7, 0, 1, 0, 0, 1, b't', 1];

/// Row 93: a full queue drops and does not end a session here; what ends it (a takeover) has to end a WebSocket whose client reads
/// nothing and whose buffers are full.
#[tokio::test]
async fn a_flooded_web_socket_is_closed_together_with_its_session() {
    const FLOOD: usize = 400;
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let mut slow = Way { fragment: Some(1000), ..Way::default() }.connect(node.addresses().websocket).await.expect("upgraded");
    slow.write_all(&client_frame(0x82, CONNECT)).await.expect("sent");
    slow.write_all(&client_frame(0x82, SUBSCRIBE)).await.expect("sent");
    slow.flush().await.expect("sent");
    wait_metric(&node, super::kit::SUBSCRIPTIONS, |count| count == 1.0);
    let mut publisher = publisher(node.mqtt()).await;
    let payload = vec![b'x'; 128 * 1024];
    for number in 0..FLOOD {
        let qos = if number % 8 == 0 { QoS::AtLeastOnce } else { QoS::AtMostOnce };
        publisher.try_publish(publish("t", &payload, qos)).await.expect("acknowledged");
    }
    wait_metric(&node, "com_hivemq_mqtt_connection_not_writable_current", |count| count == 1.0);
    wait_metric(&node, CONNECTIONS, |count| count == 2.0);

    let mut new = Client::connect(node.mqtt(), &Options::v5("ws")).await;
    new.ping().await;
    // The old connection is counted out although its client still reads nothing.
    wait_metric(&node, CONNECTIONS, |count| count == 2.0);
    wait_metric(&node, "com_hivemq_mqtt_connection_not_writable_current", |count| count == 0.0);
    // What was under way and the end are there for a client that looks at last.
    let mut rest = vec![0; 1024 * 1024];
    let drained = async { while let Ok(1..) = slow.read(&mut rest).await {} };
    tokio::time::timeout(SOON, drained).await.expect("the socket is closed");
}
