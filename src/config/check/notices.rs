//! Elements that are accepted without effect, accepted with a remark, or not supported by this version. A feature that lands takes its
//! entry out of this table, and that is all.

use crate::config::diagnostic::Level;

pub(in crate::config) struct Notice {
    /// A path of `rules`; everything below an element is covered by its notice.
    pub(in crate::config) path: &'static str,
    pub(in crate::config) level: Level,
    pub(in crate::config) text: &'static str,
    /// The flag that switches the section on; nothing is said while it is off.
    pub(in crate::config) when: Option<&'static str>,
    /// The value that asks for what the broker does anyway.
    pub(in crate::config) unless_value: Option<&'static str>,
}

impl Notice {
    const fn when(mut self, flag: &'static str) -> Self {
        self.when = Some(flag);
        self
    }

    const fn unless_value(mut self, value: &'static str) -> Self {
        self.unless_value = Some(value);
        self
    }
}

const fn notice(path: &'static str, level: Level, text: &'static str) -> Notice {
    Notice { path, level, text, when: None, unless_value: None }
}

const fn no_effect(path: &'static str) -> Notice {
    notice(path, Level::Warning, "has no effect in this version")
}

const fn accepted(path: &'static str, text: &'static str) -> Notice {
    notice(path, Level::Info, text)
}

const fn unsupported(path: &'static str, text: &'static str) -> Notice {
    notice(path, Level::Error, text)
}

const NO_TLS: &str = "not supported yet by this version: it has TLS for MQTT clients and between nodes; remove the element, or let a proxy in front of the broker end TLS";
const NO_DISCOVERY: &str = "not supported by this version; list the nodes in <discovery><static><node><host>..</host><port>..</port>\
                            </node></static></discovery>, or have a name resolved with <extension>";

const ALWAYS_PROTECTED: &str = "has no effect unless true: publishers are not read while too much waits for a node's threads, \
                                since what waits would grow without bound otherwise";

pub(in crate::config) const NOTICES: &[Notice] = &[
    // Listeners.
    no_effect("listeners/websocket-listener/allow-extensions").unless_value("false"),
    no_effect("listeners/tls-websocket-listener/allow-extensions").unless_value("false"),
    // MQTT, security, restrictions.
    no_effect("security/control-center-audit-log"),
    no_effect("security/rest-api-audit-log"),
    notice("overload-protection/enabled", Level::Warning, ALWAYS_PROTECTED).unless_value("true"),
    // Cluster.
    notice("cluster/transport/udp", Level::Warning, "treated as <tcp>: nodes talk over TCP on the same address and port")
        .when("cluster/enabled"),
    unsupported("cluster/discovery/multicast", NO_DISCOVERY).when("cluster/enabled"),
    unsupported("cluster/discovery/broadcast", NO_DISCOVERY).when("cluster/enabled"),
    accepted("cluster/replication/replica-count", "accepted without effect: all nodes of the cluster hold a copy of everything")
        .when("cluster/enabled"),
    notice(
        "cluster/failure-detection",
        Level::Warning,
        "has no effect: failures are detected by <cluster><raft>, see its <heartbeat-interval> and <election-timeout-min>",
    )
    .when("cluster/enabled"),
    notice("cluster/overload-protection/enabled", Level::Warning, ALWAYS_PROTECTED).when("cluster/enabled").unless_value("true"),
    // HTTP.
    notice("rest-api", Level::Warning, "the REST API is not part of this version; its listeners serve metrics and health only")
        .when("rest-api/enabled"),
    no_effect("rest-api/auth").when("rest-api/enabled").unless_value("false"),
    unsupported("rest-api/listeners/https", NO_TLS).when("rest-api/enabled"),
    notice(
        "control-center",
        Level::Warning,
        "there is no control center in this version; its listeners serve metrics and health only",
    )
    .when("control-center/enabled"),
    no_effect("control-center/users").when("control-center/enabled"),
    unsupported("control-center/listeners/https", NO_TLS).when("control-center/enabled"),
    // Of no use to this broker.
    accepted("anonymous-usage-statistics", "accepted without effect: this broker sends no statistics"),
    accepted("client-event-history", "accepted without effect: there is no client event history"),
    accepted("data-hub", "accepted without effect: there is no Data Hub"),
    accepted("internal", "accepted without effect: HiveMQ's internal options mean nothing here"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::check::rules::{Kind, Rule, find};

    #[test]
    fn notices_speak_of_known_elements_and_flags() {
        for notice in NOTICES {
            assert!(find(notice.path).is_some(), "{}", notice.path);
            assert!(
                notice.when.is_none_or(|flag| matches!(find(flag), Some(Rule { kind: Kind::Flag { .. }, .. }))),
                "{}",
                notice.path
            );
        }
    }
}
