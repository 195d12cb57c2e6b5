//! The MQTT Add-ons as `docs/addons.md` states them, on one node; `cluster::addons` and `faults::expiry` have what takes three.

mod carried;
pub mod counters;
mod in_flight;
mod lifecycle;
mod manifest;
mod metrics;
mod nesting;
mod prevented;
mod silent;
mod slow;

use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::node::Node;

/// A session that is away, and keeps what comes.
async fn keeper(node: &Node, id: &str, filter: &str) {
    let mut client = Client::connect(node.mqtt(), &Options::v5(id).persistent()).await;
    client.subscribe(filter, QoS::AtLeastOnce).await;
    client.disconnect().await;
}

/// A client that is there and takes all of these, with QoS 0, which no queue limits.
async fn ear(node: &Node, id: &str, filters: &[&str]) -> Client {
    let mut client = Client::connect(node.mqtt(), &Options::v5(id)).await;
    for filter in filters {
        client.subscribe(filter, QoS::AtMostOnce).await;
    }
    client
}
