//! Behaviour stated by the seed and by spec/hivemq.md 4, sentence by sentence. Lifecycle events have a file of their own.

use bytes::Bytes;

use super::super::fixture::{NOW_MS, all_off, all_on, facts, message, properties};
use super::super::on_enqueued;
use super::*;
use crate::signal::{Dead, DropReason, Dropped, Expired, Lifecycle, LifecycleEvent, Receiver, RenderedOnce};

const AT_MS: u64 = NOW_MS - 23;

fn client() -> Receiver {
    Receiver::Client("sub-1".into())
}

fn group() -> Receiver {
    Receiver::SharedSubscription("$share/g/a/+".into())
}

fn member() -> Receiver {
    Receiver::SharedSubscriptionMember { shared_subscription: "$share/g/a/+".into(), client: "sub-1".into() }
}

fn consumer() -> Receiver {
    Receiver::Consumer("kafka:m1".into())
}

fn expired_for(message: Message, receiver: Receiver) -> Signal {
    Signal::Expired(Expired {
        message: Arc::new(message),
        qos: QoS::AtLeastOnce,
        receiver,
        at_ms: AT_MS,
        rendered: RenderedOnce::default(),
    })
}

fn dropped_for(message: Message, receiver: Receiver, reason: DropReason) -> Signal {
    Signal::Dropped(Dropped {
        message: Arc::new(message),
        qos: QoS::AtLeastOnce,
        receiver,
        reason,
        at_ms: AT_MS,
        rendered: RenderedOnce::default(),
    })
}

fn is_dead(message: Message) -> Signal {
    Signal::Dead(Dead { message: Arc::new(message), at_ms: AT_MS })
}

fn expired(topic: &str) -> Signal {
    expired_for(message(topic), client())
}

fn dropped(topic: &str) -> Signal {
    dropped_for(message(topic), client(), DropReason::ClientMessageQueueFull)
}

fn each_event(topic: &str) -> [(Signal, &'static str); 3] {
    [(expired(topic), "$expired/"), (dropped(topic), "$dropped/"), (is_dead(message(topic)), "$dead/")]
}

fn on(signal: &Signal) -> Rendered {
    render(signal, &all_on(), NOW_MS)
}

fn published(signal: &Signal) -> Message {
    on(signal).message.unwrap()
}

fn counters(rendered: &Rendered) -> Vec<AddonCounter> {
    rendered.counts.iter().map(|count| count.counter).collect()
}

/// The properties that were added, without the timestamp.
fn added(message: &Message) -> Vec<(&str, &str)> {
    properties(message).into_iter().filter(|(name, _)| name.starts_with("hmq-") && !name.ends_with("-timestamp")).collect()
}

#[test]
fn the_namespace_prefaces_the_original_topic() {
    for topic in ["a", "my-topic/of interest", "/", "a//b", "ü/漢"] {
        for (signal, prefix) in each_event(topic) {
            assert_eq!(published(&signal).topic, format!("{prefix}{topic}").as_str());
        }
    }
}

#[test]
fn what_the_original_carries_is_kept() {
    for (signal, prefix) in each_event("a") {
        let made = published(&signal);
        assert_eq!(made.payload, Bytes::from_static(b"\x00payload\xff"), "{prefix}");
        assert_eq!(made.payload_format_indicator, Some(false), "{prefix}");
        assert_eq!(made.content_type.as_deref(), Some("application/x"), "{prefix}");
        assert_eq!(made.response_topic.as_deref(), Some("reply/here"), "{prefix}");
        assert_eq!(made.correlation_data.as_deref(), Some(b"corr".as_slice()), "{prefix}");
    }
}

#[test]
fn the_retained_flag_of_the_original_is_kept_for_retain_as_published() {
    for retain in [true, false] {
        let original = || Message { retain, ..message("a") };
        let full = DropReason::ClientMessageQueueFull;
        for signal in [expired_for(original(), client()), dropped_for(original(), client(), full), is_dead(original())] {
            assert_eq!(published(&signal).retain, retain);
        }
    }
}

#[test]
fn added_user_properties_come_after_those_of_the_original_in_their_order() {
    for (signal, prefix) in each_event("a") {
        let made = published(&signal);
        let properties = properties(&made);
        assert_eq!(properties[..3], [("b", "1"), ("a", "2"), ("b", "3")], "{prefix}");
        assert!(properties[3..].iter().all(|(name, _)| name.starts_with("hmq-")), "{prefix}");
    }
}

#[test]
fn timestamps_are_unix_milliseconds_of_the_event() {
    let names = ["hmq-exp-timestamp", "hmq-drop-timestamp", "hmq-dead-timestamp"];
    for ((signal, _), name) in each_event("a").iter().zip(names) {
        assert_eq!(properties(&published(signal))[3], (name, "1756377600100"));
    }
}

#[test]
fn qos_is_that_of_the_queued_copy_and_of_the_publish_where_nothing_was_queued() {
    assert_eq!(published(&expired("a")).qos, QoS::AtLeastOnce);
    assert_eq!(published(&dropped("a")).qos, QoS::AtLeastOnce);
    assert_eq!(published(&is_dead(message("a"))).qos, QoS::ExactlyOnce);
}

#[test]
fn expiry_of_the_original_is_not_copied_and_the_configured_maximum_governs() {
    for (signal, prefix) in each_event("a") {
        let made = published(&signal);
        assert_eq!(made.message_expiry_interval, None, "{prefix}");
        assert_eq!(made.received_at_ms, NOW_MS, "{prefix}");
        let capped = AddonSettings { message_expiry_max_s: Some(60), ..all_on() };
        let made = render(&signal, &capped, NOW_MS).message.unwrap();
        assert_eq!(made.remaining_expiry_s(NOW_MS), Some(60), "{prefix}");
    }
}

#[test]
fn the_publisher_of_an_addon_message_is_no_client() {
    for (signal, prefix) in each_event("a") {
        assert_eq!(published(&signal).origin, Origin::Extension, "{prefix}");
    }
}

#[test]
fn expired_names_the_receiver_for_which_the_message_expired() {
    let table: [(Receiver, &[(&str, &str)]); 4] = [
        (client(), &[("hmq-exp-origin", "client"), ("hmq-exp-client", "sub-1")]),
        (group(), &[("hmq-exp-origin", "shared subscription"), ("hmq-exp-shared-subscription", "$share/g/a/+")]),
        (member(), &[("hmq-exp-origin", "shared subscription"), ("hmq-exp-shared-subscription", "$share/g/a/+")]),
        (consumer(), &[("hmq-exp-origin", "consumer"), ("hmq-exp-consumer", "kafka:m1")]),
    ];
    for (receiver, expected) in table {
        assert_eq!(added(&published(&expired_for(message("a"), receiver))), expected);
    }
}

#[test]
fn dropped_names_the_receiver_and_the_reason_and_counts_by_origin() {
    let full = ("hmq-drop-reason", "Client Message Queue Full");
    let share = ("hmq-drop-shared-subscription", "$share/g/a/+");
    let table: [(Receiver, &[(&str, &str)], AddonCounter); 3] = [
        (client(), &[("hmq-drop-origin", "client"), ("hmq-drop-client", "sub-1"), full], AddonCounter::DroppedTopicCreatedClient),
        (group(), &[("hmq-drop-origin", "shared subscription"), share, full], AddonCounter::DroppedTopicCreatedShared),
        (
            consumer(),
            &[("hmq-drop-origin", "consumer"), ("hmq-drop-consumer", "kafka:m1"), full],
            AddonCounter::DroppedTopicCreatedConsumer,
        ),
    ];
    for (receiver, expected, created) in table {
        let rendered = on(&dropped_for(message("a"), receiver, DropReason::ClientMessageQueueFull));
        assert_eq!(added(rendered.message.as_ref().unwrap()), expected);
        assert_eq!(counters(&rendered), [AddonCounter::Dropped, created]);
    }
}

#[test]
fn each_drop_reason_is_spelled_exactly() {
    let table = [
        (DropReason::ClientMessageQueueFull, "Client Message Queue Full"),
        (DropReason::Qos0MemoryExceeded, "QoS 0 Memory Exceeded"),
        (DropReason::Qos0ChannelNotWritable, "QoS 0 Channel Not Writable"),
        (DropReason::MaximumPacketSizeExceeded, "Maximum Packet Size Exceeded"),
        (DropReason::ExtensionPreventedInbound, "Extension Prevented (inbound)"),
        (DropReason::ExtensionPreventedOutbound, "Extension Prevented (outbound)"),
        (DropReason::InternalError, "Internal Error"),
    ];
    for (reason, text) in table {
        let made = published(&dropped_for(message("a"), client(), reason));
        assert_eq!(properties(&made).last(), Some(&("hmq-drop-reason", text)));
    }
}

#[test]
fn client_and_shared_subscription_are_both_present_for_qos0_not_writable_or_internal_error() {
    let both = [("hmq-drop-client", "sub-1"), ("hmq-drop-shared-subscription", "$share/g/a/+")];
    let table = [
        (QoS::AtMostOnce, DropReason::InternalError, true),
        (QoS::AtMostOnce, DropReason::Qos0ChannelNotWritable, true),
        (QoS::AtMostOnce, DropReason::MaximumPacketSizeExceeded, false),
        (QoS::AtLeastOnce, DropReason::InternalError, false),
    ];
    for (qos, reason, member_named) in table {
        let signal = Signal::Dropped(Dropped {
            message: Arc::new(message("a")),
            qos,
            receiver: member(),
            reason,
            at_ms: AT_MS,
            rendered: RenderedOnce::default(),
        });
        let rendered = on(&signal);
        let made = rendered.message.as_ref().unwrap();
        let mut expected = vec![("hmq-drop-origin", "shared subscription")];
        expected.extend(if member_named { &both[..] } else { &both[1..] });
        expected.push(("hmq-drop-reason", reason.text()));
        assert_eq!(added(made), expected, "{qos:?} {reason:?}");
        assert!(counters(&rendered).contains(&AddonCounter::DroppedTopicCreatedShared));
    }
}

#[test]
fn dead_tells_who_published() {
    let table: [(Origin, &[(&str, &str)]); 3] = [
        (Origin::Client("pub-1".into()), &[("hmq-dead-origin", "client"), ("hmq-dead-client", "pub-1")]),
        (Origin::Extension, &[("hmq-dead-origin", "extension")]),
        (Origin::Broker, &[("hmq-dead-origin", "broker")]),
    ];
    for (origin, expected) in table {
        assert_eq!(added(&published(&is_dead(Message { origin, ..message("a") }))), expected);
    }
}

#[test]
fn an_addon_message_that_is_dead_has_the_origin_extension() {
    for (signal, prefix) in [(expired("a"), "$expired"), (dropped("a"), "$dropped")] {
        let first = Arc::new(published(&signal));
        let made = dead(&first, NOW_MS, &all_on()).message.unwrap();
        assert_eq!(made.topic, format!("$dead/{prefix}/a").as_str());
        assert_eq!(properties(&made).last(), Some(&("hmq-dead-origin", "extension")));
        // What the first add-on said is still there, before what the second says.
        assert_eq!(properties(&made)[..first.user_properties.len()], properties(&first)[..]);
    }
}

#[test]
fn namespaces_nest_and_none_stands_twice() {
    // topic, then whether an expired, a dropped, a dead message of it is published
    let table = [
        ("a", [true, true, true]),
        ("$expired/a", [false, true, true]),
        ("$dropped/a", [true, false, true]),
        ("$dead/a", [true, true, false]),
        ("$dead/$expired/a", [false, true, false]),
        ("$dropped/$expired/a", [false, false, true]),
        ("$expired/$dropped/$dead/a", [false, false, false]),
        ("$client-events/all/client-id/c", [true, true, true]),
        ("$dead/$client-events/all/client-id/c", [true, true, false]),
        ("a/$expired/$dropped/$dead", [true, true, true]),
    ];
    for (topic, expected) in table {
        for ((signal, prefix), expected) in each_event(topic).into_iter().zip(expected) {
            let rendered = on(&signal);
            let made = rendered.message.map(|made| made.topic);
            assert_eq!(made, expected.then(|| format!("{prefix}{topic}").into()));
            assert_eq!(rendered.skipped, None);
        }
    }
}

#[test]
fn every_chain_of_events_ends_after_three_messages() {
    fn longest(message: Message, published_before: usize) -> usize {
        assert!(published_before <= 3, "{}", message.topic);
        let events = [
            expired_for(message.clone(), client()),
            dropped_for(message.clone(), client(), DropReason::ClientMessageQueueFull),
            is_dead(message),
        ];
        let next = events.iter().filter_map(|event| on(event).message).map(|made| longest(made, published_before + 1));
        next.max().unwrap_or(published_before)
    }
    assert_eq!(longest(message("a"), 0), 3);
    assert_eq!(longest(message("$client-events/all/client-id/c"), 0), 3);
}

#[test]
fn what_is_not_published_again_is_counted() {
    let table = [
        (expired("$expired/a"), [AddonCounter::Expired, AddonCounter::ExpiredTopicExpired]),
        (dropped("$dropped/a"), [AddonCounter::Dropped, AddonCounter::DroppedTopicDropped]),
        (is_dead(message("$dead/a")), [AddonCounter::Dead, AddonCounter::DeadTopicDead]),
    ];
    for (signal, expected) in table {
        let rendered = on(&signal);
        assert_eq!(rendered.message, None);
        assert_eq!(counters(&rendered), expected);
    }
}

/// "The total number of dead messages the broker detects" (seed, Table 7): a message is dead "as soon as the HiveMQ broker detects that a message is
/// without subscribers", and one of `$dead` can be "dead more than once".
#[test]
fn a_dead_message_that_is_dead_again_is_one_more_of_the_total() {
    let counted_of = |settings: &AddonSettings| {
        let (mut counted, mut next) = (Vec::new(), Some(message("a")));
        while let Some(unheard) = next {
            let rendered = render(&is_dead(unheard), settings, NOW_MS);
            counted.extend(counters(&rendered));
            next = rendered.message;
        }
        counted
    };
    assert_eq!(counted_of(&all_on()), [AddonCounter::Dead, AddonCounter::Dead, AddonCounter::DeadTopicDead]);
    assert_eq!(counted_of(&all_off()), [AddonCounter::Dead], "nothing is published that could be dead");
}

#[test]
fn events_of_addon_messages_move_the_counters_of_their_topic() {
    let table: [(Signal, &[AddonCounter]); 6] = [
        (expired("$dead/a"), &[AddonCounter::Expired, AddonCounter::DeadTopicExpired]),
        (expired("$dropped/a"), &[AddonCounter::Expired]),
        (
            dropped("$expired/a"),
            &[AddonCounter::Dropped, AddonCounter::ExpiredTopicDropped, AddonCounter::DroppedTopicCreatedClient],
        ),
        (dropped("$dead/a"), &[AddonCounter::Dropped, AddonCounter::DeadTopicDropped, AddonCounter::DroppedTopicCreatedClient]),
        (is_dead(message("$expired/a")), &[AddonCounter::Dead, AddonCounter::ExpiredTopicDead]),
        (is_dead(message("$dropped/a")), &[AddonCounter::Dead, AddonCounter::DroppedTopicDead]),
    ];
    for (signal, expected) in table {
        let rendered = on(&signal);
        assert!(rendered.message.is_some());
        assert_eq!(counters(&rendered), expected);
    }
}

#[test]
fn with_an_addon_off_nothing_is_published_and_only_the_base_counter_moves() {
    let base = [AddonCounter::Expired, AddonCounter::Dropped, AddonCounter::Dead];
    for ((signal, _), base) in each_event("a").into_iter().zip(base) {
        let rendered = render(&signal, &all_off(), NOW_MS);
        assert_eq!(rendered, Rendered { message: None, counts: vec![Count::one(base)], skipped: None });
    }
    // Each switch is its own.
    let only_dead = AddonSettings { dead: true, ..all_off() };
    let made = each_event("a").map(|(signal, _)| render(&signal, &only_dead, NOW_MS).message.is_some());
    assert_eq!(made, [false, false, true]);
}

#[test]
fn a_topic_too_long_with_its_namespace_is_skipped_but_counted() {
    let longest = "t".repeat(65_535 - "$expired/".len());
    assert_eq!(published(&expired(&longest)).topic.len(), 65_535);
    let too_long = format!("{longest}t");
    let rendered = on(&expired(&too_long));
    assert_eq!(rendered.message, None);
    assert_eq!(rendered.skipped, Some(Skipped::TopicTooLong));
    assert_eq!(counters(&rendered), [AddonCounter::Expired]);
    // No message, so none was created for a client either.
    assert_eq!(counters(&on(&dropped(&"t".repeat(65_535)))), [AddonCounter::Dropped]);
}

#[test]
fn a_message_queued_in_a_namespace_counts_per_receiver() {
    let made = published(&dropped("a"));
    assert_eq!(on_enqueued(&made, 2), Some(Count { counter: AddonCounter::DroppedTopicEnqueued, by: 2 }));
}

#[test]
fn recording_moves_all_metrics_of_a_signal() {
    let metrics = Metrics::new().unwrap();
    let record_on = |signal: &Signal| record(&metrics, signal, &on(signal));
    record_on(&dropped("a"));
    record_on(&dropped_for(message("a"), group(), DropReason::Qos0ChannelNotWritable));
    record_on(&is_dead(message("a")));
    record_on(&expired(&"t".repeat(65_535)));
    let connected = LifecycleEvent::Connected { user_properties: Vec::new() };
    record_on(&Signal::Lifecycle(Box::new(Lifecycle {
        event: connected,
        at_ms: AT_MS,
        facts: Arc::new(facts()),
        rendered: RenderedOnce::default(),
    })));
    for (counter, expected) in [
        (AddonCounter::Dropped, 2),
        (AddonCounter::DroppedTopicCreatedClient, 1),
        (AddonCounter::DroppedTopicCreatedShared, 1),
        (AddonCounter::Dead, 1),
        (AddonCounter::Expired, 1),
        (AddonCounter::LifecyclePublished, 1),
    ] {
        assert_eq!(metrics.addon_count(counter), expected, "{counter:?}");
    }
    assert_eq!(metrics.hivemq.dropped_queue_full.get(), 1);
    assert_eq!(metrics.hivemq.dropped_not_writable.get(), 1);
    assert_eq!(metrics.hivemq.without_matching_subscribers.get(), 1);
    assert_eq!(metrics.own.addon_topics_too_long_total.get(), 1);
}

/// Every metric that a message or a topic can move.
fn counted(metrics: &Metrics) -> Vec<String> {
    let text = metrics.encode();
    let moved =
        text.lines().filter(|line| line.contains("_messages_") || line.contains("_publish_") || line.contains("_topics_"));
    moved.filter(|line| !line.starts_with('#') && !line.ends_with(" 0")).map(str::to_owned).collect()
}

/// Counting without rendering anew must come to the same, or a counter depends on who listens.
#[test]
fn what_is_counted_without_rendering_is_what_rendering_counts() {
    let connected = LifecycleEvent::Connected { user_properties: Vec::new() };
    let (at_ms, facts, rendered) = (AT_MS, Arc::new(facts()), RenderedOnce::default());
    let lifecycle = Signal::Lifecycle(Box::new(Lifecycle { event: connected, at_ms, facts, rendered }));
    let longest = "t".repeat(65_535 - "$dead/".len());
    let topics =
        ["a", "$expired/a", "$dropped/a", "$dead/a", "$dead/$expired/a", "$dropped/$dead/a", "$client-events/all/client-id/a"];
    let signals = topics.iter().flat_map(|topic| {
        let message = || message(topic);
        let full = DropReason::ClientMessageQueueFull;
        [
            expired(topic),
            expired_for(message(), group()),
            dropped(topic),
            dropped_for(message(), group(), full),
            dropped_for(message(), consumer(), DropReason::InternalError),
            is_dead(message()),
        ]
    });
    for signal in signals.chain([lifecycle]).filter(|signal| on(signal).message.is_some()) {
        let (rendered, made) = (Metrics::new().unwrap(), Metrics::new().unwrap());
        record(&rendered, &signal, &on(&signal));
        record_made(&made, &signal);
        assert_eq!(counted(&made), counted(&rendered), "{signal:?}");
    }
    for topic in topics.iter().copied().chain([&*longest, &*"t".repeat(65_535)]) {
        for settings in [all_on(), all_off()] {
            let (rendered, unheard) = (Metrics::new().unwrap(), Metrics::new().unwrap());
            let mut next = Some(message(topic));
            while let Some(message) = next {
                let signal = is_dead(message);
                let made = render(&signal, &settings, NOW_MS);
                record(&rendered, &signal, &made);
                next = made.message;
            }
            super::super::dead::record_unheard(&unheard, &topic.into(), &settings);
            assert_eq!(counted(&unheard), counted(&rendered), "{} bytes of {:.20}", topic.len(), topic);
        }
    }
}
