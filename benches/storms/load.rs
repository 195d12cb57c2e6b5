//! Loads of the load tool, and what the node spent on them.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use troupemq::load::{
    self, Common, ConnectPace, ConnectPlan, FlowPlan, Mark, Observer, OfflinePlan, Outcome, Plan, Scene, Shape, TargetPlan,
    TlsPlan,
};
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::common::nodes::Trio;
use crate::common::proc;

/// Nothing may move for so long before what has not come counts as lost.
const DRAIN: Duration = Duration::from_secs(10);
pub const PAYLOAD_BYTES: usize = 64;

/// What the node took from one mark of the load to another.
pub struct Watch<'a> {
    trio: &'a Trio,
    from: Mark,
    to: Mark,
    /// Where its memory is read.
    full: Mark,
    before: Duration,
    after: Duration,
    pub bytes: u64,
}

impl<'a> Watch<'a> {
    pub fn new(trio: &'a Trio, from: Mark, to: Mark, full: Mark) -> Self {
        Self { trio, from, to, full, before: Duration::ZERO, after: Duration::ZERO, bytes: 0 }
    }

    /// CPU seconds of the node between the marks.
    pub fn cpu_s(&self) -> f64 {
        self.after.saturating_sub(self.before).as_secs_f64()
    }
}

impl Observer for Watch<'_> {
    fn at(&mut self, mark: Mark) -> Result<(), load::Failure> {
        if mark == self.from {
            self.before = self.trio.cpu_time();
        }
        if mark == self.to {
            self.after = self.trio.cpu_time();
        }
        if mark == self.full {
            self.bytes = user_bytes(self.trio);
        }
        Ok(())
    }
}

/// User memory of the node.
pub fn user_bytes(trio: &Trio) -> u64 {
    trio.nodes.iter().filter_map(|node| proc::user_bytes(node.pid()?).ok()).sum()
}

pub fn target(server: SocketAddr) -> TargetPlan {
    let sources = (1..=8).map(|last| IpAddr::from([127, 0, 0, last])).collect();
    TargetPlan { servers: vec![server.to_string()], sources, ..TargetPlan::default() }
}

pub fn over_tls(server: SocketAddr, resume: bool) -> TargetPlan {
    let tls = TlsPlan { ca_file: None, insecure: true, identity: None, server_name: None, resume };
    TargetPlan { tls: Some(tls), ..target(server) }
}

pub fn connects(clients: usize, pace: ConnectPace, hold: Duration) -> ConnectPlan {
    ConnectPlan { clients, pace, session_expiry_s: 0, hold, keep: false, retry: None }
}

pub fn pairs(pairs: usize, rate: Option<f64>, warm_up: Duration, duration: Duration) -> FlowPlan {
    FlowPlan {
        shape: Shape::Pairs { pairs },
        qos: QoS::AtLeastOnce,
        payload_bytes: PAYLOAD_BYTES,
        rate,
        in_flight: if rate.is_some() { 1000 } else { 16 },
        until_received: false,
        session_expiry_s: 0,
        receive_maximum: None,
        warm_up,
        duration,
        drain: DRAIN,
        failover: false,
    }
}

pub fn offline(sessions: usize, messages: usize) -> OfflinePlan {
    OfflinePlan {
        sessions,
        messages,
        publishers: 10,
        qos: QoS::AtLeastOnce,
        payload_bytes: PAYLOAD_BYTES,
        in_flight: 100,
        receive_maximum: None,
        drain: DRAIN,
    }
}

/// Plays it; a fault is an error.
pub fn play(target: TargetPlan, scene: Scene, observer: &mut dyn Observer) -> Result<Outcome, Failure> {
    let outcome = load::run(&Plan { target, common: Common::default(), scene }, observer)?;
    if !outcome.faults.is_empty() {
        return Err(outcome.faults.join("; ").into());
    }
    Ok(outcome)
}

pub fn figure(outcome: &Outcome, key: &str) -> f64 {
    outcome.figure(key).unwrap_or_default()
}
