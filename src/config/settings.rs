//! The checked settings: what the rest of the program sees. Names follow `config.xml` (spec/hivemq.md 1).

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::rustls::SupportedCipherSuite;

use super::jwt::JwtSettings;
use super::rbac::FileRbacSettings;
use crate::mqtt::GroupId;

/// Shards of a new cluster. More of them make smaller log entries, and with that more work for each command; three are enough for as many nodes
/// to lead one each (ARCHITECTURE.md, "How many shards").
pub const SHARDS: u16 = 3;

/// Everything a node is configured with.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub listeners: Vec<ListenerSettings>,
    pub mqtt: MqttSettings,
    pub security: SecuritySettings,
    pub restrictions: RestrictionSettings,
    pub persistence: PersistenceMode,
    pub cluster: ClusterSettings,
    pub shutdown: ShutdownSettings,
    pub event_log: EventLogSettings,
    pub addons: AddonSettings,
    /// Shared subscriptions that have a queue without members too (spec/hivemq.md 1.9).
    pub declared_shared_subscriptions: Vec<GroupId>,
    /// HTTP listeners of metrics, health and REST: one server serves all; empty = off.
    pub http: Vec<HttpListenerSettings>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ListenerSettings {
    pub kind: ListenerKind,
    /// `tcp-listener-1883` and so on.
    pub name: String,
    pub bind_address: IpAddr,
    /// 0 = ephemeral.
    pub port: u16,
    /// `None`: in plain text.
    pub tls: Option<Arc<TlsSettings>>,
    /// Whether a PROXY header in front of a connection is believed.
    pub proxy_protocol: bool,
    /// `None`: off.
    pub connect_overload: Option<ConnectOverload>,
}

/// How many clients a listener lets in (spec/hivemq.md 9.10).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ConnectOverload {
    /// Connections per second, above 0.
    pub rate: f64,
    /// Connections that may come at once, at least 1.
    pub burst: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ListenerKind {
    Tcp,
    WebSocket { path: String, subprotocols: Vec<String> },
}

/// A `tls` block (spec/hivemq.md 1.4).
#[derive(Debug, Clone, PartialEq)]
pub struct TlsSettings {
    pub keystore: StoreSettings,
    /// Own element: the key in a PEM file of its own.
    pub private_key_path: Option<PathBuf>,
    pub truststore: Option<StoreSettings>,
    /// Own element: certificate revocation lists.
    pub crls: Vec<PathBuf>,
    pub client_authentication: ClientAuthentication,
    pub tls_1_2: bool,
    pub tls_1_3: bool,
    /// Empty: all there are.
    pub cipher_suites: Vec<SupportedCipherSuite>,
    pub prefer_server_cipher_suites: bool,
    /// 0 = off: the listener's own limit holds.
    pub handshake_timeout_ms: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct StoreSettings {
    pub path: PathBuf,
    /// Empty where there is none.
    pub password: Secret,
}

/// Whether clients are asked for a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthentication {
    None,
    /// Asked for; one that is shown must be valid.
    Optional,
    Required,
}

/// A password, never printed.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct HttpListenerSettings {
    pub kind: HttpListenerKind,
    /// `http-listener-8080` and so on.
    pub name: String,
    pub bind_address: IpAddr,
    /// 0 = ephemeral.
    pub port: u16,
    /// Where a listener for metrics alone serves them, beside `/` and `/metrics`.
    pub metric_path: String,
}

/// What an HTTP listener was configured for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HttpListenerKind {
    /// `<http>`: metrics and health on one port.
    Http,
    RestApi,
    /// Health alone.
    HealthApi,
    ControlCenter,
    /// `<prometheus>`: metrics alone, as HiveMQ's Prometheus extension serves them.
    Metrics,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MqttSettings {
    pub session_expiry_max_s: u32,
    /// `None` = 4,294,967,296 in the file: no limit.
    pub message_expiry_max_s: Option<u32>,
    pub max_packet_size_bytes: u32,
    pub server_receive_maximum: u16,
    pub keep_alive: KeepAliveSettings,
    pub topic_alias_enabled: bool,
    pub topic_alias_max_per_client: u16,
    /// Own elements: aliases from the broker to clients that announce a Topic Alias Maximum.
    pub topic_alias_to_clients_enabled: bool,
    pub topic_alias_to_clients_max: u16,
    /// Own element: the template of the Response Information; `${{clientid}}` stands for the client id.
    pub response_information: Option<String>,
    /// Own element.
    pub server_reference: Option<ServerReference>,
    pub subscription_identifiers: bool,
    pub wildcard_subscriptions: bool,
    pub shared_subscriptions: bool,
    /// 0, 1 or 2.
    pub max_qos: u8,
    pub retained_messages: bool,
    /// Own elements: how many messages the cluster retains, and their bytes as a queue counts them.
    pub retained_messages_max: u64,
    pub retained_bytes_max: u64,
    pub max_queue_size: u32,
    pub discard_oldest: bool,
}

/// `<mqtt><keep-alive>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeepAliveSettings {
    pub policy: KeepAlivePolicy,
    /// Own element: Keep Alives of silence before a connection is closed, in thousandths; at least 1,500.
    pub multiplier_milli: u32,
}

/// Own element: whose way of changing the Keep Alive that a client asks for. Seconds. MQTT 3 has no way to be told of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepAlivePolicy {
    /// MQTT 5 gets the maximum for what is above it, and for 0 where that is not allowed. MQTT 3 gets what it asks for.
    HiveMq { max_s: u16, allow_unlimited: bool },
    /// MQTT 5 gets this one whatever it asks for; `None` changes nothing. MQTT 3 gets what it asks for.
    Emqx { server_s: Option<u16> },
    /// MQTT 5 gets the maximum for what is above it and for 0, MQTT 3 is refused for that; `None` changes and refuses nothing.
    Mosquitto { max_s: Option<u16> },
}

/// `<mqtt><server-reference>`: where clients are sent that cannot stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReference {
    pub reference: String,
    /// A node that stops sends its clients there.
    pub at_shutdown: bool,
    pub refuse: RefuseConnections,
}

/// Which CONNECTs are answered with the Server Reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefuseConnections {
    Never,
    /// Those that this node cannot serve now: "Use another server".
    WhenUnavailable,
    /// All, since the clients of this node are to move: "Server moved".
    Always,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SecuritySettings {
    pub allow_empty_client_id: bool,
    pub payload_format_validation: bool,
    pub utf8_validation: bool,
    pub allow_request_problem_information: bool,
    /// Whether clients without credentials are let in on addresses other than loopback.
    pub allow_anonymous: bool,
    pub authentication: AuthenticationSettings,
    /// `None`: nobody looks for them.
    pub unstable_clients: Option<UnstableClients>,
}

/// Own element: when a client connects too often, or takes its connection over too often, and what comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnstableClients {
    pub window_s: u64,
    /// So many within the window are too many.
    pub connects: u32,
    pub takeovers: u32,
    /// `None`: it is told, and nobody is kept out.
    pub ban: Option<BanSettings>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BanSettings {
    pub duration_s: u64,
    /// Also of the addresses the client came from.
    pub addresses: bool,
}

/// Own element: where `event.log` is, and how large it gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventLogSettings {
    pub enabled: bool,
    /// `None`: `log` in the data directory.
    pub folder: Option<PathBuf>,
    /// Bytes of a file.
    pub file_bytes_max: u64,
    /// Files that are kept beside the one that grows.
    pub files_max: usize,
}

/// Who decides which clients come in. Nobody: all are let in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthenticationSettings {
    /// HiveMQ's File RBAC extension.
    pub file_rbac: Option<FileRbacSettings>,
    /// Own element: a client certificate stands for the user it names.
    pub client_certificate: Option<CertificateName>,
    /// Own element: a signed token says who a client is.
    pub jwt: Option<JwtSettings>,
}

impl AuthenticationSettings {
    pub fn is_off(&self) -> bool {
        self.file_rbac.is_none() && self.client_certificate.is_none() && self.jwt.is_none()
    }

    /// Whether some client may pass all authenticators undecided.
    pub fn may_pass(&self) -> bool {
        match &self.file_rbac {
            Some(rbac) => rbac.listener_names.is_some() || rbac.next_instead_of_fail,
            // Who brings no token is refused where nobody else asks for passwords.
            None => self.jwt.is_none(),
        }
    }
}

/// Which name of a certificate is the user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateName {
    CommonName,
    /// The first DNS name or IP address.
    SubjectAlternativeName,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RestrictionSettings {
    /// `None` = unlimited.
    pub max_connections: Option<u64>,
    pub max_client_id_length: u16,
    pub max_topic_length: u16,
    pub no_connect_idle_timeout_ms: u64,
    /// Bytes per second, 0 = off.
    pub incoming_bandwidth_throttling: u64,
    /// Own element: bytes of QoS 0 messages waiting in the node; `None` = a quarter of its memory.
    pub max_qos0_memory: Option<usize>,
    /// Own element: bytes of packets of which not all has come, in the node; `None` = a quarter of its memory.
    pub max_incomplete_packet_memory: Option<usize>,
    /// Own element.
    pub prevented: PreventedSettings,
}

/// Messages that are kept back, coming from clients and going to them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PreventedSettings {
    pub inbound: Vec<PreventedRule>,
    pub outbound: Vec<PreventedRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreventedRule {
    /// A valid filter, without share.
    pub topic_filter: String,
    /// `None` = of any client.
    pub client_id: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PersistenceMode {
    File,
    InMemory,
}

#[derive(Clone, PartialEq)]
pub struct ClusterSettings {
    pub enabled: bool,
    pub node_name: String,
    pub bind_address: IpAddr,
    pub bind_port: u16,
    pub external_address: Option<String>,
    pub external_port: Option<u16>,
    /// `host:port` of the nodes that found the cluster, this one included.
    pub static_nodes: Vec<String>,
    /// `<discovery><extension>`: a name whose addresses are nodes.
    pub dns: Option<DnsSettings>,
    /// Own element: how many nodes found the cluster; 0 = this one founds none.
    pub expected_nodes: Option<u32>,
    /// Never printed.
    pub secret: String,
    /// TLS between nodes.
    pub tls: Option<NodeTlsSettings>,
    /// Fixed when the cluster is founded; `None`: as the node's data have it, and without data `SHARDS`.
    pub shards: Option<u16>,
    pub heartbeat_ms: u64,
    pub election_timeout_min_ms: u64,
    pub election_timeout_max_ms: u64,
    /// For so long a node without a majority keeps its clients.
    pub close_without_majority_ms: u64,
}

/// `<cluster><transport><tcp><tls>`: each node shows a certificate to the other and asks for the other's.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTlsSettings {
    pub files: TlsSettings,
    /// Own element: whether a peer's certificate has to be for that peer.
    pub hostname_verification: bool,
    /// Own element: whether plain connections are taken too, and made to peers that have nothing else. For the time of a change.
    pub optional: bool,
    /// Domains of the nodes' names, as this node's configuration has them: what stands behind its own name in its external address and in the list of
    /// nodes, and the name that discovery resolves. What a peer says of itself does not count.
    pub domains: Vec<String>,
}

impl NodeTlsSettings {
    /// Names one of which the certificate of a node must have: the node's own, alone or in one of the domains.
    pub fn names_of(&self, node_name: &str) -> Vec<String> {
        let within = self.domains.iter().map(|domain| format!("{node_name}.{domain}"));
        std::iter::once(node_name.to_owned()).chain(within).collect()
    }
}

/// Own element: how a node parts from its clients when it stops or drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownSettings {
    /// Between not being ready, for a load balancer to see, and the closing of listeners.
    pub delay_s: u64,
    /// Clients closed a second; more where they would not all be told in time.
    pub clients_per_second: u32,
    /// From the signal to the end of the process.
    pub timeout_s: u64,
}

/// Where HiveMQ's DNS discovery extension looks for nodes (spec/hivemq.md 10.4): each address, with this node's own cluster port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsSettings {
    pub address: String,
    pub resolution_timeout_s: u64,
    pub reload_interval_s: u64,
}

impl ClusterSettings {
    /// How many nodes found the cluster; `None`: this one founds none. DNS tells who is there, not who is to be.
    pub fn founders(&self) -> Option<usize> {
        match self.expected_nodes {
            Some(0) => None,
            Some(count) => usize::try_from(count).ok(),
            None if self.dns.is_some() => None,
            None => Some(self.static_nodes.len().max(1)),
        }
    }

    /// Tells the `host:port` other nodes reach this one at: the external address if there is one, the bind address if it is a
    /// particular one, else the node name (on Kubernetes the DNS name of the pod).
    pub fn advertised(&self) -> String {
        let host = match &self.external_address {
            Some(address) => address.clone(),
            None if self.bind_address.is_unspecified() => self.node_name.clone(),
            None => self.bind_address.to_string(),
        };
        host_port(&host, self.external_port.unwrap_or(self.bind_port))
    }
}

/// Writes `host:port`, an IPv6 address in brackets.
pub(super) fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Like the derived one, without the secret.
impl fmt::Debug for ClusterSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterSettings")
            .field("enabled", &self.enabled)
            .field("node_name", &self.node_name)
            .field("bind_address", &self.bind_address)
            .field("bind_port", &self.bind_port)
            .field("external_address", &self.external_address)
            .field("external_port", &self.external_port)
            .field("static_nodes", &self.static_nodes)
            .field("dns", &self.dns)
            .field("expected_nodes", &self.expected_nodes)
            .field("secret", &"***")
            .field("tls", &self.tls)
            .field("shards", &self.shards)
            .field("heartbeat_ms", &self.heartbeat_ms)
            .field("election_timeout_min_ms", &self.election_timeout_min_ms)
            .field("election_timeout_max_ms", &self.election_timeout_max_ms)
            .field("close_without_majority_ms", &self.close_without_majority_ms)
            .finish()
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct AddonSettings {
    pub expired: bool,
    pub dropped: bool,
    pub dead: bool,
    pub lifecycle: LifecycleSettings,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LifecycleSettings {
    pub enabled: bool,
    pub identifier_username: bool,
    pub connected: bool,
    /// Disconnect triggers by initiator.
    pub client: bool,
    pub server: bool,
    pub session_taken_over: bool,
    pub unspecified: bool,
}

/// Where the program keeps things; from the command line.
#[derive(Debug, Clone, PartialEq)]
pub struct Paths {
    pub data: PathBuf,
}
