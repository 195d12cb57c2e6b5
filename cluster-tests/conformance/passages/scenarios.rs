//! All scenarios. Each names the statements of MQTT 5.0 that it proves; the manifest says which of 3.1.1.

use super::scenario::Scenario;
use super::{deliveries, limits, shared, subscriptions, time};

macro_rules! scenario {
    ($file:ident::$name:ident, $only_v5:expr, $absent:expr) => {
        Scenario { name: stringify!($name), only_v5: $only_v5, absent: $absent, run: |stage| Box::pin($file::$name(stage)) }
    };
}

/// Name, whether of MQTT 5 only, whether the client is away during the passage.
pub const ALL: &[Scenario] = &[
    scenario!(subscriptions::a_subscription_lasts, false, false),
    scenario!(subscriptions::an_unsubscribed_filter_stays_unsubscribed, false, false),
    scenario!(subscriptions::subscription_options_last, true, false),
    scenario!(subscriptions::retain_handling_knows_an_existing_subscription, true, false),
    scenario!(deliveries::messages_wait_for_an_absent_client_in_their_order, false, true),
    scenario!(deliveries::what_was_not_acknowledged_comes_again, false, false),
    scenario!(deliveries::a_release_comes_again_and_its_message_does_not, false, false),
    scenario!(deliveries::a_message_published_again_is_delivered_once, false, false),
    scenario!(limits::identifiers_in_flight_are_not_given_again, false, false),
    scenario!(deliveries::a_refused_message_does_not_come_again, true, false),
    scenario!(limits::a_receive_maximum_holds_on_the_next_connection, true, true),
    scenario!(limits::a_maximum_packet_size_holds_on_the_next_connection, true, true),
    scenario!(limits::aliases_do_not_last, true, false),
    scenario!(time::an_expired_message_does_not_come, true, true),
    scenario!(time::an_expiry_counts_on, true, true),
    scenario!(subscriptions::a_retained_message_lasts, false, false),
    scenario!(subscriptions::a_removed_retained_message_stays_removed, false, false),
    scenario!(subscriptions::clean_start_leaves_nothing, false, true),
    scenario!(time::a_session_ends_with_its_expiry, true, true),
    scenario!(time::a_delayed_will_is_published, true, true),
    scenario!(time::a_delayed_will_is_cancelled_by_resuming, true, true),
    scenario!(shared::a_shared_message_is_completed_with_its_member, true, false),
    scenario!(shared::a_shared_message_ends_with_its_members_session, true, true),
];
