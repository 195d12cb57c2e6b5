//! Every element of `config.xml` this version knows, with its type, range and default (spec/hivemq.md 1.3 to 1.8). The shape of a file
//! is checked against this list alone, and the settings are read through it, so that a range stands in one place.

use crate::config::settings::SHARDS;

/// What an element may hold.
pub(in crate::config) enum Kind {
    /// Elements only.
    Section,
    /// Nothing: the element being there is what it says.
    Mark,
    /// Anything; not looked into.
    Any,
    Flag {
        default: bool,
    },
    Number(Number),
    /// A number above 0, with a fraction or not.
    Rate,
    /// A number from [`MULTIPLIER_MIN`] to [`MULTIPLIER_MAX`], with a fraction or not.
    Multiplier,
    /// One of the words; the first is the default.
    Choice(&'static [&'static str]),
    Text,
    /// Like `Text`, and never repeated in a message.
    Secret,
}

/// A whole number.
pub(in crate::config) struct Number {
    pub(in crate::config) min: i64,
    pub(in crate::config) max: i64,
    /// `None`: there is no default, the reader of the element says what happens without it.
    pub(in crate::config) default: Option<i64>,
    /// What takes the place of a number out of range; `None`: it is an error.
    pub(in crate::config) replace: Option<fn(i64) -> i64>,
}

pub(in crate::config) struct Rule {
    /// Below `<hivemq>`.
    pub(in crate::config) path: &'static str,
    pub(in crate::config) kind: Kind,
    /// Whether it may stand more than once in its parent.
    pub(in crate::config) many: bool,
}

/// Finds the rule of an element.
pub(in crate::config) fn find(path: &str) -> Option<&'static Rule> {
    all().find(|rule| rule.path == path)
}

/// Every rule.
pub(in crate::config) fn all() -> impl Iterator<Item = &'static Rule> {
    GROUPS.iter().copied().flatten()
}

/// Names of the elements that may stand in the section `path`; "" is the root.
pub(in crate::config) fn children_of(path: &str) -> Vec<&'static str> {
    all().filter(|rule| parent(rule.path) == path).map(|rule| name(rule.path)).collect()
}

/// The last part of a path.
pub(in crate::config) fn name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// What a path has in front of its last part; "" for the children of the root.
pub(in crate::config) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether an element stands in one section with a secret, which may have got into it by mistake.
pub(in crate::config) fn is_beside_secret(path: &str) -> bool {
    all().any(|rule| matches!(rule.kind, Kind::Secret) && parent(rule.path) == parent(path))
}

const fn section(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Section, many: false }
}

const fn sections(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Section, many: true }
}

const fn mark(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Mark, many: false }
}

const fn any(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Any, many: false }
}

const fn flag(path: &'static str, default: bool) -> Rule {
    Rule { path, kind: Kind::Flag { default }, many: false }
}

const fn text(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Text, many: false }
}

/// A text that may stand more than once.
const fn texts(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Text, many: true }
}

const fn secret(path: &'static str) -> Rule {
    Rule { path, kind: Kind::Secret, many: false }
}

const fn choice(path: &'static str, words: &'static [&'static str]) -> Rule {
    Rule { path, kind: Kind::Choice(words), many: false }
}

/// A number that is refused out of its range.
const fn strict(path: &'static str, min: i64, max: i64, default: Option<i64>) -> Rule {
    Rule { path, kind: Kind::Number(Number { min, max, default, replace: None }), many: false }
}

/// A number that is replaced, with a warning, out of its range.
const fn clamped(path: &'static str, min: i64, max: i64, default: i64, replace: fn(i64) -> i64) -> Rule {
    Rule { path, kind: Kind::Number(Number { min, max, default: Some(default), replace: Some(replace) }), many: false }
}

const fn port(path: &'static str) -> Rule {
    strict(path, 0, U16_MAX, None)
}

/// A port that others must know, so that 0 makes no sense.
const fn fixed_port(path: &'static str, default: Option<i64>) -> Rule {
    strict(path, 1, U16_MAX, default)
}

const U16_MAX: i64 = 65_535;
const U32_MAX: i64 = 4_294_967_295;
/// Stands for "no limit", one above the largest Message Expiry Interval.
pub(in crate::config) const MESSAGE_EXPIRY_UNLIMITED: i64 = U32_MAX + 1;
/// Stands for "no limit".
pub(in crate::config) const CONNECTIONS_UNLIMITED: i64 = -1;
/// One and a half Keep Alives is when the specification wants a silent client closed [MQTT-3.1.2-22]: never before.
pub(in crate::config) const MULTIPLIER_MIN: f64 = 1.5;
pub(in crate::config) const MULTIPLIER_MAX: f64 = 10.0;
const PACKET_SIZE_MIN: i64 = 15;
const PACKET_SIZE_MAX: i64 = 268_435_460;

const GROUPS: &[&[Rule]] = &[
    ROOT,
    SHUTDOWN,
    EVENT_LOG,
    LISTENERS,
    TCP_LISTENER,
    WEBSOCKET_LISTENER,
    TLS_TCP_LISTENER,
    TLS_WEBSOCKET_LISTENER,
    TCP_TLS,
    WEBSOCKET_TLS,
    MQTT,
    SECURITY,
    JWT,
    UNSTABLE_CLIENTS,
    RESTRICTIONS,
    CLUSTER,
    CLUSTER_TLS,
    CLUSTER_UDP_TLS,
    HTTP,
    ADDONS,
    IGNORED,
];

const ROOT: &[Rule] = &[
    section("listeners"),
    section("mqtt"),
    section("security"),
    section("restrictions"),
    section("persistence"),
    choice("persistence/mode", &["file", "in-memory"]),
    section("cluster"),
    section("overload-protection"),
    flag("overload-protection/enabled", true),
    section("rest-api"),
    section("health-api"),
    section("control-center"),
    section("shutdown"),
    section("event-log"),
    section("http"),
    section("prometheus"),
    section("mqtt-addons"),
    section("anonymous-usage-statistics"),
    section("client-event-history"),
    any("data-hub"),
    any("internal"),
];

const LISTENERS: &[Rule] = &[
    sections("listeners/tcp-listener"),
    sections("listeners/websocket-listener"),
    sections("listeners/tls-tcp-listener"),
    sections("listeners/tls-websocket-listener"),
];

/// What all kinds of listeners share; a macro because paths are literals.
macro_rules! listener_rules {
    ($listener:literal $(, $more:expr)*) => {
        &[
            port(concat!("listeners/", $listener, "/port")),
            text(concat!("listeners/", $listener, "/bind-address")),
            text(concat!("listeners/", $listener, "/name")),
            flag(concat!("listeners/", $listener, "/proxy-protocol"), false),
            section(concat!("listeners/", $listener, "/connect-overload-protection")),
            flag(concat!("listeners/", $listener, "/connect-overload-protection/enabled"), true),
            Rule { path: concat!("listeners/", $listener, "/connect-overload-protection/connect-rate"), kind: Kind::Rate, many: false },
            strict(concat!("listeners/", $listener, "/connect-overload-protection/connect-burst-size"), 1, i64::MAX, None),
            $($more),*
        ]
    };
}

const TCP_LISTENER: &[Rule] = listener_rules!("tcp-listener");

const TLS_TCP_LISTENER: &[Rule] = listener_rules!("tls-tcp-listener");

macro_rules! websocket_rules {
    ($listener:literal) => {
        listener_rules!(
            $listener,
            text(concat!("listeners/", $listener, "/path")),
            section(concat!("listeners/", $listener, "/subprotocols")),
            Rule { path: concat!("listeners/", $listener, "/subprotocols/subprotocol"), kind: Kind::Text, many: true },
            flag(concat!("listeners/", $listener, "/allow-extensions"), false)
        )
    };
}

const WEBSOCKET_LISTENER: &[Rule] = websocket_rules!("websocket-listener");

const TLS_WEBSOCKET_LISTENER: &[Rule] = websocket_rules!("tls-websocket-listener");

/// A `tls` block (spec/hivemq.md 1.4), by its path, its modes of client authentication, and the bounds and default of its handshake timeout.
macro_rules! tls_rules {
    ($block:literal, $modes:expr, $timeout:expr $(, $more:expr)*) => {
        &[
            section($block),
            section(concat!($block, "/keystore")),
            text(concat!($block, "/keystore/path")),
            secret(concat!($block, "/keystore/password")),
            secret(concat!($block, "/keystore/private-key-password")),
            // Own element.
            text(concat!($block, "/keystore/private-key-path")),
            section(concat!($block, "/truststore")),
            text(concat!($block, "/truststore/path")),
            secret(concat!($block, "/truststore/password")),
            // Own element.
            texts(concat!($block, "/truststore/crl")),
            choice(concat!($block, "/client-authentication-mode"), $modes),
            section(concat!($block, "/protocols")),
            texts(concat!($block, "/protocols/protocol")),
            section(concat!($block, "/cipher-suites")),
            texts(concat!($block, "/cipher-suites/cipher-suite")),
            flag(concat!($block, "/prefer-server-cipher-suites"), false),
            strict(concat!($block, "/handshake-timeout"), $timeout.0, $timeout.1, Some($timeout.2)),
            $($more),*
        ]
    };
}

const LISTENER_MODES: &[&str] = &["NONE", "OPTIONAL", "REQUIRED"];
/// HiveMQ has no upper bound; 49 days keep sums of times far from overflow.
const LISTENER_HANDSHAKE: (i64, i64, i64) = (0, U32_MAX, 10_000);

const TCP_TLS: &[Rule] = tls_rules!("listeners/tls-tcp-listener/tls", LISTENER_MODES, LISTENER_HANDSHAKE);

const WEBSOCKET_TLS: &[Rule] = tls_rules!("listeners/tls-websocket-listener/tls", LISTENER_MODES, LISTENER_HANDSHAKE);

/// Between nodes there is no other way.
const NODE_MODES: &[&str] = &["REQUIRED"];
/// As long as the rest of a connection between nodes takes at most; a peer that is silent for 3 s may be dead.
const NODE_HANDSHAKE: (i64, i64, i64) = (100, 60_000, 2_000);

/// The last two are our own.
const CLUSTER_TLS: &[Rule] = tls_rules!(
    "cluster/transport/tcp/tls",
    NODE_MODES,
    NODE_HANDSHAKE,
    flag("cluster/transport/tcp/tls/enabled", true),
    flag("cluster/transport/tcp/tls/hostname-verification", true),
    flag("cluster/transport/tcp/tls/optional", false)
);

const CLUSTER_UDP_TLS: &[Rule] = tls_rules!(
    "cluster/transport/udp/tls",
    NODE_MODES,
    NODE_HANDSHAKE,
    flag("cluster/transport/udp/tls/enabled", true),
    flag("cluster/transport/udp/tls/hostname-verification", true),
    flag("cluster/transport/udp/tls/optional", false)
);

const MQTT: &[Rule] = &[
    section("mqtt/session-expiry"),
    clamped("mqtt/session-expiry/max-interval", 0, U32_MAX, U32_MAX, |v| if v < 0 { 0 } else { U32_MAX }),
    section("mqtt/message-expiry"),
    clamped("mqtt/message-expiry/max-interval", 1, MESSAGE_EXPIRY_UNLIMITED, MESSAGE_EXPIRY_UNLIMITED, |_| {
        MESSAGE_EXPIRY_UNLIMITED
    }),
    section("mqtt/packets"),
    clamped("mqtt/packets/max-packet-size", PACKET_SIZE_MIN, PACKET_SIZE_MAX, PACKET_SIZE_MAX, |v| {
        if (1..PACKET_SIZE_MIN).contains(&v) { PACKET_SIZE_MIN } else { PACKET_SIZE_MAX }
    }),
    section("mqtt/receive-maximum"),
    clamped("mqtt/receive-maximum/server-receive-maximum", 1, U16_MAX, 10, |v| if v < 1 { 10 } else { U16_MAX }),
    section("mqtt/keep-alive"),
    clamped("mqtt/keep-alive/max-keep-alive", 1, U16_MAX, U16_MAX, |_| U16_MAX),
    flag("mqtt/keep-alive/allow-unlimited", true),
    // Own elements.
    choice("mqtt/keep-alive/policy", &["hivemq", "emqx", "mosquitto"]),
    strict("mqtt/keep-alive/server-keep-alive", 1, U16_MAX, None),
    Rule { path: "mqtt/keep-alive/multiplier", kind: Kind::Multiplier, many: false },
    section("mqtt/topic-alias"),
    flag("mqtt/topic-alias/enabled", true),
    clamped("mqtt/topic-alias/max-per-client", 1, U16_MAX, 5, |v| if v < 1 { 1 } else { U16_MAX }),
    // Own elements.
    section("mqtt/topic-alias/to-clients"),
    flag("mqtt/topic-alias/to-clients/enabled", true),
    strict("mqtt/topic-alias/to-clients/max-per-client", 1, U16_MAX, Some(16)),
    section("mqtt/response-information"),
    text("mqtt/response-information/template"),
    section("mqtt/server-reference"),
    text("mqtt/server-reference/reference"),
    flag("mqtt/server-reference/at-shutdown", true),
    choice("mqtt/server-reference/refuse-connections", &["never", "when-unavailable", "always"]),
    section("mqtt/subscription-identifier"),
    flag("mqtt/subscription-identifier/enabled", true),
    section("mqtt/wildcard-subscriptions"),
    flag("mqtt/wildcard-subscriptions/enabled", true),
    section("mqtt/shared-subscriptions"),
    flag("mqtt/shared-subscriptions/enabled", true),
    section("mqtt/quality-of-service"),
    clamped("mqtt/quality-of-service/max-qos", 0, 2, 2, |_| 2),
    section("mqtt/retained-messages"),
    flag("mqtt/retained-messages/enabled", true),
    // Our own: limits of the whole cluster.
    strict("mqtt/retained-messages/max-messages", 1, i64::MAX, Some(1_000_000)),
    strict("mqtt/retained-messages/max-bytes", 1, i64::MAX, Some(1_073_741_824)),
    section("mqtt/queued-messages"),
    // HiveMQ takes a long; lengths of queues are 32 bit here.
    clamped("mqtt/queued-messages/max-queue-size", 1, U32_MAX, 1000, |v| if v < 1 { 1000 } else { U32_MAX }),
    choice("mqtt/queued-messages/strategy", &["discard", "discard-oldest"]),
];

const SECURITY: &[Rule] = &[
    section("security/allow-empty-client-id"),
    flag("security/allow-empty-client-id/enabled", true),
    section("security/payload-format-validation"),
    flag("security/payload-format-validation/enabled", false),
    section("security/utf8-validation"),
    flag("security/utf8-validation/enabled", true),
    section("security/allow-request-problem-information"),
    flag("security/allow-request-problem-information/enabled", true),
    section("security/control-center-audit-log"),
    flag("security/control-center-audit-log/enabled", true),
    section("security/rest-api-audit-log"),
    flag("security/rest-api-audit-log/enabled", true),
    // Own element.
    section("security/allow-anonymous"),
    flag("security/allow-anonymous/enabled", false),
    // Own element.
    section("security/authentication"),
    section("security/authentication/file-rbac"),
    flag("security/authentication/file-rbac/enabled", true),
    text("security/authentication/file-rbac/folder"),
    section("security/authentication/client-certificate"),
    flag("security/authentication/client-certificate/enabled", true),
    choice("security/authentication/client-certificate/user-name", &["COMMON_NAME", "SUBJECT_ALTERNATIVE_NAME"]),
];

/// Own element.
const JWT: &[Rule] = &[
    section("security/authentication/jwt"),
    flag("security/authentication/jwt/enabled", true),
    choice("security/authentication/jwt/token-from", &["PASSWORD", "USER_NAME"]),
    text("security/authentication/jwt/authentication-method"),
    secret("security/authentication/jwt/secret"),
    text("security/authentication/jwt/secret-file"),
    flag("security/authentication/jwt/secret-base64", false),
    texts("security/authentication/jwt/public-key-file"),
    text("security/authentication/jwt/jwks-file"),
    strict("security/authentication/jwt/keys-reload-interval", 1, 86_400, Some(60)),
    texts("security/authentication/jwt/algorithm"),
    strict("security/authentication/jwt/leeway", 0, 3_600, Some(10)),
    flag("security/authentication/jwt/expiry-required", true),
    texts("security/authentication/jwt/issuer"),
    texts("security/authentication/jwt/audience"),
    text("security/authentication/jwt/user-name-claim"),
    sections("security/authentication/jwt/verify-claim"),
    text("security/authentication/jwt/verify-claim/claim"),
    text("security/authentication/jwt/verify-claim/value"),
    text("security/authentication/jwt/permissions-claim"),
    text("security/authentication/jwt/roles-claim"),
    choice("security/authentication/jwt/without-permissions", &["NONE", "ALL", "FILE_RBAC"]),
];

/// Own elements; the numbers are those of EMQX's flapping detection, which bans.
const UNSTABLE_CLIENTS: &[Rule] = &[
    section("security/unstable-clients"),
    flag("security/unstable-clients/enabled", true),
    strict("security/unstable-clients/window", 1, 86_400, Some(60)),
    strict("security/unstable-clients/connects", 2, 1_000_000, Some(15)),
    strict("security/unstable-clients/takeovers", 2, 1_000_000, Some(5)),
    section("security/unstable-clients/ban"),
    flag("security/unstable-clients/ban/enabled", false),
    strict("security/unstable-clients/ban/duration", 1, 31_536_000, Some(300)),
    flag("security/unstable-clients/ban/addresses", false),
];

const RESTRICTIONS: &[Rule] = &[
    clamped("restrictions/max-connections", CONNECTIONS_UNLIMITED, i64::MAX, CONNECTIONS_UNLIMITED, |_| CONNECTIONS_UNLIMITED),
    clamped("restrictions/max-client-id-length", 1, U16_MAX, U16_MAX, |_| U16_MAX),
    clamped("restrictions/max-topic-length", 1, U16_MAX, U16_MAX, |_| U16_MAX),
    // HiveMQ has no upper bound; 49 days keep sums of times far from overflow.
    clamped("restrictions/no-connect-idle-timeout", 0, U32_MAX, 10_000, |v| if v < 0 { 10_000 } else { U32_MAX }),
    clamped("restrictions/incoming-bandwidth-throttling", 0, i64::MAX, 0, |_| 0),
    // Own elements, bytes; HiveMQ has the first as an internal option, and a quarter of the memory for its default, too.
    strict("restrictions/max-qos-0-memory", 1, i64::MAX, None),
    strict("restrictions/max-incomplete-packet-memory", 1, i64::MAX, None),
    section("restrictions/prevented-messages"),
    sections("restrictions/prevented-messages/inbound"),
    text("restrictions/prevented-messages/inbound/topic-filter"),
    text("restrictions/prevented-messages/inbound/client-id"),
    sections("restrictions/prevented-messages/outbound"),
    text("restrictions/prevented-messages/outbound/topic-filter"),
    text("restrictions/prevented-messages/outbound/client-id"),
];

const CLUSTER: &[Rule] = &[
    flag("cluster/enabled", false),
    section("cluster/transport"),
    section("cluster/transport/tcp"),
    text("cluster/transport/tcp/bind-address"),
    // HiveMQ's default is not established; its charts use 7000.
    fixed_port("cluster/transport/tcp/bind-port", Some(7000)),
    text("cluster/transport/tcp/external-address"),
    fixed_port("cluster/transport/tcp/external-port", None),
    section("cluster/transport/udp"),
    text("cluster/transport/udp/bind-address"),
    fixed_port("cluster/transport/udp/bind-port", Some(7000)),
    text("cluster/transport/udp/external-address"),
    fixed_port("cluster/transport/udp/external-port", None),
    flag("cluster/transport/udp/multicast-enabled", true),
    text("cluster/transport/udp/multicast-address"),
    fixed_port("cluster/transport/udp/multicast-port", None),
    section("cluster/discovery"),
    section("cluster/discovery/static"),
    sections("cluster/discovery/static/node"),
    text("cluster/discovery/static/node/host"),
    fixed_port("cluster/discovery/static/node/port", None),
    any("cluster/discovery/multicast"),
    any("cluster/discovery/broadcast"),
    section("cluster/discovery/extension"),
    text("cluster/discovery/extension/address"),
    strict("cluster/discovery/extension/resolution-timeout", 1, 3_600, Some(30)),
    strict("cluster/discovery/extension/reload-interval", 1, 86_400, Some(30)),
    section("cluster/replication"),
    strict("cluster/replication/replica-count", 1, i64::MAX, Some(2)),
    section("cluster/failure-detection"),
    section("cluster/failure-detection/heartbeat"),
    flag("cluster/failure-detection/heartbeat/enabled", true),
    strict("cluster/failure-detection/heartbeat/interval", 0, i64::MAX, Some(3000)),
    strict("cluster/failure-detection/heartbeat/timeout", 0, i64::MAX, Some(9000)),
    section("cluster/failure-detection/tcp-health-check"),
    flag("cluster/failure-detection/tcp-health-check/enabled", true),
    text("cluster/failure-detection/tcp-health-check/bind-address"),
    port("cluster/failure-detection/tcp-health-check/bind-port"),
    strict("cluster/failure-detection/tcp-health-check/port-range", 0, U16_MAX, Some(50)),
    text("cluster/failure-detection/tcp-health-check/external-address"),
    port("cluster/failure-detection/tcp-health-check/external-port"),
    // Also taken here from old files.
    section("cluster/overload-protection"),
    flag("cluster/overload-protection/enabled", true),
    // Own elements.
    text("cluster/node-name"),
    strict("cluster/expected-nodes", 0, 1_000, None),
    Rule { path: "cluster/secret", kind: Kind::Secret, many: false },
    strict("cluster/shards", 1, 64, Some(SHARDS as i64)),
    section("cluster/raft"),
    strict("cluster/raft/heartbeat-interval", 10, 60_000, Some(200)),
    strict("cluster/raft/election-timeout-min", 30, 600_000, Some(600)),
    strict("cluster/raft/election-timeout-max", 31, 600_000, Some(1200)),
    strict("cluster/close-clients-without-majority-after", 0, 3_600_000, Some(10_000)),
];

/// Own elements. Kubernetes kills after 30 s.
const SHUTDOWN: &[Rule] = &[
    strict("shutdown/delay", 0, 3600, Some(0)),
    strict("shutdown/clients-per-second", 1, 1_000_000, Some(1000)),
    strict("shutdown/timeout", 1, 86_400, Some(25)),
];

/// Own elements; sizes and number are those of HiveMQ's log configuration.
const EVENT_LOG: &[Rule] = &[
    flag("event-log/enabled", true),
    text("event-log/folder"),
    strict("event-log/max-file-size", 65_536, 1_099_511_627_776, Some(104_857_600)),
    strict("event-log/max-files", 1, 1000, Some(5)),
];

const HTTP: &[Rule] = &[
    // Own element: metrics and health on one port.
    strict("http/port", 0, U16_MAX, Some(8080)),
    text("http/bind-address"),
    text("http/name"),
    // Own element: the listener of HiveMQ's Prometheus extension.
    flag("prometheus/enabled", true),
    strict("prometheus/port", 0, U16_MAX, Some(9399)),
    text("prometheus/bind-address"),
    text("prometheus/metric-path"),
    flag("rest-api/enabled", false),
    section("rest-api/auth"),
    flag("rest-api/auth/enabled", false),
    section("rest-api/listeners"),
    sections("rest-api/listeners/http"),
    strict("rest-api/listeners/http/port", 0, U16_MAX, Some(8888)),
    text("rest-api/listeners/http/bind-address"),
    text("rest-api/listeners/http/name"),
    Rule { path: "rest-api/listeners/https", kind: Kind::Any, many: true },
    flag("health-api/enabled", false),
    section("health-api/listeners"),
    sections("health-api/listeners/http"),
    strict("health-api/listeners/http/port", 0, U16_MAX, Some(8889)),
    text("health-api/listeners/http/bind-address"),
    text("health-api/listeners/http/name"),
    flag("control-center/enabled", true),
    section("control-center/listeners"),
    sections("control-center/listeners/http"),
    strict("control-center/listeners/http/port", 0, U16_MAX, Some(8080)),
    text("control-center/listeners/http/bind-address"),
    text("control-center/listeners/http/name"),
    Rule { path: "control-center/listeners/https", kind: Kind::Any, many: true },
    any("control-center/users"),
];

const ADDONS: &[Rule] = &[
    section("mqtt-addons/expired-messages-topic"),
    flag("mqtt-addons/expired-messages-topic/enabled", false),
    section("mqtt-addons/dropped-messages-topic"),
    flag("mqtt-addons/dropped-messages-topic/enabled", false),
    section("mqtt-addons/dead-messages-topic"),
    flag("mqtt-addons/dead-messages-topic/enabled", false),
    section("mqtt-addons/client-lifecycle-topic"),
    flag("mqtt-addons/client-lifecycle-topic/enabled", false),
    section("mqtt-addons/client-lifecycle-topic/identifier"),
    mark("mqtt-addons/client-lifecycle-topic/identifier/client-id"),
    mark("mqtt-addons/client-lifecycle-topic/identifier/username"),
    section("mqtt-addons/client-lifecycle-topic/triggers"),
    mark("mqtt-addons/client-lifecycle-topic/triggers/client-connected"),
    section("mqtt-addons/client-lifecycle-topic/triggers/client-disconnected"),
    mark("mqtt-addons/client-lifecycle-topic/triggers/client-disconnected/client"),
    mark("mqtt-addons/client-lifecycle-topic/triggers/client-disconnected/server"),
    mark("mqtt-addons/client-lifecycle-topic/triggers/client-disconnected/session-taken-over"),
    mark("mqtt-addons/client-lifecycle-topic/triggers/client-disconnected/unspecified"),
];

const IGNORED: &[Rule] = &[
    flag("anonymous-usage-statistics/enabled", true),
    flag("client-event-history/enabled", false),
    strict("client-event-history/lifetime", 1, 864_000, Some(604_800)),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_rule_has_a_section_above_it_and_stands_once() {
        let mut seen = HashSet::new();
        for rule in all() {
            assert!(seen.insert(rule.path), "{} stands twice", rule.path);
            let above = parent(rule.path);
            assert!(above.is_empty() || matches!(find(above), Some(Rule { kind: Kind::Section, .. })), "{}", rule.path);
        }
    }

    #[test]
    fn defaults_and_replacements_are_in_range() {
        for rule in all() {
            let Kind::Number(number) = &rule.kind else { continue };
            let range = number.min..=number.max;
            assert!(number.default.is_none_or(|d| range.contains(&d)), "{}", rule.path);
            if let Some(replace) = number.replace {
                for bad in [i64::MIN, number.min.saturating_sub(1), number.max.saturating_add(1), i64::MAX] {
                    assert!(range.contains(&replace(bad)), "{} for {bad}", rule.path);
                }
            }
        }
    }
}
