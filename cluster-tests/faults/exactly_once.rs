//! QoS 2 exactly once: in each phase of the handshake, on both sides, over everything that may end a connection or a leader.

use std::time::Duration;

use troupemq::mqtt::packet::{Publish, PublishAck};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

use super::kit::{Leaders, resume, until_text};
use crate::harness::SOON;
use crate::harness::client::{Client, Options, publish};
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;

const MESSAGES: usize = 3;
const PUBLISHERS: usize = 0;
const SUBSCRIBERS: usize = 1;
/// Leads the shards of all clients of the test.
const LEADER: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    Reconnect,
    /// The old connection stands.
    TakeoverElsewhere,
    PublishersNodeKilled,
    SubscribersNodeKilled,
    ShardLeaderKilled,
    AllKilled,
    AllStopped,
}

const ALL: [Happens; 7] = [
    Happens::Reconnect,
    Happens::TakeoverElsewhere,
    Happens::PublishersNodeKilled,
    Happens::SubscribersNodeKilled,
    Happens::ShardLeaderKilled,
    Happens::AllKilled,
    Happens::AllStopped,
];

/// How far an exchange has come when it happens, on the side that is tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// PUBLISH sent, nothing read.
    PublisherBeforePubrec,
    /// PUBREC was read, and the client does not know it: it publishes again.
    PublisherForgotPubrec,
    /// PUBREC was read; PUBREL comes afterwards.
    PublisherBeforePubrel,
    /// PUBREL sent, nothing read.
    PublisherBeforePubcomp,
    /// PUBLISH read, nothing sent.
    SubscriberBeforePubrec,
    /// PUBREC sent, nothing read.
    SubscriberBeforePubrel,
    /// PUBREL read, nothing sent.
    SubscriberBeforePubcomp,
    /// PUBCOMP sent, which may be lost.
    SubscriberAfterPubcomp,
}

const PHASES: [Phase; 8] = [
    Phase::PublisherBeforePubrec,
    Phase::PublisherForgotPubrec,
    Phase::PublisherBeforePubrel,
    Phase::PublisherBeforePubcomp,
    Phase::SubscriberBeforePubrec,
    Phase::SubscriberBeforePubrel,
    Phase::SubscriberBeforePubcomp,
    Phase::SubscriberAfterPubcomp,
];

impl Phase {
    fn of_publisher(self) -> bool {
        matches!(
            self,
            Self::PublisherBeforePubrec
                | Self::PublisherForgotPubrec
                | Self::PublisherBeforePubrel
                | Self::PublisherBeforePubcomp
        )
    }
}

/// `../shared/cases.md`, row 36.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn qos_2_is_exactly_once_in_every_phase_whatever_happens() {
    let mut trio = Trio::ready(Weight::Whole);
    let mut failures = Vec::new();
    for happens in ALL {
        let leaders = tokio::task::block_in_place(|| Leaders::of(&trio, 0));
        let mut cases = Vec::new();
        for phase in PHASES {
            for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
                cases.push(Case::begin(&trio, &leaders, happens, phase, version).await);
            }
        }
        let killed = tokio::task::block_in_place(|| act(&mut trio, happens));
        for case in cases {
            let name = case.name.clone();
            let received = case.complete(&trio, happens, &killed).await;
            let mut expected: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
            expected.push("last".to_owned());
            if received != expected {
                eprintln!("{name}: received {received:?}");
                failures.push(name);
            }
        }
        tokio::task::block_in_place(|| {
            killed.iter().filter(|_| killed.len() == 1).for_each(|node| trio.nodes[*node].launch());
            trio.wait_ready();
        });
    }
    assert!(failures.is_empty(), "{} cases of {}: {failures:#?}", failures.len(), ALL.len() * PHASES.len() * 2);
}

/// The nodes whose clients have lost their connections.
fn act(trio: &mut Trio, happens: Happens) -> Vec<usize> {
    match happens {
        Happens::Reconnect | Happens::TakeoverElsewhere => Vec::new(),
        Happens::PublishersNodeKilled => kill(trio, PUBLISHERS),
        Happens::SubscribersNodeKilled => kill(trio, SUBSCRIBERS),
        Happens::ShardLeaderKilled => kill(trio, LEADER),
        Happens::AllKilled => {
            trio.nodes.iter_mut().for_each(crate::harness::node::Node::kill);
            trio.start_all();
            vec![0, 1, 2]
        }
        Happens::AllStopped => {
            trio.nodes.iter_mut().for_each(crate::harness::node::Node::terminate);
            trio.nodes.iter_mut().for_each(|node| assert!(node.wait_ended().success()));
            trio.start_all();
            vec![0, 1, 2]
        }
    }
}

fn kill(trio: &mut Trio, node: usize) -> Vec<usize> {
    trio.nodes[node].kill();
    vec![node]
}

/// One exchange of three messages.
struct Case {
    name: String,
    topic: String,
    phase: Phase,
    publisher: Client,
    subscriber: Client,
    publishes_as: Options,
    subscribes_as: Options,
}

impl Case {
    async fn begin(trio: &Trio, leaders: &Leaders, happens: Happens, phase: Phase, version: ProtocolVersion) -> Self {
        let name = format!("{happens:?}/{phase:?}/{version:?}");
        let topic = format!("t/{name}");
        let options = |role: &str| Options::of(version, &leaders.client_of(LEADER, &format!("{role}/{name}"))).persistent();
        let (publishes_as, subscribes_as) = (options("p"), options("s"));
        let mut subscriber = Client::connect(trio.mqtt(SUBSCRIBERS), &subscribes_as.clone().manual_ack()).await;
        subscriber.subscribe(&topic, QoS::ExactlyOnce).await;
        let publisher = Client::connect(trio.mqtt(PUBLISHERS), &publishes_as).await;
        let mut case = Self { name, topic, phase, publisher, subscriber, publishes_as, subscribes_as };
        if phase.of_publisher() {
            case.begin_publishing().await;
        } else {
            for number in 0..MESSAGES {
                case.publisher.publish(&case.topic, number.to_string().as_bytes(), QoS::ExactlyOnce).await;
            }
            case.begin_receiving().await;
        }
        case
    }

    fn message(&self, number: usize) -> Publish {
        publish(&self.topic, number.to_string().as_bytes(), QoS::ExactlyOnce)
    }

    async fn begin_publishing(&mut self) {
        for number in 0..MESSAGES {
            let message = self.message(number);
            self.publisher.start_publish(message).await.expect("sent");
        }
        if self.phase == Phase::PublisherBeforePubrec {
            return;
        }
        for _ in 0..MESSAGES {
            let packet = self.publisher.next_packet(SOON).await.expect("PUBREC");
            assert!(matches!(packet, Packet::Pubrec(_)), "{}: {packet:?}", self.name);
            if self.phase == Phase::PublisherForgotPubrec {
                continue;
            }
            let release = self.publisher.session.handle(packet, true).expect("PUBREL");
            if self.phase == Phase::PublisherBeforePubcomp {
                self.publisher.send(&release).await.expect("sent");
            }
        }
    }

    async fn begin_receiving(&mut self) {
        let subscriber = &mut self.subscriber;
        let mut ids = Vec::new();
        while ids.len() < MESSAGES {
            subscriber.step(SOON).await.expect("PUBLISH");
            ids = subscriber.session.inbox.iter().filter_map(|message| message.packet_id).collect();
        }
        if self.phase == Phase::SubscriberBeforePubrec {
            return;
        }
        for id in ids {
            let packet = Packet::Pubrec(PublishAck::new(id, ReasonCode::Success));
            subscriber.send(&packet).await.expect("sent");
        }
        for _ in 0..MESSAGES {
            match self.phase {
                Phase::SubscriberBeforePubcomp => {
                    let packet = subscriber.next_packet(SOON).await.expect("PUBREL");
                    assert!(matches!(packet, Packet::Pubrel(_)), "{}: {packet:?}", self.name);
                }
                Phase::SubscriberAfterPubcomp => subscriber.step(SOON).await.expect("PUBREL"),
                _ => {}
            }
        }
    }

    /// Goes on as clients do; what the subscriber's application received.
    async fn complete(self, trio: &Trio, happens: Happens, killed: &[usize]) -> Vec<String> {
        let Self { name, topic, phase, publisher, subscriber, publishes_as, subscribes_as } = self;
        let way = |home, tested, forgot| Way { trio, happens, killed, home, anew: tested && (is_cut(happens) || forgot) };
        let forgot = phase == Phase::PublisherForgotPubrec;
        let (mut publisher, publisher_stayed) = way(PUBLISHERS, phase.of_publisher(), forgot).go(publisher, &publishes_as).await;
        let (mut subscriber, subscriber_stayed) =
            way(SUBSCRIBERS, !phase.of_publisher(), false).go(subscriber, &subscribes_as).await;
        // On a connection that stayed, the client says now what it had not said.
        subscriber.auto_ack = true;
        if phase == Phase::PublisherBeforePubrel && publisher_stayed {
            for packet in publisher.session.to_resend() {
                publisher.send(&packet).await.expect("sent");
            }
        }
        if !phase.of_publisher() && subscriber_stayed {
            let ids: Vec<_> = subscriber.session.inbox.iter().filter_map(|message| message.packet_id).collect();
            for id in ids {
                let ack = PublishAck::new(id, ReasonCode::Success);
                let packet = match phase {
                    Phase::SubscriberBeforePubrec => Packet::Pubrec(ack),
                    Phase::SubscriberBeforePubcomp => Packet::Pubcomp(ack),
                    _ => continue,
                };
                subscriber.send(&packet).await.expect("sent");
            }
        }
        publisher.patience = 2 * SOON;
        while publisher.session.unacknowledged() > 0 {
            publisher.step(2 * SOON).await.unwrap_or_else(|gone| panic!("{name}: the publisher is not answered: {gone:?}"));
        }
        publisher.publish(&topic, b"last", QoS::ExactlyOnce).await;
        let received = until_text(&mut subscriber, "last", Duration::from_millis(100)).await;
        let received = received.unwrap_or_else(|gone| panic!("{name}: messages do not come: {gone:?}"));
        // All exchanges are complete: nothing comes again.
        let again = resume(trio, &[survivor(killed, SUBSCRIBERS)], &subscribes_as, subscriber.into_session()).await;
        let mut again = again;
        again.ping().await;
        assert!(again.session.inbox.is_empty(), "{name}: {:?}", again.session.inbox);
        again.disconnect().await;
        publisher.disconnect().await;
        received
    }
}

fn is_cut(happens: Happens) -> bool {
    matches!(happens, Happens::Reconnect | Happens::TakeoverElsewhere)
}

/// Where clients of a node go.
fn survivor(killed: &[usize], node: usize) -> usize {
    if killed == [node] { (node + 1) % 3 } else { node }
}

/// How a client goes on.
struct Way<'a> {
    trio: &'a Trio,
    happens: Happens,
    killed: &'a [usize],
    home: usize,
    /// On another connection, though the old one stands.
    anew: bool,
}

impl Way<'_> {
    /// The same connection, or the next of its session; whether it is the same.
    async fn go(self, mut client: Client, options: &Options) -> (Client, bool) {
        let Self { trio, happens, killed, home, anew } = self;
        if !anew && !killed.contains(&home) {
            return (client, true);
        }
        let (node, session, old) = match happens {
            Happens::TakeoverElsewhere => ((home + 1) % 3, std::mem::take(&mut client.session), Some(client)),
            _ => (survivor(killed, home), client.into_session(), None),
        };
        let next = resume(trio, &[node], options, session).await;
        drop(old);
        assert!(next.session_present(), "{} has its session", options.client_id());
        (next, false)
    }
}
