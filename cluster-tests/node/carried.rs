//! Everything that a PUBLISH carries, and every subscription option, on each way that a message can take: live, from a queue, from a queue
//! after `kill -9`, as retained message, as Will, to each protocol version. What is to arrive is computed here.

use troupemq::mqtt::packet::{Publish, PublishProperties, RetainHandling, SubscriptionOptions, Will, WillProperties};
use troupemq::mqtt::{ProtocolVersion, QoS};

use crate::harness::client::{Client, Options, publish};
use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};

pub const VERSIONS: [ProtocolVersion; 3] = [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1, ProtocolVersion::V5];
pub const LEVELS: [QoS; 3] = [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce];
/// Long enough that no test sees its end.
const EXPIRY_S: u32 = 3_000;

pub fn options(qos: QoS) -> SubscriptionOptions {
    SubscriptionOptions { qos, no_local: false, retain_as_published: false, retain_handling: RetainHandling::Send }
}

/// A name for client ids and topics.
pub fn name(version: ProtocolVersion) -> &'static str {
    match version {
        ProtocolVersion::V3_1 => "v31",
        ProtocolVersion::V3_1_1 => "v311",
        ProtocolVersion::V5 => "v5",
    }
}

/// Every property that a PUBLISH from a client may have, but a Topic Alias.
pub fn all_properties(text: bool) -> PublishProperties {
    let property = |name: &str, value: &str| (name.into(), value.into());
    PublishProperties {
        payload_format_indicator: Some(text),
        message_expiry_interval: Some(EXPIRY_S),
        topic_alias: None,
        response_topic: Some("answers/ünïcode here".into()),
        correlation_data: Some(bytes::Bytes::from_static(b"\x00\xff binary")),
        // Names again, an empty name, an empty value, in this order [MQTT-3.3.2-18].
        user_properties: vec![
            property("z", "1"),
            property("a", "2"),
            property("z", "3"),
            property("", "nameless"),
            property("a", ""),
            property("z", "1"),
        ],
        subscription_identifiers: <_>::default(),
        content_type: Some("text/plain; charset=utf-8".into()),
    }
}

/// A message with all of it.
pub fn full(topic: &str, payload: &str, qos: QoS, retain: bool) -> Publish {
    Publish { retain, properties: all_properties(true), ..publish(topic, payload.as_bytes(), qos) }
}

/// What a subscriber is to receive of a message.
#[derive(Debug, Clone)]
pub struct Expected {
    pub message: Publish,
    pub qos: QoS,
    pub retain: bool,
    pub identifiers: Vec<u32>,
}

impl Expected {
    #[track_caller]
    pub fn check(&self, received: &Publish, version: ProtocolVersion, what: &str) {
        let sent = &self.message;
        assert_eq!((&received.topic, &received.payload), (&sent.topic, &sent.payload), "{what}");
        assert_eq!((received.qos, received.retain, received.dup), (self.qos, self.retain, false), "{what}: {received:?}");
        if !version.is_v5() {
            return;
        }
        let mut properties = received.properties.clone();
        let mut identifiers = properties.subscription_identifiers.to_vec();
        identifiers.sort_unstable();
        assert_eq!(identifiers, self.identifiers, "{what}");
        properties.subscription_identifiers.clear();
        // [MQTT-3.3.2-6]
        let left_s = properties.message_expiry_interval;
        match (left_s, sent.properties.message_expiry_interval) {
            (Some(left_s), Some(interval_s)) => assert!((interval_s - 600..=interval_s).contains(&left_s), "{what}: {left_s}"),
            (left_s, interval_s) => assert_eq!(left_s, interval_s, "{what}"),
        }
        properties.message_expiry_interval = sent.properties.message_expiry_interval;
        assert_eq!(properties, sent.properties, "{what}");
    }
}

/// The subscriber of each protocol version and granted QoS.
pub struct Subscriber {
    pub options: Options,
    pub qos: QoS,
    pub client: Option<Client>,
}

/// Persistent subscribers of `filter`, connected to `address`; those of MQTT 5 with the Subscription Identifier `1 + granted QoS`.
pub async fn subscribers(address: std::net::SocketAddr, prefix: &str, filter: &str) -> Vec<Subscriber> {
    let mut all = Vec::new();
    for version in VERSIONS {
        for qos in LEVELS {
            let id = format!("{prefix}-{}-{qos:?}", name(version));
            let mut who = Options::of(version, &id).clean_start(false);
            if version.is_v5() {
                who = who.persistent();
            }
            let mut client = Client::connect(address, &who).await;
            client.subscribe_as(filter, options(qos), identifier(version, qos)).await;
            all.push(Subscriber { options: who, qos, client: Some(client) });
        }
    }
    all
}

fn identifier(version: ProtocolVersion, qos: QoS) -> Option<u32> {
    version.is_v5().then_some(1 + qos as u32)
}

impl Subscriber {
    /// What it is to receive of these messages: those of QoS 0 only where it is connected (spec/hivemq.md 2.2).
    pub fn expects(&self, messages: &[Publish], connected: bool) -> Vec<Expected> {
        let copy = |message: &Publish| Expected {
            message: message.clone(),
            qos: message.qos.min(self.qos),
            retain: false,
            identifiers: identifier(self.options.version(), self.qos).into_iter().collect(),
        };
        messages.iter().map(copy).filter(|expected| connected || expected.qos != QoS::AtMostOnce).collect()
    }

    pub async fn receives(&mut self, expected: &[Expected], what: &str) {
        let what = format!("{what} {}", self.options.client_id());
        let version = self.options.version();
        let client = self.client.as_mut().expect("connected");
        let mut received = Vec::new();
        for _ in expected {
            received.push(client.message().await);
        }
        // Messages of different QoS need not keep their order [MQTT-4.6.0-5]; each has a payload of its own.
        let mut expected: Vec<_> = expected.iter().collect();
        expected.sort_by(|a, b| a.message.payload.cmp(&b.message.payload));
        received.sort_by(|a, b| a.payload.cmp(&b.payload));
        for (expected, received) in expected.into_iter().zip(&received) {
            expected.check(received, version, &what);
        }
        client.ping().await;
        assert!(client.session.inbox.is_empty(), "{what}: {:?}", client.session.inbox);
    }

    pub async fn sleep(&mut self) {
        if let Some(client) = self.client.take() {
            client.disconnect().await;
        }
    }

    pub async fn wake(&mut self, address: std::net::SocketAddr) {
        let client = Client::connect(address, &self.options).await;
        assert!(client.session_present() || client.version == ProtocolVersion::V3_1);
        self.client = Some(client);
    }
}

/// One message of each QoS.
pub fn of_each_qos(topic: &str) -> Vec<Publish> {
    LEVELS.iter().map(|qos| full(topic, &format!("{qos:?}"), *qos, false)).collect()
}

pub async fn publish_all(address: std::net::SocketAddr, messages: &[Publish]) {
    let mut publisher = Client::connect(address, &Options::v5("publisher")).await;
    for message in messages {
        publisher.try_publish(message.clone()).await.expect("acknowledged");
    }
    publisher.ping().await;
}

#[tokio::test]
async fn a_message_arrives_whole_live_from_the_queue_and_after_kill_and_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut all = subscribers(node.mqtt(), "s", "carried/+").await;
    let messages = of_each_qos("carried/x");
    publish_all(node.mqtt(), &messages).await;
    for subscriber in &mut all {
        let expected = subscriber.expects(&messages, true);
        subscriber.receives(&expected, "live").await;
        subscriber.sleep().await;
    }
    publish_all(node.mqtt(), &messages).await;
    for subscriber in &mut all {
        subscriber.wake(node.mqtt()).await;
        let expected = subscriber.expects(&messages, false);
        subscriber.receives(&expected, "from the queue").await;
        subscriber.sleep().await;
    }
    publish_all(node.mqtt(), &messages).await;
    node.kill();
    node.start();
    for subscriber in &mut all {
        subscriber.wake(node.mqtt()).await;
        let expected = subscriber.expects(&messages, false);
        subscriber.receives(&expected, "after the restart").await;
    }
}

#[tokio::test]
async fn a_retained_message_arrives_whole_also_after_kill_and_restart() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let messages: Vec<_> = LEVELS.iter().map(|qos| full(&format!("kept/{qos:?}"), "kept", *qos, true)).collect();
    publish_all(node.mqtt(), &messages).await;
    for what in ["live", "after the restart"] {
        for version in VERSIONS {
            for qos in LEVELS {
                // Both kinds of session: the connection's own queue, and the replicated one.
                for kept in [false, true] {
                    let mut who = Options::of(version, "fresh").clean_start(true);
                    if kept {
                        who = who.expiry(3600);
                    }
                    let mut client = Client::connect(node.mqtt(), &who).await;
                    client.subscribe_as("kept/+", options(qos), identifier(version, qos)).await;
                    let mut received = Vec::new();
                    for _ in &messages {
                        received.push(client.message().await);
                    }
                    for message in &messages {
                        let it = received.iter().find(|r| r.topic == message.topic).expect("each once");
                        let identifiers = identifier(version, qos).into_iter().collect();
                        let expected =
                            Expected { message: message.clone(), qos: message.qos.min(qos), retain: true, identifiers };
                        expected.check(it, version, &format!("{what} {version:?} {qos:?} {kept}"));
                    }
                    client.nothing().await;
                    client.disconnect().await;
                }
            }
        }
        if what == "live" {
            node.kill();
            node.start();
        }
    }
}

#[tokio::test]
async fn a_will_arrives_whole() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut all = subscribers(node.mqtt(), "s", "wills/+").await;
    let mut wills = Vec::new();
    let dies = async |node: &Node, qos: QoS, retain: bool, delay_s: u32| {
        let message = full(&format!("wills/{qos:?}{retain}"), "gone", qos, retain);
        let properties = all_properties(true);
        let will = Will {
            topic: message.topic.clone(),
            payload: message.payload.clone(),
            qos,
            retain,
            properties: WillProperties {
                will_delay_interval: Some(delay_s),
                payload_format_indicator: properties.payload_format_indicator,
                message_expiry_interval: properties.message_expiry_interval,
                content_type: properties.content_type,
                response_topic: properties.response_topic,
                correlation_data: properties.correlation_data,
                user_properties: properties.user_properties,
            },
        };
        let options = Options::v5(&format!("mortal-{qos:?}-{retain}")).expiry(3600).with(|connect| connect.will = Some(will));
        drop(Client::connect(node.mqtt(), &options).await);
        message
    };
    for qos in LEVELS {
        for retain in [false, true] {
            let will = dies(&node, qos, retain, 0).await;
            for subscriber in &mut all {
                let expected = subscriber.expects(std::slice::from_ref(&will), true);
                subscriber.receives(&expected, "will").await;
            }
            if retain {
                wills.push(will);
            }
        }
    }
    // Retained wills, as what they are from then on; found a moment after they were delivered.
    let mut late = Client::connect(node.mqtt(), &Options::v5("late")).await;
    for will in &wills {
        late.subscribe_as(&will.topic, options(QoS::ExactlyOnce), Some(9)).await;
        let expected = Expected { message: will.clone(), qos: will.qos, retain: true, identifiers: vec![9] };
        expected.check(&late.message().await, late.version, "retained will");
    }
    // A delayed will is published by the node that comes back, and waits for those who are away.
    let will = dies(&node, QoS::ExactlyOnce, false, 4).await;
    for subscriber in &mut all {
        subscriber.sleep().await;
    }
    node.kill();
    node.start();
    for subscriber in &mut all {
        subscriber.wake(node.mqtt()).await;
        // Those of QoS 0 may be back in time or not.
        if subscriber.qos != QoS::AtMostOnce {
            let expected = subscriber.expects(std::slice::from_ref(&will), false);
            subscriber.receives(&expected, "delayed will").await;
        }
    }
}

/// Subscription options of one filter.
#[derive(Debug, Clone, Copy)]
pub struct Choice {
    pub no_local: bool,
    pub retain_as_published: bool,
    pub identifier: Option<u32>,
    pub qos: QoS,
}

impl Choice {
    /// Eight choices, numbered.
    pub fn number(n: u32, qos: QoS) -> Self {
        let identifier = (n & 4 != 0).then_some(10 + qos as u32);
        Self { no_local: n & 1 != 0, retain_as_published: n & 2 != 0, identifier, qos }
    }

    pub async fn subscribe(self, client: &mut Client, filter: &str) {
        let Self { no_local, retain_as_published, identifier, qos } = self;
        let options = SubscriptionOptions { qos, no_local, retain_as_published, retain_handling: RetainHandling::DoNotSend };
        assert_eq!(client.subscribe_as(filter, options, identifier).await.byte(), qos as u8);
    }
}

/// What overlapping subscriptions make of a message: one copy with the highest QoS, all identifiers, and RETAIN as published where one of
/// them wants it; none where all of them leave out what the client published itself.
pub fn merged(choices: &[Choice], message: &Publish, own: bool) -> Option<Expected> {
    let wanted: Vec<_> = choices.iter().filter(|choice| !own || !choice.no_local).collect();
    let qos = wanted.iter().map(|choice| choice.qos).max()?.min(message.qos);
    let retain = message.retain && wanted.iter().any(|choice| choice.retain_as_published);
    let mut identifiers: Vec<u32> = wanted.iter().filter_map(|choice| choice.identifier).collect();
    identifiers.sort_unstable();
    Some(Expected { message: message.clone(), qos, retain, identifiers })
}

/// A client with overlapping subscriptions.
pub struct Overlapping {
    pub options: Options,
    pub topic: String,
    pub choices: [Choice; 2],
}

impl Overlapping {
    /// All pairs of choices for a literal and a wildcard filter.
    pub fn all() -> Vec<Self> {
        let pairs = (0..64).map(|n| {
            let choices = [Choice::number(n % 8, QoS::AtLeastOnce), Choice::number(n / 8, QoS::ExactlyOnce)];
            Self { options: Options::v5(&format!("over-{n}")).persistent(), topic: format!("over/{n}/x"), choices }
        });
        pairs.collect()
    }

    pub async fn subscribe(&self, client: &mut Client) {
        let wildcard = self.topic.replace("/x", "/+");
        for (choice, filter) in self.choices.iter().zip([&self.topic, &wildcard]) {
            choice.subscribe(client, filter).await;
        }
    }

    /// Messages of QoS 2 and 1 that others publish, with and without RETAIN.
    pub fn messages(&self) -> [Publish; 4] {
        [(QoS::ExactlyOnce, false), (QoS::ExactlyOnce, true), (QoS::AtLeastOnce, true), (QoS::AtLeastOnce, false)]
            .map(|(qos, retain)| full(&self.topic, &format!("{qos:?} {retain}"), qos, retain))
    }

    pub async fn receives(&self, client: &mut Client, messages: &[Publish], own: bool, what: &str) {
        let what = format!("{what} {:?}", self.choices);
        let mut expected: Vec<_> = messages.iter().filter_map(|message| merged(&self.choices, message, own)).collect();
        let mut received = Vec::new();
        for _ in &expected {
            received.push(client.message().await);
        }
        // Messages of one QoS keep their order, those of different ones need not [MQTT-4.6.0-5]; their payload begins with it.
        expected.sort_by_key(|expected| expected.message.payload[0]);
        received.sort_by_key(|message| message.payload[0]);
        for (expected, received) in expected.iter().zip(&received) {
            expected.check(received, client.version, &what);
        }
        client.ping().await;
        assert!(client.session.inbox.is_empty(), "{what}: {:?}", client.session.inbox);
    }
}

#[tokio::test]
async fn overlapping_subscriptions_with_all_options_make_one_copy_of_each_message() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let all = Overlapping::all();
    for one in &all {
        let mut client = Client::connect(node.mqtt(), &one.options).await;
        one.subscribe(&mut client).await;
        for message in one.messages() {
            publisher.try_publish(message.clone()).await.expect("acknowledged");
        }
        one.receives(&mut client, &one.messages(), false, "live").await;
        for message in one.messages() {
            client.try_publish(message).await.expect("acknowledged");
        }
        one.receives(&mut client, &one.messages(), true, "its own").await;
        client.disconnect().await;
        for message in one.messages() {
            publisher.try_publish(message.clone()).await.expect("acknowledged");
        }
    }
    // Half of them wake before the restart, half after it.
    let (before, after) = all.split_at(all.len() / 2);
    for one in before {
        let mut client = Client::connect(node.mqtt(), &one.options).await;
        one.receives(&mut client, &one.messages(), false, "queued").await;
        drop(client);
        // Commands of a shard are stored in their order: with this CONNACK the acknowledgements before it are stored too.
        Client::connect(node.mqtt(), &one.options).await.ping().await;
    }
    node.kill();
    node.start();
    for one in after {
        let mut client = Client::connect(node.mqtt(), &one.options).await;
        one.receives(&mut client, &one.messages(), false, "after the restart").await;
    }
    // The options came back too.
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    for one in &all {
        let mut client = Client::connect(node.mqtt(), &one.options).await;
        for message in one.messages() {
            publisher.try_publish(message).await.expect("acknowledged");
        }
        one.receives(&mut client, &one.messages(), false, "live again").await;
        for message in one.messages() {
            client.try_publish(message).await.expect("acknowledged");
        }
        one.receives(&mut client, &one.messages(), true, "its own again").await;
    }
}

/// [MQTT-3.3.1-9] to [MQTT-3.3.1-11]: new, again, again on a resumed session, again after a restart.
#[tokio::test]
async fn retain_handling_knows_which_subscriptions_are_new() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    publish_all(node.mqtt(), &[full("rh/x", "kept", QoS::AtLeastOnce, true)]).await;
    let handlings = [RetainHandling::Send, RetainHandling::SendIfNew, RetainHandling::DoNotSend];
    let check = async |client: &mut Client, handling: RetainHandling, new: bool, what: &str| {
        let wanted = SubscriptionOptions { retain_handling: handling, ..options(QoS::AtLeastOnce) };
        client.subscribe_as("rh/x", wanted, Some(3)).await;
        let sent = match handling {
            RetainHandling::Send => true,
            RetainHandling::SendIfNew => new,
            RetainHandling::DoNotSend => false,
        };
        if sent {
            let message = client.message().await;
            let kept = full("rh/x", "kept", QoS::AtLeastOnce, true);
            let expected = Expected { message: kept, qos: QoS::AtLeastOnce, retain: true, identifiers: vec![3] };
            expected.check(&message, client.version, what);
        }
        client.nothing().await;
    };
    for handling in handlings {
        let who = Options::v5(&format!("rh-{handling:?}")).persistent();
        let mut client = Client::connect(node.mqtt(), &who).await;
        check(&mut client, handling, true, "new").await;
        check(&mut client, handling, false, "again").await;
        client.unsubscribe("rh/x").await;
        check(&mut client, handling, true, "after UNSUBSCRIBE").await;
        client.disconnect().await;
        let mut client = Client::connect(node.mqtt(), &who).await;
        assert!(client.session_present());
        check(&mut client, handling, false, "resumed").await;
        client.disconnect().await;
    }
    node.kill();
    node.start();
    for handling in handlings {
        let who = Options::v5(&format!("rh-{handling:?}")).persistent();
        let mut client = Client::connect(node.mqtt(), &who).await;
        assert!(client.session_present());
        check(&mut client, handling, false, "after the restart").await;
        client.disconnect().await;
        let mut client = Client::connect(node.mqtt(), &who.clone().clean_start(true)).await;
        check(&mut client, handling, true, "clean start").await;
    }
    // MQTT 3 has no choice: each SUBSCRIBE sends.
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
        let mut client = Client::connect(node.mqtt(), &Options::of(version, name(version))).await;
        for what in ["new", "again"] {
            client.subscribe("rh/x", QoS::AtLeastOnce).await;
            let message = client.message().await;
            assert!(message.retain, "{what}");
        }
    }
}

/// cases.md 76 and 77.
#[tokio::test]
async fn identifiers_are_those_of_the_last_subscribe_and_of_shared_subscriptions() {
    let _permit = acquire(Weight::Node);
    let mut node = Node::ready(Config::default());
    let mut publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
    let identifiers = |message: &Publish| message.properties.subscription_identifiers.to_vec();
    let who = Options::v5("member").persistent();
    let mut client = Client::connect(node.mqtt(), &who).await;
    for (identifier, expected) in [(Some(1), vec![1]), (Some(268_435_455), vec![268_435_455]), (None, vec![])] {
        client.subscribe_as("t", options(QoS::ExactlyOnce), identifier).await;
        for qos in LEVELS {
            publisher.publish("t", b"", qos).await;
            assert_eq!(identifiers(&client.message().await), expected);
        }
    }
    client.subscribe_as("$share/g/u", options(QoS::ExactlyOnce), Some(7)).await;
    client.subscribe_as("same/+", options(QoS::AtLeastOnce), Some(8)).await;
    client.subscribe_as("same/#", options(QoS::AtLeastOnce), Some(8)).await;
    let live = async |client: &mut Client, publisher: &mut Client| {
        for qos in LEVELS {
            publisher.publish("u", b"", qos).await;
            let message = client.message().await;
            assert_eq!((identifiers(&message), message.qos), (vec![7], qos));
        }
        // MQTT 5 section 3.3.4: as often as subscriptions have it.
        publisher.publish("same/x", b"", QoS::AtLeastOnce).await;
        assert_eq!(identifiers(&client.message().await), [8, 8]);
    };
    live(&mut client, &mut publisher).await;
    for restart in [false, true] {
        client.disconnect().await;
        publisher.publish("u", b"", QoS::AtLeastOnce).await;
        publisher.publish("u", b"", QoS::ExactlyOnce).await;
        if restart {
            node.kill();
            node.start();
            publisher = Client::connect(node.mqtt(), &Options::v5("publisher")).await;
        }
        client = Client::connect(node.mqtt(), &who).await;
        for _ in 0..2 {
            assert_eq!(identifiers(&client.message().await), [7]);
        }
        live(&mut client, &mut publisher).await;
    }
}

/// cases.md 80: one copy of a live or queued message, one of a retained message for each subscription.
#[tokio::test]
async fn overlapping_subscriptions_of_mqtt_3_make_one_copy_live_and_queued() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    publish_all(node.mqtt(), &[publish("a/c", b"retained", QoS::AtLeastOnce)].map(|m| Publish { retain: true, ..m })).await;
    for version in [ProtocolVersion::V3_1, ProtocolVersion::V3_1_1] {
        let who = Options::of(version, name(version)).clean_start(false);
        let mut client = Client::connect(node.mqtt(), &who).await;
        for (filter, retained) in [("a/b", 0), ("a/+", 1), ("#", 1)] {
            client.subscribe(filter, QoS::AtLeastOnce).await;
            for _ in 0..retained {
                assert_eq!(client.text().await, "retained");
            }
        }
        client.nothing().await;
        publish_all(node.mqtt(), &of_each_qos("a/b")).await;
        let received = [client.message().await, client.message().await, client.message().await];
        assert_eq!(received.map(|m| (m.topic.to_string(), m.qos)), [0, 1, 1].map(|qos| ("a/b".to_owned(), LEVELS[qos])));
        client.nothing().await;
        client.disconnect().await;
        publish_all(node.mqtt(), &of_each_qos("a/b")).await;
        let mut client = Client::connect(node.mqtt(), &who).await;
        for _ in 0..2 {
            assert_eq!(client.message().await.qos, QoS::AtLeastOnce);
        }
        client.nothing().await;
        client.disconnect().await;
    }
}
