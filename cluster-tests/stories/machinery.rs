//! `config/examples/connected-machinery`: when gateways connect and disconnect, and why, on `$client-events`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{QoS, ReasonCode};

use super::kit::{Story, login, may_not_publish, may_not_subscribe, time};
use crate::harness::client::{Client, Options, user_property};
use crate::harness::events::Event;
use crate::harness::permit::{Weight, acquire};
use crate::harness::{SOON, wait};

/// Connects of the gateway with the bad link.
const FLAPS: usize = 5;
/// Connects, and as many disconnects: the flapping one, two ends of a session each of which is one, and one each of the others.
const CONNECTS: usize = FLAPS + 4;

/// What the analyst keeps of a gateway.
#[derive(Default)]
struct Gateway {
    connects: usize,
    /// Disconnects as `INITIATOR/CODE`.
    ends: Vec<String>,
    connected_ms: Vec<u64>,
    listener_ports: Vec<u64>,
    nodes: Vec<String>,
    firmware: Vec<String>,
}

/// The stream by gateway.
#[derive(Default)]
struct Analysis(BTreeMap<String, Gateway>);

impl Analysis {
    /// Takes an event and prints it; false where it is not of a gateway.
    fn take(&mut self, message: &Publish) -> bool {
        let event = Event::of(message);
        let json = &event.json;
        if !event.client_id.contains("-gw-") {
            return false;
        }
        let text = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(&*message.topic, format!("$client-events/all/username/{}", text("MQTT username")));
        let gateway = self.0.entry(event.client_id.clone()).or_default();
        let firmware = user_property(message, "firmware").unwrap_or_default();
        let elapsed = json["Time elapsed since connect"].as_u64();
        let why =
            if event.connected { format!("firmware {firmware}") } else { format!("after {} ms", elapsed.unwrap_or_default()) };
        let port = json["Listener port"].as_u64().expect("a port");
        let at = time(json["Timestamp"].as_u64().expect("a time"));
        println!("{at}  {}  {}  {:<24} {why}  listener {port}", text("MQTT username"), event.client_id, event.short());
        if event.connected {
            gateway.connects += 1;
            gateway.firmware.push(firmware.to_owned());
            assert_eq!((elapsed, json["Disconnect initiator"].as_str()), (None, None));
        } else {
            gateway.ends.push(event.short());
            gateway.connected_ms.push(elapsed.expect("how long"));
            assert!(message.properties.user_properties.is_empty(), "a disconnect has none");
        }
        gateway.listener_ports.push(port);
        gateway.nodes.push(text("Node IP address"));
        true
    }

    fn of(&self, gateway: &str) -> &Gateway {
        self.0.get(gateway).unwrap_or_else(|| panic!("no event of {gateway}"))
    }
}

fn gateway(customer: &str, id: &str, firmware: &str) -> Options {
    login(customer, id).user_property("firmware", firmware)
}

/// Gateways come and go in every way that one node knows.
async fn play(story: &Story, internet: SocketAddr, leased_line: SocketAddr) {
    let connections = || story.node.metric("com_hivemq_networking_connections_current");
    let others = connections();
    let press = Client::connect(internet, &gateway("acme", "acme-gw-1", "2.1.0")).await;
    press.disconnect().await;
    for _ in 0..FLAPS {
        let mut bad_link = Client::connect(leased_line, &gateway("acme", "acme-gw-2", "2.0.3")).await;
        bad_link.ping().await;
        bad_link.reset();
        // Were it back before the broker knows, it would take its own session over.
        wait::until("the broker notices", SOON, || (connections() == others).then_some(()));
    }
    // A second device with the identifier of the first.
    let options = gateway("globex", "globex-gw-1", "2.1.0");
    let mut first = Client::connect(internet, &options).await;
    let second = Client::connect(internet, &options).await;
    assert_eq!(first.closed().await, Some(ReasonCode::SessionTakenOver));
    second.disconnect().await;
    let mut silent = Client::connect(internet, &gateway("globex", "globex-gw-2", "2.1.0").keep_alive(1)).await;
    assert_eq!(silent.closed().await, Some(ReasonCode::KeepAliveTimeout));
}

#[tokio::test]
async fn the_stream_of_events_answers_the_questions_of_the_machine_builder_and_a_customer_sees_its_own() {
    let _permit = acquire(Weight::Node);
    let story = Story::start("connected-machinery");
    let internet = story.by("TCP Listener with TLS").await;
    let plain: Vec<SocketAddr> = ports(&story.node.stdout());
    let [leased_line, local] = plain[..] else { panic!("{plain:?}") };
    let mut analyst = Client::connect(local, &login("analyst", "analyst-1").persistent()).await;
    analyst.subscribe("$share/analysts/$client-events/#", QoS::AtLeastOnce).await;
    let mut portal = Client::connect(local, &login("acme", "acme-portal")).await;
    let own = "$client-events/all/username/acme";
    assert_eq!(portal.subscribe(own, QoS::AtLeastOnce).await, ReasonCode::GrantedQoS1);

    play(&story, internet, leased_line).await;
    println!("The analyst sees:");
    let mut all = Analysis::default();
    let mut taken = 0;
    while taken < 2 * CONNECTS {
        taken += usize::from(all.take(&analyst.message().await));
    }
    analyst.nothing().await;

    // Which gateways reconnect far more often than the rest?
    let connects: BTreeMap<&str, usize> = all.0.iter().map(|(id, gateway)| (id.as_str(), gateway.connects)).collect();
    println!("connects: {connects:?}");
    assert_eq!(connects, BTreeMap::from([("acme-gw-1", 1), ("acme-gw-2", FLAPS), ("globex-gw-1", 2), ("globex-gw-2", 1)]));
    // Which disconnects did the gateway ask for, and which did the broker or a takeover cause?
    println!("ends: {:?}", all.0.iter().map(|(id, gateway)| (id.as_str(), &gateway.ends)).collect::<Vec<_>>());
    assert_eq!(all.of("acme-gw-1").ends, ["-CLIENT/0"]);
    assert_eq!(all.of("acme-gw-2").ends, ["-UNSPECIFIED"; FLAPS]);
    assert_eq!(all.of("globex-gw-1").ends, ["-SESSION_TAKEN_OVER/142", "-CLIENT/0"]);
    assert_eq!(all.of("globex-gw-2").ends, ["-SERVER/141"]);
    // How long was it connected?
    assert!(all.of("globex-gw-2").connected_ms[0] >= 1_500, "one and a half times its Keep Alive");
    // Does it go with a firmware, a listener or a node?
    let leased_port = u64::from(leased_line.port());
    for (id, gateway) in &all.0 {
        let is_bad = id == "acme-gw-2";
        assert!(gateway.listener_ports.iter().all(|port| (*port == leased_port) == is_bad), "{id}: {:?}", gateway.listener_ports);
        assert!(gateway.firmware.iter().all(|firmware| (firmware == "2.0.3") == is_bad), "{id}: {:?}", gateway.firmware);
        assert!(gateway.nodes.iter().all(|node| node == "127.0.0.1"), "{id}: {:?}", gateway.nodes);
    }

    // The customer has its own events and nobody else's.
    println!("The customer acme sees:");
    let mut of_acme = Analysis::default();
    let mut taken = 0;
    while taken < 2 * (FLAPS + 1) {
        taken += usize::from(of_acme.take(&portal.message().await));
    }
    assert_eq!(of_acme.0.keys().collect::<Vec<_>>(), ["acme-gw-1", "acme-gw-2"]);
    portal.nothing().await;
    let others = [
        "$client-events/#",
        "$client-events/all/username/globex",
        "$client-events/all/username/+",
        "$client-events/all/+/acme",
        "$client-events/all/client-id/acme-gw-1",
    ];
    may_not_subscribe(&mut portal, &others).await;
    may_not_subscribe(&mut portal, &["machines/globex/state", "#"]).await;
    may_not_subscribe(&mut analyst, &["machines/#", "#", "$dead/#"]).await;
    may_not_publish(portal, own).await;
    may_not_publish(analyst, own).await;
}

/// The plain listeners in the order of the file.
fn ports(stdout: &str) -> Vec<SocketAddr> {
    let address = |line: &str| line.trim().strip_prefix("TCP Listener")?.trim().parse().ok();
    stdout.lines().filter_map(address).collect()
}
