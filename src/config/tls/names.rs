//! Names that a certificate is good for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// More of a certificate's names are not listed in a message, bytes.
const LISTED_BYTES_MAX: usize = 200;

/// DNS and IP names of a certificate that was verified; none of one that cannot be read.
pub fn of(der: &[u8]) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return Vec::new() };
    let names = certificate.subject_alternative_name().ok().flatten();
    names.iter().flat_map(|extension| &extension.value.general_names).filter_map(text).collect()
}

/// DNS and IP names only (spec/hivemq.md 10.1).
pub fn text(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|ip| IpAddr::from(Ipv4Addr::from(ip)));
            let ip = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(|ip| IpAddr::from(Ipv6Addr::from(ip)))).ok()?;
            Some(ip.to_string())
        }
        _ => None,
    }
}

/// Whether one of a certificate's names is one of the wanted. `*` stands for one label, the first. Unlike for hosts of the internet a single label may
/// follow it: the wanted names come from this node's own configuration, and Kubernetes has domains of one.
pub fn is_for(certificate: &[String], wanted: &[String]) -> bool {
    let fits = |name: &String, wanted: &String| {
        let behind = name.strip_prefix("*.").zip(wanted.split_once('.'));
        name.eq_ignore_ascii_case(wanted)
            || behind.is_some_and(|(name, (first, rest))| !first.is_empty() && name.eq_ignore_ascii_case(rest))
    };
    certificate.iter().any(|name| wanted.iter().any(|wanted| fits(name, wanted)))
}

/// The names for a message, shortened where there are many.
pub fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return "no DNS name".to_owned();
    }
    let mut text = names.join(", ");
    if text.len() > LISTED_BYTES_MAX {
        let cut = (0..=LISTED_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        text.truncate(cut);
        text.push_str("..");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_certificate_is_for_its_names_and_for_one_label_in_place_of_a_star() {
        let wanted = owned(&["broker-0", "broker-0.peers"]);
        for (names, fits) in [
            (&["broker-0"][..], true),
            (&["x", "BROKER-0.Peers"], true),
            (&["*.peers"], true),
            (&["*"], false),
            (&["*."], false),
            (&["*.other"], false),
            (&["broker-1.peers"], false),
            (&["broker-*.peers"], false),
            (&["*.broker-0.peers"], false),
            (&["peers"], false),
            (&[""], false),
            (&[], false),
        ] {
            assert_eq!(is_for(&owned(names), &wanted), fits, "{names:?}");
        }
        assert!(!is_for(&owned(&["*.c"]), &owned(&["a.b.c"])), "one label, not two");
        assert!(!is_for(&owned(&["*.peers"]), &owned(&[".peers"])));
        assert!(is_for(&owned(&["192.0.2.7"]), &owned(&["192.0.2.7"])));
    }

    #[test]
    fn many_names_are_cut() {
        assert_eq!(listed(&[]), "no DNS name");
        assert_eq!(listed(&owned(&["a", "b"])), "a, b");
        let many = listed(&vec!["ä.example".to_owned(); 100]);
        assert!(many.len() <= LISTED_BYTES_MAX + 2 && many.ends_with(".."), "{many}");
    }
}
