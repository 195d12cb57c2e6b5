//! Options of the scenes.

use std::time::Duration;

use clap::{ArgGroup, Args};

use super::values::{PerSecond, duration, qos};
use super::{BenchCommand, ServerArgs};
use crate::load::{ConnectPace, ConnectPlan, FlowPlan, OfflinePlan, RetainedPlan, Shape};
use crate::mqtt::QoS;

/// Messages in flight of a publisher without --in-flight, in a closed loop and in an open one.
const IN_FLIGHT_CLOSED: u16 = 16;
const IN_FLIGHT_OPEN: u16 = 1000;
/// Long enough for a client of `failover` to come back.
const FAILOVER_EXPIRY_S: u32 = 600;

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(group = ArgGroup::new("pace").args(["handshakes", "rate", "burst"]))]
pub struct ConnectArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Clients that connect
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub clients: usize,

    /// Closed loop: so many handshakes under way at any time (96 without --rate and --burst)
    #[arg(long, value_name = "NUMBER")]
    pub handshakes: Option<usize>,

    /// Open loop: so many clients begin to connect each second, whether the server keeps up or not
    #[arg(long, value_name = "PER-SECOND")]
    pub rate: Option<PerSecond>,

    /// All at once
    #[arg(long)]
    pub burst: bool,

    /// Sessions begin and end with their connections; as without --session-expiry
    #[arg(long, conflicts_with = "session_expiry")]
    pub clean: bool,

    /// Sessions outlive their connections by so many seconds (MQTT 3.1.1: until they end)
    #[arg(long, value_name = "SECONDS")]
    pub session_expiry: Option<u32>,

    /// How long all stay connected, seconds (or 500ms, 2m)
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = duration)]
    pub hold: Duration,

    /// Leave the sessions with the server; a second run with the same --client-id finds them
    #[arg(long, requires = "session_expiry")]
    pub keep: bool,

    /// Clients that are not let in for now (connection refused, closed, or a CONNACK that says busy) come back after so long, or up to half as
    /// long again, until they are: 500ms, 2 (seconds). Times count from the first try
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub retry: Option<Duration>,
}

impl ConnectArgs {
    pub fn plan(&self) -> ConnectPlan {
        let pace = match (self.handshakes, self.rate, self.burst) {
            (_, Some(rate), _) => ConnectPace::Rate(rate.get()),
            (_, _, true) => ConnectPace::Burst,
            (handshakes, _, _) => ConnectPace::Handshakes(handshakes.unwrap_or(96)),
        };
        ConnectPlan {
            clients: self.clients,
            pace,
            session_expiry_s: self.session_expiry.unwrap_or(0),
            hold: self.hold,
            keep: self.keep,
            retry: self.retry,
        }
    }
}

/// Options of scenes in which messages flow for a time.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FlowArgs {
    /// Quality of Service of messages and subscriptions: 0, 1 or 2
    #[arg(long, value_name = "QOS", default_value = "1", value_parser = qos)]
    pub qos: QoS,

    /// Payload of a message, bytes; 24 or more: it carries sender, number and time
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub payload: usize,

    /// Open loop: messages a second of all publishers together; without it each sends on as its window allows (closed loop)
    #[arg(long, value_name = "PER-SECOND")]
    pub rate: Option<PerSecond>,

    /// Messages of a publisher that are not acknowledged (QoS 0: not received); 16, with --rate 1000
    #[arg(long, value_name = "NUMBER")]
    pub in_flight: Option<u16>,

    /// Closed loop: a message is in flight until all its subscribers have it, so that no queue of the server overflows (QoS 0: always)
    #[arg(long, conflicts_with = "rate")]
    pub until_received: bool,

    /// Sessions begin and end with their connections; as without --session-expiry
    #[arg(long, conflicts_with = "session_expiry")]
    pub clean: bool,

    /// Sessions outlive their connections by so many seconds (failover: 600 if not given)
    #[arg(long, value_name = "SECONDS")]
    pub session_expiry: Option<u32>,

    /// Receive Maximum of subscribers (MQTT 5)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub receive_maximum: Option<u16>,

    /// Load before anything is measured, seconds (or 500ms, 2m)
    #[arg(long, value_name = "TIME", default_value = "2", value_parser = duration)]
    pub warm_up: Duration,

    /// How long it is measured, seconds (or 500ms, 2m)
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub duration: Duration,

    /// What has not come when nothing has moved for so long afterwards counts as lost, seconds
    #[arg(long, value_name = "TIME", default_value = "5", value_parser = duration)]
    pub drain: Duration,

    /// Connections being opened at any time before the load
    #[arg(long, value_name = "NUMBER", default_value_t = 96)]
    pub handshakes: usize,

    /// What topics begin with; without it each run has its own
    #[arg(long, value_name = "PREFIX")]
    pub topic: Option<String>,
}

impl FlowArgs {
    pub(super) fn plan(&self, command: &BenchCommand) -> FlowPlan {
        let shape = match command {
            BenchCommand::Fanout(FanOutArgs { publishers, subscribers, .. }) => {
                Shape::FanOut { publishers: *publishers, subscribers: *subscribers }
            }
            BenchCommand::Fanin(FanInArgs { publishers, subscribers, .. }) => {
                Shape::FanIn { publishers: *publishers, subscribers: *subscribers }
            }
            BenchCommand::Shared(SharedArgs { publishers, members, .. }) => {
                Shape::Shared { publishers: *publishers, members: *members }
            }
            BenchCommand::Pubsub(PubsubArgs { pairs, .. }) | BenchCommand::Failover(FailoverArgs { pairs, .. }) => {
                Shape::Pairs { pairs: *pairs }
            }
            BenchCommand::Connect(_) | BenchCommand::Retained(_) | BenchCommand::Offline(_) => Shape::Pairs { pairs: 0 },
        };
        let failover = matches!(command, BenchCommand::Failover(_));
        let expiry_s = if failover && !self.clean { FAILOVER_EXPIRY_S } else { 0 };
        FlowPlan {
            shape,
            qos: self.qos,
            payload_bytes: self.payload,
            rate: self.rate.map(PerSecond::get),
            in_flight: self.in_flight.unwrap_or(if self.rate.is_some() { IN_FLIGHT_OPEN } else { IN_FLIGHT_CLOSED }),
            until_received: self.until_received,
            session_expiry_s: self.session_expiry.unwrap_or(expiry_s),
            receive_maximum: self.receive_maximum,
            warm_up: self.warm_up,
            duration: self.duration,
            drain: self.drain,
            failover,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct PubsubArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Pairs of a publisher and a subscriber, each with a topic of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub pairs: usize,

    #[command(flatten)]
    pub flow: FlowArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FanOutArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Subscribers, each of which gets every message
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub subscribers: usize,

    /// Publishers
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub publishers: usize,

    #[command(flatten)]
    pub flow: FlowArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FanInArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Publishers, each with a topic of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub publishers: usize,

    /// Subscribers, each of which gets every message
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub subscribers: usize,

    #[command(flatten)]
    pub flow: FlowArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct SharedArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Publishers, each with a topic of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub publishers: usize,

    /// Members of the shared subscription
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub members: usize,

    #[command(flatten)]
    pub flow: FlowArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct FailoverArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Pairs of a publisher and a subscriber, at different servers
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub pairs: usize,

    #[command(flatten)]
    pub flow: FlowArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RetainedArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Retained messages, each with a topic of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000)]
    pub messages: usize,

    /// Who publishes them
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub publishers: usize,

    /// New subscribers, each of which gets all of them
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub subscribers: usize,

    /// Quality of Service of the subscriptions: 0, 1 or 2 (messages are published with 1)
    #[arg(long, value_name = "QOS", default_value = "1", value_parser = qos)]
    pub qos: QoS,

    /// Payload of a message, bytes; 24 or more
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub payload: usize,

    /// Messages of a publisher that are not acknowledged
    #[arg(long, value_name = "NUMBER", default_value_t = IN_FLIGHT_CLOSED)]
    pub in_flight: u16,

    /// Receive Maximum of subscribers (MQTT 5)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub receive_maximum: Option<u16>,

    /// What topics begin with; without it each run has its own
    #[arg(long, value_name = "PREFIX")]
    pub topic: Option<String>,

    /// The subscribers' filter, such as #; without it PREFIX/#
    #[arg(long, value_name = "FILTER")]
    pub filter: Option<String>,

    /// Leave the messages with the server
    #[arg(long)]
    pub keep: bool,

    /// What has not come when nothing has moved for so long counts as lost, seconds
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub drain: Duration,
}

impl RetainedArgs {
    pub fn plan(&self) -> RetainedPlan {
        RetainedPlan {
            messages: self.messages,
            publishers: self.publishers.min(self.messages),
            subscribers: self.subscribers,
            qos: self.qos,
            payload_bytes: self.payload,
            in_flight: self.in_flight,
            filter: self.filter.clone(),
            receive_maximum: self.receive_maximum,
            keep: self.keep,
            drain: self.drain,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct OfflineArgs {
    #[command(flatten)]
    pub server: ServerArgs,

    /// Sessions that are away, each with a topic of its own
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub sessions: usize,

    /// Messages for each session; the server must be set to queue so many
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub messages: usize,

    /// Who publishes them
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub publishers: usize,

    /// Quality of Service of messages and subscriptions: 1 or 2
    #[arg(long, value_name = "QOS", default_value = "1", value_parser = qos)]
    pub qos: QoS,

    /// Payload of a message, bytes; 24 or more
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub payload: usize,

    /// Messages of a publisher that are not acknowledged
    #[arg(long, value_name = "NUMBER", default_value_t = IN_FLIGHT_CLOSED)]
    pub in_flight: u16,

    /// Receive Maximum of the sessions (MQTT 5)
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub receive_maximum: Option<u16>,

    /// What topics begin with; without it each run has its own
    #[arg(long, value_name = "PREFIX")]
    pub topic: Option<String>,

    /// Connections being opened at any time
    #[arg(long, value_name = "NUMBER", default_value_t = 96)]
    pub handshakes: usize,

    /// What has not come when nothing has moved for so long counts as lost, seconds
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = duration)]
    pub drain: Duration,
}

impl OfflineArgs {
    pub fn plan(&self) -> OfflinePlan {
        OfflinePlan {
            sessions: self.sessions,
            messages: self.messages,
            publishers: self.publishers.min(self.sessions),
            qos: self.qos,
            payload_bytes: self.payload,
            in_flight: self.in_flight,
            receive_maximum: self.receive_maximum,
            drain: self.drain,
        }
    }
}
