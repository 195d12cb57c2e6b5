//! The cluster: transports, discovery, times that must fit each other; and the shutdown.

use super::*;

#[test]
fn cluster_settings_arrive() {
    let outcome = check_text(&cluster_file("<shards>12</shards>"));
    assert!(outcome.warnings.is_empty(), "{:?}", outcome.warnings);
    let cluster = outcome.settings.unwrap().cluster;
    assert_eq!((cluster.enabled, cluster.node_name.as_str(), cluster.secret.as_str()), (true, "n1", "0123456789abcdef"));
    assert_eq!((cluster.bind_port, cluster.shards), (7001, Some(12)));
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
