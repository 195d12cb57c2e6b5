//! `config/examples/smart-device`: messages for devices that nobody has activated yet, on `$dead`.

use std::collections::BTreeMap;

use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{Story, line, login, may_not_publish, may_not_subscribe, text};
use crate::harness::client::{Client, user_property};
use crate::harness::permit::{Weight, acquire};

/// What the manufacturer runs: remembers who bought a device that is not activated yet, and welcomes the buyer once it is.
struct Welcome {
    client: Client,
    buyers: BTreeMap<String, String>,
}

impl Welcome {
    async fn start(server: std::net::SocketAddr) -> Self {
        let mut client = Client::connect(server, &login("welcome", "welcome").persistent()).await;
        for filter in ["$dead/devices/+/status", "devices/+/activated"] {
            assert_eq!(client.subscribe(filter, QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1, "{filter}");
        }
        Self { client, buyers: BTreeMap::new() }
    }

    /// Handles the next message.
    async fn step(&mut self) {
        let message = self.client.message().await;
        let levels: Vec<&str> = message.topic.split('/').collect();
        match levels[..] {
            ["$dead", "devices", device, "status"] => {
                self.buyers.insert(device.to_owned(), text(&message));
            }
            ["devices", device, "activated"] => {
                let buyer = self.buyers.remove(device).unwrap_or_else(|| panic!("nobody bought {device}"));
                let greeting = format!("Welcome, {buyer}!");
                self.client.publish(&format!("devices/{device}/welcome"), greeting.as_bytes(), QoS::AtLeastOnce).await;
            }
            _ => panic!("{}", message.topic),
        }
    }
}

#[tokio::test]
async fn a_status_for_a_device_that_is_not_activated_yet_leads_to_its_welcome_once_it_is() {
    let _permit = acquire(Weight::Node);
    let story = Story::start("smart-device");
    let (devices, server) = (story.by("TCP Listener with TLS").await, story.node.mqtt());
    let mut welcome = Welcome::start(server).await;
    let mut shop = Client::connect(server, &login("shop", "shop-7")).await;

    // Two are sold; the shop is told that nobody was there to read it.
    for (device, buyer) in [("sn-42", "Kim"), ("sn-43", "Noor")] {
        let topic = format!("devices/{device}/status");
        assert_eq!(shop.publish(&topic, buyer.as_bytes(), QoS::AtLeastOnce).await, ReasonCode::NoMatchingSubscribers);
        welcome.step().await;
    }
    assert_eq!(welcome.buyers.len(), 2);

    // One is activated.
    let mut device = Client::connect(devices, &login("sn-42", "sn-42").persistent()).await;
    for topic in ["devices/sn-42/status", "devices/sn-42/welcome"] {
        assert_eq!(device.subscribe(topic, QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);
    }
    assert_eq!(device.publish("devices/sn-42/activated", b"", QoS::AtLeastOnce).await, ReasonCode::Success);
    welcome.step().await;
    assert_eq!(device.text().await, "Welcome, Kim!");
    // From now on a status is delivered and nobody takes it for dead.
    assert_eq!(shop.publish("devices/sn-42/status", b"warranty until 2030", QoS::AtLeastOnce).await, ReasonCode::Success);
    assert_eq!(device.text().await, "warranty until 2030");
    welcome.client.nothing().await;

    let mut analyst = Client::connect(server, &login("analyst", "analyst-1")).await;
    analyst.subscribe("$share/analysts/$dead/#", QoS::AtLeastOnce).await;
    println!("The analyst sees:");
    for (device, buyer) in [("sn-42", "Kim"), ("sn-43", "Noor")] {
        let dead = analyst.message().await;
        println!("{}", line(&dead, "dead"));
        assert_eq!((dead.topic.to_string(), text(&dead)), (format!("$dead/devices/{device}/status"), buyer.to_owned()));
        let names: Vec<&str> = dead.properties.user_properties.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["hmq-dead-timestamp", "hmq-dead-origin", "hmq-dead-client"]);
        assert_eq!(
            ["origin", "client"].map(|name| user_property(&dead, &format!("hmq-dead-{name}"))),
            [Some("client"), Some("shop-7")]
        );
    }
    analyst.nothing().await;
    let waiting: Vec<_> = welcome.buyers.iter().collect();
    println!("sold and not activated: {waiting:?}");
    assert_eq!(waiting, [(&"sn-43".to_owned(), &"Noor".to_owned())]);

    may_not_subscribe(&mut device, &["$dead/#", "$dead/devices/sn-42/status", "devices/sn-43/welcome", "devices/#"]).await;
    may_not_subscribe(&mut welcome.client, &["$dead/#", "$dead/devices/#", "$dead/+/+/status"]).await;
    may_not_subscribe(&mut shop, &["$dead/devices/+/status", "#"]).await;
    may_not_subscribe(&mut analyst, &["devices/#", "#", "$dropped/#"]).await;
    may_not_publish(device, "$dead/devices/sn-43/status").await;
    may_not_publish(shop, "$dead/devices/sn-43/status").await;
}
