//! Listeners of MQTT and of HTTP: names, addresses, ports, who may come in and how fast.

use super::*;
use crate::config::render;
use crate::config::settings::{HttpListenerKind, ListenerKind};

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
fn metrics_have_a_listener_of_their_own_where_the_file_says_so() {
    let of = |xml: &str| {
        let outcome = check_text(&file(xml));
        assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
        let http = outcome.settings.unwrap().http;
        http.iter().map(|h| (h.kind, h.bind_address.to_string(), h.port, h.metric_path.clone())).collect::<Vec<_>>()
    };
    let metrics = |address: &str, port, path: &str| vec![(HttpListenerKind::Metrics, address.to_owned(), port, path.to_owned())];
    assert_eq!(of("<prometheus/>"), metrics("127.0.0.1", 9399, "/metrics"));
    let all = "<enabled>true</enabled><port>0</port><bind-address>0.0.0.0</bind-address><metric-path>/</metric-path>";
    assert_eq!(of(&format!("<prometheus>{all}</prometheus>")), metrics("0.0.0.0", 0, "/"));
    assert_eq!(of("<prometheus><enabled>false</enabled></prometheus>"), []);
    for wrong in ["metrics", "/a b", "/{all}", "/m?x=1"] {
        let error = error(&file(&format!("<prometheus><metric-path>{wrong}</metric-path></prometheus>")));
        assert!(error.contains("<prometheus/metric-path>: found ") && error.contains("; allowed: "), "{error}");
    }
    let clash = error(&file("<http/><prometheus><port>8080</port></prometheus>"));
    assert!(
        clash.contains("<prometheus>: found port 8080 on 127.0.0.1, in use by line ") && clash.contains("choose another port"),
        "{clash}"
    );
    let port = error(&file("<prometheus><port>70000</port></prometheus>"));
    assert!(port.contains("<prometheus/port>") && port.contains("65535"), "{port}");
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
