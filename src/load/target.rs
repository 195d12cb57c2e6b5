//! Whom the clients connect to, and as whom.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

use super::Failure;
use super::tls::{Tls, TlsPlan};
use crate::mqtt::ProtocolVersion;

/// As the operator gives it.
#[derive(Debug, Clone)]
pub struct TargetPlan {
    /// HOST:PORT, HOST, or an address; clients take them in turn.
    pub servers: Vec<String>,
    pub version: ProtocolVersion,
    pub tls: Option<TlsPlan>,
    /// WebSocket, with this path.
    pub websocket: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    /// Seconds; 0: none, and no pings.
    pub keep_alive: u16,
    /// Addresses that clients connect from, in turn; none: the system's choice.
    pub sources: Vec<IpAddr>,
    /// From the first SYN to the CONNACK.
    pub connect_timeout: Duration,
}

impl Default for TargetPlan {
    /// A server on this machine, MQTT 5, plain TCP.
    fn default() -> Self {
        Self {
            servers: vec!["127.0.0.1:1883".into()],
            version: ProtocolVersion::V5,
            tls: None,
            websocket: None,
            username: None,
            password: None,
            keep_alive: 300,
            sources: Vec::new(),
            connect_timeout: Duration::from_secs(20),
        }
    }
}

/// One server, found.
pub(super) struct Server {
    pub(super) host: String,
    pub(super) address: SocketAddr,
}

/// Servers found and files read.
pub struct Target {
    pub(super) servers: Vec<Server>,
    pub(super) version: ProtocolVersion,
    pub(super) tls: Option<Tls>,
    pub(super) websocket: Option<String>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) keep_alive: u16,
    pub(super) connect_timeout: Duration,
    sources: Vec<IpAddr>,
}

impl Target {
    /// # Errors
    /// `Plan` for a server or a file that is not there.
    pub fn find(plan: &TargetPlan) -> Result<Self, Failure> {
        let port = default_port(plan.tls.is_some(), plan.websocket.is_some());
        let servers = plan.servers.iter().map(|text| find(text, port)).collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return Err(Failure::Plan("no server is named".into()));
        }
        if plan.password.is_some() && plan.username.is_none() && !plan.version.is_v5() {
            // [MQTT-3.1.2-22] of MQTT 3.1.1.
            return Err(Failure::Plan("MQTT 3.1.1 has no password without a user name: give --user too".into()));
        }
        Ok(Self {
            servers,
            version: plan.version,
            tls: plan.tls.as_ref().map(Tls::new).transpose()?,
            websocket: plan.websocket.clone(),
            username: plan.username.clone(),
            password: plan.password.clone(),
            keep_alive: plan.keep_alive,
            connect_timeout: plan.connect_timeout,
            sources: plan.sources.clone(),
        })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether clients are to come with a session ticket.
    pub(super) fn resumes(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.resume)
    }

    /// The server of this number, counted round.
    pub(super) fn server(&self, number: usize) -> Option<&Server> {
        self.servers.get(number % self.servers.len().max(1))
    }

    /// The address that the client of this number connects from.
    pub(super) fn source(&self, number: usize) -> Option<IpAddr> {
        // Servers and sources both go round: without the division, two of each would give each server one source only.
        self.sources.get(number / self.servers.len().max(1) % self.sources.len().max(1)).copied()
    }
}

fn default_port(tls: bool, websocket: bool) -> u16 {
    match (tls, websocket) {
        (false, false) => 1883,
        (true, false) => 8883,
        (false, true) => 8000,
        (true, true) => 8443,
    }
}

fn find(text: &str, port: u16) -> Result<Server, Failure> {
    let unknown = |reason: String| Failure::Plan(format!("{text:?} cannot be found: {reason}; write HOST:PORT"));
    let with_port = if text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()) {
        format!("[{text}]:{port}")
    } else if text.contains(':') {
        text.to_owned()
    } else {
        format!("{text}:{port}")
    };
    let host = with_port.rsplit_once(':').map_or(text, |(host, _)| host).trim_matches(['[', ']']).to_owned();
    let mut found = with_port.to_socket_addrs().map_err(|error| unknown(error.to_string()))?;
    let address = found.next().ok_or_else(|| unknown("no address".into()))?;
    Ok(Server { host, address })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_the_port_of_their_kind_unless_they_name_one() {
        let table = [
            ("127.0.0.1:2883", "127.0.0.1:2883", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1:1883", "127.0.0.1"),
            ("::1", "[::1]:1883", "::1"),
            ("[::1]:5", "[::1]:5", "::1"),
        ];
        for (text, address, host) in table {
            let server = find(text, default_port(false, false)).unwrap();
            assert_eq!((server.address.to_string().as_str(), server.host.as_str()), (address, host));
        }
        assert_eq!([default_port(true, false), default_port(false, true), default_port(true, true)], [8883, 8000, 8443]);
        for wrong in ["", "127.0.0.1:x", "127.0.0.1:99999"] {
            assert!(matches!(find(wrong, 1883), Err(Failure::Plan(_))), "{wrong}");
        }
    }

    #[test]
    fn every_server_is_reached_from_every_source() {
        let plan = TargetPlan {
            servers: vec!["127.0.0.1:1".into(), "127.0.0.1:2".into()],
            sources: super::super::source::parse("127.0.0.1..127.0.0.2").unwrap(),
            ..TargetPlan::default()
        };
        let target = Target::find(&plan).unwrap();
        let mut ways: Vec<_> = (0..4).map(|n| (target.server(n).unwrap().address.port(), target.source(n).unwrap())).collect();
        ways.sort_unstable();
        ways.dedup();
        assert_eq!(ways.len(), 4);
        assert_eq!(target.server(4).unwrap().address.port(), 1);
    }

    #[test]
    fn a_password_alone_is_for_mqtt_5() {
        let plan = |version| TargetPlan { version, password: Some("x".into()), ..TargetPlan::default() };
        assert!(Target::find(&plan(ProtocolVersion::V5)).is_ok());
        assert!(Target::find(&plan(ProtocolVersion::V3_1_1)).is_err());
    }
}
