//! Every element by its rule: type, bounds, default, and the way into the settings.

use super::super::rules::{Kind, Rule};
use super::*;
use crate::config::diagnostic::Level;
use crate::config::render;
use crate::config::settings::{KeepAlivePolicy, KeepAliveSettings, ShutdownSettings};

#[test]
fn every_element_of_a_type_refuses_other_types_and_names_line_and_path() {
    let mut checked = 0;
    for Rule { path, kind, .. } in rules::all() {
        let wrong: &[&str] = match kind {
            Kind::Section | Kind::Any | Kind::Secret => continue,
            Kind::Mark => &["true", "<x/>"],
            Kind::Flag { .. } => &["", "yes", "TRUE", "2", "<true/>"],
            Kind::Number(_) => &["", "ten", "1.5", "1 0", "0x10", "+", "-", "<x/>"],
            Kind::Rate => &["", "fast", "0", "-1", "NaN", "inf"],
            Kind::Multiplier => &["", "slow", "0", "1", "1.499", "10.01", "NaN", "inf"],
            Kind::Choice(_) => &["", "other"],
            Kind::Text => &["", "<x/>"],
        };
        for content in wrong {
            let found = shape_findings(path, content);
            assert_eq!(found.len(), 1, "{path} = {content:?}: {found:?}");
            let text = found[0].to_string();
            assert_eq!(found[0].level, Level::Error, "{text}");
            assert!(text.starts_with(&format!("c.xml:2: <{path}>: found ")) && text.contains("; allowed: "), "{text}");
        }
        checked += 1;
    }
    assert!(checked > 80, "{checked}");
}

#[test]
fn every_number_takes_its_bounds_and_replaces_or_refuses_what_is_beyond() {
    for Rule { path, kind, .. } in rules::all() {
        let Kind::Number(number) = kind else { continue };
        for inside in [number.min.to_string(), number.max.to_string(), format!(" +{} ", number.max)] {
            assert!(shape_findings(path, &inside).is_empty(), "{path} = {inside}");
        }
        let mut outside = vec![i128::from(number.min) - 1, i128::from(i64::MIN) - 1];
        // What ends at 64 bit has no upper bound; more digits count as the largest number.
        let huge = "9".repeat(40);
        if number.max == i64::MAX {
            assert!(shape_findings(path, &huge).is_empty(), "{path}");
        } else {
            outside.extend([i128::from(number.max) + 1, i128::from(i64::MAX) + 1]);
            assert_eq!(shape_findings(path, &huge).len(), 1, "{path}");
        }
        for value in outside {
            let found = shape_findings(path, &value.to_string());
            assert_eq!(found.len(), 1, "{path} = {value}: {found:?}");
            let level = if number.replace.is_some() { Level::Warning } else { Level::Error };
            assert_eq!(found[0].level, level, "{path} = {value}");
            assert!(found[0].message.contains(&format!("found \"{value}\"; allowed: ")), "{}", found[0]);
        }
    }
}

#[test]
fn defaults_are_those_of_the_tables() {
    let s = settings("");
    let mqtt = &s.mqtt;
    assert_eq!((mqtt.session_expiry_max_s, mqtt.message_expiry_max_s, mqtt.max_packet_size_bytes), (u32::MAX, None, 268_435_460));
    assert_eq!(mqtt.server_receive_maximum, 10);
    let hivemq = KeepAlivePolicy::HiveMq { max_s: 65_535, allow_unlimited: true };
    assert_eq!(mqtt.keep_alive, KeepAliveSettings { policy: hivemq, multiplier_milli: 1500 });
    assert_eq!((mqtt.topic_alias_to_clients_enabled, mqtt.topic_alias_to_clients_max), (true, 16));
    assert_eq!((&mqtt.response_information, &mqtt.server_reference), (&None, &None));
    assert_eq!((mqtt.topic_alias_enabled, mqtt.topic_alias_max_per_client), (true, 5));
    assert!(mqtt.subscription_identifiers && mqtt.wildcard_subscriptions && mqtt.shared_subscriptions && mqtt.retained_messages);
    assert_eq!((mqtt.max_qos, mqtt.max_queue_size, mqtt.discard_oldest), (2, 1000, false));
    let security = &s.security;
    assert!(security.allow_empty_client_id && security.utf8_validation && security.allow_request_problem_information);
    assert!(!security.payload_format_validation && !security.allow_anonymous);
    let restrictions = &s.restrictions;
    assert_eq!(
        (restrictions.max_connections, restrictions.max_client_id_length, restrictions.max_topic_length),
        (None, 65_535, 65_535)
    );
    assert_eq!((restrictions.no_connect_idle_timeout_ms, restrictions.incoming_bandwidth_throttling), (10_000, 0));
    assert_eq!(s.persistence, PersistenceMode::File);
    let cluster = &s.cluster;
    assert_eq!((cluster.enabled, cluster.node_name.as_str(), cluster.bind_port, cluster.shards), (false, "node1", 7000, None));
    assert_eq!((cluster.heartbeat_ms, cluster.election_timeout_min_ms, cluster.election_timeout_max_ms), (200, 600, 1200));
    assert_eq!(cluster.close_without_majority_ms, 10_000);
    assert_eq!(s.shutdown, ShutdownSettings { delay_s: 0, clients_per_second: 1000, timeout_s: 25 });
    let addons = &s.addons;
    assert!(
        !addons.expired && !addons.dropped && !addons.dead && !addons.lifecycle.enabled && !addons.lifecycle.identifier_username
    );
    let l = &addons.lifecycle;
    assert!(l.connected && l.client && l.server && l.session_taken_over && l.unspecified);
    assert!(s.http.is_empty());
    assert_eq!(s.listeners.len(), 1);
}

#[test]
fn values_arrive_in_the_settings() {
    // (path, content, how it shows in the rendered settings)
    let cases = [
        ("mqtt/session-expiry/max-interval", "0", "session-expiry/max-interval 0 s"),
        ("mqtt/session-expiry/max-interval", "-5", "session-expiry/max-interval 0 s"),
        ("mqtt/session-expiry/max-interval", "4294967296", "session-expiry/max-interval 4294967295 s"),
        ("mqtt/message-expiry/max-interval", "4294967295", "message-expiry/max-interval 4294967295 s"),
        ("mqtt/message-expiry/max-interval", "4294967296", "message-expiry/max-interval unlimited"),
        ("mqtt/message-expiry/max-interval", "0", "message-expiry/max-interval unlimited"),
        ("mqtt/message-expiry/max-interval", "4294967297", "message-expiry/max-interval unlimited"),
        ("mqtt/packets/max-packet-size", "1024", "packets/max-packet-size 1024 bytes"),
        ("mqtt/packets/max-packet-size", "14", "packets/max-packet-size 15 bytes"),
        ("mqtt/packets/max-packet-size", "0", "packets/max-packet-size 268435460 bytes"),
        ("mqtt/packets/max-packet-size", "268435461", "packets/max-packet-size 268435460 bytes"),
        ("mqtt/receive-maximum/server-receive-maximum", "100", "receive-maximum/server-receive-maximum 100"),
        ("mqtt/receive-maximum/server-receive-maximum", "0", "receive-maximum/server-receive-maximum 10"),
        ("mqtt/receive-maximum/server-receive-maximum", "65536", "receive-maximum/server-receive-maximum 65535"),
        ("mqtt/keep-alive/max-keep-alive", "60", "keep-alive/max-keep-alive 60 s"),
        ("mqtt/keep-alive/max-keep-alive", "0", "keep-alive/max-keep-alive 65535 s"),
        ("mqtt/keep-alive/allow-unlimited", "false", "keep-alive/allow-unlimited false"),
        ("mqtt/keep-alive/policy", "emqx", "keep-alive/server-keep-alive none"),
        ("mqtt/keep-alive/policy", "mosquitto", "keep-alive/max-keep-alive none"),
        ("mqtt/keep-alive/policy", "hivemq", "keep-alive/max-keep-alive 65535 s"),
        ("mqtt/keep-alive/multiplier", "2.25", "keep-alive/multiplier 2.25"),
        ("mqtt/keep-alive/multiplier", "10", "keep-alive/multiplier 10"),
        ("mqtt/topic-alias/to-clients/enabled", "false", "topic-alias/to-clients/enabled false"),
        ("mqtt/topic-alias/to-clients/max-per-client", "9", "topic-alias/to-clients/max-per-client 9"),
        ("mqtt/response-information/template", "re/${{clientid}}", "response-information/template re/${{clientid}}"),
        ("mqtt/server-reference/reference", "a:1883 b", "server-reference/reference a:1883 b"),
        ("mqtt/server-reference/reference", "a", "server-reference/at-shutdown true"),
        ("mqtt/server-reference/reference", "a", "server-reference/refuse-connections never"),
        ("mqtt/topic-alias/enabled", "0", "topic-alias/enabled false"),
        ("mqtt/topic-alias/max-per-client", "0", "topic-alias/max-per-client 1"),
        ("mqtt/topic-alias/max-per-client", "70000", "topic-alias/max-per-client 65535"),
        ("mqtt/subscription-identifier/enabled", "false", "subscription-identifier/enabled false"),
        ("mqtt/wildcard-subscriptions/enabled", "false", "wildcard-subscriptions/enabled false"),
        ("mqtt/shared-subscriptions/enabled", "false", "shared-subscriptions/enabled false"),
        ("mqtt/quality-of-service/max-qos", "0", "quality-of-service/max-qos 0"),
        ("mqtt/quality-of-service/max-qos", "3", "quality-of-service/max-qos 2"),
        ("mqtt/quality-of-service/max-qos", "-1", "quality-of-service/max-qos 2"),
        ("mqtt/retained-messages/enabled", "false", "retained-messages/enabled false"),
        ("mqtt/retained-messages/max-messages", "5", "retained-messages/max-messages 5"),
        ("mqtt/retained-messages/max-bytes", "2048", "retained-messages/max-bytes 2048"),
        ("mqtt/queued-messages/max-queue-size", "7", "queued-messages/max-queue-size 7"),
        ("mqtt/queued-messages/max-queue-size", "0", "queued-messages/max-queue-size 1000"),
        ("mqtt/queued-messages/max-queue-size", "99999999999", "queued-messages/max-queue-size 4294967295"),
        ("mqtt/queued-messages/strategy", "discard-oldest", "queued-messages/strategy discard-oldest"),
        ("mqtt/queued-messages/strategy", "DISCARD", "queued-messages/strategy discard"),
        ("security/allow-empty-client-id/enabled", "false", "allow-empty-client-id/enabled false"),
        ("security/payload-format-validation/enabled", "1", "payload-format-validation/enabled true"),
        ("security/utf8-validation/enabled", "false", "utf8-validation/enabled false"),
        ("security/allow-request-problem-information/enabled", "false", "allow-request-problem-information/enabled false"),
        ("security/allow-anonymous/enabled", "true", "allow-anonymous/enabled true (accepted on every address)"),
        ("security/unstable-clients/enabled", "false", "unstable-clients/enabled false"),
        ("security/unstable-clients/window", "9", "unstable-clients 15 connects or 5 takeovers in 9 s"),
        ("security/unstable-clients/connects", "9", "unstable-clients 9 connects or 5 takeovers in 60 s"),
        ("security/unstable-clients/takeovers", "9", "unstable-clients 15 connects or 9 takeovers in 60 s"),
        ("security/unstable-clients/ban/enabled", "true", "unstable-clients/ban/duration 300 s"),
        ("security/unstable-clients/ban/enabled", "true", "unstable-clients/ban/addresses false"),
        ("security/unstable-clients/ban/enabled", "false", "unstable-clients/ban/enabled false"),
        ("restrictions/max-connections", "5", "max-connections 5"),
        ("restrictions/max-connections", "0", "max-connections unlimited"),
        ("restrictions/max-connections", "-1", "max-connections unlimited"),
        ("restrictions/max-connections", "-2", "max-connections unlimited"),
        ("restrictions/max-client-id-length", "23", "max-client-id-length 23"),
        ("restrictions/max-client-id-length", "0", "max-client-id-length 65535"),
        ("restrictions/max-topic-length", "100", "max-topic-length 100"),
        ("restrictions/max-topic-length", "65536", "max-topic-length 65535"),
        ("restrictions/no-connect-idle-timeout", "0", "no-connect-idle-timeout 0 ms"),
        ("restrictions/no-connect-idle-timeout", "-1", "no-connect-idle-timeout 10000 ms"),
        ("restrictions/incoming-bandwidth-throttling", "9", "incoming-bandwidth-throttling 9 bytes/s"),
        ("restrictions/incoming-bandwidth-throttling", "-9", "incoming-bandwidth-throttling off"),
        ("restrictions/max-qos-0-memory", "1", "max-qos-0-memory 1 bytes"),
        ("restrictions/max-incomplete-packet-memory", "2000", "max-incomplete-packet-memory 2000 bytes"),
        ("persistence/mode", "in-memory", "mode in-memory"),
        ("cluster/shards", "64", "shards 64"),
        ("cluster/raft/heartbeat-interval", "100", "raft/heartbeat-interval 100 ms"),
        ("cluster/raft/election-timeout-min", "700", "raft/election-timeout-min 700 ms"),
        ("cluster/raft/election-timeout-max", "5000", "raft/election-timeout-max 5000 ms"),
        ("cluster/close-clients-without-majority-after", "4000", "close-clients-without-majority-after 4000 ms"),
        ("shutdown/delay", "5", "delay 5 s"),
        ("shutdown/clients-per-second", "50", "clients-per-second 50"),
        ("shutdown/timeout", "90", "timeout 90 s"),
        ("event-log/enabled", "false", "enabled false"),
        ("event-log/max-file-size", "70000", "max-file-size 70000 bytes"),
        ("event-log/max-files", "9", "max-files 9"),
        ("mqtt-addons/expired-messages-topic/enabled", "true", "expired-messages-topic/enabled true"),
        ("mqtt-addons/dropped-messages-topic/enabled", "true", "dropped-messages-topic/enabled true"),
        ("mqtt-addons/dead-messages-topic/enabled", "true", "dead-messages-topic/enabled true"),
        ("mqtt-addons/client-lifecycle-topic/enabled", "true", "client-lifecycle-topic/enabled true"),
        ("mqtt-addons/client-lifecycle-topic/identifier", "<username/>", "client-lifecycle-topic/identifier username"),
        ("mqtt-addons/client-lifecycle-topic/identifier", "<client-id/>", "client-lifecycle-topic/identifier client-id"),
        ("http/port", "9000", "http-listener-9000 metrics and health on 127.0.0.1:9000"),
    ];
    for (path, content, shown) in cases {
        let rendered = render(&settings(&nest(path, content)));
        let lines: Vec<String> = rendered.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(lines.iter().any(|line| line == shown), "{path} = {content}: no {shown:?} in\n{rendered}");
    }
}
