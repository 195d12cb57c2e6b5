//! Variables by which HiveMQ's images are configured (spec/hivemq.md 10.4). HiveMQ's entry point writes them into `config.xml`; here the
//! program reads them itself, and what the file says goes before them. Those of DNS discovery are read in `cluster`, the log folder in
//! `event_log`.
//!
//! One exception: `HIVEMQ_ALLOW_ALL_CLIENTS=false` closes what the file opens. Whoever sets it means nobody to come in, and the file of the
//! image, which opens it as HiveMQ's does, is not theirs.

use std::net::{IpAddr, Ipv4Addr};

use super::exposure::Bound;
use super::http::METRIC_PATH;
use super::view::View;
use crate::config::diagnostic::{Level, quote};
use crate::config::settings::{HttpListenerKind, HttpListenerSettings, SecuritySettings};

const CLUSTER_PORT: &str = "HIVEMQ_CLUSTER_PORT";
const BIND_ADDRESS: &str = "HIVEMQ_BIND_ADDRESS";
const TRANSPORT_TYPE: &str = "HIVEMQ_CLUSTER_TRANSPORT_TYPE";
const ALLOW_ALL_CLIENTS: &str = "HIVEMQ_ALLOW_ALL_CLIENTS";
const REST_API_ENABLED: &str = "HIVEMQ_REST_API_ENABLED";
const REST_API_PORT: u16 = 8888;

/// Accepted, and of no effect, with the reason.
const WITHOUT_EFFECT: [(&str, Level, &str); 4] = [
    ("HIVEMQ_LICENSE", Level::Info, "accepted without effect: this broker needs no license"),
    (
        "HIVEMQ_CONTROL_CENTER_USER",
        Level::Warning,
        "has no effect: there is no control center in this version, and the status page asks nobody for a password",
    ),
    (
        "HIVEMQ_CONTROL_CENTER_PASSWORD",
        Level::Warning,
        "has no effect: there is no control center in this version, and the status page asks nobody for a password",
    ),
    (
        "HIVEMQ_VERBOSE_ENTRYPOINT",
        Level::Info,
        "accepted without effect: there is no entry point script; start with --log debug to see more",
    ),
];

/// Why a variable has no effect, where it has none.
pub(in crate::config) fn without_effect(name: &str) -> Option<&'static str> {
    WITHOUT_EFFECT.iter().find(|(variable, ..)| *variable == name).map(|(.., reason)| *reason)
}

/// What the environment says to a question.
pub(super) struct Environment<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    root: &'a View<'a>,
}

impl<'a> Environment<'a> {
    /// Also tells of the variables that have no effect.
    pub(super) fn new(root: &'a View<'a>, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let environment = Self { env, root };
        for (name, level, text) in WITHOUT_EFFECT {
            // The image of HiveMQ sets them to nothing, too.
            if environment.value(name).is_some_and(|value| !value.eq_ignore_ascii_case("false")) {
                environment.tell(level, name, text);
            }
        }
        environment
    }

    /// The cluster's port, where the file has none.
    pub(super) fn cluster_port(&self, transport: &View<'_>) -> Option<u16> {
        let text = self.unless_written(CLUSTER_PORT, &transport.at("bind-port"))?;
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        if port.is_none() {
            // What Kubernetes sets in every pod beside a Service of that name.
            let service = if text.contains("://") {
                "; Kubernetes sets it so where there is a Service named hivemq-cluster: set enableServiceLinks: false in the pod's spec, or \
                 rename the Service"
            } else {
                "; correct the value"
            };
            self.error(CLUSTER_PORT, &format!("found {}; allowed: 1 to 65535{service}", quote(&text)));
        }
        port
    }

    /// The address that the cluster's port is bound to, where the file has none.
    pub(super) fn bind_address(&self, transport: &View<'_>) -> Option<IpAddr> {
        let text = self.unless_written(BIND_ADDRESS, &transport.at("bind-address"))?;
        let address = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
        if address.is_none() {
            let found = quote(&text);
            self.error(
                BIND_ADDRESS,
                &format!("found {found}; allowed: an IP address of this machine, 0.0.0.0 for all of them; correct the value"),
            );
        }
        address
    }

    /// Nodes talk over TCP alone, so nothing follows from it.
    pub(super) fn check_transport(&self) {
        let Some(text) = self.value(TRANSPORT_TYPE) else { return };
        match text.to_ascii_uppercase().as_str() {
            "TCP" => {}
            "UDP" => self.tell(
                Level::Warning,
                TRANSPORT_TYPE,
                "UDP is treated as TCP: nodes talk over TCP on the same address and port",
            ),
            _ => self.error(
                TRANSPORT_TYPE,
                &format!("found {}; allowed: TCP (UDP is treated as TCP); correct the value, or do not set it", quote(&text)),
            ),
        }
    }

    /// Whether clients without credentials are let in, when the file has had its say.
    pub(super) fn apply_anonymous(&self, security: &mut SecuritySettings) {
        let Some(allowed) = self.flag(ALLOW_ALL_CLIENTS) else { return };
        let element = self.root.at("security/allow-anonymous/enabled");
        match (allowed, element.exists()) {
            (true, false) => security.allow_anonymous = true,
            (true, true) if !security.allow_anonymous => {
                element.warning(format!(
                    "is false, and the environment variable {ALLOW_ALL_CLIENTS} is true; the file goes before it"
                ));
            }
            (true, true) => {}
            (false, _) => {
                if security.allow_anonymous {
                    element.warning(format!(
                        "is true, and the environment variable {ALLOW_ALL_CLIENTS} is false: clients without credentials are not let in"
                    ));
                }
                security.allow_anonymous = false;
            }
        }
    }

    /// The listener of the REST API, where the file has none: that of HiveMQ's image.
    pub(super) fn rest_api<'b>(&self, root: &View<'b>, http: &mut Vec<HttpListenerSettings>, bound: &mut Vec<Bound<'b>>) {
        let element = root.at("rest-api");
        if self.flag(REST_API_ENABLED) != Some(true) || element.exists() {
            return;
        }
        self.tell(
            Level::Warning,
            REST_API_ENABLED,
            &format!("the REST API is not part of this version; port {REST_API_PORT} serves metrics and health only"),
        );
        let bind_address = Ipv4Addr::UNSPECIFIED.into();
        bound.push(Bound { element, address: bind_address, port: REST_API_PORT, mqtt: false });
        let name = format!("http-listener-{REST_API_PORT}");
        http.push(HttpListenerSettings {
            kind: HttpListenerKind::RestApi,
            name,
            bind_address,
            port: REST_API_PORT,
            metric_path: METRIC_PATH.to_owned(),
        });
    }

    /// A variable that is set to something.
    fn value(&self, name: &str) -> Option<String> {
        (self.env)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    /// A variable whose element the file does not have. One that says something else than the file is told.
    fn unless_written(&self, name: &str, element: &View<'_>) -> Option<String> {
        let text = self.value(name)?;
        if !element.exists() {
            return Some(text);
        }
        if element.own_text() != Some(text.as_str()) {
            element.warning(format!("goes before the environment variable {name}, which says something else"));
        }
        None
    }

    fn flag(&self, name: &str) -> Option<bool> {
        let text = self.value(name)?;
        let flag = ["true", "false"].iter().find(|word| text.eq_ignore_ascii_case(word)).map(|word| *word == "true");
        if flag.is_none() {
            self.error(name, &format!("found {}; allowed: true or false; correct the value", quote(&text)));
        }
        flag
    }

    fn error(&self, name: &str, text: &str) {
        self.tell(Level::Error, name, text);
    }

    fn tell(&self, level: Level, name: &str, text: &str) {
        self.root.report().add(level, 0, "", format!("environment variable {name}: {text}"));
    }
}

#[cfg(test)]
#[path = "environment_test.rs"]
mod tests;
