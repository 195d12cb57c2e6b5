//! `<cluster>` (spec/hivemq.md 1.7), and TroupeMQ's own elements in it: `node-name`, `secret`, `shards`, `raft`, `expected-nodes`,
//! `close-clients-without-majority-after`, some in `transport/tcp/tls`, and what `discovery/extension` has inside (HiveMQ's extension takes that from a file of its own or
//! from the environment, as here too).

use std::collections::{BTreeSet, HashSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::environment::Environment;
use super::exposure::Bound;
use super::tls;
use super::view::View;
use crate::config::diagnostic::quote;
use crate::config::limits::{HEARTBEATS_PER_ELECTION_MIN, NAME_LEN_MAX, SECRET_LEN_MIN};
use crate::config::settings::{ClusterSettings, DnsSettings, host_port};

/// Name of a node alone. The host name is not taken for it: in a container it changes with every start, and data belongs to a name.
const LONE_NODE_NAME: &str = "node1";

pub(super) fn read<'a>(
    root: &View<'a>,
    host_name: Option<String>,
    env: &dyn Fn(&str) -> Option<String>,
    environment: &Environment<'_>,
    bound: &mut Vec<Bound<'a>>,
) -> ClusterSettings {
    let cluster = root.at("cluster");
    let enabled = cluster.flag("enabled");
    let transport = transport(&cluster);
    // A node without a cluster has no use for them, right or wrong.
    let (told_address, told_port) =
        if enabled { (environment.bind_address(&transport), environment.cluster_port(&transport)) } else { (None, None) };
    let bind_address = told_address.unwrap_or_else(|| transport.address("bind-address", Ipv4Addr::UNSPECIFIED));
    let (heartbeat_ms, election_timeout_min_ms, election_timeout_max_ms) = raft(&cluster);
    let mut settings = ClusterSettings {
        enabled,
        node_name: node_name(&cluster, enabled, host_name),
        bind_address,
        bind_port: told_port.unwrap_or_else(|| transport.u16_or_max("bind-port")),
        external_address: transport.word("external-address").map(str::to_owned),
        external_port: transport.u16("external-port"),
        static_nodes: static_nodes(&cluster, enabled),
        dns: if enabled { dns(&cluster, env) } else { None },
        expected_nodes: cluster.number("expected-nodes").and_then(|count| u32::try_from(count).ok()),
        secret: secret(&cluster, enabled),
        tls: None,
        shards: if cluster.at("shards").exists() { cluster.u16("shards") } else { None },
        heartbeat_ms,
        election_timeout_min_ms,
        election_timeout_max_ms,
        close_without_majority_ms: cluster.u64_or_max("close-clients-without-majority-after"),
    };
    if enabled {
        environment.check_transport();
        check_founders(&cluster, &settings);
        check_reachable(&transport, &cluster, &settings);
        settings.tls = tls::between_nodes(&transport, &settings.node_name, domains(&settings));
        bound.push(Bound { element: transport, address: bind_address, port: settings.bind_port, mqtt: false });
    }
    settings
}

/// `<tcp>`, or `<udp>` in its place.
fn transport<'a>(cluster: &View<'a>) -> View<'a> {
    let transport = cluster.at("transport");
    let (tcp, udp) = (transport.at("tcp"), transport.at("udp"));
    if transport.exists() && tcp.exists() == udp.exists() {
        let found = if tcp.exists() { "both <tcp> and <udp>" } else { "no known transport" };
        transport.error(format!("found {found}; allowed: <tcp> (<udp> is treated as <tcp>); write one of them"));
    }
    if udp.exists() && !tcp.exists() { udp } else { tcp }
}

fn node_name(cluster: &View<'_>, enabled: bool, host_name: Option<String>) -> String {
    let view = cluster.at("node-name");
    let given = view.own_text();
    let fallback = if enabled { host_name.filter(|name| !name.is_empty()) } else { Some(LONE_NODE_NAME.to_owned()) };
    let Some(name) = given.map(str::to_owned).or(fallback) else {
        view.error(
            "the node has no name: no <node-name>, and the environment variable HOSTNAME is not set; add <node-name>node1</node-name> to \
             <cluster>, another name on every node and the same one at every start",
        );
        return String::new();
    };
    if name.len() > NAME_LEN_MAX || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
        let source = if given.is_some() { "" } else { " in the environment variable HOSTNAME" };
        let found = view.quote(&name);
        view.error(format!(
            "found {found}{source}; allowed: up to {NAME_LEN_MAX} letters, digits, dots, hyphens and underscores; write such a name in <node-name>"
        ));
    }
    name
}

fn secret(cluster: &View<'_>, enabled: bool) -> String {
    let view = cluster.at("secret");
    let secret = view.own_text().unwrap_or_default();
    let len = secret.chars().count();
    if enabled && len < SECRET_LEN_MIN {
        let found = if view.exists() { format!("found {len} characters") } else { "there is no cluster secret".to_owned() };
        view.error(format!(
            "{found}; allowed: {SECRET_LEN_MIN} characters or more, the same on every node; add <secret>${{TROUPEMQ_CLUSTER_SECRET}}</secret> \
             to <cluster> and set that variable, for example to the output of `openssl rand -hex 32`"
        ));
    }
    secret.to_owned()
}

fn static_nodes(cluster: &View<'_>, enabled: bool) -> Vec<String> {
    let list = cluster.at("discovery/static");
    let mut nodes = Vec::new();
    let mut seen = HashSet::new();
    for node in list.all("node") {
        let host = node.word("host");
        let (host_view, port_view) = (node.at("host"), node.at("port"));
        if !host_view.exists() {
            node.error("the element <host> is missing; add <host>name or IP address of the node</host>");
        }
        if host.is_some_and(|host| host.contains('/') || (host.contains(':') && !is_ipv6(host))) {
            let found = host_view.quote(host.unwrap_or_default());
            host_view
                .error(format!("found {found}; allowed: a host name or an IP address, the port in <port>; correct the value"));
        }
        if !port_view.exists() {
            node.error("the element <port> is missing; add the cluster port of that node, for example <port>7000</port>");
        }
        let (Some(host), Some(port)) = (host, node.u16("port")) else { continue };
        let address = host_port(host, port);
        if seen.insert(address.clone()) {
            nodes.push(address);
        } else {
            let found = if host_view.is_placed() || port_view.is_placed() { host_view.quote(&address) } else { address };
            node.warning(format!("found {found} a second time; it counts once"));
        }
    }
    if enabled && list.all("node").is_empty() && !cluster.at("discovery/extension").exists() {
        list.error(
            "found no node; allowed: one or more; add <discovery><static><node><host>..</host><port>7000</port></node></static></discovery> \
             to <cluster>, with every node of the cluster, this one too",
        );
    }
    nodes
}

/// Variables of HiveMQ's extension; the last has another name in its image.
const DNS_ADDRESS: &str = "HIVEMQ_DNS_DISCOVERY_ADDRESS";
const DNS_TIMEOUT: &str = "HIVEMQ_DNS_DISCOVERY_TIMEOUT";
const DNS_INTERVALS: [&str; 2] = ["HIVEMQ_DNS_RELOAD_INTERVAL", "HIVEMQ_DNS_DISCOVERY_INTERVAL"];

/// `<extension>`: what it says itself goes before the environment.
fn dns(cluster: &View<'_>, env: &dyn Fn(&str) -> Option<String>) -> Option<DnsSettings> {
    let extension = cluster.at("discovery/extension");
    if !extension.exists() {
        return None;
    }
    let written = extension.word("address").map(str::to_owned);
    let address = written.or_else(|| env(DNS_ADDRESS)).filter(|address| !address.is_empty());
    let is_name = |address: &String| {
        address.len() <= NAME_LEN_MAX && address.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
    };
    // One that is written wrongly was told by `word`.
    let told = address.is_none() && extension.at("address").exists();
    if !told && !address.as_ref().is_some_and(is_name) {
        let found =
            address.as_ref().map_or_else(|| "no name to resolve".to_owned(), |address| extension.at("address").quote(address));
        extension.error(format!(
            "found {found}; allowed: a DNS name whose addresses are the nodes, such as that of a headless service; write it in <address>, or set \
             the environment variable {DNS_ADDRESS}"
        ));
    }
    let seconds = |element: &str, variables: &[&str], max: u64| {
        let written = extension.at(element).exists();
        let variable = variables.iter().filter(|_| !written).find_map(|name| Some((*name, env(name)?)));
        let Some((name, text)) = variable else { return extension.u64_or_max(element) };
        text.trim().parse().ok().filter(|seconds| (1..=max).contains(seconds)).unwrap_or_else(|| {
            let found = quote(&text);
            extension.error(format!(
                "found {found} in the environment variable {name}; allowed: 1 to {max} seconds; correct the value"
            ));
            1
        })
    };
    Some(DnsSettings {
        resolution_timeout_s: seconds("resolution-timeout", &[DNS_TIMEOUT], 3_600),
        reload_interval_s: seconds("reload-interval", &DNS_INTERVALS, 86_400),
        address: address.unwrap_or_default(),
    })
}

/// A node that nobody told how many are to be there cannot know whether those it sees are a majority.
fn check_founders(cluster: &View<'_>, settings: &ClusterSettings) {
    if settings.dns.is_some() && settings.expected_nodes.is_none() {
        cluster.at("discovery/extension").warning(
            "nobody says how many nodes found the cluster, so this one founds none and waits for one to join; for a new cluster add \
             <expected-nodes>3</expected-nodes> to <cluster>, with the number of its first nodes and the same on all of them",
        );
    }
    let listed = settings.static_nodes.len();
    if let Some(expected) =
        settings.expected_nodes.filter(|expected| settings.dns.is_none() && *expected as usize > listed.max(1))
    {
        cluster.at("expected-nodes").warning(format!(
            "found {expected}, and discovery/static lists {listed} nodes: unless others list this one, it founds no cluster before it has heard \
             of a majority of {expected}; list them all, or correct the number"
        ));
    }
}

fn is_ipv6(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    bare.parse::<Ipv6Addr>().is_ok()
}

/// Domains in which certificates may have the nodes' names.
fn domains(settings: &ClusterSettings) -> Vec<String> {
    let listed = settings.static_nodes.iter().filter_map(|node| node.rsplit_once(':')).map(|(host, _)| host);
    let own = settings.external_address.as_deref().into_iter().chain(listed);
    let own = own.filter_map(|host| host.strip_prefix(&settings.node_name)?.strip_prefix('.'));
    let domains: BTreeSet<&str> = own.chain(settings.dns.as_ref().map(|dns| dns.address.as_str())).collect();
    domains.into_iter().filter(|domain| !domain.is_empty()).map(str::to_owned).collect()
}

/// Heartbeat interval, and shortest and longest election timeout, ms.
fn raft(cluster: &View<'_>) -> (u64, u64, u64) {
    let raft = cluster.at("raft");
    let heartbeat = raft.u64_or_max("heartbeat-interval");
    let (min, max) = (raft.u64_or_max("election-timeout-min"), raft.u64_or_max("election-timeout-max"));
    if min >= max {
        raft.error(format!(
            "found election-timeout-min {min} and election-timeout-max {max} ms; allowed: min below max; raise <election-timeout-max>"
        ));
    }
    if heartbeat.saturating_mul(HEARTBEATS_PER_ELECTION_MIN) > min {
        raft.error(format!(
            "found heartbeat-interval {heartbeat} and election-timeout-min {min} ms; allowed: a minimum of at least \
             {HEARTBEATS_PER_ELECTION_MIN} heartbeats; lower <heartbeat-interval> or raise <election-timeout-min>"
        ));
    }
    (heartbeat, min, max)
}

/// Warns of an address under which the others will not find this node.
fn check_reachable(transport: &View<'_>, cluster: &View<'_>, settings: &ClusterSettings) {
    let advertised = settings.advertised();
    if settings.static_nodes.is_empty() || settings.static_nodes.contains(&advertised) {
        return;
    }
    if settings.external_address.is_none() && settings.bind_address.is_unspecified() {
        transport.warning(format!(
            "is bound to {}, so other nodes are told to reach this one at {advertised}, by its node name; if that name does not resolve, \
             add <external-address>",
            settings.bind_address
        ));
    } else if settings.static_nodes.iter().all(|node| node.parse::<SocketAddr>().is_ok()) {
        // Of a host name nobody can say here which node it is.
        cluster.at("discovery/static").warning(format!(
            "this node, {advertised}, is not listed; list every node that founds the cluster in the same words on all of them"
        ));
    }
}
