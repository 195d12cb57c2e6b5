//! What nodes say of themselves to each other beside the hello: version, and the settings that are to be the same everywhere.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::replica::NodeId;

use super::control::{Control, FEATURES};
use super::node::Node;
use super::transport::hello::{VERSION_MAX, VERSION_MIN};

const LOOK: Duration = Duration::from_millis(500);
/// Said again after so long: what was sent may be lost.
const AGAIN: Duration = Duration::from_secs(30);
/// A longer one is ignored, bytes.
const BYTES_MAX: usize = 64 * 1024;

/// Fields that are not there have their default: other releases say more or less.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Version of the program.
    pub program: String,
    /// Versions of the protocol between nodes, lowest and highest.
    pub protocol: (u16, u16),
    /// Settings as (name, value).
    pub must_agree: Vec<(String, String)>,
}

impl About {
    pub fn of(node: &Node) -> Self {
        Self {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            protocol: (VERSION_MIN, VERSION_MAX),
            must_agree: node.settings.must_agree.clone(),
        }
    }

    /// The settings that both name and that differ, as (name, here, there). What only one release knows is no difference.
    pub fn differences(&self, other: &Self) -> Vec<(String, String, String)> {
        let there: HashMap<&str, &str> = other.must_agree.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let differs = |(name, here): &(String, String)| {
            let there = *there.get(name.as_str())?;
            (here != there).then(|| (name.clone(), here.clone(), there.to_owned()))
        };
        self.must_agree.iter().filter_map(differs).collect()
    }
}

/// Tells each peer, when a link to it comes up and now and then.
pub async fn run(node: Arc<Node>) {
    let Some(transport) = &node.transport else { return };
    let Ok(about) = serde_json::to_string(&About::of(&node)) else { return };
    let mut told: HashMap<NodeId, (u64, Instant)> = HashMap::new();
    loop {
        for peer in transport.peers() {
            let epoch = transport.link_epoch(peer.id);
            let known = told.get(&peer.id).is_some_and(|(at, when)| *at == epoch && when.elapsed() < AGAIN);
            if !known && transport.version(peer.id) >= FEATURES && transport.send_control(peer.id, Control::About(about.clone()))
            {
                told.insert(peer.id, (epoch, Instant::now()));
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A peer's word; what differs is logged when it is new.
pub fn heard(node: &Node, from: NodeId, text: &str) {
    if text.len() > BYTES_MAX {
        return;
    }
    let about: About = match serde_json::from_str(text) {
        Ok(about) => about,
        Err(error) => {
            tracing::debug!(from, %error, "what a peer says of itself is not understood");
            return;
        }
    };
    let known = node.operator.abouts.lock().insert(from, about.clone());
    if known.as_ref() == Some(&about) {
        return;
    }
    let name = node.name_of(from);
    for (setting, here, there) in About::of(node).differences(&about) {
        tracing::warn!(setting, here, there, peer = name, "a setting differs between nodes; give all nodes the same");
    }
}

/// For operators: the settings of members that differ from this node's.
pub fn warnings(node: &Node) -> Vec<String> {
    let own = About::of(node);
    let abouts = node.operator.abouts.lock();
    let of_members = abouts.iter().filter(|(id, _)| node.meta.member(**id).is_some());
    let told = of_members.flat_map(|(id, about)| {
        let name = node.name_of(*id);
        own.differences(about).into_iter().map(move |(setting, here, there)| {
            format!("setting {setting} is {here} on {} and {there} on {name}: give all nodes the same", node.settings.node_name)
        })
    });
    let plain = node.transport.iter().flat_map(|transport| transport.plain_peers());
    let plain = plain.map(|peer| {
        format!(
            "what {} says to {peer} is not encrypted: that node has no TLS, and <cluster><transport><tcp><tls><optional> is set here",
            node.settings.node_name
        )
    });
    told.chain(plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(settings: &[(&str, &str)]) -> About {
        let must_agree = settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        About { must_agree, ..About::default() }
    }

    #[test]
    fn only_what_both_name_can_differ() {
        let here = about(&[("a", "1"), ("b", "2"), ("new", "x")]);
        let there = about(&[("a", "1"), ("b", "3"), ("old", "y")]);
        assert_eq!(here.differences(&there), [("b".to_owned(), "2".to_owned(), "3".to_owned())]);
        assert!(here.differences(&here).is_empty());
    }

    #[test]
    fn another_release_may_say_more_or_less() {
        let more: About = serde_json::from_str(r#"{"program":"9.9","mood":"good"}"#).unwrap();
        assert_eq!((more.program.as_str(), more.must_agree.len()), ("9.9", 0));
    }
}
