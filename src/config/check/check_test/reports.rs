//! How errors, warnings and notices are told.

use super::*;
use crate::config::diagnostic::Level;

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
