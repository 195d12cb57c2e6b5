//! Lifecycle events as a subscriber of `$client-events/#` reads them.

use std::net::SocketAddr;
use std::time::Duration;

use troupemq::mqtt::packet::Publish;

use super::client::{Client, Gone, Options};
use super::{SOON, wait};

pub const FILTER: &str = "$client-events/#";

#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub client_id: String,
    pub connected: bool,
    pub initiator: Option<String>,
    pub reason_code: Option<u64>,
    pub json: serde_json::Value,
}

impl Event {
    pub fn of(message: &Publish) -> Self {
        let json: serde_json::Value = serde_json::from_slice(&message.payload).expect("an event is JSON");
        let connected = match json["Event type"].as_str() {
            Some("CONNECTED") => true,
            Some("DISCONNECTED") => false,
            other => panic!("event type {other:?} in {json}"),
        };
        Self {
            client_id: json["Client ID"].as_str().expect("an event names its client").to_owned(),
            connected,
            initiator: json["Disconnect initiator"].as_str().map(str::to_owned),
            reason_code: json["Disconnect reason code"].as_u64(),
            json,
        }
    }

    /// `+` or `-INITIATOR` or `-INITIATOR/CODE`.
    pub fn short(&self) -> String {
        match (&self.initiator, self.reason_code) {
            _ if self.connected => "+".to_owned(),
            (initiator, Some(code)) => format!("-{}/{code}", initiator.as_deref().unwrap_or("?")),
            (initiator, None) => format!("-{}", initiator.as_deref().unwrap_or("?")),
        }
    }
}

/// Waits until events of clients of all these nodes reach the subscriber: a subscription is effective on its own node when it is
/// acknowledged, on the others a moment later. Events of clients `probe-..` may follow.
pub async fn effective(subscriber: &mut Client, nodes: &[SocketAddr]) {
    for (index, address) in nodes.iter().enumerate() {
        let id = format!("probe-{index}");
        wait::until_async("events of all nodes arrive", SOON, async || {
            Client::connect(*address, &Options::v5(&id)).await.disconnect().await;
            while let Ok(message) = subscriber.try_message(Duration::from_millis(100)).await {
                if Event::of(&message).client_id == id {
                    return Some(());
                }
            }
            None
        })
        .await;
    }
}

/// The next `count` events of clients whose id starts with `prefix`, in short, as `id:event`.
pub async fn expect(subscriber: &mut Client, prefix: &str, count: usize) -> Vec<String> {
    let mut events = Vec::new();
    while events.len() < count {
        let event = Event::of(&subscriber.message().await);
        if event.client_id.starts_with(prefix) {
            events.push(format!("{}:{}", event.client_id, event.short()));
        }
    }
    events
}

/// Events of clients whose id starts with `prefix` that come before a silence of that length.
pub async fn rest(subscriber: &mut Client, prefix: &str, silence: Duration) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        match subscriber.try_message(silence).await {
            Ok(message) => {
                let event = Event::of(&message);
                if event.client_id.starts_with(prefix) {
                    events.push(format!("{}:{}", event.client_id, event.short()));
                }
            }
            Err(Gone::Timeout) => return events,
            Err(gone) => panic!("the subscriber lost its connection: {gone:?}"),
        }
    }
}
