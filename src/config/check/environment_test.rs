//! Each variable of HiveMQ's images: what it does, what it does not, and what is said of it.

use std::net::IpAddr;

use crate::config::diagnostic::Level;
use crate::config::settings::HttpListenerKind;
use crate::config::{Loaded, from_bytes};

fn file(extra: &str) -> String {
    format!(
        "<hivemq>\n<listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>\n{extra}\n</hivemq>"
    )
}

fn cluster(transport: &str) -> String {
    file(&format!(
        "<cluster><enabled>true</enabled><node-name>n1</node-name><secret>0123456789abcdef</secret>{transport}\
         <expected-nodes>3</expected-nodes><discovery><extension><address>nodes</address></extension></discovery></cluster>"
    ))
}

/// What comes of a file with these variables: the settings, or the errors.
fn load(text: &str, variables: &[(&str, &str)]) -> Result<Loaded, String> {
    let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
    from_bytes(text.as_bytes(), "c.xml", &env).map_err(|errors| errors.to_string())
}

fn said(loaded: &Loaded) -> Vec<String> {
    loaded.warnings.iter().map(|found| format!("{}: {found}", found.level)).collect()
}

#[test]
fn port_and_address_of_the_cluster_are_taken_where_the_file_has_none() {
    let at = |transport: &str, variables: &[(&str, &str)]| {
        let loaded = load(&cluster(transport), variables).unwrap();
        (loaded.settings.cluster.bind_address.to_string(), loaded.settings.cluster.bind_port, said(&loaded))
    };
    let both = [("HIVEMQ_CLUSTER_PORT", "7800"), ("HIVEMQ_BIND_ADDRESS", "127.0.0.7")];
    let (address, port, told) = at("", &both);
    assert_eq!((address.as_str(), port), ("127.0.0.7", 7800));
    assert!(told.is_empty(), "{told:?}");
    let (address, port, _) = at("", &[]);
    assert_eq!((address.as_str(), port), ("0.0.0.0", 7000));
    let (address, port, _) = at("", &[("HIVEMQ_CLUSTER_PORT", " "), ("HIVEMQ_BIND_ADDRESS", "")]);
    assert_eq!((address.as_str(), port), ("0.0.0.0", 7000), "what is empty is not set");
    let (address, _, _) = at("", &[("HIVEMQ_BIND_ADDRESS", "[::1]")]);
    assert_eq!(address.parse::<IpAddr>().unwrap(), "::1".parse::<IpAddr>().unwrap());

    let written = "<transport><tcp><bind-address>127.0.0.1</bind-address><bind-port>7001</bind-port></tcp></transport>";
    let (address, port, told) = at(written, &both);
    assert_eq!((address.as_str(), port), ("127.0.0.1", 7001));
    assert!(told.iter().any(|line| {
        line.contains("<cluster/transport/tcp/bind-port>: goes before the environment variable HIVEMQ_CLUSTER_PORT")
    }));
    assert!(told.iter().any(|line| {
        line.contains("<cluster/transport/tcp/bind-address>: goes before the environment variable HIVEMQ_BIND_ADDRESS")
    }));
    let (_, _, told) = at(written, &[("HIVEMQ_CLUSTER_PORT", "7001"), ("HIVEMQ_BIND_ADDRESS", "127.0.0.1")]);
    assert!(told.is_empty(), "nothing is to be said where both say the same: {told:?}");
}

#[test]
fn wrong_values_are_errors_that_say_what_is_allowed() {
    let anonymous = "<security><allow-anonymous><enabled>true</enabled></allow-anonymous></security>";
    let cases = [
        (cluster(""), "HIVEMQ_CLUSTER_PORT", "0", "found \"0\"; allowed: 1 to 65535; correct"),
        (cluster(""), "HIVEMQ_CLUSTER_PORT", "70000", "found \"70000\"; allowed: 1 to 65535; correct"),
        (
            cluster(""),
            "HIVEMQ_CLUSTER_PORT",
            "tcp://10.0.0.9:7000",
            "a Service named hivemq-cluster: set enableServiceLinks: false",
        ),
        (cluster(""), "HIVEMQ_BIND_ADDRESS", "eth0", "found \"eth0\"; allowed: an IP address of this machine"),
        (cluster(""), "HIVEMQ_CLUSTER_TRANSPORT_TYPE", "SCTP", "found \"SCTP\"; allowed: TCP (UDP is treated as TCP)"),
        (file(anonymous), "HIVEMQ_ALLOW_ALL_CLIENTS", "yes", "found \"yes\"; allowed: true or false"),
        (file(""), "HIVEMQ_REST_API_ENABLED", "1", "found \"1\"; allowed: true or false"),
    ];
    for (text, name, value, expected) in cases {
        let error = load(&text, &[(name, value)]).unwrap_err();
        assert!(error.starts_with(&format!("c.xml: environment variable {name}: ")), "{error}");
        assert!(error.contains(expected) && error.lines().count() == 1, "{name}={value}: {error}");
    }
    // Whatever they say, a node alone has no use for them.
    let alone = load(&file(""), &[("HIVEMQ_CLUSTER_PORT", "tcp://10.0.0.9:7000"), ("HIVEMQ_BIND_ADDRESS", "eth0")]).unwrap();
    assert!(said(&alone).is_empty());
}

#[test]
fn udp_is_treated_as_tcp_and_told() {
    for (value, words) in [("TCP", 0), ("tcp", 0), ("UDP", 1)] {
        let told = said(&load(&cluster(""), &[("HIVEMQ_CLUSTER_TRANSPORT_TYPE", value)]).unwrap());
        assert_eq!(told.iter().filter(|line| line.contains("UDP is treated as TCP")).count(), words, "{value}: {told:?}");
    }
}

#[test]
fn clients_without_credentials_come_in_only_where_neither_file_nor_variable_says_no() {
    let anonymous = |word: &str| format!("<security><allow-anonymous><enabled>{word}</enabled></allow-anonymous></security>");
    let (yes, no) = (anonymous("true"), anonymous("false"));
    let cases = [
        ("", None, false, ""),
        ("", Some("true"), true, ""),
        ("", Some("TRUE"), true, ""),
        ("", Some("false"), false, ""),
        (yes.as_str(), None, true, ""),
        (yes.as_str(), Some("true"), true, ""),
        (
            &anonymous("true"),
            Some("false"),
            false,
            "HIVEMQ_ALLOW_ALL_CLIENTS is false: clients without credentials are not let in",
        ),
        (no.as_str(), Some("true"), false, "HIVEMQ_ALLOW_ALL_CLIENTS is true; the file goes before it"),
        (no.as_str(), Some("false"), false, ""),
    ];
    for (element, variable, expected, word) in cases {
        let variables: Vec<_> = variable.map(|value| ("HIVEMQ_ALLOW_ALL_CLIENTS", value)).into_iter().collect();
        let loaded = load(&file(element), &variables).unwrap();
        assert_eq!(loaded.settings.security.allow_anonymous, expected, "{element} {variable:?}");
        let told = said(&loaded);
        assert!(if word.is_empty() { told.is_empty() } else { told.len() == 1 && told[0].contains(word) }, "{told:?}");
    }
    // Which then refuses the start where others reach a listener.
    let open = file(&yes).replace("127.0.0.1", "0.0.0.0");
    assert!(load(&open, &[]).is_ok());
    let error = load(&open, &[("HIVEMQ_ALLOW_ALL_CLIENTS", "false")]).unwrap_err();
    assert!(error.contains("which other machines reach, and no authenticator"), "{error}");
}

#[test]
fn the_rest_api_has_the_port_of_the_image_unless_the_file_speaks_of_it() {
    let listeners = |element: &str, value: &str| {
        let loaded = load(&file(element), &[("HIVEMQ_REST_API_ENABLED", value)]).unwrap();
        let all: Vec<_> = loaded.settings.http.iter().map(|http| (http.kind, http.bind_address.to_string(), http.port)).collect();
        (all, said(&loaded))
    };
    let (http, told) = listeners("", "true");
    assert_eq!(http, [(HttpListenerKind::RestApi, "0.0.0.0".to_owned(), 8888)]);
    assert!(told.len() == 1 && told[0].contains("port 8888 serves metrics and health only"), "{told:?}");
    assert_eq!(listeners("", "false"), (Vec::new(), Vec::new()));
    assert!(listeners("<rest-api><enabled>false</enabled></rest-api>", "true").0.is_empty());
    let twice = load(&file("<http><port>8888</port></http>"), &[("HIVEMQ_REST_API_ENABLED", "true")]).unwrap_err();
    assert!(twice.contains("port 8888"), "{twice}");
}

#[test]
fn what_has_no_effect_is_told_and_never_shown() {
    for (name, level) in [
        ("HIVEMQ_LICENSE", Level::Info),
        ("HIVEMQ_CONTROL_CENTER_USER", Level::Warning),
        ("HIVEMQ_CONTROL_CENTER_PASSWORD", Level::Warning),
        ("HIVEMQ_VERBOSE_ENTRYPOINT", Level::Info),
    ] {
        let loaded = load(&file(""), &[(name, "s3cret")]).unwrap();
        assert_eq!(loaded.warnings.len(), 1, "{:?}", loaded.warnings);
        assert_eq!(loaded.warnings[0].level, level, "{name}");
        assert!(loaded.warnings[0].message.starts_with(&format!("environment variable {name}: ")), "{:?}", loaded.warnings);
        assert!(!loaded.warnings[0].message.contains("s3cret"));
        assert!(load(&file(""), &[(name, "")]).unwrap().warnings.is_empty());
    }
    assert!(load(&file(""), &[("HIVEMQ_VERBOSE_ENTRYPOINT", "false")]).unwrap().warnings.is_empty());
}
