use std::sync::Arc;

use super::super::fixture::{NOW_MS, all_off, all_on, facts, properties};
use super::super::render;
use super::*;
use crate::mqtt::ProtocolVersion;
use crate::signal::{RenderedOnce, Signal, TlsNames};

const ALL_INITIATORS: [Initiator; 4] =
    [Initiator::Client, Initiator::Server, Initiator::SessionTakenOver, Initiator::Unspecified];

fn connected() -> LifecycleEvent {
    LifecycleEvent::Connected { user_properties: vec![("site".into(), "Köln".into()), ("site".into(), "2".into())] }
}

fn disconnected(initiator: Initiator, reason_code: Option<u8>) -> LifecycleEvent {
    LifecycleEvent::Disconnected { initiator, reason_code }
}

fn event(event: LifecycleEvent, facts: ConnectionFacts, at_ms: u64) -> Signal {
    Signal::Lifecycle(Box::new(Lifecycle { event, at_ms, facts: Arc::new(facts), rendered: RenderedOnce::default() }))
}

fn published(signal: &Signal) -> Message {
    render(signal, &all_on(), NOW_MS).message.unwrap()
}

fn payload(signal: &Signal) -> String {
    String::from_utf8(published(signal).payload.to_vec()).unwrap()
}

fn named(client_id: &str, username: Option<&str>) -> ConnectionFacts {
    ConnectionFacts { client_id: client_id.into(), username: username.map(Into::into), ..facts() }
}

#[test]
fn a_connect_event_is_the_one_of_the_seed() {
    let expected = concat!(
        r#"{"Event type":"CONNECTED","Timestamp":1756377600000,"Client IP address":"192.168.0.1","Client ID":"sensor-42","#,
        r#""Was client ID broker-assigned?":false,"Node IP address":"10.0.0.7","Listener port":1883,"#,
        r#""Is secure connection?":false,"MQTT protocol version":"MQTTv5","MQTT username":"my-user"}"#
    );
    assert_eq!(payload(&event(connected(), facts(), 1_756_377_600_000)), expected);
}

#[test]
fn a_disconnect_event_is_the_one_of_the_seed() {
    let expected = concat!(
        r#"{"Event type":"DISCONNECTED","Disconnect initiator":"CLIENT","Disconnect reason code":0,"#,
        r#""Timestamp":1756377900000,"Time elapsed since connect":300000,"Client IP address":"192.168.0.1","#,
        r#""Client ID":"sensor-42","Was client ID broker-assigned?":false,"Node IP address":"10.0.0.7","#,
        r#""Listener port":1883,"Is secure connection?":false,"MQTT protocol version":"MQTTv5","MQTT username":"my-user"}"#
    );
    assert_eq!(payload(&event(disconnected(Initiator::Client, Some(0)), facts(), 1_756_377_900_000)), expected);
}

#[test]
fn what_is_not_known_is_left_out() {
    let facts = ConnectionFacts {
        client_ip: None,
        node_ip: None,
        listener_port: None,
        username: None,
        client_id_assigned: true,
        protocol: ProtocolVersion::V3_1,
        ..facts()
    };
    let expected = concat!(
        r#"{"Event type":"DISCONNECTED","Disconnect initiator":"UNSPECIFIED","Timestamp":1756377600007,"#,
        r#""Time elapsed since connect":7,"Client ID":"sensor-42","Was client ID broker-assigned?":true,"#,
        r#""Is secure connection?":false,"MQTT protocol version":"MQTTv3_1"}"#
    );
    assert_eq!(payload(&event(disconnected(Initiator::Unspecified, None), facts, 1_756_377_600_007)), expected);
}

#[test]
fn tls_facts_are_last_and_an_empty_list_of_names_is_shown() {
    let table: [(Option<Vec<ByteString>>, &str); 3] = [
        (None, r#""TLS: Common Name":"cn"}"#),
        (Some(vec![]), r#""TLS: Common Name":"cn","TLS: Subject Alternative Name":[]}"#),
        (
            Some(vec!["d.example".into(), "10.0.0.1".into()]),
            r#""TLS: Common Name":"cn","TLS: Subject Alternative Name":["d.example","10.0.0.1"]}"#,
        ),
    ];
    for (names, end) in table {
        let facts = ConnectionFacts { secure: true, tls: TlsNames::new(Some("cn".into()), names), ..facts() };
        let json = payload(&event(connected(), facts, 1));
        assert!(json.contains(r#""Is secure connection?":true"#));
        assert!(json.ends_with(end), "{json}");
    }
}

#[test]
fn initiators_protocols_and_reason_codes_have_their_names() {
    let initiators = ["CLIENT", "SERVER", "SESSION_TAKEN_OVER", "UNSPECIFIED"];
    for (initiator, name) in ALL_INITIATORS.into_iter().zip(initiators) {
        let json = payload(&event(disconnected(initiator, Some(142)), facts(), 1));
        assert!(json.contains(&format!(r#""Disconnect initiator":"{name}","Disconnect reason code":142,"#)), "{json}");
    }
    let protocols =
        [(ProtocolVersion::V3_1, "MQTTv3_1"), (ProtocolVersion::V3_1_1, "MQTTv3_1_1"), (ProtocolVersion::V5, "MQTTv5")];
    for (protocol, name) in protocols {
        let json = payload(&event(connected(), ConnectionFacts { protocol, ..facts() }, 1));
        assert!(json.contains(&format!(r#""MQTT protocol version":"{name}""#)), "{json}");
    }
}

#[test]
fn a_connect_event_has_nothing_of_a_disconnect() {
    let json = payload(&event(connected(), facts(), 1));
    assert!(!json.contains("Disconnect") && !json.contains("elapsed"), "{json}");
}

#[test]
fn time_since_connect_is_never_negative() {
    let json = payload(&event(disconnected(Initiator::Unspecified, None), facts(), 5));
    assert!(json.contains(r#""Time elapsed since connect":0,"#), "{json}");
}

#[test]
fn json_fields_carry_the_original_values_and_topics_the_encoded_ones() {
    let made = published(&event(connected(), named("building/1+2", Some("u#\"ü%")), 1));
    assert_eq!(made.topic, "$client-events/all/client-id/building%2F1%2B2");
    let json: serde_json::Value = serde_json::from_slice(&made.payload).unwrap();
    assert_eq!(json["Client ID"], "building/1+2");
    assert_eq!(json["MQTT username"], "u#\"ü%");
}

#[test]
fn four_characters_are_encoded_and_no_others() {
    let table = [
        ("sensor-42", "sensor-42"),
        ("%", "%25"),
        ("+", "%2B"),
        ("#", "%23"),
        ("/", "%2F"),
        ("%2F", "%252F"),
        ("a/b+c#d%e", "a%2Fb%2Bc%23d%25e"),
        ("ü 漢 $&?=:@", "ü 漢 $&?=:@"),
    ];
    for (identifier, encoded) in table {
        let made = published(&event(connected(), named(identifier, None), 1));
        assert_eq!(made.topic, format!("$client-events/all/client-id/{encoded}").as_str());
    }
}

#[test]
fn the_username_identifies_where_configured_and_where_there_is_one() {
    let mut settings = all_on();
    settings.lifecycle.identifier_username = true;
    let table = [(Some("me/too"), "$client-events/all/username/me%2Ftoo"), (None, "$client-events/all/client-id/c%2F1")];
    for (username, topic) in table {
        let signal = event(connected(), named("c/1", username), 1);
        assert_eq!(render(&signal, &settings, NOW_MS).message.unwrap().topic, topic);
    }
    let signal = event(connected(), named("c", Some("me")), 1);
    assert_eq!(published(&signal).topic, "$client-events/all/client-id/c");
}

#[test]
fn events_are_sent_with_qos_1_by_the_broker_and_are_not_retained() {
    for signal in [event(connected(), facts(), 1), event(disconnected(Initiator::Server, Some(152)), facts(), 1)] {
        let made = published(&signal);
        assert_eq!(made.qos, QoS::AtLeastOnce);
        assert!(!made.retain);
        assert_eq!(made.origin, Origin::Broker);
        assert_eq!((made.content_type, made.payload_format_indicator), (None, None));
        assert_eq!((made.response_topic, made.correlation_data), (None, None));
    }
}

#[test]
fn the_configured_maximum_message_expiry_applies() {
    let signal = event(connected(), facts(), 1);
    assert_eq!(published(&signal).message_expiry_interval, None);
    let capped = AddonSettings { message_expiry_max_s: Some(30), ..all_on() };
    let made = render(&signal, &capped, NOW_MS).message.unwrap();
    assert_eq!((made.message_expiry_interval, made.received_at_ms), (Some(30), NOW_MS));
}

#[test]
fn connect_events_carry_the_user_properties_of_connect_and_disconnect_events_none() {
    let made = published(&event(connected(), facts(), 1));
    assert_eq!(properties(&made), [("site", "Köln"), ("site", "2")]);
    assert!(published(&event(disconnected(Initiator::Client, Some(0)), facts(), 1)).user_properties.is_empty());
}

#[test]
fn only_the_chosen_triggers_publish() {
    let events: Vec<_> =
        std::iter::once(connected()).chain(ALL_INITIATORS.map(|initiator| disconnected(initiator, None))).collect();
    for chosen in 0..events.len() {
        let mut settings = all_on();
        let lifecycle = &mut settings.lifecycle;
        (lifecycle.connected, lifecycle.client, lifecycle.server) = (chosen == 0, chosen == 1, chosen == 2);
        (lifecycle.session_taken_over, lifecycle.unspecified) = (chosen == 3, chosen == 4);
        for (n, kind) in events.iter().enumerate() {
            let rendered = render(&event(kind.clone(), facts(), 1), &settings, NOW_MS);
            assert_eq!(rendered.message.is_some(), n == chosen, "trigger {chosen}, event {n}");
            assert_eq!(rendered.counts.len(), usize::from(n == chosen), "trigger {chosen}, event {n}");
        }
    }
}

/// The topic of what nobody hears.
fn passed_over(signal: &Signal, settings: &AddonSettings) -> Option<ByteString> {
    let Signal::Lifecycle(event) = signal else { panic!("no lifecycle event: {signal:?}") };
    topic_to_publish(event, settings)
}

#[test]
fn nothing_is_published_or_counted_while_the_addon_is_off() {
    let unusable = named("nul\0", None);
    for facts in [facts(), unusable] {
        assert_eq!(passed_over(&event(connected(), facts.clone(), 1), &all_off()), None);
        assert_eq!(render(&event(connected(), facts, 1), &all_off(), NOW_MS), Rendered::default());
    }
}

#[test]
fn an_identifier_that_makes_no_topic_name_is_skipped_and_counted() {
    let prefix = "$client-events/all/client-id/".len();
    let table = [
        ("nul\0".to_owned(), false),
        ("x".repeat(65_535 - prefix), true),
        ("x".repeat(65_536 - prefix), false),
        // Encoding makes three bytes of each.
        ("/".repeat(21_836), false),
        ("/".repeat(21_835), true),
    ];
    for (client_id, fits) in table {
        let rendered = render(&event(connected(), named(&client_id, None), 1), &all_on(), NOW_MS);
        assert_eq!(rendered.message.is_some(), fits, "{} bytes", client_id.len());
        assert_eq!(passed_over(&event(connected(), named(&client_id, None), 1), &all_on()), rendered.message.map(|m| m.topic));
        let counter = if fits { AddonCounter::LifecyclePublished } else { AddonCounter::LifecycleSkipped };
        assert_eq!(rendered.counts, [Count::one(counter)]);
        assert_eq!(rendered.skipped, (!fits).then_some(Skipped::LifecycleTopic));
    }
}

#[test]
fn a_lifecycle_event_without_subscriber_is_dead_with_the_origin_broker() {
    let lifecycle = Arc::new(published(&event(connected(), facts(), 1)));
    let made = super::super::dead(&lifecycle, NOW_MS, &all_on()).message.unwrap();
    assert_eq!(made.topic, "$dead/$client-events/all/client-id/sensor-42");
    assert_eq!(made.qos, QoS::AtLeastOnce);
    assert_eq!(properties(&made).last(), Some(&("hmq-dead-origin", "broker")));
}
