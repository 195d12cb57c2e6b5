//! Local addresses that clients connect from, so that none runs out of ports.

use std::net::{IpAddr, Ipv4Addr};

use super::Failure;

/// Addresses at most: a mistake should not become a list of millions.
const ADDRESSES_MAX: u32 = 65_536;

/// Reads `127.0.0.1`, `127.0.0.1..127.0.0.4` (both ends belong to it), and lists of these, separated by commas.
///
/// # Errors
/// `Plan`, saying which part is no address.
pub fn parse(text: &str) -> Result<Vec<IpAddr>, Failure> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let address = |text: &str| {
            text.trim()
                .parse::<IpAddr>()
                .map_err(|_| Failure::Plan(format!("{text:?} is no IP address; write 127.0.0.1 or 127.0.0.1..127.0.0.4")))
        };
        match part.split_once("..") {
            None => all.push(address(part)?),
            Some((first, last)) => match (address(first)?, address(last)?) {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    let (from, to) = (u32::from(first), u32::from(last));
                    if from > to || to - from >= ADDRESSES_MAX {
                        return Err(Failure::Plan(format!("{part:?} is no range of up to {ADDRESSES_MAX} addresses")));
                    }
                    all.extend((from..=to).map(|address| IpAddr::V4(Ipv4Addr::from(address))));
                }
                _ => return Err(Failure::Plan(format!("{part:?}: ranges are for IPv4; list IPv6 addresses one by one"))),
            },
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_give_all_their_addresses() {
        let text = |text: &str| parse(text).unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text("127.0.0.1"), "127.0.0.1");
        assert_eq!(text("127.0.0.254..127.0.1.1"), "127.0.0.254 127.0.0.255 127.0.1.0 127.0.1.1");
        assert_eq!(text("10.0.0.1, ::1,127.0.0.1..127.0.0.2"), "10.0.0.1 ::1 127.0.0.1 127.0.0.2");
        for wrong in ["", "localhost", "127.0.0.4..127.0.0.1", "0.0.0.0..255.255.255.255", "::1..::4", "127.0.0.1.."] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
