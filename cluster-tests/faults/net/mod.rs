//! Three nodes with own addresses: each in a network namespace, joined by a switch in this process that can do to every direction of
//! every link what networks do.
//!
//! A namespace has one TUN device, and so has the namespace that the tests (and their clients) run in. What a device is given comes out
//! at the switch, which hands it to the device of the addressee: now, later, twice or never. That needs root, `/dev/net/tun`, `ip` and
//! `nsenter`, and nothing of the kernel's traffic control.

mod namespace;
mod switch;

use std::net::Ipv4Addr;
use std::time::Duration;

pub use namespace::permitted;
use namespace::{Address, Namespaces};
use switch::Switch;

/// Nodes of a network; the ends of its links are these and the clients.
pub const NODES: usize = 3;
/// The end that clients are at.
pub const CLIENTS: usize = NODES;
pub const ENDS: usize = NODES + 1;

/// What one direction of a link does to packets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quality {
    pub cut: bool,
    pub delay: Duration,
    /// Added to the delay, at random from 0 to this; so packets overtake each other.
    pub jitter: Duration,
    /// Of a thousand packets.
    pub lost_per_mille: u16,
    pub doubled_per_mille: u16,
}

impl Quality {
    pub const CUT: Self =
        Self { cut: true, delay: Duration::ZERO, jitter: Duration::ZERO, lost_per_mille: 0, doubled_per_mille: 0 };
}

/// The namespaces and the switch; all are gone when it is dropped.
pub struct Net {
    switch: Switch,
    namespaces: Namespaces,
}

impl Net {
    /// `seed` decides what is lost and doubled. Panics where namespaces are permitted and yet cannot be had.
    pub fn new(seed: u64) -> Self {
        let (namespaces, devices) = Namespaces::create();
        Self { switch: Switch::start(devices, seed), namespaces }
    }

    pub fn namespace(&self, node: usize) -> String {
        self.namespaces.name(node)
    }

    pub fn address(&self, node: usize) -> Ipv4Addr {
        Address::of(self.namespaces.block, node)
    }

    pub fn addresses(&self) -> Vec<Ipv4Addr> {
        (0..NODES).map(|node| self.address(node)).collect()
    }

    /// From one end to another, this direction only.
    pub fn set(&self, from: usize, to: usize, quality: Quality) {
        self.switch.set(from, to, quality);
    }

    /// Both directions between two ends.
    pub fn set_pair(&self, a: usize, b: usize, quality: Quality) {
        self.set(a, b, quality);
        self.set(b, a, quality);
    }

    /// A node from the other nodes; clients still reach it.
    pub fn cut_node(&self, node: usize) {
        (0..NODES).filter(|other| *other != node).for_each(|other| self.set_pair(node, other, Quality::CUT));
    }

    /// A node from everybody.
    pub fn isolate(&self, node: usize) {
        (0..ENDS).filter(|other| *other != node).for_each(|other| self.set_pair(node, other, Quality::CUT));
    }

    /// All nodes from each other.
    pub fn cut_all(&self) {
        (0..NODES).for_each(|node| self.cut_node(node));
    }

    /// Every link carries everything at once again.
    pub fn heal(&self) {
        for from in 0..ENDS {
            (0..ENDS).for_each(|to| self.set(from, to, Quality::default()));
        }
    }

    /// Packets that the switch was given and that it handed on, from one end to another.
    pub fn carried(&self, from: usize, to: usize) -> (u64, u64) {
        self.switch.carried(from, to)
    }
}
