//! Inputs that showed faults on other brokers (`../shared/cases.md`): each row that one node or three can show is a test under the
//! name of the behaviour, with the row's number in a comment. Rows for a load machine are in a small form that takes seconds. [`ROWS`] says
//! where each is.

mod addons;
mod durability;
mod expiry;
mod flow_control;
mod keep_alive;
mod kit;
mod lifecycle;
mod malformed;
mod memory;
mod overlapping;
mod packet_size;
mod payload;
mod permissions;
mod pods;
mod proxy;
mod qos2;
mod retained;
mod sessions;
mod shared;
mod statistics;
mod subscription_identifiers;
mod takeover;
mod tls;
mod topic_alias;
mod websocket;
mod wills;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The numbers of all rows.
const NUMBERS: &[u16] = &[
    2, 7, 8, 9, 11, 12, 14, 16, 17, 36, 45, 53, 55, 57, 63, 69, 72, 74, 75, 100, // C, CL
    18, 19, 20, 21, 25, 26, // K
    3, 6, 28, 29, 32, 33, 38, 39, 40, 41, 42, 43, 47, 48, 50, 52, 56, 59, 60, 62, 64, 66, 70, 71, 76, 77, 80, 81, 83, 84, 86, 88,
    89, 90, 93, 94, 96, 99, 101, 103, 104, 106, 107, 108, 109, 111, 112, 114, 115, 116, 117, 119, 121,
];

enum Where {
    /// Functions, as `folder::file::name`.
    Tests(&'static [&'static str]),
    /// Why there is none.
    None(&'static str),
}
use Where::{None as NotHere, Tests};

const ROWS: &[(u16, Where)] = &[
    (2, Tests(&["faults::rows::a_queue_is_had_from_the_others_while_the_node_that_served_it_is_down"])),
    (
        7,
        Tests(&[
            "cluster::power::when_the_power_of_all_nodes_fails_at_once_all_that_was_acknowledged_is_there",
            "cluster::power::what_two_nodes_acknowledged_is_on_the_disk_of_the_one_whose_power_fails",
        ]),
    ),
    (8, Tests(&["cluster::damage::a_damaged_node_says_so_does_not_vote_on_it_and_is_filled_again_by_its_peers"])),
    (9, Tests(&["faults::rows::two_or_three_nodes_that_restart_together_come_back_with_what_they_had"])),
    (11, Tests(&["cluster::numbered::qos_1_publishes_acknowledged_while_nodes_are_killed_all_arrive"])),
    (
        12,
        Tests(&[
            "cluster::founding::nodes_that_do_not_list_themselves_found_one_cluster",
            "faults::partitions::nodes_that_cannot_reach_each_other_found_no_cluster_each",
        ]),
    ),
    (14, Tests(&["faults::partitions::a_node_that_was_cut_off_is_one_of_three_again"])),
    (16, Tests(&["faults::partitions::the_loss_of_a_node_makes_no_other_refuse_and_the_loss_of_two_makes_the_third"])),
    (17, Tests(&["faults::partitions::blips_of_all_links_leave_the_same_views_on_all_nodes"])),
    (18, Tests(&["cases::pods::a_node_that_was_scaled_away_comes_back_with_its_old_volume_and_all_hear_all"])),
    (19, Tests(&["cases::pods::a_sigterm_takes_neither_a_membership_nor_what_is_queued"])),
    (20, Tests(&["cases::pods::a_node_that_cannot_join_is_never_ready_and_becomes_so_by_itself_once_it_can"])),
    (21, Tests(&["cases::pods::a_client_that_changes_nodes_while_they_restart_has_one_session_without_a_gap"])),
    (25, Tests(&["cases::pods::a_drain_parts_with_clients_at_its_rate_and_can_be_ended_half_way"])),
    // Two programs under load need the one of the release before: `cluster::upgrade::a_cluster_of_the_release_before_is_rolled_under_load`
    // has it from a variable, and without it the library's cluster tests of mixed versions stand for it.
    (26, Tests(&["cluster::upgrade::directories_of_the_release_before_are_served"])),
    (36, Tests(&["faults::exactly_once::qos_2_is_exactly_once_in_every_phase_whatever_happens"])),
    (45, Tests(&["faults::rows::a_queue_keeps_its_order_for_a_client_that_goes_from_node_to_node"])),
    (
        53,
        Tests(&[
            "cluster::visible::a_retained_message_is_found_on_every_node_from_its_puback_on",
            "cluster::visible::a_node_that_just_came_back_knows_the_newest_retained_message",
        ]),
    ),
    (55, Tests(&["cluster::retained::retained_messages_stay_when_all_nodes_restart_in_turn"])),
    (57, Tests(&["cluster::retained::retained_qos_0_messages_stay_over_a_stop_and_over_a_kill_after_a_moment"])),
    (63, Tests(&["faults::wills::all_wills_of_a_node_that_is_killed_or_stopped_come_once"])),
    (69, Tests(&["cluster::shared::after_most_members_were_cut_off_all_messages_reach_those_that_are_left"])),
    (72, Tests(&["cluster::shared::no_member_comes_back_from_the_dead_when_nodes_restart"])),
    (74, Tests(&["cluster::shared::members_share_what_the_broker_publishes_on_all_nodes"])),
    (75, Tests(&["cluster::visible::what_is_published_anywhere_after_a_suback_matches_and_after_an_unsuback_does_not"])),
    (100, Tests(&["faults::rows::a_storm_of_clients_that_give_up_and_retry_converges"])),
    (3, Tests(&["cases::durability::an_offline_session_takes_messages_after_a_restart"])),
    (6, Tests(&["cases::durability::the_disk_does_not_grow_with_what_was_consumed"])),
    (
        28,
        Tests(&[
            "cases::sessions::a_session_is_gone_when_its_expiry_interval_has_passed",
            "cases::sessions::a_session_of_3_1_1_is_gone_when_the_longest_expiry_interval_has_passed",
        ]),
    ),
    (29, Tests(&["cases::sessions::a_session_that_is_present_has_the_message_that_was_acknowledged_meanwhile"])),
    (32, Tests(&["cases::takeover::unknown_packet_identifiers_after_a_crash_do_not_close_the_connection"])),
    (33, Tests(&["cases::qos2::expiry_does_not_touch_an_exchange_that_has_begun"])),
    (38, Tests(&["cases::qos2::above_the_receive_maximum_a_publisher_is_disconnected_and_within_it_served"])),
    (39, Tests(&["cases::qos2::an_identifier_is_free_as_soon_as_its_exchange_is_complete"])),
    (40, Tests(&["cases::qos2::no_message_of_overlapping_exchanges_is_lost_and_each_topic_keeps_its_order"])),
    (41, Tests(&["cases::flow_control::the_send_quota_is_that_of_this_connection"])),
    (42, Tests(&["cases::flow_control::a_slow_backlog_keeps_its_window_and_does_not_hold_up_others"])),
    (43, Tests(&["cases::flow_control::a_client_that_never_acknowledges_has_a_bounded_queue_and_its_drops_are_told"])),
    (47, Tests(&["cases::expiry::the_expiry_interval_counts_down_while_a_message_is_stored"])),
    (48, Tests(&["cases::expiry::a_retained_message_that_has_expired_is_gone"])),
    (50, Tests(&["cases::expiry::a_message_that_expires_behind_a_full_window_is_never_delivered"])),
    (52, Tests(&["cases::retained::neither_takeover_nor_resume_sends_retained_messages_again"])),
    (56, Tests(&["cases::retained::retained_messages_of_any_version_reach_subscribers_of_any_version"])),
    (59, Tests(&["cases::wills::a_takeover_publishes_the_will_of_the_old_connection_once"])),
    (60, Tests(&["cases::wills::a_takeover_of_a_session_without_expiry_inherits_nothing_and_its_will_comes_at_once"])),
    (62, Tests(&["cases::wills::a_will_comes_after_anything_but_disconnect_0_and_not_before_its_delay"])),
    (64, Tests(&["cases::wills::quick_reconnects_with_a_delayed_will_leave_a_working_subscription"])),
    (66, Tests(&["cases::shared::members_that_reconnect_under_load_stay_in_the_group"])),
    (70, Tests(&["cases::shared::a_group_gets_each_message_once_besides_a_members_own_subscription"])),
    (71, Tests(&["cases::shared::qos_0_in_a_group_is_handed_out_at_most_once_however_often_members_return"])),
    (76, Tests(&["cases::subscription_identifiers::a_subscription_made_again_has_the_identifier_of_the_last_subscribe"])),
    (
        77,
        Tests(&[
            "cases::subscription_identifiers::each_copy_has_the_identifier_of_its_subscription_and_none_where_there_is_none",
        ]),
    ),
    (80, Tests(&["cases::overlapping::overlapping_filters_give_one_copy_in_every_version_live_and_queued"])),
    (81, Tests(&["cases::topic_alias::a_publishers_topic_alias_stays_with_its_connection"])),
    (83, Tests(&["cases::packet_size::a_queued_message_too_large_for_its_client_blocks_none_behind_it"])),
    (84, Tests(&["cases::packet_size::the_fixed_header_counts_for_the_maximum_packet_size"])),
    (
        86,
        Tests(&[
            "cases::packet_size::a_packet_over_the_limit_is_refused_from_its_length_and_one_that_is_claimed_takes_no_memory",
        ]),
    ),
    (88, Tests(&["cases::malformed::contradictory_will_flags_and_repeated_properties_are_refused"])),
    (89, Tests(&["cases::malformed::strange_retained_messages_break_no_subscriber"])),
    (90, Tests(&["cases::keep_alive::a_silent_client_loses_its_socket_too_and_its_will_and_event_come_then"])),
    (93, Tests(&["cases::websocket::a_flooded_web_socket_is_closed_together_with_its_session"])),
    (
        94,
        Tests(&[
            "transports::mod::every_transport_carries_mqtt_and_tells_where_the_client_is",
            "transports::mod::a_proxys_health_check_is_closed_without_a_byte_or_a_log_line",
            "transports::mod::a_listener_that_is_not_told_to_believe_proxies_believes_none",
            "transports::mod::silent_and_half_done_handshakes_hold_up_nobody",
            "cases::proxy::a_proxy_header_may_come_in_two_segments_late_and_with_the_first_packet",
        ]),
    ),
    (96, Tests(&["cases::tls::certificates_and_authorities_are_swapped_under_connected_clients"])),
    (99, Tests(&["node::authentication::those_who_try_again_and_again_are_held_off_and_nobody_else_is"])),
    (101, Tests(&["cases::permissions::a_will_that_its_client_may_not_publish_is_refused_with_its_connect"])),
    (103, Tests(&["cases::permissions::a_permission_for_a_literal_topic_is_for_no_other"])),
    (104, Tests(&["cases::permissions::a_resumed_session_loses_what_its_client_may_not_have_any_more"])),
    (106, Tests(&["cases::memory::a_retained_topic_costs_little_more_than_its_bytes"])),
    (107, Tests(&["cases::memory::slow_subscribers_of_all_retained_messages_do_not_copy_them"])),
    (108, Tests(&["cases::memory::a_slow_qos_0_subscriber_is_bounded_and_its_drops_are_told"])),
    (109, Tests(&["cases::memory::the_queue_of_a_long_outage_keeps_its_limit_and_drains_after_a_crash"])),
    (111, NotHere("needs a memory limit of the process, which there is none of yet, and a container around it")),
    (112, Tests(&["cases::payload::fan_out_to_different_subscribers_mixes_up_no_bytes"])),
    (
        114,
        Tests(&[
            "cases::lifecycle::each_end_has_one_event_with_a_reason_of_its_own",
            "node::takeover::every_way_to_go_has_its_event",
            "cluster::node_loss::clients_of_a_killed_node_are_told_once_and_resume_elsewhere",
        ]),
    ),
    (115, Tests(&["cases::lifecycle::the_end_of_a_session_adds_no_event_and_takes_its_subscriptions"])),
    (116, Tests(&["cases::statistics::connections_that_never_become_clients_are_not_counted_as_clients_and_end_in_time"])),
    (117, Tests(&["cases::statistics::gauges_come_back_after_churn"])),
    (119, Tests(&["cases::statistics::the_gauge_of_queued_messages_rises_before_the_first_drop"])),
    (121, Tests(&["cases::addons::messages_on_add_on_topics_do_not_go_round_in_circles"])),
];

#[test]
fn every_row_for_one_node_or_a_cluster_is_a_test_or_says_why_not() {
    let rows: BTreeMap<u16, &Where> = ROWS.iter().map(|(number, place)| (*number, place)).collect();
    assert_eq!(rows.len(), ROWS.len(), "a row stands twice");
    let numbers: BTreeSet<u16> = NUMBERS.iter().copied().collect();
    assert_eq!(rows.keys().copied().collect::<BTreeSet<u16>>(), numbers);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (number, place) in rows {
        match place {
            Tests(tests) => {
                assert!(!tests.is_empty(), "row {number}");
                for test in *tests {
                    assert!(is_test(root, number, test), "row {number}: there is no test {test} that names the row");
                }
            }
            NotHere(reason) => assert!(!reason.is_empty(), "row {number}"),
        }
    }
}

/// Whether `folder::file::name` is a test that runs and whose comment has the row's number.
fn is_test(root: &Path, number: u16, test: &str) -> bool {
    let mut parts = test.split("::");
    let (Some(folder), Some(file), Some(name)) = (parts.next(), parts.next(), parts.next()) else { return false };
    let Ok(source) = fs::read_to_string(root.join(folder).join(format!("{file}.rs"))) else { return false };
    let lines: Vec<&str> = source.lines().collect();
    let Some(at) = lines.iter().position(|line| line.contains(&format!("fn {name}("))) else { return false };
    let head: Vec<&str> =
        lines[..at].iter().rev().take_while(|line| line.starts_with("#[") || line.starts_with("///")).copied().collect();
    let runs = |line: &&str| line.starts_with("#[test") || line.starts_with("#[tokio::test");
    let names_row = |line: &&str| {
        let (_, behind) = line.split_once("ow ").unwrap_or_default();
        line.starts_with("///") && behind.chars().take_while(char::is_ascii_digit).collect::<String>() == number.to_string()
    };
    head.iter().any(runs) && head.iter().any(names_row) && !head.iter().any(|line| line.starts_with("#[ignore"))
}
