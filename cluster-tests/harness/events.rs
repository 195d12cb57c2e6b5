//! Lifecycle events as a subscriber of `$client-events/#` reads them.

use std::time::Duration;

use troupemq::mqtt::packet::Publish;

use super::client::{Client, Gone};

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
