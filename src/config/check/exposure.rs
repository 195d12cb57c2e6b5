//! What the sections together open to the network: ports that clash, and addresses others can reach.

use std::collections::HashMap;
use std::net::IpAddr;

use super::view::View;
use crate::config::settings::SecuritySettings;

/// An address something listens on, and the element that says so.
pub(super) struct Bound<'a> {
    pub(super) element: View<'a>,
    pub(super) address: IpAddr,
    /// 0 = ephemeral.
    pub(super) port: u16,
    /// Whether MQTT clients connect to it, and need no certificate to do so.
    pub(super) mqtt: bool,
}

/// Two elements may not listen on the same port of the same address.
pub(super) fn check_ports(bound: &[Bound<'_>]) {
    let mut by_port: HashMap<u16, Vec<&Bound<'_>>> = HashMap::new();
    for this in bound.iter().filter(|b| b.port != 0) {
        let earlier = by_port.entry(this.port).or_default();
        if let Some(other) = earlier.iter().find(|other| overlap(other.address, this.address)) {
            let (address, port, line) = (other.address, this.port, other.element.line());
            let found = if this.element.holds_placed() || other.element.holds_placed() {
                format!("found a port that line {line} uses on the same address")
            } else {
                format!("found port {port} on {}, in use by line {line} on {address}", this.address)
            };
            this.element.error(format!("{found}; allowed: each port once per address; choose another port"));
        }
        earlier.push(this);
    }
}

/// An unspecified address covers all of its family, and `::` those of IPv4 as well.
fn overlap(a: IpAddr, b: IpAddr) -> bool {
    let covers = |wide: IpAddr, other: IpAddr| wide.is_unspecified() && (wide.is_ipv6() || other.is_ipv4());
    a == b || covers(a, b) || covers(b, a)
}

/// Without an authenticator everybody is let in, so a listener others can reach must be asked for expressly. With one, a client comes in
/// without credentials only where all authenticators pass it on and that is allowed.
pub(super) fn check_anonymous(root: &View<'_>, bound: &[Bound<'_>], security: &SecuritySettings) {
    let (allowed, authentication) = (security.allow_anonymous, &security.authentication);
    let lets_pass = allowed && authentication.may_pass();
    if !authentication.is_off() && !lets_pass {
        return;
    }
    let open: Vec<&Bound<'_>> = bound.iter().filter(|b| b.mqtt && !b.address.is_loopback()).collect();
    let Some(first) = open.first() else { return };
    let lines = open.iter().map(|b| b.element.line().to_string()).collect::<Vec<_>>().join(", ");
    if allowed {
        let message = format!("clients without credentials are let in from other machines, by the listeners of line {lines}");
        root.at("security/allow-anonymous/enabled").warning(message);
    } else {
        let address = if first.element.holds_placed() { String::new() } else { format!(" {}", first.address) };
        first.element.error(format!(
            "found bind address{address}, which other machines reach, and no authenticator (listeners of line {lines}); allowed: a loopback \
             address such as 127.0.0.1, or <security><allow-anonymous><enabled>true</enabled></allow-anonymous></security>, or \
             <authentication> in <security>; change the <bind-address> or add one of the elements to <hivemq>"
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_addresses_overlap_with_what_they_cover() {
        let cases = [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.0", "127.0.0.1", true),
            ("0.0.0.0", "::1", false),
            ("::", "127.0.0.1", true),
            ("::", "::1", true),
            ("::", "0.0.0.0", true),
            ("::1", "127.0.0.1", false),
        ];
        for (a, b, expected) in cases {
            let (x, y) = (a.parse().unwrap(), b.parse().unwrap());
            assert_eq!((overlap(x, y), overlap(y, x)), (expected, expected), "{a} {b}");
        }
    }
}
