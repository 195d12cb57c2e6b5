//! `$client-events/all/<identifier type>/<identifier value>`: a client connected or disconnected (spec/hivemq.md 4.9).

use bytes::Bytes;
use bytestring::ByteString;
use serde::Serialize;

use super::render::{Count, Rendered, Skipped};
use super::settings::AddonSettings;
use crate::config::settings::LifecycleSettings;
use crate::mqtt::{Message, Origin, QoS, UserProperties, topic_name};
use crate::signal::namespace::TOPIC_BYTES_MAX;
use crate::signal::{ConnectionFacts, Initiator, Lifecycle, LifecycleEvent};
use crate::telemetry::AddonCounter;

pub(super) fn render(event: &Lifecycle, settings: &AddonSettings, now_ms: u64) -> Rendered {
    if !triggered(&event.event, &settings.lifecycle) {
        return Rendered::default();
    }
    let skipped = Rendered {
        message: None,
        counts: vec![Count::one(AddonCounter::LifecycleSkipped)],
        skipped: Some(Skipped::LifecycleTopic),
    };
    let Some(topic) = valid_topic(event, settings) else { return skipped };
    // Strings and numbers always make JSON; were it not so, the event would be counted like one without a topic.
    let Ok(payload) = serde_json::to_vec(&Payload::of(event)) else {
        return skipped;
    };
    Rendered {
        message: Some(message(topic, payload.into(), user_properties(&event.event), settings, now_ms)),
        counts: vec![Count::one(AddonCounter::LifecyclePublished)],
        skipped: None,
    }
}

/// The topic of the message that `render` makes of an event; `None` where it makes none.
pub(super) fn topic_to_publish(event: &Lifecycle, settings: &AddonSettings) -> Option<ByteString> {
    if triggered(&event.event, &settings.lifecycle) { valid_topic(event, settings) } else { None }
}

fn valid_topic(event: &Lifecycle, settings: &AddonSettings) -> Option<ByteString> {
    let topic = topic(&event.facts, settings.lifecycle.identifier_username);
    (topic.len() <= TOPIC_BYTES_MAX && topic_name::is_valid(&topic)).then_some(topic)
}

fn triggered(event: &LifecycleEvent, settings: &LifecycleSettings) -> bool {
    settings.enabled
        && match event {
            LifecycleEvent::Connected { .. } => settings.connected,
            LifecycleEvent::Disconnected { initiator: Initiator::Client, .. } => settings.client,
            LifecycleEvent::Disconnected { initiator: Initiator::Server, .. } => settings.server,
            LifecycleEvent::Disconnected { initiator: Initiator::SessionTakenOver, .. } => settings.session_taken_over,
            LifecycleEvent::Disconnected { initiator: Initiator::Unspecified, .. } => settings.unspecified,
        }
}

fn topic(facts: &ConnectionFacts, by_username: bool) -> ByteString {
    let (kind, identifier) = match facts.username.as_deref() {
        Some(username) if by_username => ("username", username),
        // A client without username is identified by its client id, whatever is configured.
        _ => ("client-id", &*facts.client_id),
    };
    format!("$client-events/all/{kind}/{}", percent_encoded(identifier)).into()
}

/// Encodes the four characters that a topic level cannot hold or that would make decoding ambiguous, and no others. In a single
/// pass, so that `%` is never encoded twice.
fn percent_encoded(identifier: &str) -> String {
    let mut encoded = String::with_capacity(identifier.len());
    for c in identifier.chars() {
        match c {
            '%' => encoded.push_str("%25"),
            '+' => encoded.push_str("%2B"),
            '#' => encoded.push_str("%23"),
            '/' => encoded.push_str("%2F"),
            other => encoded.push(other),
        }
    }
    encoded
}

/// The user properties of CONNECT go with the connect event, unchanged; a disconnect event has none.
fn user_properties(event: &LifecycleEvent) -> UserProperties {
    match event {
        LifecycleEvent::Connected { user_properties } => user_properties.clone(),
        LifecycleEvent::Disconnected { .. } => UserProperties::new(),
    }
}

fn message(topic: ByteString, payload: Bytes, user_properties: UserProperties, settings: &AddonSettings, now_ms: u64) -> Message {
    Message {
        topic,
        payload,
        qos: QoS::AtLeastOnce,
        retain: false,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties,
        message_expiry_interval: settings.message_expiry_max_s,
        received_at_ms: now_ms,
        origin: Origin::Broker,
    }
}

/// The JSON object (seed, Table 10): keys exact and in the table's order, unknown fields left out.
#[derive(Serialize)]
struct Payload<'a> {
    #[serde(rename = "Event type")]
    event_type: &'static str,
    #[serde(rename = "Disconnect initiator", skip_serializing_if = "Option::is_none")]
    initiator: Option<&'static str>,
    #[serde(rename = "Disconnect reason code", skip_serializing_if = "Option::is_none")]
    reason_code: Option<u8>,
    #[serde(rename = "Timestamp")]
    timestamp_ms: u64,
    #[serde(rename = "Time elapsed since connect", skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<u64>,
    #[serde(rename = "Client IP address", skip_serializing_if = "Option::is_none")]
    client_ip: Option<&'a str>,
    #[serde(rename = "Client ID")]
    client_id: &'a str,
    #[serde(rename = "Was client ID broker-assigned?")]
    client_id_assigned: bool,
    #[serde(rename = "Node IP address", skip_serializing_if = "Option::is_none")]
    node_ip: Option<&'a str>,
    #[serde(rename = "Listener port", skip_serializing_if = "Option::is_none")]
    listener_port: Option<u16>,
    #[serde(rename = "Is secure connection?")]
    secure: bool,
    #[serde(rename = "MQTT protocol version")]
    protocol: &'static str,
    #[serde(rename = "MQTT username", skip_serializing_if = "Option::is_none")]
    username: Option<&'a str>,
    #[serde(rename = "TLS: Common Name", skip_serializing_if = "Option::is_none")]
    common_name: Option<&'a str>,
    #[serde(rename = "TLS: Subject Alternative Name", skip_serializing_if = "Option::is_none")]
    subject_alternative_names: Option<Vec<&'a str>>,
}

impl<'a> Payload<'a> {
    fn of(event: &'a Lifecycle) -> Self {
        let facts = &event.facts;
        let (event_type, initiator, reason_code, elapsed_ms) = match &event.event {
            LifecycleEvent::Connected { .. } => ("CONNECTED", None, None, None),
            LifecycleEvent::Disconnected { initiator, reason_code } => {
                // Wall clocks of two nodes may disagree: never less than 0.
                let elapsed_ms = event.at_ms.saturating_sub(facts.connected_at_ms);
                ("DISCONNECTED", Some(initiator.text()), *reason_code, Some(elapsed_ms))
            }
        };
        Self {
            event_type,
            initiator,
            reason_code,
            timestamp_ms: event.at_ms,
            elapsed_ms,
            client_ip: facts.client_ip.as_deref(),
            client_id: &facts.client_id,
            client_id_assigned: facts.client_id_assigned,
            node_ip: facts.node_ip.as_deref(),
            listener_port: facts.listener_port,
            secure: facts.secure,
            protocol: facts.protocol.name(),
            username: facts.username.as_deref(),
            common_name: facts.tls.common_name(),
            subject_alternative_names: facts
                .tls
                .subject_alternative_names()
                .map(|names| names.iter().map(AsRef::as_ref).collect()),
        }
    }
}

#[cfg(test)]
#[path = "lifecycle_test.rs"]
mod tests;
