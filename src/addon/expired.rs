//! `$expired/<topic>`: one message for each receiver for whom a message expired (spec/hivemq.md 4.2).

use super::counters;
use super::render::{Count, Property, Rendered, rendered, republish, timestamp};
use super::settings::AddonSettings;
use crate::signal::namespace::Namespace;
use crate::signal::{Expired, Receiver};
use crate::telemetry::AddonCounter;

pub(super) fn render(expired: &Expired, settings: &AddonSettings, now_ms: u64) -> Rendered {
    let counts = counts(expired);
    if !settings.expired {
        return rendered(Ok(None), counts, None);
    }
    let outcome = republish(Namespace::Expired, &expired.message, expired.qos, properties(expired), settings, now_ms);
    rendered(outcome, counts, None)
}

/// With or without a message.
pub(super) fn counts(expired: &Expired) -> Vec<Count> {
    let mut counts = vec![Count::one(AddonCounter::Expired)];
    counts.extend(counters::on_expired(&expired.message));
    counts
}

fn properties(expired: &Expired) -> [Property; 3] {
    let (origin, receiver) = match &expired.receiver {
        Receiver::Client(id) => ("client", ("hmq-exp-client", id.clone())),
        // The client is named for origin `client` only (seed, Table 2), whatever member was chosen.
        Receiver::SharedSubscription(full) | Receiver::SharedSubscriptionMember { shared_subscription: full, .. } => {
            ("shared subscription", ("hmq-exp-shared-subscription", full.clone()))
        }
        Receiver::Consumer(id) => ("consumer", ("hmq-exp-consumer", id.clone())),
    };
    [("hmq-exp-timestamp", timestamp(expired.at_ms)), ("hmq-exp-origin", origin.into()), receiver]
}
