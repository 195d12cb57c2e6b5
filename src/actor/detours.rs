//! The order of retained messages of one publisher and topic. QoS 2 of a session that outlives its connection reaches the topic's shard by
//! way of the publisher's outbox; what the publisher sends behind it with another QoS goes straight there, and would come first. So it
//! waits until that is taken.

use std::sync::Arc;
use std::time::Duration;

use ahash::AHashMap;
use bytestring::ByteString;
use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::mqtt::Message;
use crate::replica::{Position, ShardId};

/// Publisher and topic.
type Key = (ByteString, ByteString);
type Over = Shared<oneshot::Receiver<()>>;

const LOOK: Duration = Duration::from_millis(2);
/// The order is given up after this: the taker has no leader, as long as that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Retained messages on their way of this node, the last of each publisher and topic, where one of them takes the detour.
#[derive(Default, Clone)]
pub struct Detours(Arc<Mutex<AHashMap<Key, (u64, Over)>>>);

/// A message on its way; the ones behind it wait for its end.
pub struct OnItsWay {
    detours: Detours,
    key: Key,
    number: u64,
    _over: oneshot::Sender<()>,
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        let mut all = self.detours.0.lock();
        if all.get(&self.key).is_some_and(|(number, _)| *number == self.number) {
            all.remove(&self.key);
        }
    }
}

impl Detours {
    /// A message takes the detour.
    pub fn enter(&self, message: &Message) -> Option<OnItsWay> {
        let publisher = message.publisher()?;
        let key = (publisher.clone(), message.topic.clone());
        let mut all = self.0.lock();
        Some(self.add(&mut all, key))
    }

    /// A message goes straight: what it has to wait for, if one of the same publisher and topic is on its way.
    pub fn follow(&self, message: &Message) -> Option<(Over, OnItsWay)> {
        let mut all = self.0.lock();
        if all.is_empty() {
            return None;
        }
        let key = (message.publisher()?.clone(), message.topic.clone());
        let before = all.get(&key)?.1.clone();
        Some((before, self.add(&mut all, key)))
    }

    fn add(&self, all: &mut AHashMap<Key, (u64, Over)>, key: Key) -> OnItsWay {
        let (sender, receiver) = oneshot::channel();
        let number = all.get(&key).map_or(0, |(number, _)| number + 1);
        all.insert(key.clone(), (number, receiver.shared()));
        OnItsWay { detours: self.clone(), key, number, _over: sender }
    }
}

impl OnItsWay {
    /// Ends the way of a message that is in the outbox of `source` when the topic's shard has taken it, as this node sees it.
    pub async fn until_taken(self, cluster: Cluster, source: ShardId, topic_shard: ShardId) {
        let until = Instant::now() + PATIENCE;
        let waits = |taken: Position| {
            let waiting = cluster.read(source, |state| state.to_retain_after(taken)).unwrap_or_default();
            waiting.iter().any(|(_, message)| message.topic == self.key.1 && message.publisher() == Some(&self.key.0))
        };
        while Instant::now() < until && waits(cluster.read(topic_shard, |state| state.taken(source)).unwrap_or_default()) {
            tokio::time::sleep(LOOK).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mqtt::{Origin, QoS};

    fn message(topic: &str, publisher: &str) -> Message {
        Message {
            topic: topic.into(),
            payload: "x".into(),
            qos: QoS::AtLeastOnce,
            retain: true,
            payload_format_indicator: None,
            content_type: None,
            response_topic: None,
            correlation_data: None,
            user_properties: Vec::new(),
            message_expiry_interval: None,
            received_at_ms: 0,
            origin: Origin::Client(publisher.into()),
        }
    }

    #[test]
    fn what_follows_waits_for_the_last_before_it_and_nothing_is_kept() {
        let detours = Detours::default();
        assert!(detours.follow(&message("t", "p")).is_none());
        let first = detours.enter(&message("t", "p")).unwrap();
        assert!(detours.follow(&message("t", "q")).is_none() && detours.follow(&message("u", "p")).is_none());
        let (before, second) = detours.follow(&message("t", "p")).unwrap();
        let (before_third, third) = detours.follow(&message("t", "p")).unwrap();
        assert!(before.clone().now_or_never().is_none());
        drop(first);
        assert!(before.now_or_never().is_some() && before_third.clone().now_or_never().is_none());
        drop(second);
        assert!(before_third.now_or_never().is_some());
        assert!(detours.follow(&message("t", "p")).is_some(), "the third is on its way");
        drop(third);
        assert!(detours.0.lock().is_empty());
    }
}
