//! Tables over every element: default, bounds, replacement, wrong type, and what sections demand together.

use std::path::{Path, PathBuf};

use super::rules::{Kind, Rule};
use super::*;
use crate::config::diagnostic::{Diagnostic, Level};
use crate::config::jwt::{Algorithm, TokenFrom, WithoutPermissions};
use crate::config::placeholder::expand;
use crate::config::render;
use crate::config::settings::{
    CertificateName, ClientAuthentication, HttpListenerKind, KeepAlivePolicy, KeepAliveSettings, ListenerKind, PreventedRule,
    PreventedSettings, RefuseConnections, ShutdownSettings,
};
use crate::config::tls::fixture::{Ca, put};
use crate::config::{entity, from_bytes};

/// A file with one listener and, in line 3, what a test puts there.
fn file(extra: &str) -> String {
    format!(
        "<hivemq>\n<listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>\n{extra}\n</hivemq>"
    )
}

struct Outcome {
    settings: Option<Settings>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

fn check_text(xml: &str) -> Outcome {
    check_with(xml, &|_| None)
}

fn check_with(xml: &str, env: &dyn Fn(&str) -> Option<String>) -> Outcome {
    match from_bytes(xml.as_bytes(), "c.xml", env) {
        Ok(loaded) => Outcome { settings: Some(loaded.settings), errors: Vec::new(), warnings: loaded.warnings },
        Err(errors) => Outcome { settings: None, errors: errors.errors, warnings: errors.warnings },
    }
}

#[track_caller]
fn settings(extra: &str) -> Settings {
    let outcome = check_text(&file(extra));
    outcome.settings.unwrap_or_else(|| panic!("{extra}: {:?}", outcome.errors))
}

/// The one error of a file.
#[track_caller]
fn error(xml: &str) -> String {
    let outcome = check_text(xml);
    assert_eq!(outcome.errors.len(), 1, "{xml}: {:?}", outcome.errors);
    outcome.errors[0].to_string()
}

/// `<a><b>content</b></a>` for the path `a/b`.
fn nest(path: &str, content: &str) -> String {
    path.rsplit('/').fold(content.to_owned(), |inside, name| format!("<{name}>{inside}</{name}>"))
}

/// The findings of the shape check about one element, in a file of nothing else.
fn shape_findings(path: &str, content: &str) -> Vec<Diagnostic> {
    let report = Report::new("c.xml");
    let expanded = expand(&format!("<hivemq>\n{}</hivemq>", nest(path, content)), &|_| None, &report).unwrap();
    let root = entity::parse(&expanded, &report).unwrap();
    shape::check(&root, &report);
    let (mut found, warnings) = report.into_parts();
    // Replacements have a value in them, notices do not.
    found.extend(warnings.into_iter().filter(|w| w.message.contains("found")));
    found
}

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
    assert_eq!((cluster.enabled, cluster.node_name.as_str(), cluster.bind_port, cluster.shards), (false, "node1", 7000, 6));
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

#[test]
fn keep_alive_policies_take_the_elements_of_their_broker() {
    let hivemq = |max_s, allow_unlimited| KeepAlivePolicy::HiveMq { max_s, allow_unlimited };
    let cases = [
        ("", hivemq(65_535, true)),
        ("<max-keep-alive>10</max-keep-alive><allow-unlimited>false</allow-unlimited>", hivemq(10, false)),
        ("<policy>HiveMQ</policy>", hivemq(65_535, true)),
        ("<policy>emqx</policy>", KeepAlivePolicy::Emqx { server_s: None }),
        ("<policy>emqx</policy><server-keep-alive>10</server-keep-alive>", KeepAlivePolicy::Emqx { server_s: Some(10) }),
        // A template's defaults of HiveMQ's elements say nothing.
        (
            "<policy>emqx</policy><max-keep-alive>65535</max-keep-alive><allow-unlimited>true</allow-unlimited>",
            KeepAlivePolicy::Emqx { server_s: None },
        ),
        ("<policy>mosquitto</policy>", KeepAlivePolicy::Mosquitto { max_s: None }),
        ("<policy>mosquitto</policy><max-keep-alive>10</max-keep-alive>", KeepAlivePolicy::Mosquitto { max_s: Some(10) }),
        (
            "<policy>mosquitto</policy><max-keep-alive>65535</max-keep-alive><allow-unlimited>true</allow-unlimited>",
            KeepAlivePolicy::Mosquitto { max_s: Some(65_535) },
        ),
    ];
    for (inside, policy) in cases {
        let outcome = check_text(&file(&nest("mqtt/keep-alive", inside)));
        assert!(outcome.warnings.is_empty(), "{inside}: {:?}", outcome.warnings);
        let settings = outcome.settings.unwrap_or_else(|| panic!("{inside}: {:?}", outcome.errors));
        assert_eq!(settings.mqtt.keep_alive, KeepAliveSettings { policy, multiplier_milli: 1500 }, "{inside}");
    }
}

#[test]
fn keep_alive_elements_that_contradict_the_policy_are_refused_with_a_way_out() {
    let cases = [
        ("<server-keep-alive>10</server-keep-alive>", "server-keep-alive", "set <policy>emqx</policy>, or use <max-keep-alive>"),
        ("<policy>mosquitto</policy><server-keep-alive>10</server-keep-alive>", "server-keep-alive", "the policy is mosquitto"),
        ("<policy>emqx</policy><max-keep-alive>10</max-keep-alive>", "max-keep-alive", "use <server-keep-alive>"),
        ("<policy>emqx</policy><allow-unlimited>false</allow-unlimited>", "allow-unlimited", "set <server-keep-alive>"),
        ("<policy>mosquitto</policy><allow-unlimited>false</allow-unlimited>", "allow-unlimited", "set <max-keep-alive>"),
    ];
    for (inside, element, way_out) in cases {
        let found = error(&file(&nest("mqtt/keep-alive", inside)));
        assert!(found.starts_with(&format!("c.xml:3: <mqtt/keep-alive/{element}>: ")) && found.contains(way_out), "{found}");
    }
}

#[test]
fn response_information_and_server_reference_are_checked() {
    let template = |text: &str| nest("mqtt/response-information/template", text);
    assert_eq!(settings(&template("responses")).mqtt.response_information.as_deref(), Some("responses"));
    for wrong in ["$SYS/${{clientid}}", "a/+/b", "#", "a/${{username}}", "a/${{clientid}"] {
        let found = error(&file(&template(wrong)));
        assert!(found.contains("allowed: the start of a topic name"), "{found}");
    }
    let missing = error(&file("<mqtt><response-information/></mqtt>"));
    assert!(missing.contains("add <template>responses/${{clientid}}</template>"), "{missing}");

    let server = "<reference>a:1883 b</reference><at-shutdown>false</at-shutdown><refuse-connections>always</refuse-connections>";
    let server = settings(&nest("mqtt/server-reference", server)).mqtt.server_reference.unwrap();
    assert_eq!((server.reference.as_str(), server.at_shutdown, server.refuse), ("a:1883 b", false, RefuseConnections::Always));
    let missing = error(&file("<mqtt><server-reference><at-shutdown>true</at-shutdown></server-reference></mqtt>"));
    assert!(missing.contains("the element <reference> is missing"), "{missing}");
    let long = error(&file(&nest("mqtt/server-reference/reference", &"x".repeat(1025))));
    assert!(long.contains("allowed: up to 1024 bytes"), "{long}");
}

#[test]
fn errors_name_file_line_element_value_and_what_is_allowed() {
    assert_eq!(
        error(&file("<mqtt>\n<queued-messages>\n<strategy>drop</strategy></queued-messages></mqtt>")),
        "c.xml:5: <mqtt/queued-messages/strategy>: found \"drop\"; allowed: discard or discard-oldest; correct the value or remove the element"
    );
    let outcome = check_text(&file("<mqtt><packets><max-packet-size>14</max-packet-size></packets></mqtt>"));
    assert_eq!(
        outcome.warnings[0].to_string(),
        "c.xml:3: <mqtt/packets/max-packet-size>: found \"14\"; allowed: a whole number from 15 to 268435460; 15 is used"
    );
}

#[test]
fn all_errors_and_warnings_come_at_once_in_the_order_of_lines() {
    let outcome = check_text(
        "<hivemq>\n<listeners><tcp-listener><port>70000</port>\n<bind-address>nowhere</bind-address></tcp-listener></listeners>\n\
         <unknown/>\n<mqtt><quality-of-service><max-qos>7</max-qos></quality-of-service>\n<retained-messages><enabled>maybe</enabled>\
         </retained-messages></mqtt>\n<cluster>\n<enabled>true</enabled></cluster></hivemq>",
    );
    let lines = |found: &[Diagnostic]| found.iter().map(|d| (d.line, d.path.clone())).collect::<Vec<_>>();
    let expected = [
        (2, "listeners/tcp-listener/port"),
        (3, "listeners/tcp-listener/bind-address"),
        (6, "mqtt/retained-messages/enabled"),
        (7, "cluster/node-name"),
        (7, "cluster/discovery/static"),
        (7, "cluster/secret"),
    ];
    assert_eq!(lines(&outcome.errors), expected.map(|(line, path)| (line, path.to_owned())));
    assert_eq!(lines(&outcome.warnings), [(4, "unknown".to_owned()), (5, "mqtt/quality-of-service/max-qos".to_owned())]);
}

#[test]
fn elements_that_are_unknown_misplaced_or_doubled_are_told_apart() {
    let unknown = check_text(&file("<mqtt><colour>red</colour></mqtt>"));
    assert!(unknown.settings.is_some());
    assert!(
        unknown.warnings[0]
            .to_string()
            .starts_with("c.xml:3: <mqtt/colour>: unknown element, ignored; allowed: <session-expiry>")
    );
    // Nothing inside an unknown element is looked at.
    assert!(check_text(&file("<x><mqtt><max-qos>9</max-qos></mqtt></x>")).settings.is_some());
    let misplaced = error(&file("<mqtt><max-queue-size>5</max-queue-size></mqtt>"));
    assert_eq!(misplaced, "c.xml:3: <mqtt/max-queue-size>: out of place; allowed: inside <mqtt/queued-messages>; move it there");
    let misplaced = error(&file("<cluster><mqtt-addons/></cluster>"));
    assert_eq!(misplaced, "c.xml:3: <cluster/mqtt-addons>: out of place; allowed: inside <hivemq>; move it there");
    let doubled = error(&file("<mqtt/>\n<mqtt/>"));
    assert_eq!(doubled, "c.xml:4: <mqtt>: found a second time, first in line 3; allowed: once; remove one of them");
    let text = error(&file("<persistence>file</persistence>"));
    assert_eq!(text, "c.xml:3: <persistence>: found text between its elements; allowed: <mode>; remove the text");
    let root = error("<config/>");
    assert_eq!(root, "c.xml:1: found root element <config>; allowed: <hivemq>");
}

#[test]
fn schema_attributes_are_tolerated_and_others_warned_of() {
    let with = |attribute: &str| check_text(&file("").replacen("<hivemq>", &format!("<hivemq {attribute}>"), 1));
    let schema = with("xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' xsi:noNamespaceSchemaLocation='config.xsd'");
    assert!(schema.settings.is_some() && schema.warnings.is_empty(), "{:?}", schema.warnings);
    assert_eq!(
        with("port='1883'").warnings[0].to_string(),
        "c.xml:1: unknown attribute \"port\", ignored; values stand in elements"
    );
}

fn listeners(inside: &str) -> String {
    format!("<hivemq>\n<listeners>\n{inside}\n</listeners>\n</hivemq>")
}

#[test]
fn listeners_have_names_paths_and_subprotocols() {
    let outcome = check_text(&listeners(
        "<tcp-listener><port>1</port><bind-address>localhost</bind-address></tcp-listener>\n\
         <websocket-listener><port>2</port><bind-address>::1</bind-address></websocket-listener>\n\
         <websocket-listener><port>3</port><bind-address>127.0.0.1</bind-address><name>web</name><path>/a/b</path>\
         <subprotocols><subprotocol>mqtt</subprotocol><subprotocol>mine</subprotocol></subprotocols></websocket-listener>",
    ));
    let all = outcome.settings.unwrap().listeners;
    let websocket = |path: &str, subprotocols: &[&str]| ListenerKind::WebSocket {
        path: path.to_owned(),
        subprotocols: subprotocols.iter().map(ToString::to_string).collect(),
    };
    assert_eq!((all[0].name.as_str(), all[0].bind_address.to_string()), ("tcp-listener-1", "127.0.0.1".to_owned()));
    assert_eq!((all[1].name.as_str(), &all[1].kind), ("websocket-listener-2", &websocket("/mqtt", &["mqttv3.1", "mqtt"])));
    assert_eq!((all[2].name.as_str(), &all[2].kind), ("web", &websocket("/a/b", &["mqtt", "mine"])));
}

#[test]
fn listeners_that_cannot_be_are_refused() {
    let local = "<bind-address>127.0.0.1</bind-address>";
    let cases = [
        (format!("<tcp-listener>{local}</tcp-listener>"), "c.xml:3: <listeners/tcp-listener>: the element <port> is missing"),
        (String::new(), "c.xml:2: <listeners>: no listener is configured; add"),
        (
            format!("<websocket-listener><port>1</port>{local}<path>mqtt</path></websocket-listener>"),
            "c.xml:3: <listeners/websocket-listener/path>: found \"mqtt\"; allowed: a path that starts with /",
        ),
        (
            format!("<websocket-listener><port>1</port>{local}<path>/m q</path></websocket-listener>"),
            "c.xml:3: <listeners/websocket-listener/path>: found \"/m q\"; allowed: up to 255 bytes without white space",
        ),
        (
            format!(
                "<websocket-listener><port>1</port>{local}<subprotocols><subprotocol>a,b</subprotocol></subprotocols></websocket-listener>"
            ),
            "c.xml:3: <listeners/websocket-listener/subprotocols/subprotocol>: found \"a,b\"",
        ),
        (
            format!("<tls-tcp-listener><port>8883</port>{local}<tls/></tls-tcp-listener>"),
            "c.xml:3: <listeners/tls-tcp-listener/tls/keystore>: the element <path> is missing",
        ),
        (
            format!("<tls-websocket-listener><port>1</port>{local}</tls-websocket-listener>"),
            "c.xml:3: <listeners/tls-websocket-listener>: the element <tls> is missing",
        ),
        (
            format!("<tcp-listener><port>1</port>{local}</tcp-listener>\n<tcp-listener><port>1</port>{local}</tcp-listener>"),
            "c.xml:4: <listeners/tcp-listener>: found port 1 on 127.0.0.1, in use by line 3 on 127.0.0.1",
        ),
    ];
    for (inside, message) in cases {
        let found = error(&listeners(&inside));
        assert!(found.starts_with(message), "{inside}: {found}");
    }
    assert!(error("<hivemq/>").starts_with("c.xml:1: <listeners>: no listener is configured"));
}

#[test]
fn equal_listener_names_get_a_number() {
    let one = |port: u16, name: &str| {
        format!("<tcp-listener><port>{port}</port><bind-address>127.0.0.1</bind-address><name>{name}</name></tcp-listener>\n")
    };
    let outcome = check_text(&listeners(&[one(1, "a"), one(2, "a"), one(3, "a-1"), one(4, "a"), one(0, "b")].concat()));
    let names: Vec<_> = outcome.settings.unwrap().listeners.into_iter().map(|l| l.name).collect();
    assert_eq!(names, ["a", "a-1", "a-1-1", "a-2", "b"]);
    let warned: Vec<_> = outcome.warnings.iter().map(|w| w.line).collect();
    assert_eq!(warned, [4, 5, 6]);
    assert_eq!(outcome.warnings[0].message, "found a second listener named a; it is called a-1");
}

#[test]
fn ports_may_clash_across_sections_and_ephemeral_ones_never() {
    let clash = error(&file("<http><port>1883</port></http>"));
    assert!(clash.starts_with("c.xml:3: <http>: found port 1883 on 127.0.0.1, in use by line 2 on 127.0.0.1"), "{clash}");
    let other_address = file("<http><port>1883</port><bind-address>127.0.0.2</bind-address></http>");
    assert!(check_text(&other_address).settings.is_some());
    let any = "<tcp-listener><port>0</port><bind-address>127.0.0.1</bind-address></tcp-listener>".repeat(2);
    assert!(check_text(&listeners(&any)).settings.is_some());
    let cluster = error(&cluster_file("").replace("7001</bind-port>", "1883</bind-port>"));
    assert!(cluster.contains("<cluster/transport/tcp>: found port 1883"), "{cluster}");
}

#[test]
fn open_listeners_need_leave_to_let_anonymous_clients_in() {
    for address in [
        "<bind-address>0.0.0.0</bind-address>",
        "<bind-address>192.168.1.2</bind-address>",
        "<bind-address>::</bind-address>",
        "",
    ] {
        let open = listeners(&format!("<tcp-listener><port>1883</port>{address}</tcp-listener>"));
        let refused = error(&open);
        assert!(refused.starts_with("c.xml:3: <listeners/tcp-listener>: found bind address "), "{refused}");
        assert!(refused.contains("<security><allow-anonymous><enabled>true</enabled></allow-anonymous></security>"), "{refused}");
        let leave = format!("{}</hivemq>", nest("security/allow-anonymous/enabled", "true"));
        let allowed = check_text(&open.replace("</hivemq>", &leave));
        assert!(allowed.settings.is_some_and(|s| s.security.allow_anonymous), "{address}");
        assert!(
            allowed.warnings[0].message.contains("without credentials are let in from other machines"),
            "{:?}",
            allowed.warnings
        );
    }
    let local = settings(&nest("security/allow-anonymous/enabled", "true"));
    assert!(local.security.allow_anonymous);
}

fn cluster_file(extra: &str) -> String {
    file(&format!(
        "<cluster><enabled>true</enabled><node-name>n1</node-name><secret>0123456789abcdef</secret>\
         <transport><tcp><bind-address>127.0.0.1</bind-address><bind-port>7001</bind-port></tcp></transport>\
         <discovery><static><node><host>127.0.0.1</host><port>7001</port></node>\
         <node><host>fd00::2</host><port>7002</port></node></static></discovery>{extra}</cluster>"
    ))
}

#[test]
fn cluster_settings_arrive() {
    let outcome = check_text(&cluster_file("<shards>12</shards>"));
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let cluster = outcome.settings.unwrap().cluster;
    assert_eq!((cluster.enabled, cluster.node_name.as_str(), cluster.secret.as_str()), (true, "n1", "0123456789abcdef"));
    assert_eq!((cluster.bind_port, cluster.shards), (7001, 12));
    assert_eq!(cluster.static_nodes, ["127.0.0.1:7001", "[fd00::2]:7002"]);
    assert_eq!(cluster.advertised(), "127.0.0.1:7001");
}

#[test]
fn external_address_and_port_are_advertised() {
    let advertised = |transport: &str| {
        let text = cluster_file("").replace("<bind-address>127.0.0.1</bind-address><bind-port>7001</bind-port></tcp>", transport);
        check_text(&text).settings.unwrap().cluster.advertised()
    };
    assert_eq!(
        advertised("<external-address>b1.example</external-address><external-port>17000</external-port></tcp>"),
        "b1.example:17000"
    );
    assert_eq!(advertised("<bind-address>::1</bind-address></tcp>"), "[::1]:7000");
    assert_eq!(advertised("</tcp>"), "n1:7000");
}

#[test]
fn a_cluster_says_what_it_lacks() {
    let without = |part: &str| cluster_file("").replace(part, "");
    let secret = error(&without("<secret>0123456789abcdef</secret>"));
    assert!(secret.contains(": <cluster/secret>: there is no cluster secret; allowed: 16 characters or more"), "{secret}");
    assert!(secret.contains("add <secret>${TROUPEMQ_CLUSTER_SECRET}</secret> to <cluster>"), "{secret}");
    let short = error(&cluster_file("").replace("0123456789abcdef", "hunter2"));
    assert!(short.contains("found 7 characters; allowed: 16 characters or more") && !short.contains("hunter2"), "{short}");

    let unnamed = without("<node-name>n1</node-name>");
    assert!(error(&unnamed).contains("add <node-name>node1</node-name> to <cluster>"));
    let host = |name: &str| (name == "HOSTNAME").then(|| "pod-0".to_owned());
    assert_eq!(check_with(&unnamed, &host).settings.unwrap().cluster.node_name, "pod-0");
    assert_eq!(check_with(&cluster_file(""), &host).settings.unwrap().cluster.node_name, "n1");
    let named = |name: &str| error(&cluster_file("").replace("<node-name>n1<", &format!("<node-name>{name}<")));
    assert!(named("a b").contains("<cluster/node-name>: found \"a b\"; allowed: up to 255 letters"));
    assert!(named("a/b").contains("found \"a/b\""));

    let nodes = "<node><host>127.0.0.1</host><port>7001</port></node><node><host>fd00::2</host><port>7002</port></node>";
    assert!(error(&without(nodes)).contains("<cluster/discovery/static>: found no node; allowed: one or more; add <discovery>"));
    let node = |inside: &str| error(&cluster_file("").replace("<node><host>127.0.0.1</host><port>7001</port></node>", inside));
    assert!(node("<node><host>a</host></node>").contains("<cluster/discovery/static/node>: the element <port> is missing"));
    assert!(node("<node><port>7000</port></node>").contains("the element <host> is missing"));
    assert!(
        node("<node><host>a:7000</host><port>7000</port></node>")
            .contains("found \"a:7000\"; allowed: a host name or an IP address")
    );
    assert!(node("<node><host>a</host><port>0</port></node>").contains("found \"0\"; allowed: a whole number from 1 to 65535"));

    let disabled = cluster_file("").replacen("true", "false", 1).replace("<secret>0123456789abcdef</secret>", "");
    assert!(check_text(&disabled).settings.is_some());
}

#[test]
fn a_delay_before_the_shutdown_is_below_its_timeout() {
    let shutdown =
        |delay: u32, timeout: u32| file(&format!("<shutdown><delay>{delay}</delay><timeout>{timeout}</timeout></shutdown>"));
    assert!(check_text(&shutdown(24, 25)).settings.is_some());
    assert!(error(&shutdown(25, 25)).contains("allowed: a delay below the timeout"));
}

#[test]
fn raft_times_must_fit_each_other() {
    let raft = |heartbeat: u32, min: u32, max: u32| {
        file(&format!(
            "<cluster><raft><heartbeat-interval>{heartbeat}</heartbeat-interval><election-timeout-min>{min}</election-timeout-min>\
             <election-timeout-max>{max}</election-timeout-max></raft></cluster>"
        ))
    };
    assert!(check_text(&raft(100, 300, 301)).settings.is_some());
    assert!(error(&raft(100, 299, 600)).contains("<cluster/raft>: found heartbeat-interval 100 and election-timeout-min 299 ms"));
    assert!(error(&raft(100, 300, 300)).contains("allowed: min below max"));
    assert!(error(&file("<cluster><shards>0</shards></cluster>")).contains("found \"0\"; allowed: a whole number from 1 to 64"));
}

#[test]
fn transports_and_discoveries_are_one_of_what_there_is() {
    let udp = check_text(&cluster_file("").replace("tcp>", "udp>").replace("udp></udp-", "tcp></tcp-"));
    // The listener's own `tcp-listener` has another end.
    let cluster = udp.settings.unwrap().cluster;
    assert_eq!((cluster.bind_port, udp.warnings[0].path.as_str()), (7001, "cluster/transport/udp"));
    assert!(udp.warnings[0].message.contains("treated as <tcp>"));
    let both = error(&cluster_file("").replace("</tcp>", "</tcp><udp/>"));
    assert!(both.contains("<cluster/transport>: found both <tcp> and <udp>"), "{both}");
    let neither = error(&file("<cluster><transport><sctp/></transport></cluster>"));
    assert!(neither.contains("<cluster/transport>: found no known transport"), "{neither}");
    for discovery in ["<multicast/>", "<broadcast/>"] {
        let text = cluster_file("").replace("<static>", &format!("{discovery}<static>"));
        assert!(error(&text).contains("not supported by this version; list the nodes in <discovery><static>"), "{discovery}");
        assert!(check_text(&file(&nest("cluster/discovery", discovery))).settings.is_some(), "{discovery}, disabled");
    }
    let tls = error(&cluster_file("").replace("</tcp>", "<tls/></tcp>"));
    assert!(tls.contains("<cluster/transport/tcp/tls>: not supported yet by this version"), "{tls}");
}

#[test]
fn nodes_are_found_by_dns_as_the_extension_of_hivemq_does() {
    let file = |inside: &str, extra: &str| {
        let text = cluster_file(extra);
        let (start, end) = (text.find("<static>").unwrap(), text.find("</static>").unwrap() + "</static>".len());
        format!("{}<extension>{inside}</extension>{}", &text[..start], &text[end..])
    };
    let env = |name: &str| match name {
        "HIVEMQ_DNS_DISCOVERY_ADDRESS" => Some("hivemq.example".to_owned()),
        "HIVEMQ_DNS_DISCOVERY_INTERVAL" => Some("31".to_owned()),
        _ => None,
    };
    let cluster = |text: &str| check_with(text, &env).settings.unwrap().cluster;
    let of_env = cluster(&file("", "<expected-nodes>3</expected-nodes>"));
    let dns = of_env.dns.clone().unwrap();
    assert_eq!((dns.address.as_str(), dns.resolution_timeout_s, dns.reload_interval_s), ("hivemq.example", 30, 31));
    assert_eq!((of_env.founders(), of_env.static_nodes.len()), (Some(3), 0));
    let written = cluster(&file(
        "<address>a.example</address><reload-interval>5</reload-interval><resolution-timeout>2</resolution-timeout>",
        "<expected-nodes>1</expected-nodes>",
    ));
    let dns = written.dns.unwrap();
    assert_eq!((dns.address.as_str(), dns.resolution_timeout_s, dns.reload_interval_s), ("a.example", 2, 5));
    // Who does not know how many are to come founds nothing.
    let silent = check_with(&file("", ""), &env);
    assert!(silent.warnings[0].message.contains("add <expected-nodes>3</expected-nodes>"), "{:?}", silent.warnings);
    assert_eq!(silent.settings.unwrap().cluster.founders(), None);
    assert_eq!(cluster(&cluster_file("<expected-nodes>0</expected-nodes>")).founders(), None);
    assert_eq!(cluster(&cluster_file("")).founders(), Some(2));
    for (expected, warns) in [(1, false), (2, false), (4, true)] {
        let found = check_with(&cluster_file(&format!("<expected-nodes>{expected}</expected-nodes>")), &env);
        let told = found.warnings.iter().any(|warning| warning.message.contains("discovery/static lists"));
        assert_eq!(told, warns, "{expected}: {:?}", found.warnings);
    }
    assert!(error(&file("", "")).contains("found no name to resolve; allowed: a DNS name"));
    assert!(error(&file("<address>a b</address>", "")).contains("without white space"));
    assert!(error(&file("<address>a:7000</address>", "")).contains("found \"a:7000\"; allowed: a DNS name"));
    let loud = |name: &str| (name == "HIVEMQ_DNS_DISCOVERY_TIMEOUT").then(|| "soon".to_owned());
    let errors = check_with(&file("<address>a</address>", ""), &loud).errors;
    assert!(errors[0].message.contains("found \"soon\" in the environment variable HIVEMQ_DNS_DISCOVERY_TIMEOUT"), "{errors:?}");
}

#[test]
fn a_node_that_is_not_listed_or_not_reachable_is_warned_of() {
    let warnings = |from: &str, to: &str| check_text(&cluster_file("").replace(from, to)).warnings;
    let elsewhere = warnings("<port>7001</port>", "<port>7009</port>");
    assert!(elsewhere[0].message.contains("this node, 127.0.0.1:7001, is not listed"), "{elsewhere:?}");
    // Which node a name is cannot be told.
    assert!(warnings("<host>127.0.0.1</host>", "<host>one.example</host>").is_empty());
    let everywhere =
        warnings("<bind-address>127.0.0.1</bind-address><bind-port>", "<bind-address>0.0.0.0</bind-address><bind-port>");
    assert!(everywhere[0].message.contains("to reach this one at n1:7001, by its node name"), "{everywhere:?}");
    let twice = warnings("<host>fd00::2</host><port>7002</port>", "<host>127.0.0.1</host><port>7001</port>");
    assert!(twice[0].message.contains("found 127.0.0.1:7001 a second time"), "{twice:?}");
}

/// connected, client, server, session-taken-over, unspecified
fn triggers(inside: &str) -> [bool; 5] {
    let l = settings(&nest("mqtt-addons/client-lifecycle-topic", inside)).addons.lifecycle;
    [l.connected, l.client, l.server, l.session_taken_over, l.unspecified]
}

#[test]
fn lifecycle_triggers_follow_presence() {
    let cases = [
        ("", [true; 5]),
        ("<triggers><client-connected/></triggers>", [true, false, false, false, false]),
        ("<triggers><client-disconnected/></triggers>", [false, true, true, true, true]),
        ("<triggers><client-connected></client-connected><client-disconnected></client-disconnected></triggers>", [true; 5]),
        ("<triggers><client-disconnected><server/></client-disconnected></triggers>", [false, false, true, false, false]),
        (
            "<triggers><client-disconnected><client/><session-taken-over/><unspecified/></client-disconnected></triggers>",
            [false, true, false, true, true],
        ),
    ];
    for (inside, expected) in cases {
        assert_eq!(triggers(inside), expected, "{inside}");
    }
}

#[test]
fn lifecycle_mistakes_count_even_when_disabled() {
    let cases = [
        ("<triggers/>", "triggers>: found no trigger; allowed: <client-connected/>, <client-disconnected/> or both"),
        ("<triggers> \n </triggers>", "triggers>: found no trigger"),
        ("<triggers><other/></triggers>", "triggers>: found no trigger"),
        (
            "<triggers><client-disconnected><other/></client-disconnected></triggers>",
            "client-disconnected>: found no known initiator",
        ),
        (
            "<triggers><client-connected>false</client-connected></triggers>",
            "client-connected>: found \"false\"; allowed: nothing inside",
        ),
        ("<identifier/>", "identifier>: found neither <client-id/> nor <username/>; allowed: exactly one of them"),
        ("<identifier><client-id/><username/></identifier>", "identifier>: found both <client-id/> and <username/>"),
        ("<identifier>username</identifier>", "identifier>: found text between its elements"),
    ];
    for enabled in ["", "<enabled>false</enabled>", "<enabled>true</enabled>"] {
        for (inside, message) in cases {
            let text = file(&nest("mqtt-addons/client-lifecycle-topic", &format!("{enabled}{inside}")));
            let errors = check_text(&text).errors;
            assert!(errors.iter().any(|e| e.to_string().contains(message)), "{inside}: {errors:?}");
        }
    }
}

#[test]
fn messages_are_prevented_by_rules_of_each_way() {
    let rule = |topic_filter: &str, client_id: Option<&str>| PreventedRule {
        topic_filter: topic_filter.to_owned(),
        client_id: client_id.map(str::to_owned),
    };
    let prevented = |inside: &str| settings(&nest("restrictions/prevented-messages", inside)).restrictions.prevented;
    let found = prevented(
        "<inbound><topic-filter>debug/#</topic-filter></inbound>\
         <outbound><topic-filter>a b/+</topic-filter><client-id>c 1</client-id></outbound>\
         <inbound><topic-filter>#</topic-filter><client-id>mute</client-id></inbound>",
    );
    assert_eq!(found.inbound, [rule("debug/#", None), rule("#", Some("mute"))]);
    assert_eq!(found.outbound, [rule("a b/+", Some("c 1"))]);
    assert_eq!(prevented(""), PreventedSettings::default());
    let many = "<outbound><topic-filter>a</topic-filter></outbound>".repeat(101);
    let cases = [
        ("<inbound/>", "inbound>: found no <topic-filter>; allowed: one"),
        ("<inbound><client-id>c</client-id></inbound>", "inbound>: found no <topic-filter>"),
        ("<outbound><topic-filter>a/#/b</topic-filter></outbound>", "topic-filter>: found \"a/#/b\"; allowed: a topic filter"),
        ("<inbound><topic-filter>$share/g/a</topic-filter></inbound>", "topic-filter>: found \"$share/g/a\""),
        (many.as_str(), "prevented-messages>: found 101 times <outbound>; allowed: 100"),
    ];
    for (inside, message) in cases {
        let errors = check_text(&file(&nest("restrictions/prevented-messages", inside))).errors;
        assert!(errors.iter().any(|e| e.to_string().contains(message)), "{inside}: {errors:?}");
    }
}

#[test]
fn http_listeners_come_from_all_their_sections_once_enabled() {
    let apis = "<http/><rest-api><enabled>true</enabled><listeners><http/></listeners></rest-api>\
                <health-api><enabled>true</enabled><listeners><http><bind-address>0.0.0.0</bind-address></http></listeners></health-api>\
                <control-center><listeners><http><port>8081</port><name>cc</name></http></listeners></control-center>";
    let outcome = check_text(&file(apis));
    let http = outcome.settings.unwrap().http;
    let seen: Vec<_> = http.iter().map(|h| (h.kind, h.name.as_str(), h.bind_address.to_string(), h.port)).collect();
    let local = || "127.0.0.1".to_owned();
    assert_eq!(
        seen,
        [
            (HttpListenerKind::Http, "http-listener-8080", local(), 8080),
            (HttpListenerKind::RestApi, "http-listener-8888", local(), 8888),
            (HttpListenerKind::HealthApi, "http-listener-8889", "0.0.0.0".to_owned(), 8889),
            (HttpListenerKind::ControlCenter, "cc", local(), 8081),
        ]
    );
    let off = "<rest-api><listeners><http/><https/></listeners></rest-api>\
               <control-center><enabled>false</enabled><listeners><http/><https/></listeners></control-center>";
    let off = check_text(&file(off));
    assert!(off.settings.is_some_and(|s| s.http.is_empty()) && off.warnings.is_empty(), "{:?}", off.warnings);
    let https = error(&file("<rest-api><enabled>true</enabled><listeners><https/></listeners></rest-api>"));
    assert!(https.contains("<rest-api/listeners/https>: not supported yet"), "{https}");
}

#[test]
fn what_has_no_effect_says_so() {
    let cases = [
        ("security/rest-api-audit-log/enabled", "true", "security/rest-api-audit-log", Level::Warning),
        ("security/control-center-audit-log/enabled", "true", "security/control-center-audit-log", Level::Warning),
        ("overload-protection/enabled", "false", "overload-protection/enabled", Level::Warning),
        ("anonymous-usage-statistics/enabled", "true", "anonymous-usage-statistics", Level::Info),
        ("client-event-history/lifetime", "5", "client-event-history", Level::Info),
        ("data-hub/scripting/enabled", "true", "data-hub", Level::Info),
        ("internal/option/key", "x", "internal", Level::Info),
    ];
    for (path, content, about, level) in cases {
        let warnings = check_text(&file(&nest(path, content))).warnings;
        assert_eq!(warnings.len(), 1, "{path}: {warnings:?}");
        assert_eq!((warnings[0].path.as_str(), warnings[0].level, warnings[0].line), (about, level, 3), "{path}");
        assert!(warnings[0].message.contains("effect"), "{}", warnings[0]);
    }
    let cluster = check_text(&cluster_file(
        "<replication><replica-count>2</replica-count></replication><failure-detection><heartbeat><interval>4000</interval></heartbeat>\
         </failure-detection><overload-protection><enabled>false</enabled></overload-protection>",
    ));
    let seen: Vec<_> = cluster.warnings.iter().map(|w| (w.path.as_str(), w.level)).collect();
    assert!(seen.contains(&("cluster/replication/replica-count", Level::Info)), "{seen:?}");
    assert!(seen.contains(&("cluster/failure-detection", Level::Warning)), "{seen:?}");
    assert!(seen.contains(&("cluster/overload-protection/enabled", Level::Warning)) && seen.len() == 3, "{seen:?}");

    let listener = |inside: &str| {
        let local = "<port>1</port><bind-address>127.0.0.1</bind-address>";
        check_text(&listeners(&format!("<websocket-listener>{local}{inside}</websocket-listener>"))).warnings.len()
    };
    assert_eq!(listener("<proxy-protocol>false</proxy-protocol><allow-extensions>false</allow-extensions>"), 0);
    assert_eq!(listener("<proxy-protocol>true</proxy-protocol><allow-extensions>true</allow-extensions>"), 1);
    assert_eq!(check_text(&file(&nest("overload-protection/enabled", "true"))).warnings.len(), 0);
}

#[test]
fn a_listener_is_protected_from_connects_unless_it_is_told_not_to_be() {
    let cases = [
        ("", Some((500.0, 1000.0))),
        ("<connect-overload-protection/>", Some((500.0, 1000.0))),
        ("<connect-overload-protection><connect-rate>0.2</connect-rate></connect-overload-protection>", Some((0.2, 1.0))),
        ("<connect-overload-protection><connect-rate>70</connect-rate></connect-overload-protection>", Some((70.0, 140.0))),
        (
            "<connect-overload-protection><connect-burst-size>9</connect-burst-size></connect-overload-protection>",
            Some((500.0, 9.0)),
        ),
        (
            "<connect-overload-protection><enabled>false</enabled><connect-rate>7</connect-rate></connect-overload-protection>",
            None,
        ),
    ];
    for kind in ["tcp-listener", "websocket-listener"] {
        for (element, expected) in cases {
            let local = "<port>1</port><bind-address>127.0.0.1</bind-address>";
            let outcome = check_text(&listeners(&format!("<{kind}>{local}{element}</{kind}>")));
            assert!(outcome.warnings.is_empty(), "{element}: {:?}", outcome.warnings);
            let settings = outcome.settings.unwrap();
            let found = settings.listeners[0].connect_overload.map(|overload| (overload.rate, overload.burst));
            assert_eq!(found, expected, "{kind} {element}");
            let shown = match expected {
                Some((rate, burst)) => format!(", {rate} connects/s (burst {burst})\n"),
                None => ", any number of connects/s\n".to_owned(),
            };
            assert!(render(&settings).contains(&shown), "{}", render(&settings));
        }
    }
}

/// A file with a TLS listener; its block begins in line 5.
fn tls_file(block: &str) -> String {
    format!(
        "<hivemq>\n<listeners>\n<tls-tcp-listener><port>8883</port><bind-address>127.0.0.1</bind-address>\n<proxy-protocol>true\
         </proxy-protocol><tls>\n{block}</tls></tls-tcp-listener></listeners></hivemq>"
    )
}

#[test]
fn a_tls_block_arrives_in_the_settings() {
    let directory = tempfile::TempDir::new().unwrap();
    let ca = Ca::new("ca");
    let keystore = put(directory.path(), "server store.p12", ca.server().pkcs12("key password", &[]));
    let truststore = put(directory.path(), "ca.pem", ca.certificate.pem());
    let crl = put(directory.path(), "crl.pem", ca.revocation_list(&[7]));
    let xml = tls_file(&format!(
        "<keystore><path>{}</path><password>key password</password><private-key-password>key password</private-key-password></keystore>
         <truststore><path>{}</path><crl>{}</crl></truststore><client-authentication-mode>REQUIRED</client-authentication-mode>
         <protocols><protocol>TLSv1.3</protocol></protocols>
         <cipher-suites><cipher-suite>TLS_AES_128_GCM_SHA256</cipher-suite></cipher-suites>
         <prefer-server-cipher-suites>true</prefer-server-cipher-suites><handshake-timeout>500</handshake-timeout>",
        keystore.display(),
        truststore.display(),
        crl.display()
    ));
    let outcome = check_text(&xml);
    let settings = outcome.settings.unwrap_or_else(|| panic!("{:?}", outcome.errors));
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let listener = &settings.listeners[0];
    assert_eq!((listener.name.as_str(), listener.proxy_protocol), ("tls-tcp-listener-8883", true));
    let tls = listener.tls.as_deref().unwrap();
    assert_eq!((&tls.keystore.path, tls.keystore.password.expose()), (&keystore, "key password"));
    assert_eq!((&tls.truststore.as_ref().unwrap().path, &tls.crls), (&truststore, &vec![crl]));
    assert_eq!(tls.client_authentication, ClientAuthentication::Required);
    assert_eq!((tls.tls_1_2, tls.tls_1_3, tls.prefer_server_cipher_suites, tls.handshake_timeout_ms), (false, true, true, 500));
    assert_eq!(tls.cipher_suites.len(), 1);
    let rendered = render(&settings);
    assert!(
        rendered.contains("MQTT over TCP and TLS on 127.0.0.1:8883, client certificate required, PROXY protocol"),
        "{rendered}"
    );
    assert!(!rendered.contains("key password"), "{rendered}");

    // With certificates required, nobody is let in without credentials.
    assert!(check_text(&xml.replace("127.0.0.1", "0.0.0.0")).settings.is_some());
    let optional = xml.replace("127.0.0.1", "0.0.0.0").replace("REQUIRED", "OPTIONAL");
    assert!(error(&optional).contains("allow-anonymous"));
}

#[test]
fn a_tls_block_that_cannot_be_served_is_refused_with_line_and_element() {
    let directory = tempfile::TempDir::new().unwrap();
    let ca = Ca::new("ca");
    let store = put(directory.path(), "s.p12", ca.server().pkcs12("right", &[]));
    let store = store.display();
    let jks = put(directory.path(), "s.jks", b"\xFE\xED\xFE\xED");
    let good = format!("<keystore><path>{store}</path><password>right</password></keystore>");
    let cases = [
        (String::new(), "c.xml:4: <listeners/tls-tcp-listener/tls/keystore>: the element <path> is missing"),
        (
            format!("<keystore>\n<path>{store}</path>\n<password>wrong</password></keystore>"),
            "c.xml:7: <listeners/tls-tcp-listener/tls/keystore/password>:",
        ),
        (format!("<keystore>\n<path>{store}</path></keystore>"), "c.xml:5: <listeners/tls-tcp-listener/tls/keystore/password>:"),
        (
            "<keystore>\n<path>absent.p12</path></keystore>".to_owned(),
            "c.xml:6: <listeners/tls-tcp-listener/tls/keystore/path>: absent.p12: cannot be read",
        ),
        (
            format!("<keystore>\n<path>{}</path></keystore>", jks.display()),
            "c.xml:6: <listeners/tls-tcp-listener/tls/keystore/path>:",
        ),
        (
            format!("{good}\n<client-authentication-mode>OPTIONAL</client-authentication-mode>"),
            "c.xml:4: <listeners/tls-tcp-listener/tls/truststore>: without",
        ),
        (
            format!("{good}\n<truststore>\n<path>{store}</path><password>wrong</password></truststore>"),
            "c.xml:7: <listeners/tls-tcp-listener/tls/truststore/password>:",
        ),
        (
            format!("{good}<truststore><path>{store}</path><password>right</password>\n<crl>absent.crl</crl></truststore>"),
            "c.xml:6: <listeners/tls-tcp-listener/tls/truststore/crl>: absent.crl",
        ),
        (
            format!("{good}<protocols>\n<protocol>TLSv1.1</protocol></protocols>"),
            "c.xml:6: <listeners/tls-tcp-listener/tls/protocols/protocol>: found \"TLSv1.1\"; allowed: TLSv1.2 or TLSv1.3",
        ),
        (
            format!("{good}<cipher-suites>\n<cipher-suite>TLS_RSA_WITH_AES_128_CBC_SHA</cipher-suite></cipher-suites>"),
            "c.xml:6: <listeners/tls-tcp-listener/tls/cipher-suites/cipher-suite>: found \"TLS_RSA_WITH_AES_128_CBC_SHA\"; allowed: TLS_AES",
        ),
        (
            format!("{good}<client-authentication-mode>SOMETIMES</client-authentication-mode>"),
            "c.xml:5: <listeners/tls-tcp-listener/tls/client-authentication-mode>: found",
        ),
        (
            format!("{good}<handshake-timeout>-1</handshake-timeout>"),
            "c.xml:5: <listeners/tls-tcp-listener/tls/handshake-timeout>: found",
        ),
    ];
    for (block, message) in cases {
        let found = error(&tls_file(&block));
        assert!(found.starts_with(message), "{found}");
        assert!(!found.contains("right") && !found.contains("wrong"), "{found}");
    }
    // A relative path starts where the configuration is.
    let config =
        put(directory.path(), "config.xml", tls_file("<keystore><path>s.p12</path><password>right</password></keystore>"));
    assert!(crate::config::load(&config, |_| None).is_ok());
}

/// The folder of the extension beside a configuration, with a file of credentials.
fn extension(home: &Path, credentials: &str) -> PathBuf {
    let folder = home.join("extensions").join(crate::config::rbac::FOLDER);
    std::fs::create_dir_all(folder.join("conf")).unwrap();
    std::fs::write(folder.join("conf/credentials.xml"), credentials).unwrap();
    folder
}

const CREDENTIALS: &str = "<file-rbac><users><user><name>u</name><password>c2FsdA==:1:aGFzaA==</password><roles><id>r</id></roles>\
    </user></users><roles><role><id>r</id><permissions><permission><topic>#</topic></permission></permissions></role></roles></file-rbac>";

fn load_in(home: &Path, xml: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<crate::config::Loaded, Vec<String>> {
    let file = home.join("conf/config.xml");
    std::fs::create_dir_all(home.join("conf")).unwrap();
    std::fs::write(&file, xml).unwrap();
    crate::config::load(&file, env).map_err(|errors| errors.errors.iter().map(ToString::to_string).collect())
}

#[test]
fn file_rbac_is_on_where_its_folder_lies_or_its_element_stands() {
    let home = tempfile::tempdir().unwrap();
    let element = |inside: &str| file(&nest("security/authentication/file-rbac", inside));
    let is_on = |xml: &str, env: &dyn Fn(&str) -> Option<String>| {
        let loaded = load_in(home.path(), xml, env).unwrap();
        loaded.settings.security.authentication.file_rbac.map(|rbac| rbac.folder)
    };
    assert_eq!(is_on(&file(""), &|_| None), None);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = extension(elsewhere.path(), CREDENTIALS);
    let variable = elsewhere.path().join("extensions").display().to_string();
    let env = |name: &str| (name == "HIVEMQ_EXTENSION_FOLDER").then(|| variable.clone());
    assert_eq!(is_on(&file(""), &env), Some(other.clone()));
    assert_eq!(is_on(&element(&format!("<folder>{}</folder>", other.display())), &|_| None), Some(other));
    let folder = extension(home.path(), CREDENTIALS);
    let default = home.path().join("conf/../extensions").join(crate::config::rbac::FOLDER);
    assert_eq!(is_on(&file(""), &|_| None), Some(default.clone()));
    assert_eq!(is_on(&element("<enabled>false</enabled>"), &|_| None), None);
    std::fs::write(folder.join("DISABLED"), "").unwrap();
    assert_eq!(is_on(&file(""), &|_| None), None);
    assert_eq!(is_on(&element(""), &|_| None), Some(default));
}

#[test]
fn credentials_of_no_use_are_told_and_leave_the_start_alone() {
    let home = tempfile::tempdir().unwrap();
    extension(home.path(), "<file-rbac>\n<users/></file-rbac>");
    let loaded = load_in(home.path(), &file(""), &|_| None).unwrap();
    let told: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].contains("credentials.xml:1: there is no role") || told[1].contains("credentials.xml:1: there is no role"),
        "{told:?}"
    );
    assert!(told.iter().all(|line| line.contains("every client is refused")), "{told:?}");
}

#[test]
fn an_authenticator_makes_a_listener_that_others_reach_a_safe_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = extension(home.path(), CREDENTIALS);
    let open = |security: &str| {
        format!(
            "<hivemq>\n<listeners><tcp-listener><port>1883</port><bind-address>0.0.0.0</bind-address></tcp-listener></listeners>\n\
             <security>{security}</security></hivemq>"
        )
    };
    let anonymous = nest("allow-anonymous/enabled", "true");
    let off = nest("authentication/file-rbac/enabled", "false");
    let warnings = |xml: &str| load_in(home.path(), xml, &|_| None).map(|loaded| loaded.warnings.len());
    assert_eq!(warnings(&open("")), Ok(0));
    assert_eq!(warnings(&open(&anonymous)), Ok(0), "nobody comes past it");
    assert!(warnings(&open(&off)).unwrap_err()[0].contains("no authenticator"));
    assert_eq!(warnings(&open(&(off + &anonymous))), Ok(1));
    let names = "<extension-configuration><listener-names><listener-name>tcp-listener-1883</listener-name></listener-names>\
        </extension-configuration>";
    std::fs::write(folder.join("conf/config.xml"), names).unwrap();
    assert_eq!(warnings(&open("")), Ok(0), "who is not judged is refused");
    assert_eq!(warnings(&open(&anonymous)), Ok(1), "who is not judged is let in");
    std::fs::write(folder.join("conf/config.xml"), names.replace("1883", "1884")).unwrap();
    assert_eq!(warnings(&open("")), Ok(1), "there is no such listener");
}

#[test]
fn certificates_stand_for_users_where_the_file_says_so() {
    let outcome = |inside: &str| check_text(&file(&nest("security/authentication/client-certificate", inside)));
    let name = |inside: &str| outcome(inside).settings.unwrap().security.authentication.client_certificate;
    assert_eq!(name(""), Some(CertificateName::CommonName));
    assert_eq!(name("<user-name>COMMON_NAME</user-name>"), Some(CertificateName::CommonName));
    assert_eq!(name("<user-name>SUBJECT_ALTERNATIVE_NAME</user-name>"), Some(CertificateName::SubjectAlternativeName));
    assert_eq!(name("<enabled>false</enabled>"), None);
    assert_eq!(settings("").security.authentication.client_certificate, None);
    let warnings: Vec<_> = outcome("").warnings.iter().map(ToString::to_string).collect();
    assert!(warnings[0].contains("no listener asks for certificates"), "{warnings:?}");
    assert_eq!(outcome("<user-name>SERIAL</user-name>").errors.len(), 1);
    let rendered = render(&settings(&nest("security/authentication/client-certificate", "")));
    assert!(rendered.contains("authentication/client-certificate/user-name"), "{rendered}");
}

/// `<jwt>` with the fixtures of `auth::jwt` as files.
fn jwt(inside: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures");
    file(&nest("security/authentication/jwt", &inside.replace("FIXTURES", &folder.display().to_string())))
}

#[test]
fn tokens_are_checked_as_the_file_says() {
    let read = |inside: &str| check_text(&jwt(inside)).settings.map(|settings| settings.security.authentication.jwt.unwrap());
    let default = read("<jwks-file>FIXTURES/jwks.json</jwks-file>").unwrap();
    assert_eq!((default.token_from, default.method.as_deref()), (TokenFrom::Password, None));
    assert_eq!((default.reload_interval_s, default.leeway_s, default.expiry_required), (60, 10, true));
    assert_eq!(default.algorithms, Algorithm::ALL);
    assert!(default.issuers.is_empty() && default.audiences.is_empty() && default.verify.is_empty());
    assert_eq!([&*default.user_name_claim, &*default.permissions_claim, &*default.roles_claim], ["sub", "permissions", "roles"]);
    assert_eq!(default.without_permissions, WithoutPermissions::Nothing);
    let all = "<enabled>true</enabled><token-from>USER_NAME</token-from><authentication-method>JWT</authentication-method>\
        <secret>a secret of the tests, never to be seen</secret><secret-base64>false</secret-base64>\
        <public-key-file>FIXTURES/rsa.pem</public-key-file><public-key-file>FIXTURES/p256.pem</public-key-file>\
        <jwks-file>FIXTURES/jwks.json</jwks-file><keys-reload-interval>5</keys-reload-interval>\
        <algorithm>RS256</algorithm><algorithm>ES256</algorithm><leeway>0</leeway><expiry-required>false</expiry-required>\
        <issuer>i</issuer><issuer>j</issuer><audience>a</audience><user-name-claim>name</user-name-claim>\
        <verify-claim><claim>device</claim><value>${{clientid}}</value></verify-claim>\
        <verify-claim><claim>tier</claim><value>gold</value></verify-claim>\
        <permissions-claim>acl</permissions-claim><without-permissions>ALL</without-permissions>";
    let outcome = check_text(&jwt(all));
    let settings = outcome.settings.unwrap();
    let read = settings.security.authentication.jwt.as_ref().unwrap();
    assert_eq!((read.token_from, read.method.as_deref()), (TokenFrom::UserName, Some("JWT")));
    assert_eq!(read.sources.files().len(), 3);
    assert_eq!((read.reload_interval_s, read.leeway_s, read.expiry_required), (5, 0, false));
    assert_eq!(read.algorithms, [Algorithm::Rs256, Algorithm::Es256]);
    assert_eq!((read.issuers.len(), read.audiences.len(), read.verify.len()), (2, 1, 2));
    assert_eq!((&*read.user_name_claim, &*read.permissions_claim), ("name", "acl"));
    assert_eq!(read.without_permissions, WithoutPermissions::All);
    let shown = format!("{}{settings:?}{:?}", render(&settings), outcome.warnings);
    assert!(shown.contains("authentication/jwt/token-from") && shown.contains("RS256, ES256"), "{shown}");
    assert!(!shown.contains("never to be seen"), "{shown}");
    let off = check_text(&jwt("<enabled>false</enabled><jwks-file>nowhere</jwks-file>")).settings.unwrap();
    assert!(off.security.authentication.is_off());
}

#[test]
fn what_is_wrong_with_tokens_keys_is_told_at_its_line_before_the_start() {
    let keys = "<public-key-file>FIXTURES/rsa.pem</public-key-file>";
    let table = [
        (String::new(), "jwt>: there is no key; add <secret>"),
        ("<jwks-file>no.json</jwks-file>".to_owned(), "jwt/jwks-file>: no.json cannot be read: No such file"),
        ("<secret-file>hunter2</secret-file>".to_owned(), "jwt/secret-file>: names no file (it is not shown"),
        ("<secret></secret>".to_owned(), "jwt/secret>: is empty, or the variable in it is; allowed: a secret"),
        (format!("{keys}<secret/>"), "jwt/secret>: is empty, or the variable in it is; allowed: a secret"),
        (
            format!("{keys}<secret-base64>hunter2</secret-base64>"),
            "jwt/secret-base64>: found a value that is not shown, since a secret may have got here; allowed: true or false",
        ),
        (format!("{keys}<public-key-file>FIXTURES/rsa-weak.pem</public-key-file>"), "RSA key of 1024 bits; allowed: 2048"),
        ("<secret>hunter2</secret><secret-base64>true</secret-base64>".to_owned(), "jwt/secret>: is not base64"),
        ("<secret>-----BEGIN PUBLIC KEY-----</secret>".to_owned(), "jwt/secret>: is PEM, which is no secret"),
        (format!("{keys}<algorithm>RS257</algorithm>"), "jwt/algorithm>: found \"RS257\"; allowed: HS256 or HS384"),
        (format!("{keys}<algorithm>none</algorithm>"), "jwt/algorithm>: found \"none\"; allowed: "),
        (format!("{keys}<algorithm>HS256</algorithm>"), "no key is for this algorithm; allowed with these keys: RS256 or RS384"),
        (format!("{keys}<authentication-method>SCRAM-SHA-256</authentication-method>"), "allowed: a name that is not SCRAM's"),
        (format!("{keys}<verify-claim><claim>sub</claim></verify-claim>"), "<claim> or <value> is missing; add"),
        (
            format!("{keys}<verify-claim><claim>sub</claim><value>${{{{topic}}}}</value></verify-claim>"),
            "found placeholder \"topic\"; allowed: ${{clientid}} and ${{username}}",
        ),
        (format!("{keys}<without-permissions>FILE_RBAC</without-permissions>"), "File RBAC is off; allowed: NONE or ALL"),
    ];
    for (inside, told) in table {
        let error = error(&jwt(&inside));
        assert!(error.starts_with("c.xml:3: <security/authentication/jwt") && error.contains(told), "{told}: {error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let warnings = |inside: &str| -> Vec<String> { check_text(&jwt(inside)).warnings.iter().map(ToString::to_string).collect() };
    let short = warnings("<secret>hunter2</secret>");
    assert!(short.len() == 1 && short[0].contains("jwt/secret>: has 7 bytes") && !short[0].contains("hunter2"), "{short:?}");
    let roles = warnings(&format!("{keys}<roles-claim>groups</roles-claim>"));
    assert!(roles.len() == 1 && roles[0].contains("has no effect: File RBAC"), "{roles:?}");
}

#[test]
fn tokens_alone_make_a_listener_that_others_reach_a_safe_one() {
    let open = |more: &str| jwt(&format!("<jwks-file>FIXTURES/jwks.json</jwks-file>{more}")).replace("127.0.0.1", "0.0.0.0");
    let outcome = check_text(&open(""));
    assert!(outcome.errors.is_empty() && outcome.warnings.is_empty(), "{:?} {:?}", outcome.errors, outcome.warnings);
    let anonymous = open("").replace("<security>", &format!("<security>{}", nest("allow-anonymous/enabled", "true")));
    assert!(check_text(&anonymous).warnings.is_empty(), "nobody comes past it");
    assert!(!check_text(&open("<enabled>false</enabled>")).errors.is_empty());
}
