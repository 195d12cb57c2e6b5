//! `$dead/<topic>`: messages that no subscription matched (spec/hivemq.md 4.4).

use bytestring::ByteString;

use super::counters;
use super::render::{Count, Property, Rendered, rendered, republish, timestamp};
use super::settings::AddonSettings;
use crate::mqtt::Origin;
use crate::signal::Dead;
use crate::signal::namespace::{Namespace, chain};
use crate::telemetry::{AddonCounter, Metrics};

pub(super) fn render(dead: &Dead, settings: &AddonSettings, now_ms: u64) -> Rendered {
    let counts = counts(&dead.message.topic);
    if !settings.dead {
        return rendered(Ok(None), counts, None);
    }
    let outcome = republish(Namespace::Dead, &dead.message, dead.message.qos, properties(dead), settings, now_ms);
    rendered(outcome, counts, None)
}

/// With or without a message.
pub(super) fn counts(topic: &str) -> Vec<Count> {
    let mut counts = vec![Count::one(AddonCounter::Dead)];
    counts.extend(counters::on_dead(topic));
    counts
}

/// A message that nobody subscribes to, nor to what would be told of it in `$dead`, which is thus dead as well: what `render` and `record` count of
/// both, without making either.
pub(super) fn record_unheard(metrics: &Metrics, topic: &ByteString, settings: &AddonSettings) {
    let record = |topic: &str| {
        counts(topic).into_iter().for_each(|count| metrics.addon(count.counter, count.by));
        metrics.hivemq.without_matching_subscribers.inc();
    };
    record(topic);
    if settings.dead && !chain(topic).any(|passed| passed == Namespace::Dead) {
        match Namespace::Dead.wrap(topic) {
            Some(told) => record(&told),
            None => metrics.own.addon_topics_too_long_total.inc(),
        }
    }
}

fn properties(dead: &Dead) -> Vec<Property> {
    let mut properties = vec![("hmq-dead-timestamp", timestamp(dead.at_ms))];
    match &dead.message.origin {
        Origin::Client(id) => {
            properties.push(("hmq-dead-origin", "client".into()));
            properties.push(("hmq-dead-client", id.clone()));
        }
        // Another add-on's message counts as an extension's.
        Origin::Extension => properties.push(("hmq-dead-origin", "extension".into())),
        Origin::Broker => properties.push(("hmq-dead-origin", "broker".into())),
    }
    properties
}
