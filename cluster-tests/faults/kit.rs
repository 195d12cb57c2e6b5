//! What the tests of this folder share.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use troupemq::mqtt::QoS;
use troupemq::mqtt::packet::Publish;
use troupemq::replica::ShardId;

use crate::harness::client::{Client, ConnectError, Gone, Options, Session};
use crate::harness::config::SHARDS;
use crate::harness::trio::{Trio, leaders};
use crate::harness::{SOON, wait};

/// Which node leads each shard.
pub struct Leaders(BTreeMap<String, usize>);

impl Leaders {
    /// As they are once every group has one.
    pub fn of(trio: &Trio, ask: usize) -> Self {
        wait::until("every shard has a leader", SOON, || {
            let groups: BTreeMap<String, usize> = leaders(&trio.nodes[ask])?.into_iter().collect();
            (groups.len() == usize::from(SHARDS) + 1).then_some(Self(groups))
        })
    }

    pub fn of_key(&self, key: &str) -> usize {
        let ShardId(shard) = ShardId::of(key, SHARDS);
        self.0[&shard.to_string()]
    }

    /// A client id that begins with the prefix and whose shard that node leads; the first such one where the node leads none.
    pub fn client_of(&self, node: usize, prefix: &str) -> String {
        let name = |salt| format!("{prefix}-{salt}");
        (0..200).map(name).find(|id| self.of_key(id) == node).unwrap_or_else(|| name(0))
    }
}

/// Connects with the client's side of a session, to one of the nodes in that order, in spite of nodes that have just lost their leaders.
pub async fn resume(trio: &Trio, nodes: &[usize], options: &Options, mut session: Session) -> Client {
    let began = Instant::now();
    let options = options.clone().connack_within(Duration::from_secs(12));
    for attempt in 0.. {
        match Client::try_resume(trio.mqtt(nodes[attempt % nodes.len()]), &options, session).await {
            Ok(client) => return client,
            Err((error, kept)) => {
                assert!(began.elapsed() < 2 * SOON, "{} is not connected: {error:?}", options.client_id());
                session = kept;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    unreachable!("attempts do not end")
}

/// Messages until one with this payload, and those that follow within `then`.
pub async fn until_text(client: &mut Client, last: &str, then: Duration) -> Result<Vec<String>, Gone> {
    let mut texts = Vec::new();
    while texts.last().is_none_or(|text| text != last) {
        let message = client.try_message(2 * SOON).await?;
        texts.push(String::from_utf8_lossy(&message.payload).into_owned());
    }
    texts.extend(texts_within(client, then).await);
    Ok(texts)
}

/// The messages that come before a silence of that length.
pub async fn texts_within(client: &mut Client, silence: Duration) -> Vec<String> {
    messages_within(client, silence).await.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect()
}

pub async fn messages_within(client: &mut Client, silence: Duration) -> Vec<Publish> {
    let mut messages = Vec::new();
    while let Ok(message) = client.try_message(silence).await {
        messages.push(message);
    }
    messages
}

/// A message of each node reaches a subscriber on each.
pub async fn everybody_hears_everybody(trio: &Trio, round: &str) {
    let mut subscribers = Vec::new();
    for node in 0..3 {
        let options = Options::v5(&format!("hears-{round}-{node}"));
        let mut client = resume(trio, &[node], &options, Session::default()).await;
        client.subscribe(&format!("all/{round}"), QoS::AtLeastOnce).await;
        subscribers.push(client);
    }
    for node in 0..3 {
        let mut publisher = resume(trio, &[node], &Options::v5(&format!("tells-{round}-{node}")), Session::default()).await;
        publisher.publish(&format!("all/{round}"), node.to_string().as_bytes(), QoS::AtLeastOnce).await;
        publisher.disconnect().await;
    }
    for (node, subscriber) in subscribers.iter_mut().enumerate() {
        let mut heard = Vec::new();
        for _ in 0..3 {
            heard.push(subscriber.text().await);
        }
        heard.sort();
        assert_eq!(heard, ["0", "1", "2"], "{round}: at node {node}");
    }
    for subscriber in subscribers {
        subscriber.disconnect().await;
    }
}

/// How a CONNECT went, within a time.
pub async fn connect_within(trio: &Trio, node: usize, options: &Options, within: Duration) -> Result<Client, ConnectError> {
    Client::try_connect(trio.mqtt(node), &options.clone().connack_within(within)).await
}
