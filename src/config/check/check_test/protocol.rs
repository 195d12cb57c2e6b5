//! Keep Alive, response information, server reference, and messages that rules prevent.

use super::*;
use crate::config::settings::{KeepAlivePolicy, KeepAliveSettings, PreventedRule, PreventedSettings, RefuseConnections};

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
