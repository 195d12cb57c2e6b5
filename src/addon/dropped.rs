//! `$dropped/<topic>`: one message for each receiver that missed a message (spec/hivemq.md 4.3).

use super::counters;
use super::render::{Count, Property, Rendered, rendered, republish, timestamp};
use super::settings::AddonSettings;
use crate::mqtt::QoS;
use crate::signal::namespace::Namespace;
use crate::signal::{DropReason, Dropped, Receiver};
use crate::telemetry::AddonCounter;

pub(super) fn render(dropped: &Dropped, settings: &AddonSettings, now_ms: u64) -> Rendered {
    let counts = counts(dropped);
    if !settings.dropped {
        return rendered(Ok(None), counts, None);
    }
    let outcome = republish(Namespace::Dropped, &dropped.message, dropped.qos, properties(dropped), settings, now_ms);
    rendered(outcome, counts, Some(created(&dropped.receiver)))
}

/// Those that move with or without a message.
fn counts(dropped: &Dropped) -> Vec<Count> {
    let mut counts = vec![Count::one(AddonCounter::Dropped)];
    counts.extend(counters::on_dropped(&dropped.message, dropped.reason));
    counts
}

/// What `render` counts where it makes a message.
pub(super) fn counts_with_message(dropped: &Dropped) -> Vec<Count> {
    let mut counts = counts(dropped);
    counts.push(Count::one(created(&dropped.receiver)));
    counts
}

fn created(receiver: &Receiver) -> AddonCounter {
    match receiver {
        Receiver::Client(_) => AddonCounter::DroppedTopicCreatedClient,
        Receiver::SharedSubscription(_) | Receiver::SharedSubscriptionMember { .. } => AddonCounter::DroppedTopicCreatedShared,
        Receiver::Consumer(_) => AddonCounter::DroppedTopicCreatedConsumer,
    }
}

fn properties(dropped: &Dropped) -> Vec<Property> {
    let mut properties = vec![("hmq-drop-timestamp", timestamp(dropped.at_ms))];
    match &dropped.receiver {
        Receiver::Client(id) => {
            properties.push(("hmq-drop-origin", "client".into()));
            properties.push(("hmq-drop-client", id.clone()));
        }
        Receiver::SharedSubscription(full) => {
            properties.push(("hmq-drop-origin", "shared subscription".into()));
            properties.push(("hmq-drop-shared-subscription", full.clone()));
        }
        Receiver::SharedSubscriptionMember { shared_subscription, client } => {
            properties.push(("hmq-drop-origin", "shared subscription".into()));
            if names_member(dropped) {
                properties.push(("hmq-drop-client", client.clone()));
            }
            properties.push(("hmq-drop-shared-subscription", shared_subscription.clone()));
        }
        Receiver::Consumer(id) => {
            properties.push(("hmq-drop-origin", "consumer".into()));
            properties.push(("hmq-drop-consumer", id.clone()));
        }
    }
    properties.push(("hmq-drop-reason", dropped.reason.text().into()));
    properties
}

/// Client and shared subscription are both present for QoS 0 with the reasons Internal Error and Not Writable (seed, Table 4).
fn names_member(dropped: &Dropped) -> bool {
    dropped.qos == QoS::AtMostOnce && matches!(dropped.reason, DropReason::InternalError | DropReason::Qos0ChannelNotWritable)
}
