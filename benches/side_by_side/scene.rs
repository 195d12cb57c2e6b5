//! The scenes of the table: what the load tool plays, with how many brokers, and which figures come of it.

use std::time::Duration;

use troupemq::load::{ConnectPace, ConnectPlan, FlowPlan, OfflinePlan, Outcome, RetainedPlan, Scene as Load, Shape};
use troupemq::mqtt::QoS;

use crate::settings::Settings;
use crate::watch::Watched;

/// One reading.
pub struct Figure {
    pub name: &'static str,
    pub unit: &'static str,
    pub value: f64,
    pub combine: Combine,
}

/// What the table shows of the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// The median, and which way is better.
    HigherIsBetter,
    LowerIsBetter,
    /// The sum: what must not happen at all.
    Total,
    /// The load tool's own use of the processor, in parts of what its busiest thread may use; not in the table, a warning where it is high.
    LoadTool,
}

pub struct Scene {
    pub name: &'static str,
    pub title: &'static str,
    /// Nodes of ours; three are a cluster, which mosquitto cannot be.
    pub nodes: usize,
    /// Kills the broker with SIGKILL once all is acknowledged, and starts it again.
    pub kills: bool,
    pub plan: fn(&Settings) -> Load,
    pub figures: fn(&Outcome, &Watched) -> Vec<Figure>,
}

const fn one(
    name: &'static str,
    title: &'static str,
    plan: fn(&Settings) -> Load,
    figures: fn(&Outcome, &Watched) -> Vec<Figure>,
) -> Scene {
    Scene { name, title, nodes: 1, kills: false, plan, figures }
}

pub const SCENES: [Scene; 18] = [
    one(
        "connect",
        "Connect, clean start",
        |settings| connect(settings, 0),
        |outcome, watched| {
            let mut all = connects(outcome, watched);
            all.push(lower(Figure::MEMORY, "KiB", watched.grown_bytes() / 1024.0 / value(outcome, "connected").max(1.0)));
            all
        },
    ),
    one("connect-kept", "Connect, session kept 3,600 s", |settings| connect(settings, SESSION_S), connects),
    one("burst", "Connect, all at once", burst, connects),
    one("pairs-0", "Pairs, QoS 0", |settings| pairs(settings, QoS::AtMostOnce), messages),
    one("pairs-1", "Pairs, QoS 1", |settings| pairs(settings, QoS::AtLeastOnce), messages),
    one("pairs-2", "Pairs, QoS 2", |settings| pairs(settings, QoS::ExactlyOnce), messages),
    one("paced-1", "Pairs, QoS 1, at a rate", paced, paced_messages),
    one("fanout-0", "Fan-out, QoS 0", |settings| fan_out(settings, QoS::AtMostOnce), messages),
    one("fanout-1", "Fan-out, QoS 1", |settings| fan_out(settings, QoS::AtLeastOnce), messages),
    one("fanin-1", "Fan-in, QoS 1", fan_in, messages),
    one("shared-1", "Shared subscription, QoS 1", shared, messages),
    one("retained-0", "Retained to a new subscriber, QoS 0", |settings| retained(settings, QoS::AtMostOnce), retained_figures),
    one("retained-1", "Retained to a new subscriber, QoS 1", |settings| retained(settings, QoS::AtLeastOnce), retained_figures),
    one("offline", "Offline sessions, QoS 1", offline, |outcome, watched| {
        vec![
            higher(Figure::FILL, "per second", value(outcome, "fill_per_s")),
            higher(Figure::DRAIN, "per second", value(outcome, "drain_per_s")),
            lower(Figure::QUEUED_BYTES, "bytes", watched.grown_bytes() / value(outcome, "acknowledged").max(1.0)),
            total(Figure::LOST_ACKNOWLEDGED, value(outcome, "lost")),
            total(Figure::DISORDER, value(outcome, "doubled") + value(outcome, "out_of_order")),
        ]
    }),
    Scene {
        kills: true,
        ..one("offline-kill", "The same, kill -9 after the last PUBACK", offline, |outcome, _| {
            vec![
                total(Figure::LOST_ACKNOWLEDGED, value(outcome, "lost")),
                total(Figure::DISORDER, value(outcome, "doubled") + value(outcome, "out_of_order")),
            ]
        })
    },
    Scene { nodes: 3, ..one("three-connect", "Three nodes: connect, clean start", |settings| connect(settings, 0), connects) },
    Scene {
        nodes: 3,
        ..one(
            "three-connect-kept",
            "Three nodes: connect, session kept 3,600 s",
            |settings| connect(settings, SESSION_S),
            connects,
        )
    },
    Scene {
        nodes: 3,
        ..one("three-pairs-1", "Three nodes: pairs across nodes, QoS 1", |settings| pairs(settings, QoS::AtLeastOnce), messages)
    },
];

const SESSION_S: u32 = 3600;
/// Nothing may move for so long before what has not come counts as lost.
const DRAIN: Duration = Duration::from_secs(10);

impl Figure {
    pub const CONNECTS: &'static str = "connects";
    pub const CONNECT_P50: &'static str = "SYN to CONNACK, p50";
    pub const CONNECT_P99: &'static str = "SYN to CONNACK, p99";
    pub const CPU_CONNECT: &'static str = "server CPU of connects";
    pub const MEMORY: &'static str = "user memory per idle connection";
    pub const MESSAGES: &'static str = "messages received";
    pub const CPU_MESSAGE: &'static str = "server CPU of messages";
    pub const P50: &'static str = "latency, p50";
    pub const P99: &'static str = "latency, p99";
    pub const RETAINED: &'static str = "retained messages received";
    pub const FILL: &'static str = "queued";
    pub const DRAIN: &'static str = "drained";
    pub const QUEUED_BYTES: &'static str = "user memory per queued message";
    pub const LOST: &'static str = "messages lost";
    pub const LOST_ACKNOWLEDGED: &'static str = "acknowledged messages lost";
    pub const DISORDER: &'static str = "messages out of order or twice";
    pub const NOT_CONNECTED: &'static str = "clients not connected";
}

fn connect(settings: &Settings, session_expiry_s: u32) -> Load {
    let pace = ConnectPace::Handshakes(settings.handshakes);
    Load::Connect(ConnectPlan {
        clients: settings.clients,
        pace,
        session_expiry_s,
        hold: settings.settle,
        keep: false,
        retry: None,
    })
}

fn burst(settings: &Settings) -> Load {
    let hold = Duration::ZERO;
    Load::Connect(ConnectPlan {
        clients: settings.burst,
        pace: ConnectPace::Burst,
        session_expiry_s: 0,
        hold,
        keep: false,
        retry: None,
    })
}

fn flow(settings: &Settings, shape: Shape, qos: QoS) -> FlowPlan {
    FlowPlan {
        shape,
        qos,
        payload_bytes: settings.payload_bytes,
        rate: None,
        in_flight: settings.window,
        until_received: false,
        session_expiry_s: 0,
        receive_maximum: None,
        warm_up: settings.warm_up,
        duration: settings.measure,
        drain: DRAIN,
        failover: false,
    }
}

fn pairs(settings: &Settings, qos: QoS) -> Load {
    Load::Flow(flow(settings, Shape::Pairs { pairs: settings.pairs }, qos))
}

fn paced(settings: &Settings) -> Load {
    let plan = flow(settings, Shape::Pairs { pairs: settings.pairs }, QoS::AtLeastOnce);
    Load::Flow(FlowPlan { rate: Some(settings.rate), in_flight: 1000, ..plan })
}

fn fan_out(settings: &Settings, qos: QoS) -> Load {
    let shape = Shape::FanOut { publishers: 1, subscribers: settings.fan };
    Load::Flow(FlowPlan { until_received: true, ..flow(settings, shape, qos) })
}

/// One message of each publisher is under way: as many as the fan is wide.
fn fan_in(settings: &Settings) -> Load {
    let shape = Shape::FanIn { publishers: settings.fan, subscribers: 1 };
    Load::Flow(FlowPlan { until_received: true, in_flight: 1, ..flow(settings, shape, QoS::AtLeastOnce) })
}

fn shared(settings: &Settings) -> Load {
    let shape = Shape::Shared { publishers: settings.shared_publishers, members: 10 };
    Load::Flow(FlowPlan { until_received: true, ..flow(settings, shape, QoS::AtLeastOnce) })
}

fn retained(settings: &Settings, qos: QoS) -> Load {
    Load::Retained(RetainedPlan {
        messages: settings.retained,
        publishers: 10,
        subscribers: 1,
        qos,
        payload_bytes: settings.payload_bytes,
        in_flight: settings.window,
        filter: Some("#".into()),
        receive_maximum: None,
        keep: true,
        drain: DRAIN,
    })
}

fn offline(settings: &Settings) -> Load {
    Load::Offline(OfflinePlan {
        sessions: settings.sessions,
        messages: settings.messages,
        publishers: 10,
        qos: QoS::AtLeastOnce,
        payload_bytes: settings.payload_bytes,
        in_flight: 100,
        receive_maximum: None,
        drain: DRAIN,
    })
}

fn connects(outcome: &Outcome, watched: &Watched) -> Vec<Figure> {
    let times = outcome.times("connect").unwrap_or_default();
    vec![
        higher(Figure::CONNECTS, "per second", value(outcome, "connects_per_s")),
        lower(Figure::CPU_CONNECT, "s per 10,000", watched.cpu_s() / (times.count.max(1) as f64) * 10_000.0),
        lower(Figure::CONNECT_P50, "ms", times.p50),
        lower(Figure::CONNECT_P99, "ms", times.p99),
        total(Figure::NOT_CONNECTED, value(outcome, "not_connected") + value(outcome, "lost")),
    ]
}

fn messages(outcome: &Outcome, watched: &Watched) -> Vec<Figure> {
    vec![
        higher(Figure::MESSAGES, "per second", value(outcome, "received_per_s")),
        lower(Figure::CPU_MESSAGE, "s per million", watched.cpu_s() / value(outcome, "measured_messages").max(1.0) * 1e6),
        total(Figure::LOST, value(outcome, "lost")),
        total(Figure::DISORDER, value(outcome, "doubled") + value(outcome, "out_of_order")),
    ]
}

fn paced_messages(outcome: &Outcome, watched: &Watched) -> Vec<Figure> {
    let times = outcome.times("latency").unwrap_or_default();
    let mut all = messages(outcome, watched);
    all.extend([lower(Figure::P50, "ms", times.p50), lower(Figure::P99, "ms", times.p99)]);
    all
}

fn retained_figures(outcome: &Outcome, _: &Watched) -> Vec<Figure> {
    vec![higher(Figure::RETAINED, "per second", value(outcome, "received_per_s")), total(Figure::LOST, value(outcome, "lost"))]
}

fn value(outcome: &Outcome, key: &str) -> f64 {
    outcome.figure(key).unwrap_or_default()
}

fn higher(name: &'static str, unit: &'static str, value: f64) -> Figure {
    Figure { name, unit, value, combine: Combine::HigherIsBetter }
}

fn lower(name: &'static str, unit: &'static str, value: f64) -> Figure {
    Figure { name, unit, value, combine: Combine::LowerIsBetter }
}

fn total(name: &'static str, value: f64) -> Figure {
    Figure { name, unit: "all rounds", value, combine: Combine::Total }
}
