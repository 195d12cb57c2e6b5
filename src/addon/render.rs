//! From a signal to the message of an add-on.

use std::sync::Arc;

use bytestring::ByteString;

use super::settings::AddonSettings;
use super::{dropped, expired, lifecycle};
use crate::mqtt::{Message, Origin, QoS, UserProperties};
use crate::signal::Signal;
use crate::signal::namespace::{Namespace, chain};
use crate::telemetry::{AddonCounter, Metrics};

/// What an add-on makes of a signal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// To be published; `None` where the add-on is off, the namespace is in the topic already, or `skipped` says why.
    pub message: Option<Message>,
    /// Counters to move, whether or not there is a message.
    pub counts: Vec<Count>,
    /// Why a message that was due could not be made; worth a rate-limited log line.
    pub skipped: Option<Skipped>,
}

/// An increment of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub counter: AddonCounter,
    pub by: usize,
}

impl Count {
    pub(super) fn one(counter: AddonCounter) -> Self {
        Self { counter, by: 1 }
    }
}

/// Why a message was not made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skipped {
    /// With the namespace the topic would exceed 65,535 bytes.
    TopicTooLong,
    /// A lifecycle event whose identifier makes no Topic Name; it is counted as skipped.
    LifecycleTopic,
}

/// Renders a signal. To be called for every signal, also with all add-ons off: the counts of what expired, was dropped or is dead
/// move anyway. `now_ms` (wall clock) becomes the new message's arrival.
pub fn render(signal: &Signal, settings: &AddonSettings, now_ms: u64) -> Rendered {
    match signal {
        Signal::Expired(expired) => expired::render(expired, settings, now_ms),
        Signal::Dropped(dropped) => dropped::render(dropped, settings, now_ms),
        Signal::Dead(dead) => super::dead::render(dead, settings, now_ms),
        Signal::Lifecycle(event) => lifecycle::render(event, settings, now_ms),
    }
}

/// Renders that no subscription matched `message`, an ordinary or an add-on message, at `now_ms` (wall clock).
pub fn dead(message: &Arc<Message>, now_ms: u64, settings: &AddonSettings) -> Rendered {
    super::dead::render(&crate::signal::Dead { message: message.clone(), at_ms: now_ms }, settings, now_ms)
}

/// What `render` counts of a signal where it makes a message, without making it again.
fn counts_with_message(signal: &Signal) -> Vec<Count> {
    match signal {
        Signal::Expired(expired) => expired::counts(expired),
        Signal::Dropped(dropped) => dropped::counts_with_message(dropped),
        Signal::Dead(dead) => super::dead::counts(&dead.message.topic),
        Signal::Lifecycle(_) => vec![Count::one(AddonCounter::LifecyclePublished)],
    }
}

/// `record` for a signal whose message was made before.
pub fn record_made(metrics: &Metrics, signal: &Signal) {
    record(metrics, signal, &Rendered { message: None, counts: counts_with_message(signal), skipped: None });
}

/// Moves every metric that belongs to a signal: the counts of its rendering, the counter of the drop reason,
/// `publish.without-matching-subscribers`, and that of topics too long. Once in the cluster for each signal.
pub fn record(metrics: &Metrics, signal: &Signal, rendered: &Rendered) {
    for count in &rendered.counts {
        metrics.addon(count.counter, count.by);
    }
    match signal {
        Signal::Dropped(dropped) => metrics.dropped_because(dropped.reason),
        Signal::Dead(_) => metrics.hivemq.without_matching_subscribers.inc(),
        Signal::Expired(_) | Signal::Lifecycle(_) => {}
    }
    if rendered.skipped == Some(Skipped::TopicTooLong) {
        metrics.own.addon_topics_too_long_total.inc();
    }
}

/// A user property that an add-on adds.
pub(super) type Property = (&'static str, ByteString);

/// Re-publishes `original` in a namespace, with `properties` after its own user properties. What is kept and what is not:
/// spec/hivemq.md 4.5.
pub(super) fn republish(
    namespace: Namespace,
    original: &Message,
    qos: QoS,
    properties: impl IntoIterator<Item = Property>,
    settings: &AddonSettings,
    now_ms: u64,
) -> Result<Option<Message>, Skipped> {
    // "The same message can not expire more than once": a namespace stands once in a topic.
    if chain(&original.topic).any(|passed| passed == namespace) {
        return Ok(None);
    }
    let topic = namespace.wrap(&original.topic).ok_or(Skipped::TopicTooLong)?;
    let added = properties.into_iter().map(|(name, value)| (ByteString::from_static(name), value));
    let user_properties: UserProperties = original.user_properties.iter().cloned().chain(added).collect();
    Ok(Some(Message {
        topic,
        payload: original.payload.clone(),
        qos,
        retain: original.retain,
        payload_format_indicator: original.payload_format_indicator,
        content_type: original.content_type.clone(),
        response_topic: original.response_topic.clone(),
        correlation_data: original.correlation_data.clone(),
        user_properties,
        message_expiry_interval: settings.message_expiry_max_s,
        received_at_ms: now_ms,
        origin: Origin::Extension,
    }))
}

/// Puts the parts together; `created` is counted where there is a message.
pub(super) fn rendered(
    outcome: Result<Option<Message>, Skipped>,
    mut counts: Vec<Count>,
    created: Option<AddonCounter>,
) -> Rendered {
    let (message, skipped) = match outcome {
        Ok(message) => (message, None),
        Err(skipped) => (None, Some(skipped)),
    };
    if message.is_some() {
        counts.extend(created.map(Count::one));
    }
    Rendered { message, counts, skipped }
}

/// UNIX time in ms as a decimal string, as in every `hmq-*-timestamp`.
pub(super) fn timestamp(at_ms: u64) -> ByteString {
    at_ms.to_string().into()
}

#[cfg(test)]
#[path = "render_test.rs"]
mod tests;
