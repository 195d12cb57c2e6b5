//! The counters of the MQTT Add-ons (spec/hivemq.md 4.10), a closed list.

macro_rules! addon_counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// One counter of the MQTT Add-ons.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AddonCounter { $($(#[$doc])* $variant,)* }

        impl AddonCounter {
            /// All counters, in the order of their discriminants.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The dotted name, exact; note the oddities: `expired-messages` has no `.count`, and dead messages of `$expired` are
            /// under `expired.topic.dead`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => concat!("com.hivemq.messages.", $name),)* }
            }
        }
    };
}

addon_counters! {
    /// Every expired message, whether or not the add-on is on.
    Expired = "expired-messages";
    /// Copies queued to receivers of a `$expired` topic.
    ExpiredTopicEnqueued = "expired.topic.enqueued.count";
    ExpiredTopicDropped = "expired.topic.dropped.count";
    /// Messages that expired although `$expired` had had them already: nothing is published.
    ExpiredTopicExpired = "expired.topic.expired.count";
    ExpiredTopicDead = "expired.topic.dead.count";
    /// Every dropped message, once per receiver, whether or not the add-on is on.
    Dropped = "dropped.count";
    DroppedTopicDropped = "dropped.topic.dropped.count";
    DroppedTopicCreatedClient = "dropped.topic.message-created.client.count";
    DroppedTopicCreatedShared = "dropped.topic.message-created.shared.count";
    DroppedTopicCreatedConsumer = "dropped.topic.message-created.consumer.count";
    DroppedTopicEnqueued = "dropped.topic.enqueued.count";
    DroppedTopicDead = "dropped.topic.dead.count";
    /// Every dead message, whether or not the add-on is on.
    Dead = "dead.count";
    DeadTopicEnqueued = "dead.topic.enqueued.count";
    /// Messages that were dead more than once: nothing is published.
    DeadTopicDead = "dead.topic.dead.count";
    DeadTopicDropped = "dead.topic.dropped.count";
    DeadTopicExpired = "dead.topic.expired.count";
    LifecyclePublished = "client-lifecycle-topic.published.count";
    /// Events whose topic would be no valid Topic Name or too long.
    LifecycleSkipped = "client-lifecycle-topic.skipped.count";
}
