//! Prints effective settings for `troupemq config check`.

use std::fmt::{Display, Write};
use std::net::SocketAddr;

use super::jwt::{Algorithm, JwtSettings, TokenFrom, WithoutPermissions};
use super::rbac::PasswordType;
use super::settings::{
    AddonSettings, AuthenticationSettings, CertificateName, ClientAuthentication, ClusterSettings, ConnectOverload,
    EventLogSettings, HttpListenerKind, KeepAlivePolicy, KeepAliveSettings, ListenerKind, MqttSettings, NodeTlsSettings,
    PersistenceMode, RefuseConnections, RestrictionSettings, SHARDS, SecuritySettings, Settings, UnstableClients,
};

/// Prints all settings, a line each, in the words of `config.xml`. The cluster secret shows as `***`.
pub fn render(settings: &Settings) -> String {
    let mut out = Page::default();
    listeners(&mut out, settings);
    mqtt(&mut out, &settings.mqtt);
    security(&mut out, &settings.security);
    restrictions(&mut out, &settings.restrictions);
    persistence(&mut out, settings.persistence);
    cluster(&mut out, &settings.cluster);
    out.section("shutdown");
    out.seconds("delay", settings.shutdown.delay_s);
    out.line("clients-per-second", settings.shutdown.clients_per_second);
    out.seconds("timeout", settings.shutdown.timeout_s);
    event_log(&mut out, &settings.event_log);
    addons(&mut out, &settings.addons);
    if !settings.declared_shared_subscriptions.is_empty() {
        out.section("declared-shared-subscriptions");
        for group in &settings.declared_shared_subscriptions {
            out.line("subscription", group.full());
        }
    }
    out.text
}

/// What is to be the same on every node of a cluster, since a client may come to any: names as in `config.xml`, and values.
pub fn must_agree(settings: &Settings) -> Vec<(String, String)> {
    let mut out = Page::default();
    mqtt(&mut out, &settings.mqtt);
    security(&mut out, &settings.security);
    restrictions(&mut out, &settings.restrictions);
    persistence(&mut out, settings.persistence);
    addons(&mut out, &settings.addons);
    let differs = |name: &str| NODE_OWN.iter().any(|own| name.starts_with(own));
    out.lines.into_iter().filter(|(name, _)| !differs(name)).collect()
}

/// Settings with reasons to differ between nodes: where each sends its clients, where its files are, how strong its machine is.
const NODE_OWN: &[&str] = &[
    "mqtt/server-reference",
    "security/authentication",
    "security/  ",
    "restrictions/max-connections",
    "restrictions/incoming-bandwidth-throttling",
    "restrictions/max-qos-0-memory",
    "restrictions/max-incomplete-packet-memory",
];

/// Width of the column of names.
const NAME_WIDTH: usize = 48;

#[derive(Default)]
struct Page {
    text: String,
    section: String,
    /// Each line as (section/name, value).
    lines: Vec<(String, String)>,
}

impl Page {
    fn section(&mut self, name: &str) {
        self.text.push_str(name);
        self.text.push('\n');
        name.clone_into(&mut self.section);
    }

    fn line(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.lines.push((format!("{}/{name}", self.section), value.clone()));
        // Writing to a string cannot fail.
        _ = writeln!(self.text, "  {name:<NAME_WIDTH$} {value}");
    }

    fn seconds(&mut self, name: &str, seconds: impl Display) {
        self.line(name, format_args!("{seconds} s"));
    }

    fn millis(&mut self, name: &str, millis: u64) {
        self.line(name, format_args!("{millis} ms"));
    }
}

fn listeners(out: &mut Page, settings: &Settings) {
    out.section("listeners");
    for listener in &settings.listeners {
        let address = SocketAddr::new(listener.bind_address, listener.port);
        let (tls, web_tls) = if listener.tls.is_some() { (" and TLS", "secure ") } else { ("", "") };
        let mut text = match &listener.kind {
            ListenerKind::Tcp => format!("MQTT over TCP{tls} on {address}"),
            ListenerKind::WebSocket { path, subprotocols } => {
                let subprotocols = subprotocols.join(", ");
                format!("MQTT over {web_tls}WebSocket on {address}, path {path}, subprotocols {subprotocols}")
            }
        };
        if let Some(tls) = &listener.tls {
            text.push_str(match tls.client_authentication {
                ClientAuthentication::None => "",
                ClientAuthentication::Optional => ", client certificate optional",
                ClientAuthentication::Required => ", client certificate required",
            });
        }
        if listener.proxy_protocol {
            text.push_str(", PROXY protocol");
        }
        match &listener.connect_overload {
            Some(ConnectOverload { rate, burst }) => {
                // Writing to a string cannot fail.
                _ = write!(text, ", {rate} connects/s (burst {burst})");
            }
            None => text.push_str(", any number of connects/s"),
        }
        out.line(&listener.name, text);
    }
    out.section("http");
    if settings.http.is_empty() {
        out.line("listeners", "none: metrics and health are off");
    }
    for listener in &settings.http {
        let address = SocketAddr::new(listener.bind_address, listener.port);
        let purpose = match listener.kind {
            HttpListenerKind::Http => "metrics and health",
            HttpListenerKind::RestApi => "rest-api",
            HttpListenerKind::HealthApi => "health-api, health alone,",
            HttpListenerKind::ControlCenter => "control-center",
            HttpListenerKind::Metrics => "metrics",
        };
        let path = if listener.kind == HttpListenerKind::Metrics { listener.metric_path.as_str() } else { "" };
        out.line(&listener.name, format_args!("{purpose} on {address}{path}"));
    }
}

fn mqtt(out: &mut Page, mqtt: &MqttSettings) {
    out.section("mqtt");
    out.seconds("session-expiry/max-interval", mqtt.session_expiry_max_s);
    match mqtt.message_expiry_max_s {
        Some(seconds) => out.seconds("message-expiry/max-interval", seconds),
        None => out.line("message-expiry/max-interval", "unlimited"),
    }
    out.line("packets/max-packet-size", format_args!("{} bytes", mqtt.max_packet_size_bytes));
    out.line("receive-maximum/server-receive-maximum", mqtt.server_receive_maximum);
    keep_alive(out, &mqtt.keep_alive);
    out.line("topic-alias/enabled", mqtt.topic_alias_enabled);
    out.line("topic-alias/max-per-client", mqtt.topic_alias_max_per_client);
    out.line("topic-alias/to-clients/enabled", mqtt.topic_alias_to_clients_enabled);
    out.line("topic-alias/to-clients/max-per-client", mqtt.topic_alias_to_clients_max);
    out.line("response-information/template", mqtt.response_information.as_deref().unwrap_or("none"));
    match &mqtt.server_reference {
        None => out.line("server-reference/reference", "none"),
        Some(server) => {
            out.line("server-reference/reference", &server.reference);
            out.line("server-reference/at-shutdown", server.at_shutdown);
            out.line(
                "server-reference/refuse-connections",
                match server.refuse {
                    RefuseConnections::Never => "never",
                    RefuseConnections::WhenUnavailable => "when-unavailable",
                    RefuseConnections::Always => "always",
                },
            );
        }
    }
    out.line("subscription-identifier/enabled", mqtt.subscription_identifiers);
    out.line("wildcard-subscriptions/enabled", mqtt.wildcard_subscriptions);
    out.line("shared-subscriptions/enabled", mqtt.shared_subscriptions);
    out.line("quality-of-service/max-qos", mqtt.max_qos);
    out.line("retained-messages/enabled", mqtt.retained_messages);
    out.line("retained-messages/max-messages", mqtt.retained_messages_max);
    out.line("retained-messages/max-bytes", mqtt.retained_bytes_max);
    out.line("queued-messages/max-queue-size", mqtt.max_queue_size);
    out.line("queued-messages/strategy", if mqtt.discard_oldest { "discard-oldest" } else { "discard" });
}

fn keep_alive(out: &mut Page, keep_alive: &KeepAliveSettings) {
    let (policy, element, limit_s) = match keep_alive.policy {
        KeepAlivePolicy::HiveMq { max_s, .. } => ("hivemq", "max-keep-alive", Some(max_s)),
        KeepAlivePolicy::Emqx { server_s } => ("emqx", "server-keep-alive", server_s),
        KeepAlivePolicy::Mosquitto { max_s } => ("mosquitto", "max-keep-alive", max_s),
    };
    out.line("keep-alive/policy", policy);
    let element = format!("keep-alive/{element}");
    match limit_s {
        Some(limit_s) => out.seconds(&element, limit_s),
        None => out.line(&element, "none"),
    }
    if let KeepAlivePolicy::HiveMq { allow_unlimited, .. } = keep_alive.policy {
        out.line("keep-alive/allow-unlimited", allow_unlimited);
    }
    out.line("keep-alive/multiplier", f64::from(keep_alive.multiplier_milli) / 1000.0);
}

fn security(out: &mut Page, security: &SecuritySettings) {
    out.section("security");
    let anonymous = match (security.allow_anonymous, security.authentication.is_off()) {
        (true, true) => "true (accepted on every address)",
        (false, true) => "false (accepted on loopback only)",
        (true, false) => "true (accepted where no authenticator decides)",
        (false, false) => "false",
    };
    out.line("allow-anonymous/enabled", anonymous);
    authentication(out, &security.authentication);
    unstable_clients(out, security.unstable_clients.as_ref());
    out.line("allow-empty-client-id/enabled", security.allow_empty_client_id);
    out.line("payload-format-validation/enabled", security.payload_format_validation);
    out.line("utf8-validation/enabled", security.utf8_validation);
    out.line("allow-request-problem-information/enabled", security.allow_request_problem_information);
}

fn unstable_clients(out: &mut Page, clients: Option<&UnstableClients>) {
    let Some(clients) = clients else { return out.line("unstable-clients/enabled", "false") };
    let text = format!("{} connects or {} takeovers in {} s", clients.connects, clients.takeovers, clients.window_s);
    out.line("unstable-clients", text);
    match clients.ban {
        None => out.line("unstable-clients/ban/enabled", "false"),
        Some(ban) => {
            out.seconds("unstable-clients/ban/duration", ban.duration_s);
            out.line("unstable-clients/ban/addresses", ban.addresses);
        }
    }
}

fn authentication(out: &mut Page, authentication: &AuthenticationSettings) {
    if authentication.is_off() {
        out.line("authentication", "none");
    }
    if let Some(rbac) = &authentication.file_rbac {
        out.line("authentication/file-rbac", rbac.credentials.display());
        out.seconds("  credentials-reload-interval", rbac.reload_interval_s);
        let kind = match rbac.password_type {
            PasswordType::Hashed => "HASHED",
            PasswordType::Plain => "PLAIN",
        };
        out.line("  password-type", kind);
        match &rbac.listener_names {
            Some(names) => out.line("  listener-names", names.join(", ")),
            None => out.line("  listener-names", "all"),
        }
        out.line("  next-extension-instead-of-fail", rbac.next_instead_of_fail);
    }
    if let Some(name) = authentication.client_certificate {
        let name = match name {
            CertificateName::CommonName => "COMMON_NAME",
            CertificateName::SubjectAlternativeName => "SUBJECT_ALTERNATIVE_NAME",
        };
        out.line("authentication/client-certificate/user-name", name);
    }
    if let Some(jwt) = &authentication.jwt {
        self::jwt(out, jwt);
    }
}

fn jwt(out: &mut Page, jwt: &JwtSettings) {
    let from = match jwt.token_from {
        TokenFrom::Password => "PASSWORD",
        TokenFrom::UserName => "USER_NAME",
    };
    out.line("authentication/jwt/token-from", from);
    out.line("  authentication-method", jwt.method.as_deref().unwrap_or("none"));
    if jwt.sources.secret.is_some() {
        out.line("  secret", "***");
    }
    for path in jwt.sources.files() {
        out.line("  keys in", path.display());
    }
    out.seconds("  keys-reload-interval", jwt.reload_interval_s);
    out.line("  algorithm", list(jwt.algorithms.iter().copied().map(Algorithm::name), "none"));
    out.seconds("  leeway", jwt.leeway_s);
    out.line("  expiry-required", jwt.expiry_required);
    out.line("  issuer", list(jwt.issuers.iter().map(String::as_str), "any"));
    out.line("  audience", list(jwt.audiences.iter().map(String::as_str), "any"));
    out.line("  user-name-claim", &jwt.user_name_claim);
    out.line("  verify-claim", list(jwt.verify.iter().map(|verify| verify.claim.as_str()), "none"));
    out.line("  permissions-claim", &jwt.permissions_claim);
    out.line("  roles-claim", &jwt.roles_claim);
    let without = match jwt.without_permissions {
        WithoutPermissions::Nothing => "NONE",
        WithoutPermissions::All => "ALL",
        WithoutPermissions::FileRbac => "FILE_RBAC",
    };
    out.line("  without-permissions", without);
}

fn list<'a>(names: impl Iterator<Item = &'a str>, empty: &str) -> String {
    let names: Vec<&str> = names.collect();
    if names.is_empty() { empty.to_owned() } else { names.join(", ") }
}

fn event_log(out: &mut Page, log: &EventLogSettings) {
    out.section("event-log");
    if !log.enabled {
        out.line("enabled", "false");
        return;
    }
    match &log.folder {
        Some(folder) => out.line("folder", folder.display()),
        None => out.line("folder", "log in the data directory"),
    }
    out.line("max-file-size", format_args!("{} bytes", log.file_bytes_max));
    out.line("max-files", log.files_max);
}

fn restrictions(out: &mut Page, restrictions: &RestrictionSettings) {
    out.section("restrictions");
    match restrictions.max_connections {
        Some(max) => out.line("max-connections", max),
        None => out.line("max-connections", "unlimited"),
    }
    out.line("max-client-id-length", restrictions.max_client_id_length);
    out.line("max-topic-length", restrictions.max_topic_length);
    out.millis("no-connect-idle-timeout", restrictions.no_connect_idle_timeout_ms);
    match restrictions.incoming_bandwidth_throttling {
        0 => out.line("incoming-bandwidth-throttling", "off"),
        rate => out.line("incoming-bandwidth-throttling", format_args!("{rate} bytes/s")),
    }
    for (name, limit) in [
        ("max-qos-0-memory", restrictions.max_qos0_memory),
        ("max-incomplete-packet-memory", restrictions.max_incomplete_packet_memory),
    ] {
        match limit {
            Some(bytes) => out.line(name, format_args!("{bytes} bytes")),
            None => out.line(name, "a quarter of the memory"),
        }
    }
    let prevented = &restrictions.prevented;
    for (name, rules) in
        [("prevented-messages/inbound", &prevented.inbound), ("prevented-messages/outbound", &prevented.outbound)]
    {
        for rule in rules {
            let client = rule.client_id.as_deref().map_or("any client".to_owned(), |id| format!("client {id}"));
            out.line(name, format_args!("{} of {client}", rule.topic_filter));
        }
    }
}

fn persistence(out: &mut Page, mode: PersistenceMode) {
    out.section("persistence");
    out.line(
        "mode",
        match mode {
            PersistenceMode::File => "file",
            PersistenceMode::InMemory => "in-memory",
        },
    );
}

fn cluster(out: &mut Page, cluster: &ClusterSettings) {
    out.section("cluster");
    out.line("enabled", cluster.enabled);
    out.line("node-name", &cluster.node_name);
    match cluster.shards {
        Some(shards) => out.line("shards", shards),
        None => out.line("shards", format_args!("{SHARDS}, or as the data have it")),
    }
    out.millis("raft/heartbeat-interval", cluster.heartbeat_ms);
    out.millis("raft/election-timeout-min", cluster.election_timeout_min_ms);
    out.millis("raft/election-timeout-max", cluster.election_timeout_max_ms);
    out.millis("close-clients-without-majority-after", cluster.close_without_majority_ms);
    if cluster.enabled {
        out.line("transport/tcp", SocketAddr::new(cluster.bind_address, cluster.bind_port));
        out.line("reached by other nodes at", cluster.advertised());
        out.line("secret", "***");
        out.line("transport/tcp/tls", cluster.tls.as_ref().map_or("off: nodes do not encrypt what they say", node_tls));
        for node in &cluster.static_nodes {
            out.line("discovery/static/node", node);
        }
        if let Some(dns) = &cluster.dns {
            out.line("discovery/extension/address", &dns.address);
            out.seconds("discovery/extension/resolution-timeout", dns.resolution_timeout_s);
            out.seconds("discovery/extension/reload-interval", dns.reload_interval_s);
        }
        match (cluster.founders(), cluster.expected_nodes) {
            (None, _) => out.line("expected-nodes", "not told: joins a cluster, founds none"),
            (Some(_), None) => out.line("expected-nodes", "those listed"),
            (Some(count), _) => out.line("expected-nodes", count),
        }
    }
}

fn node_tls(tls: &NodeTlsSettings) -> &'static str {
    match (tls.hostname_verification, tls.optional) {
        (true, false) => "on",
        (false, false) => "on, a certificate of the trust store may be any node's",
        (true, true) => "optional: plain connections are taken and made too",
        (false, true) => "optional: plain connections are taken and made too; a certificate of the trust store may be any node's",
    }
}

fn addons(out: &mut Page, addons: &AddonSettings) {
    out.section("mqtt-addons");
    out.line("expired-messages-topic/enabled", addons.expired);
    out.line("dropped-messages-topic/enabled", addons.dropped);
    out.line("dead-messages-topic/enabled", addons.dead);
    let lifecycle = &addons.lifecycle;
    out.line("client-lifecycle-topic/enabled", lifecycle.enabled);
    out.line("client-lifecycle-topic/identifier", if lifecycle.identifier_username { "username" } else { "client-id" });
    out.line("client-lifecycle-topic/triggers", triggers(addons));
}

/// Lists the events that are published.
fn triggers(addons: &AddonSettings) -> String {
    let l = &addons.lifecycle;
    [
        (l.connected, "client-connected"),
        (l.client, "client-disconnected/client"),
        (l.server, "client-disconnected/server"),
        (l.session_taken_over, "client-disconnected/session-taken-over"),
        (l.unspecified, "client-disconnected/unspecified"),
    ]
    .iter()
    .filter(|(on, _)| *on)
    .map(|(_, name)| *name)
    .collect::<Vec<_>>()
    .join(", ")
}
