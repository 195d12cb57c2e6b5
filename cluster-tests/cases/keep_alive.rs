//! Keep Alive and half-open connections.

use std::time::{Duration, Instant};

use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{ProtocolVersion, ReasonCode};

use super::kit::{BOTH, subscriber};
use crate::harness::SOON;
use crate::harness::client::{Client, Options};
use crate::harness::config::Config;
use crate::harness::events::{self, Event};
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

const KEEP_ALIVE_S: u16 = 2;
const DUE: Duration = Duration::from_millis(3000);
/// A busy machine: the accuracy itself is a matter of the session's unit tests.
const SLACK: Duration = Duration::from_secs(5);

/// Row 90: the socket, the will and the event end together, at one and a half times the Keep Alive [MQTT-3.1.2-22].
#[tokio::test]
async fn a_silent_client_loses_its_socket_too_and_its_will_and_event_come_then() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    for version in BOTH {
        let mut wills = subscriber(node.mqtt(), &Options::v5("wills"), "w").await;
        let mut watcher = subscriber(node.mqtt(), &Options::v5("events"), events::FILTER).await;
        let options = Options::of(version, "silent").keep_alive(KEEP_ALIVE_S).will("w", "gone", 0);
        let started = Instant::now();
        let mut silent = Client::connect(node.mqtt(), &options).await;
        let closed = async {
            let code = silent.closed().await;
            (code, started.elapsed())
        };
        let will = async {
            wills.message().await;
            started.elapsed()
        };
        let event = async {
            let is_it = |message: &Publish| Event::of(message).short() == "-SERVER/141";
            while !is_it(&watcher.message().await) {}
            started.elapsed()
        };
        let ((code, closed), will, event) = tokio::join!(closed, will, event);
        let expected = (version == ProtocolVersion::V5).then_some(ReasonCode::KeepAliveTimeout);
        assert_eq!(code, expected, "{version:?}");
        for (what, after) in [("closed", closed), ("will", will), ("event", event)] {
            assert!((DUE..DUE + SLACK).contains(&after), "{version:?}: {what} after {after:?}");
        }
        // The broker holds no half of the socket: what is sent into it is answered by a reset.
        assert!(!still_open(&mut silent).await, "{version:?}");
        wills.disconnect().await;
        watcher.disconnect().await;
    }
}

async fn still_open(client: &mut Client) -> bool {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if client.send_bytes(&[0xC0, 0x00]).await.is_err() {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}
