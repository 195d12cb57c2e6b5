//! What is to be done: plain data, checked before anything starts.

use std::time::Duration;

use super::Failure;
use super::stamp::{STAMP_BYTES, TOPICS_MAX};
use super::target::TargetPlan;
use crate::mqtt::QoS;

/// Largest payload, bytes: what a PUBLISH can carry beside a long topic.
const PAYLOAD_BYTES_MAX: usize = 268_000_000;
const CLIENTS_MAX: usize = 10_000_000;
const THREADS_MAX: usize = 256;

/// A scene, whom it plays before, and how the tool goes about it.
#[derive(Debug, Clone)]
pub struct Plan {
    pub target: TargetPlan,
    pub common: Common,
    pub scene: Scene,
}

#[derive(Debug, Clone)]
pub struct Common {
    pub threads: usize,
    /// Connections being opened at any time, over all threads (the scene `connect` has its own).
    pub handshakes: usize,
    /// A line a second on standard error.
    pub progress: bool,
    /// Length of a part of the series.
    pub slice: Duration,
    /// What client identifiers begin with; without it each run has its own.
    pub client_id: Option<String>,
    /// What topics begin with; without it each run has its own.
    pub topic: Option<String>,
}

impl Default for Common {
    fn default() -> Self {
        Self {
            threads: std::thread::available_parallelism().map_or(2, usize::from).min(4),
            handshakes: 96,
            progress: false,
            slice: Duration::from_secs(1),
            client_id: None,
            topic: None,
        }
    }
}

#[derive(Debug, Clone)]
pub enum Scene {
    Connect(ConnectPlan),
    Flow(FlowPlan),
    Retained(RetainedPlan),
    Offline(OfflinePlan),
}

/// Clients that connect and stay.
#[derive(Debug, Clone)]
pub struct ConnectPlan {
    pub clients: usize,
    pub pace: ConnectPace,
    /// Seconds that sessions outlive their connections; 0: clean.
    pub session_expiry_s: u32,
    /// How long all stay connected.
    pub hold: Duration,
    /// Leaves the sessions with the server.
    pub keep: bool,
    /// A client that is not let in comes back after so long, or up to half as long again, until it is; without it that client has failed.
    pub retry: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ConnectPace {
    /// Closed loop: so many under way at any time.
    Handshakes(usize),
    /// Open loop: so many a second, however the server keeps up.
    Rate(f64),
    /// All at once.
    Burst,
}

/// Publishers and subscribers.
#[derive(Debug, Clone)]
pub struct FlowPlan {
    pub shape: Shape,
    pub qos: QoS,
    pub payload_bytes: usize,
    /// Messages a second of all publishers (open loop); without it each sends on as its window allows (closed loop).
    pub rate: Option<f64>,
    /// Messages of a publisher that are not acknowledged (QoS 0 in the closed loop: not received).
    pub in_flight: u16,
    /// Closed loop: a message is in flight until all its subscribers have it, whatever the QoS, so that no queue of the server overflows.
    pub until_received: bool,
    /// Seconds that sessions outlive their connections; 0: clean.
    pub session_expiry_s: u32,
    /// Of subscribers; without it they take 65,535.
    pub receive_maximum: Option<u16>,
    pub warm_up: Duration,
    pub duration: Duration,
    /// How long nothing may move before what has not come counts as lost.
    pub drain: Duration,
    /// Clients that lose their connection go on at the next server.
    pub failover: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Each publisher has a subscriber.
    Pairs {
        pairs: usize,
    },
    /// All subscribers get what all publishers publish.
    FanOut {
        publishers: usize,
        subscribers: usize,
    },
    FanIn {
        publishers: usize,
        subscribers: usize,
    },
    /// The members of one shared subscription share what is published.
    Shared {
        publishers: usize,
        members: usize,
    },
}

impl Shape {
    pub fn publishers(self) -> usize {
        match self {
            Self::Pairs { pairs } => pairs,
            Self::FanOut { publishers, .. } | Self::FanIn { publishers, .. } | Self::Shared { publishers, .. } => publishers,
        }
    }

    pub fn subscribers(self) -> usize {
        match self {
            Self::Pairs { pairs } => pairs,
            Self::FanOut { subscribers, .. } | Self::FanIn { subscribers, .. } => subscribers,
            Self::Shared { members, .. } => members,
        }
    }

    /// How many get each message.
    pub fn copies(self) -> usize {
        match self {
            Self::Pairs { .. } | Self::Shared { .. } => 1,
            Self::FanOut { subscribers, .. } | Self::FanIn { subscribers, .. } => subscribers,
        }
    }
}

/// Retained messages, and new subscribers that get all of them.
#[derive(Debug, Clone)]
pub struct RetainedPlan {
    pub messages: usize,
    pub publishers: usize,
    pub subscribers: usize,
    /// Of the subscriptions; messages are published with QoS 1.
    pub qos: QoS,
    pub payload_bytes: usize,
    pub in_flight: u16,
    /// The subscribers' filter, without it all topics of this run.
    pub filter: Option<String>,
    pub receive_maximum: Option<u16>,
    /// Leaves the messages with the server.
    pub keep: bool,
    pub drain: Duration,
}

/// Sessions that are away while messages come for them.
#[derive(Debug, Clone)]
pub struct OfflinePlan {
    pub sessions: usize,
    /// For each session.
    pub messages: usize,
    pub publishers: usize,
    /// 1 or 2: nobody keeps QoS 0.
    pub qos: QoS,
    pub payload_bytes: usize,
    pub in_flight: u16,
    pub receive_maximum: Option<u16>,
    pub drain: Duration,
}

impl Plan {
    /// # Errors
    /// `Plan`, saying what does not fit together.
    pub fn check(&self) -> Result<(), Failure> {
        let Common { threads, handshakes, slice, .. } = &self.common;
        in_range("threads", *threads, THREADS_MAX)?;
        in_range("handshakes", *handshakes, CLIENTS_MAX)?;
        if *slice < Duration::from_millis(10) {
            return wrong("a slice of the series has 10 ms or more");
        }
        if let Some(topic) = &self.common.topic
            && (topic.is_empty() || topic.contains(['+', '#', '\0']) || topic.len() > 60_000)
        {
            return wrong("topics begin with a name of 1 to 60,000 bytes without + and #");
        }
        in_range("clients", self.clients(), CLIENTS_MAX)?;
        match &self.scene {
            Scene::Connect(plan) => plan.check(),
            Scene::Flow(plan) => plan.check(),
            Scene::Retained(plan) => plan.check(),
            Scene::Offline(plan) => plan.check(),
        }
    }

    /// Connections at the same time, at most.
    pub fn clients(&self) -> usize {
        match &self.scene {
            Scene::Connect(plan) => plan.clients,
            Scene::Flow(plan) => plan.shape.publishers() + plan.shape.subscribers(),
            Scene::Retained(plan) => plan.publishers * 2 + plan.subscribers,
            Scene::Offline(plan) => plan.sessions + plan.publishers,
        }
    }

    /// The name of the scene.
    pub fn name(&self) -> &'static str {
        match &self.scene {
            Scene::Connect(_) => "connect",
            Scene::Flow(FlowPlan { failover: true, .. }) => "failover",
            Scene::Flow(plan) => match plan.shape {
                Shape::Pairs { .. } => "pubsub",
                Shape::FanOut { .. } => "fanout",
                Shape::FanIn { .. } => "fanin",
                Shape::Shared { .. } => "shared",
            },
            Scene::Retained(_) => "retained",
            Scene::Offline(_) => "offline",
        }
    }

    /// Of the messages; 0 where there are none.
    pub(super) fn payload_bytes(&self) -> usize {
        match &self.scene {
            Scene::Connect(_) => 0,
            Scene::Flow(plan) => plan.payload_bytes,
            Scene::Retained(plan) => plan.payload_bytes,
            Scene::Offline(plan) => plan.payload_bytes,
        }
    }
}

impl ConnectPlan {
    fn check(&self) -> Result<(), Failure> {
        match self.pace {
            ConnectPace::Handshakes(handshakes) => in_range("handshakes", handshakes, CLIENTS_MAX),
            ConnectPace::Rate(rate) => is_rate(rate),
            ConnectPace::Burst => Ok(()),
        }
    }
}

impl FlowPlan {
    /// Of QoS 0 nothing else tells that a message is not in flight any more.
    pub(super) fn waits_for_receipts(&self) -> bool {
        self.rate.is_none() && (self.until_received || self.qos == QoS::AtMostOnce)
    }

    fn check(&self) -> Result<(), Failure> {
        in_range("publishers", self.shape.publishers(), TOPICS_MAX)?;
        in_range("subscribers", self.shape.subscribers(), CLIENTS_MAX)?;
        is_payload(self.payload_bytes)?;
        is_window(self.in_flight)?;
        self.rate.map_or(Ok(()), is_rate)?;
        if self.duration.is_zero() {
            return wrong("nothing can be measured in no time: give --duration");
        }
        if self.until_received && self.rate.is_some() {
            return wrong("an open loop waits for nothing: --until-received does not go with --rate");
        }
        if self.failover && self.session_expiry_s == 0 && self.qos != QoS::AtMostOnce {
            return wrong("failover of clean sessions loses messages by definition: give --session-expiry, or --qos 0");
        }
        Ok(())
    }
}

impl RetainedPlan {
    fn check(&self) -> Result<(), Failure> {
        in_range("retained messages", self.messages, TOPICS_MAX)?;
        in_range("publishers", self.publishers, self.messages)?;
        in_range("subscribers", self.subscribers, CLIENTS_MAX)?;
        is_payload(self.payload_bytes)?;
        is_window(self.in_flight)
    }
}

impl OfflinePlan {
    fn check(&self) -> Result<(), Failure> {
        in_range("sessions", self.sessions, TOPICS_MAX)?;
        in_range("messages of a session", self.messages, 1_000_000_000)?;
        in_range("publishers", self.publishers, self.sessions)?;
        is_payload(self.payload_bytes)?;
        is_window(self.in_flight)?;
        if self.qos == QoS::AtMostOnce {
            return wrong("servers may drop QoS 0 for sessions that are away: give --qos 1 or 2");
        }
        Ok(())
    }
}

fn in_range(what: &str, number: usize, max: usize) -> Result<(), Failure> {
    if (1..=max).contains(&number) { Ok(()) } else { wrong(&format!("{what}: {number} is not between 1 and {max}")) }
}

fn is_payload(bytes: usize) -> Result<(), Failure> {
    if bytes < STAMP_BYTES {
        return wrong(&format!(
            "a payload has {STAMP_BYTES} bytes or more: who sent it, its number, and when it was to be sent (for the latency); {bytes} are too few"
        ));
    }
    in_range("payload bytes", bytes, PAYLOAD_BYTES_MAX)
}

fn is_window(in_flight: u16) -> Result<(), Failure> {
    in_range("messages in flight", usize::from(in_flight), usize::from(u16::MAX))
}

fn is_rate(rate: f64) -> Result<(), Failure> {
    if rate.is_finite() && (0.001..=1e9).contains(&rate) {
        Ok(())
    } else {
        wrong(&format!("{rate} is no rate: more than 0 a second"))
    }
}

fn wrong<T>(what: &str) -> Result<T, Failure> {
    Err(Failure::Plan(what.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> FlowPlan {
        FlowPlan {
            shape: Shape::Pairs { pairs: 2 },
            qos: QoS::AtLeastOnce,
            payload_bytes: 64,
            rate: None,
            in_flight: 16,
            until_received: false,
            session_expiry_s: 0,
            receive_maximum: None,
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(1),
            drain: Duration::from_secs(1),
            failover: false,
        }
    }

    fn checked(scene: Scene) -> Result<(), Failure> {
        Plan { target: TargetPlan::default(), common: Common::default(), scene }.check()
    }

    #[test]
    fn what_does_not_fit_together_is_refused_in_words() {
        assert_eq!(checked(Scene::Flow(flow())), Ok(()));
        let table = [
            (FlowPlan { payload_bytes: 23, ..flow() }, "24 bytes or more"),
            (FlowPlan { in_flight: 0, ..flow() }, "in flight"),
            (FlowPlan { rate: Some(0.0), ..flow() }, "no rate"),
            (FlowPlan { rate: Some(f64::NAN), ..flow() }, "no rate"),
            (FlowPlan { duration: Duration::ZERO, ..flow() }, "--duration"),
            (FlowPlan { until_received: true, rate: Some(1.0), ..flow() }, "--until-received"),
            (FlowPlan { failover: true, ..flow() }, "--session-expiry"),
            (FlowPlan { shape: Shape::FanIn { publishers: 0, subscribers: 1 }, ..flow() }, "publishers"),
            (FlowPlan { shape: Shape::FanOut { publishers: 1, subscribers: 0 }, ..flow() }, "subscribers"),
        ];
        for (plan, says) in table {
            let error = checked(Scene::Flow(plan)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        let common = |common| Plan { target: TargetPlan::default(), common, scene: Scene::Flow(flow()) }.check();
        assert!(common(Common { threads: 0, ..Common::default() }).is_err());
        assert!(common(Common { topic: Some("a/#".into()), ..Common::default() }).is_err());
        assert!(common(Common { slice: Duration::ZERO, ..Common::default() }).is_err());
    }

    #[test]
    fn every_shape_says_how_many_it_takes() {
        let table = [
            (Shape::Pairs { pairs: 5 }, (5, 5, 1)),
            (Shape::FanOut { publishers: 1, subscribers: 9 }, (1, 9, 9)),
            (Shape::FanIn { publishers: 9, subscribers: 1 }, (9, 1, 1)),
            (Shape::Shared { publishers: 4, members: 3 }, (4, 3, 1)),
        ];
        for (shape, expected) in table {
            assert_eq!((shape.publishers(), shape.subscribers(), shape.copies()), expected);
        }
    }
}
