//! Payload corruption.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use bytestring::ByteString;
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{ProtocolVersion, QoS};

use super::kit::{node_with, queue_of};
use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish};
use crate::harness::permit::{Weight, acquire};

/// Row 112, shortened: what each of many different subscribers receives is what was published to that topic.
#[tokio::test]
async fn fan_out_to_different_subscribers_mixes_up_no_bytes() {
    const SUBSCRIBERS: usize = 36;
    const MESSAGES: usize = 600;
    const TOPICS: usize = 7;
    let _permit = acquire(Weight::Node);
    let node = node_with(&queue_of(MESSAGES));
    let mut subscribers = Vec::new();
    for number in 0..SUBSCRIBERS {
        let version = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5][number % 3];
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number / 3 % 3];
        let kept = number / 9 % 2 == 1;
        let mut options = Options::of(version, &format!("s{number}"));
        if number % 2 == 0 {
            options = options.with(|connect| connect.properties.topic_alias_maximum = Some(10));
        }
        if kept {
            options = options.persistent();
        }
        let mut client = Client::connect(node.mqtt(), &options).await;
        client.subscribe("fan/+/out", qos).await;
        // Those whose queues are kept are away meanwhile, and the broker stores what they get.
        let away = kept && qos != QoS::AtMostOnce;
        if away {
            client.disconnect().await;
            subscribers.push((options, None));
        } else {
            subscribers.push((options, Some(client)));
        }
    }
    let mut publishers = [Options::v5("p5"), Options::v3("p3")].map(Some);
    for (index, slot) in publishers.iter_mut().enumerate() {
        let mut publisher = Client::connect(node.mqtt(), &slot.take().expect("options")).await;
        let is_v5 = publisher.version == ProtocolVersion::V5;
        for number in (index..MESSAGES).step_by(2) {
            let topic = format!("fan/{}/out", "t".repeat(1 + number % TOPICS));
            // Lengths on both sides of one, two and three bytes of length in the fixed header.
            let len = [0, 1, 90, 127, 128, 1000, 16_383, 20_000][number / 2 % 8];
            let qos = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce][number % 3];
            let mut packet = publish(&topic, &checked(&topic, number, len), qos);
            if is_v5 {
                packet.properties.user_properties = vec![("number".into(), number.to_string().into())];
                packet.properties.topic_alias = Some(1 + (number % 5) as u16);
            }
            while publisher.session.unacknowledged() > 8 {
                publisher.step(SOON).await.expect("an acknowledgement");
            }
            publisher.start_publish(packet).await.expect("sent");
            // Let nobody's QoS 0 go over a limit: those who are there keep up.
            if number % 40 < 2 {
                for (_, client) in &mut subscribers {
                    if let Some(client) = client {
                        client.ping().await;
                    }
                }
            }
        }
        while publisher.session.unacknowledged() > 0 {
            publisher.step(SOON).await.expect("an acknowledgement");
        }
        publisher.ping().await;
    }
    for (options, client) in subscribers {
        let was_away = client.is_none();
        let mut client = match client {
            Some(client) => client,
            None => Client::connect(node.mqtt(), &options).await,
        };
        // Those who were away missed what was published with QoS 0.
        let expected: Vec<usize> = [0, 1]
            .into_iter()
            .flat_map(|index| (index..MESSAGES).step_by(2))
            .filter(|number| !was_away || number % 3 != 0)
            .collect();
        let mut seen = Vec::new();
        let mut aliases = HashMap::new();
        for _ in 0..expected.len() {
            let mut message = client.message().await;
            resolve(&mut message, &mut aliases, options.client_id());
            seen.push(check(&message, options.client_id()));
        }
        seen.sort_unstable();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(seen, expected, "{}", options.client_id());
        client.ping().await;
        assert!(client.session.inbox.is_empty(), "{}", options.client_id());
    }
}

/// `hash|number|topic|filling`
fn checked(topic: &str, number: usize, len: usize) -> Vec<u8> {
    let mut body = format!("{number}|{topic}|").into_bytes();
    body.extend((0..len).map(|n| (n % 251) as u8));
    let mut payload = format!("{:016x}|", hash(&body)).into_bytes();
    payload.extend(body);
    payload
}

/// Puts the topic in that an alias stands for. Only those who announced some (ten) get any.
fn resolve(message: &mut Publish, aliases: &mut HashMap<u16, ByteString>, who: &str) {
    let Some(alias) = message.properties.topic_alias else { return };
    let announced = who.strip_prefix('s').and_then(|number| number.parse::<usize>().ok()).is_some_and(|number| number % 2 == 0);
    assert!(announced && (1..=10).contains(&alias), "{who}: alias {alias}");
    if message.topic.is_empty() {
        message.topic = aliases.get(&alias).cloned().unwrap_or_else(|| panic!("{who}: alias {alias} stands for nothing"));
    } else {
        aliases.insert(alias, message.topic.clone());
    }
}

/// The number of a message that is whole.
fn check(message: &Publish, who: &str) -> usize {
    let (sum, body) = message.payload.split_at(17);
    assert_eq!(String::from_utf8_lossy(sum), format!("{:016x}|", hash(body)), "{who}: {message:?}");
    let mut parts = body.splitn(3, |byte| *byte == b'|').map(|part| String::from_utf8_lossy(part).into_owned());
    let number: usize = parts.next().and_then(|text| text.parse().ok()).expect("a number");
    assert_eq!(parts.next().as_deref(), Some(&*message.topic), "{who}: {number}");
    let expected: &[_] = &[("number".into(), number.to_string().into())];
    assert!(message.properties.user_properties.is_empty() || message.properties.user_properties == expected, "{who}: {number}");
    number
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}
