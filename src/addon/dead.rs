//! `$dead/<topic>`: messages that no subscription matched (spec/hivemq.md 4.4).

use super::counters;
use super::render::{Count, Property, Rendered, rendered, republish, timestamp};
use super::settings::AddonSettings;
use crate::mqtt::Origin;
use crate::signal::Dead;
use crate::signal::namespace::Namespace;
use crate::telemetry::AddonCounter;

pub(super) fn render(dead: &Dead, settings: &AddonSettings, now_ms: u64) -> Rendered {
    let mut counts = vec![Count::one(AddonCounter::Dead)];
    counts.extend(counters::on_dead(&dead.message));
    if !settings.dead {
        return rendered(Ok(None), counts, None);
    }
    let outcome = republish(Namespace::Dead, &dead.message, dead.message.qos, properties(dead), settings, now_ms);
    rendered(outcome, counts, None)
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
