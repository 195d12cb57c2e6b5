//! The `config.xml` of a node under test.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// What differs between tests; the rest is the same everywhere: loopback, WebSocket, HTTP, all add-on topics.
#[derive(Debug, Clone)]
pub struct Config {
    /// 0: any free port, told by the node when it is ready.
    pub mqtt_port: u16,
    pub websocket_port: u16,
    pub http_port: u16,
    pub cluster: Option<ClusterConfig>,
    /// Takes the place of the `<cluster>` that `cluster` gives.
    pub cluster_xml: Option<String>,
    /// Where the node has an address of its own, and not the loopback one.
    pub hosts: Option<Hosts>,
    /// More elements inside `<listeners>`, behind the plain ones.
    pub listeners: String,
    /// Elements inside `<mqtt>`.
    pub mqtt: String,
    /// More sections.
    pub more: String,
    pub addons: bool,
    /// Elements inside `<client-lifecycle-topic>`.
    pub lifecycle: String,
    /// Share names and filters of `declared-shared-subscriptions.xml`; no file where there are none.
    pub declared: Vec<(&'static str, &'static str)>,
    /// Files that take the place of all of the above.
    pub files: Option<Files>,
}

/// Texts of `config.xml` and, where there is one, of `declared-shared-subscriptions.xml`.
#[derive(Debug, Clone)]
pub struct Files {
    pub config: String,
    pub declared: Option<String>,
}

/// Addresses of nodes that do not share one.
#[derive(Debug, Clone)]
pub struct Hosts {
    pub own: Ipv4Addr,
    /// In the order of [`ClusterConfig::all_ports`].
    pub all: Vec<Ipv4Addr>,
}

/// `<cluster>` of a node.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    pub node_name: String,
    pub port: u16,
    /// Cluster ports of all nodes.
    pub all_ports: Vec<u16>,
    /// Where others are told to reach it, if not at `port`.
    pub external_port: Option<u16>,
    pub secret: String,
    pub shards: u16,
    /// More elements inside `<transport><tcp>`.
    pub transport: String,
    /// More elements inside `<cluster>`.
    pub more: String,
}

/// Tests storm; those of the connect rate have listeners of their own.
const ANY_RATE: &str = "<connect-overload-protection><enabled>false</enabled></connect-overload-protection>";

/// Shards of clusters under test: twice the default, so that nodes lead several.
pub const SHARDS: u16 = 6;

/// The secret of clusters under test.
pub const SECRET: &str = "only-for-tests-on-loopback";

impl Default for Config {
    fn default() -> Self {
        Self {
            mqtt_port: 0,
            websocket_port: 0,
            http_port: 0,
            cluster: None,
            cluster_xml: None,
            hosts: None,
            listeners: String::new(),
            mqtt: String::new(),
            more: String::new(),
            addons: true,
            lifecycle: String::new(),
            declared: Vec::new(),
            files: None,
        }
    }
}

impl Config {
    /// The address that the node listens on.
    pub fn address(&self) -> Ipv4Addr {
        self.hosts.as_ref().map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.own)
    }

    pub fn xml(&self) -> String {
        if let Some(files) = &self.files {
            return files.config.clone();
        }
        let address = self.address();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<hivemq>\n<listeners>\n");
        for (kind, port) in [("tcp-listener", self.mqtt_port), ("websocket-listener", self.websocket_port)] {
            _ = writeln!(xml, "<{kind}><port>{port}</port><bind-address>{address}</bind-address>{ANY_RATE}</{kind}>");
        }
        _ = writeln!(xml, "{}</listeners>", self.listeners);
        _ = writeln!(xml, "<http><port>{}</port><bind-address>{address}</bind-address></http>", self.http_port);
        _ = writeln!(xml, "<mqtt>{}</mqtt>\n{}", self.mqtt, self.more);
        match (&self.cluster_xml, &self.cluster) {
            (Some(text), _) => xml.push_str(text),
            (None, Some(cluster)) => cluster.write(&mut xml, self.hosts.as_ref()),
            (None, None) => {}
        }
        xml.push_str("<mqtt-addons>\n");
        let topics = ["expired-messages-topic", "dropped-messages-topic", "dead-messages-topic", "client-lifecycle-topic"];
        for (topic, more) in topics.into_iter().zip(["", "", "", &self.lifecycle]) {
            _ = writeln!(xml, "<{topic}><enabled>{}</enabled>{more}</{topic}>", self.addons);
        }
        xml.push_str("</mqtt-addons>\n</hivemq>\n");
        xml
    }
}

impl Config {
    /// The file beside `config.xml`.
    pub fn declared_xml(&self) -> Option<String> {
        if let Some(files) = &self.files {
            return files.declared.clone();
        }
        let one = |(name, filter): &(&str, &str)| {
            format!("<subscription><share-name>{name}</share-name><topic-filter>{filter}</topic-filter></subscription>\n")
        };
        let all: String = self.declared.iter().map(one).collect();
        (!all.is_empty()).then(|| format!("<declared-shared-subscriptions>\n{all}</declared-shared-subscriptions>\n"))
    }
}

impl ClusterConfig {
    fn write(&self, xml: &mut String, hosts: Option<&Hosts>) {
        let address = hosts.map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.own);
        let Self { node_name, port, all_ports, secret, shards, external_port, transport, more } = self;
        let external = external_port.map_or_else(String::new, |port| {
            format!("<external-address>{address}</external-address><external-port>{port}</external-port>")
        });
        _ = writeln!(xml, "<cluster><enabled>true</enabled><node-name>{node_name}</node-name><secret>{secret}</secret>");
        _ = writeln!(
            xml,
            "<transport><tcp><bind-address>{address}</bind-address><bind-port>{port}</bind-port>{external}{transport}</tcp></transport>"
        );
        xml.push_str("<discovery><static>");
        for (index, port) in all_ports.iter().enumerate() {
            let host = hosts.map_or(Ipv4Addr::LOCALHOST, |hosts| hosts.all[index]);
            _ = write!(xml, "<node><host>{host}</host><port>{port}</port></node>");
        }
        _ = writeln!(xml, "</static></discovery><shards>{shards}</shards>{more}</cluster>");
    }
}
