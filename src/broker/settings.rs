//! From the configuration's settings to those of the rooms.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::actor::guard::{Guard, GuardSettings};
use crate::actor::{NodeSettings, Prevented, RetainedLimits, clock, prevented};
use crate::auth::jwt::is_token;
use crate::auth::unstable::Limits;
use crate::cluster::{ClusterSettings, Dns};
use crate::config::Settings;
use crate::config::settings as config;
use crate::edge::Surface;
use crate::mqtt::QoS;
use crate::queue::QueueLimits;
use crate::session::{AliasMemory, ServerReference, SessionSettings};
use crate::telemetry::{EventLog, EventLogFiles, Metrics};

/// Messages in flight to one client at most (spec/hivemq.md 2.5).
const MAX_INFLIGHT: u16 = 50;
/// QoS 0 bytes that may wait for one client (spec/hivemq.md 2.3).
const QOS0_CLIENT_BYTES_MAX: usize = 5_242_880;
/// Taken for a quarter of the memory where that of the machine is not known, bytes.
const MEMORY_QUARTER_FALLBACK: usize = 256 * 1024 * 1024;

pub(crate) fn node(settings: &Settings) -> NodeSettings {
    NodeSettings {
        session: Arc::new(session(settings)),
        queue: QueueLimits {
            max_queue_size: settings.mqtt.max_queue_size,
            discard_oldest: settings.mqtt.discard_oldest,
            qos0_bytes_max: QOS0_CLIENT_BYTES_MAX,
        },
        qos0_total_bytes_max: settings.restrictions.max_qos0_memory.unwrap_or_else(quarter_of_memory),
        incomplete_bytes_max: settings.restrictions.max_incomplete_packet_memory.unwrap_or_else(quarter_of_memory),
        inbound_bytes_per_s: settings.restrictions.incoming_bandwidth_throttling,
        max_connections: settings.restrictions.max_connections,
        clients_per_second: settings.shutdown.clients_per_second,
        retained: RetainedLimits {
            messages_max: settings.mqtt.retained_messages_max,
            bytes_max: settings.mqtt.retained_bytes_max,
        },
        prevented: prevented(&settings.restrictions.prevented),
        declared: settings.declared_shared_subscriptions.clone(),
    }
}

/// What an HTTP listener serves, and the element of `config.xml` that has it.
pub(super) fn surface(http: &config::HttpListenerSettings) -> (&'static str, Surface) {
    match http.kind {
        config::HttpListenerKind::Http => ("http", Surface::All),
        config::HttpListenerKind::RestApi => ("rest-api/listeners/http", Surface::All),
        config::HttpListenerKind::HealthApi => ("health-api/listeners/http", Surface::Health),
        config::HttpListenerKind::ControlCenter => ("control-center/listeners/http", Surface::All),
        config::HttpListenerKind::Metrics => ("prometheus", Surface::Metrics { path: http.metric_path.clone() }),
    }
}

/// Below the data directory: nodes that share a machine have one each.
const LOG_FOLDER: &str = "log";

pub(super) fn event_log(log: &config::EventLogSettings, data: &Path, metrics: &Metrics) -> io::Result<EventLog> {
    if !log.enabled {
        return Ok(EventLog::default());
    }
    let folder = log.folder.clone().unwrap_or_else(|| data.join(LOG_FOLDER));
    let files = EventLogFiles { folder, file_bytes_max: log.file_bytes_max, kept_max: log.files_max };
    EventLog::start(files, metrics.own.event_log_lines_lost_total.clone(), clock::wall_ms, is_token)
}

pub(super) fn guard(security: &config::SecuritySettings) -> Guard {
    let Some(clients) = security.unstable_clients else { return Guard::default() };
    Guard::new(GuardSettings {
        limits: Limits {
            window_ms: clients.window_s.saturating_mul(1000),
            connects: clients.connects,
            takeovers: clients.takeovers,
        },
        ban_ms: clients.ban.map(|ban| ban.duration_s.saturating_mul(1000)),
        ban_addresses: clients.ban.is_some_and(|ban| ban.addresses),
    })
}

fn prevented(settings: &config::PreventedSettings) -> Prevented {
    let rule = |rule: &config::PreventedRule| prevented::Rule {
        topic_filter: rule.topic_filter.as_str().into(),
        client_id: rule.client_id.as_deref().map(Into::into),
    };
    Prevented { inbound: settings.inbound.iter().map(rule).collect(), outbound: settings.outbound.iter().map(rule).collect() }
}

/// Times of the end of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shutdown {
    pub(super) delay: Duration,
    pub(super) timeout: Duration,
}

pub(super) fn shutdown(shutdown: &config::ShutdownSettings) -> Shutdown {
    Shutdown { delay: Duration::from_secs(shutdown.delay_s), timeout: Duration::from_secs(shutdown.timeout_s) }
}

pub(crate) fn session(settings: &Settings) -> SessionSettings {
    let (mqtt, security, restrictions) = (&settings.mqtt, &settings.security, &settings.restrictions);
    SessionSettings {
        session_expiry_max_s: mqtt.session_expiry_max_s,
        message_expiry_max_s: mqtt.message_expiry_max_s,
        max_packet_size_bytes: mqtt.max_packet_size_bytes,
        server_receive_maximum: mqtt.server_receive_maximum,
        keep_alive_policy: mqtt.keep_alive.policy,
        keep_alive_multiplier_milli: mqtt.keep_alive.multiplier_milli,
        topic_alias_max: if mqtt.topic_alias_enabled { mqtt.topic_alias_max_per_client } else { 0 },
        sent_topic_alias_max: if mqtt.topic_alias_to_clients_enabled { mqtt.topic_alias_to_clients_max } else { 0 },
        alias_memory: AliasMemory::default(),
        response_information: mqtt.response_information.as_deref().map(Into::into),
        server_reference: mqtt.server_reference.as_ref().map(server_reference),
        subscription_identifiers: mqtt.subscription_identifiers,
        wildcard_subscriptions: mqtt.wildcard_subscriptions,
        shared_subscriptions: mqtt.shared_subscriptions,
        max_qos: QoS::from_bits(mqtt.max_qos).unwrap_or(QoS::ExactlyOnce),
        retained_messages: mqtt.retained_messages,
        allow_empty_client_id: security.allow_empty_client_id,
        payload_format_validation: security.payload_format_validation,
        utf8_validation: security.utf8_validation,
        allow_request_problem_information: security.allow_request_problem_information,
        max_client_id_length: restrictions.max_client_id_length,
        max_topic_length: restrictions.max_topic_length,
        no_connect_idle_timeout_ms: restrictions.no_connect_idle_timeout_ms,
        max_inflight: MAX_INFLIGHT,
    }
}

fn server_reference(server: &config::ServerReference) -> ServerReference {
    ServerReference { reference: server.reference.as_str().into(), at_shutdown: server.at_shutdown, refuse: server.refuse }
}

pub(crate) fn cluster(settings: &Settings, shards: u16) -> ClusterSettings {
    let cluster = &settings.cluster;
    let bind = SocketAddr::new(cluster.bind_address, cluster.bind_port);
    ClusterSettings {
        enabled: cluster.enabled,
        node_name: cluster.node_name.clone(),
        bind: cluster.enabled.then_some(bind),
        advertised: cluster.advertised(),
        seeds: cluster.static_nodes.clone(),
        dns: cluster.dns.as_ref().map(|dns| Dns {
            name: dns.address.clone(),
            port: cluster.bind_port,
            timeout: Duration::from_secs(dns.resolution_timeout_s),
            interval: Duration::from_secs(dns.reload_interval_s),
        }),
        expected_nodes: if cluster.enabled { cluster.founders() } else { Some(1) },
        secret: cluster.secret.clone(),
        tls: cluster.tls.clone(),
        shards,
        heartbeat_ms: cluster.heartbeat_ms,
        election_min_ms: cluster.election_timeout_min_ms,
        election_max_ms: cluster.election_timeout_max_ms,
        close_without_majority_ms: cluster.close_without_majority_ms,
        protocol: crate::cluster::Protocol::default(),
        must_agree: crate::config::must_agree(settings),
    }
}

fn quarter_of_memory() -> usize {
    memory_limit_bytes().map_or(MEMORY_QUARTER_FALLBACK, |bytes| bytes / 4)
}

/// The memory this process may use: the control group's limit, else the machine's.
fn memory_limit_bytes() -> Option<usize> {
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<usize>().ok());
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let machine = line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)?;
    Some(group.map_or(machine, |limit| limit.min(machine)))
}
