//! The same client id on another node.

use troupemq::mqtt::{QoS, ReasonCode};

use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::events;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{SOON, wait};

#[tokio::test]
async fn a_connection_on_another_node_takes_over() {
    let trio = Trio::ready(Weight::Cluster);
    let mut watchers = Vec::new();
    for node in 0..3 {
        for options in [Options::v5(&format!("watch-clean-{node}")), Options::v5(&format!("watch-kept-{node}")).persistent()] {
            let mut watcher = Client::connect(trio.mqtt(node), &options).await;
            watcher.subscribe(events::FILTER, QoS::AtLeastOnce).await;
            events::effective(&mut watcher, &trio.all_mqtt()).await;
            watchers.push(watcher);
        }
    }
    const ROUNDS: usize = 12;
    let options = Options::v5("moving").persistent();
    let mut before = Client::connect(trio.mqtt(0), &options).await;
    assert!(!before.session_present());
    before.subscribe("t", QoS::AtLeastOnce).await;
    for round in 1..ROUNDS {
        let mut now = Client::connect(trio.mqtt(round % 3), &options).await;
        assert!(now.session_present(), "round {round}");
        assert_eq!(before.closed().await, Some(ReasonCode::SessionTakenOver), "round {round}");
        let text = round.to_string();
        now.publish("t", text.as_bytes(), QoS::AtLeastOnce).await;
        let mut message = now.message().await;
        // The acknowledgement on the old connection may have come after the new connection's session.
        while message.dup {
            message = now.message().await;
        }
        assert_eq!(&*message.payload, text.as_bytes());
        before = now;
    }
    before.disconnect().await;

    let mut expected = vec!["moving:+"];
    for _ in 1..ROUNDS {
        expected.extend(["moving:-SESSION_TAKEN_OVER/142", "moving:+"]);
    }
    expected.push("moving:-CLIENT/0");
    for watcher in &mut watchers {
        assert_eq!(events::expect(watcher, "moving", expected.len()).await, expected);
        watcher.ping().await;
        assert_eq!(events::rest(watcher, "moving", crate::harness::QUIET).await, Vec::<String>::new());
    } // Somebody fights over that client id, as it looks: told by one node of the three.
    let told: f64 = trio.nodes.iter().map(|node| node.metric("troupemq_unstable_clients_total{cause=\"fight\"}")).sum();
    assert!((1.0..=2.0).contains(&told), "{told} detections in {ROUNDS} connects");
}

#[tokio::test]
async fn who_is_banned_is_refused_by_every_node() {
    const BANS: &str =
        "<security><unstable-clients><takeovers>3</takeovers><ban><enabled>true</enabled></ban></unstable-clients></security>";
    let trio = Trio::ready_with(Weight::Cluster, |config| config.more += BANS);
    let options = Options::v5("wanted");
    let mut before = Client::connect(trio.mqtt(0), &options).await;
    for node in [1, 2] {
        let now = Client::connect(trio.mqtt(node), &options).await;
        assert_eq!(before.closed().await, Some(ReasonCode::SessionTakenOver));
        before = now;
    }
    let mut last = Client::connect(trio.mqtt(0), &options).await;
    assert_eq!(last.closed().await, Some(ReasonCode::AdministrativeAction));
    for address in trio.all_mqtt() {
        let refused = async || match Client::try_connect(address, &options).await {
            Err(ConnectError::Refused(connack)) if connack.reason_code == ReasonCode::Banned => Some(()),
            _ => None,
        };
        wait::until_async("the node knows of the ban", SOON, refused).await;
        Client::connect(address, &Options::v5("another")).await.ping().await;
    }
}
