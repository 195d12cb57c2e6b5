//! Which topic counters an event of a message in a namespace moves (spec/hivemq.md 4.8, 4.10).
//!
//! Two things count: the outermost namespace, because the message is one of its topic; and, where the event's own namespace is
//! somewhere in the chain, that namespace, because the event is the one whose re-publication is suppressed.

use super::render::Count;
use crate::mqtt::Message;
use crate::signal::DropReason;
use crate::signal::namespace::{Namespace, chain};
use crate::telemetry::AddonCounter;

/// Copies of `message` were queued to `receivers` queues; `None` where its topic is in no namespace. Callers count this themselves,
/// once per routed message; everything else comes with `render`.
pub fn on_enqueued(message: &Message, receivers: usize) -> Option<Count> {
    let counter = match chain(&message.topic).next()? {
        Namespace::Expired => AddonCounter::ExpiredTopicEnqueued,
        Namespace::Dropped => AddonCounter::DroppedTopicEnqueued,
        Namespace::Dead => AddonCounter::DeadTopicEnqueued,
    };
    (receivers > 0).then_some(Count { counter, by: receivers })
}

/// A copy of `message` expired.
pub(super) fn on_expired(message: &Message) -> Vec<Count> {
    affected(&message.topic, Namespace::Expired, |namespace| match namespace {
        Namespace::Expired => Some(AddonCounter::ExpiredTopicExpired),
        Namespace::Dead => Some(AddonCounter::DeadTopicExpired),
        // HiveMQ lists no such counter.
        Namespace::Dropped => None,
    })
}

/// A copy of `message` was dropped. The counters of `$expired` and `$dropped` are for drops due to queue limits (seed, Tables 3 and
/// 5); the one of `$dead` is for all (Table 7).
pub(super) fn on_dropped(message: &Message, reason: DropReason) -> Vec<Count> {
    let queue_limit = match reason {
        DropReason::ClientMessageQueueFull | DropReason::Qos0MemoryExceeded => true,
        DropReason::Qos0ChannelNotWritable
        | DropReason::MaximumPacketSizeExceeded
        | DropReason::ExtensionPreventedInbound
        | DropReason::ExtensionPreventedOutbound
        | DropReason::InternalError
        | DropReason::RetainedMessageLimitReached => false,
    };
    affected(&message.topic, Namespace::Dropped, |namespace| match namespace {
        Namespace::Expired => queue_limit.then_some(AddonCounter::ExpiredTopicDropped),
        Namespace::Dropped => queue_limit.then_some(AddonCounter::DroppedTopicDropped),
        Namespace::Dead => Some(AddonCounter::DeadTopicDropped),
    })
}

/// Nothing matched a message to this topic.
pub(super) fn on_dead(topic: &str) -> Vec<Count> {
    affected(topic, Namespace::Dead, |namespace| {
        Some(match namespace {
            Namespace::Expired => AddonCounter::ExpiredTopicDead,
            Namespace::Dropped => AddonCounter::DroppedTopicDead,
            Namespace::Dead => AddonCounter::DeadTopicDead,
        })
    })
}

fn affected(topic: &str, event: Namespace, counter: impl Fn(Namespace) -> Option<AddonCounter>) -> Vec<Count> {
    let outermost = chain(topic).next();
    let repeated = chain(topic).skip(1).find(|namespace| *namespace == event);
    outermost.into_iter().chain(repeated).filter_map(counter).map(Count::one).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::message;
    use super::AddonCounter::*;
    use super::*;

    #[test]
    fn enqueued_counts_for_the_outermost_namespace_once_per_queue() {
        let table = [
            ("$expired/a", Some(ExpiredTopicEnqueued)),
            ("$dropped/$expired/a", Some(DroppedTopicEnqueued)),
            ("$dead/$dropped/a", Some(DeadTopicEnqueued)),
            ("$client-events/all/client-id/a", None),
            ("a/$dead/b", None),
        ];
        for (topic, counter) in table {
            assert_eq!(on_enqueued(&message(topic), 3), counter.map(|counter| Count { counter, by: 3 }), "{topic}");
            assert_eq!(on_enqueued(&message(topic), 0), None, "{topic}");
        }
    }

    #[test]
    fn events_count_for_the_outermost_namespace_and_for_the_repeated_one() {
        let full = DropReason::ClientMessageQueueFull;
        let table: [(&str, [&[AddonCounter]; 3]); 8] = [
            // topic, counters when it expires, is dropped because a queue is full, is dead
            ("a", [&[], &[], &[]]),
            ("$expired/a", [&[ExpiredTopicExpired], &[ExpiredTopicDropped], &[ExpiredTopicDead]]),
            ("$dropped/a", [&[], &[DroppedTopicDropped], &[DroppedTopicDead]]),
            ("$dead/a", [&[DeadTopicExpired], &[DeadTopicDropped], &[DeadTopicDead]]),
            ("$dead/$expired/a", [&[DeadTopicExpired, ExpiredTopicExpired], &[DeadTopicDropped], &[DeadTopicDead]]),
            ("$dropped/$expired/a", [&[ExpiredTopicExpired], &[DroppedTopicDropped], &[DroppedTopicDead]]),
            ("$dropped/$dead/a", [&[], &[DroppedTopicDropped], &[DroppedTopicDead, DeadTopicDead]]),
            ("$expired/$dropped/a", [&[ExpiredTopicExpired], &[ExpiredTopicDropped, DroppedTopicDropped], &[ExpiredTopicDead]]),
        ];
        let counters = |counts: Vec<Count>| counts.into_iter().map(|count| count.counter).collect::<Vec<_>>();
        for (topic, [expired, dropped, dead]) in table {
            let message = message(topic);
            assert_eq!(counters(on_expired(&message)), expired, "{topic} expires");
            assert_eq!(counters(on_dropped(&message, full)), dropped, "{topic} is dropped");
            assert_eq!(counters(on_dead(&message.topic)), dead, "{topic} is dead");
        }
    }

    #[test]
    fn only_dead_messages_count_drops_that_no_queue_limit_caused() {
        let too_large = DropReason::MaximumPacketSizeExceeded;
        assert_eq!(on_dropped(&message("$expired/a"), too_large), []);
        assert_eq!(on_dropped(&message("$dropped/a"), too_large), []);
        assert_eq!(on_dropped(&message("$dead/a"), too_large), [Count::one(DeadTopicDropped)]);
        let memory = DropReason::Qos0MemoryExceeded;
        assert_eq!(on_dropped(&message("$expired/a"), memory), [Count::one(ExpiredTopicDropped)]);
    }
}
