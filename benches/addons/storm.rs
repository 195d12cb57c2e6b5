//! Many clients connect at once, with `$client-events` off and on; an analyst with a persistent session reads the events.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use troupemq::load::{self, Common, ConnectPace, ConnectPlan, Mark, Observer, Plan, Scene, TargetPlan};

use crate::Failure;
use crate::analyst::{Analyst, SESSION_S};
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::settings::{Settings, addon, median};

/// Of the rate with the add-on off.
const GOAL: f64 = 0.85;
const EVENTS_WITHIN: Duration = Duration::from_secs(120);
const TOPIC: &str = "$client-events/all/client-id/bench-";

struct Reading {
    /// Connections a second.
    rate: f64,
    /// Of the nodes for one connection.
    cpu_us: f64,
    /// From the last CONNACK to the last event.
    lag: Duration,
}

pub fn run(settings: &Settings, nodes: usize, report: &mut Report) -> Result<(), Failure> {
    let (mut off, mut on) = (Vec::new(), Vec::new());
    for round in 0..settings.rounds {
        // Whoever is first in one round is second in the next.
        for is_on in if round % 2 == 0 { [false, true] } else { [true, false] } {
            let reading = measure(settings, nodes, is_on)?;
            let name = if is_on { "on" } else { "off" };
            eprintln!("      {name}: {:.0} connections/s, {:.0} us of CPU each", reading.rate, reading.cpu_us);
            if is_on { on.push(reading) } else { off.push(reading) }
        }
    }
    let of = |readings: &[Reading], what: fn(&Reading) -> f64| median(&readings.iter().map(what).collect::<Vec<_>>());
    let (off_rate, on_rate) = (of(&off, |reading| reading.rate), of(&on, |reading| reading.rate));
    let ratio = on_rate / off_rate;
    let value = format!(
        "{on_rate:.0} connections/s on, {off_rate:.0} off: {:.0} %; {:.0} and {:.0} us of CPU each; all events {:.0} ms after the last CONNACK",
        ratio * 100.0,
        of(&on, |reading| reading.cpu_us),
        of(&off, |reading| reading.cpu_us),
        of(&on, |reading| reading.lag.as_secs_f64() * 1000.0),
    );
    let what = format!("`$client-events`, storm of {} clients, {nodes} node(s)", settings.clients);
    report.add(&what, "TroupeMQ", value, Some((format!(">= {:.0} %", GOAL * 100.0), ratio >= GOAL)));
    Ok(())
}

fn measure(settings: &Settings, nodes: usize, on: bool) -> Result<Reading, Failure> {
    let more = addon("client-lifecycle-topic", on);
    // Nothing is to be dropped here: all events of connects and disconnects have room.
    let shape = Shape { nodes, queue_max: 3 * settings.clients, more: &more, ..Shape::default() };
    let trio = Trio::start_as(&settings.program, &shape)?;
    trio.wait_spread()?;
    // Events of a client by their type.
    let seen: Arc<Mutex<HashMap<(String, bool), usize>>> = Arc::default();
    let sees = Arc::clone(&seen);
    let analyst = Analyst::start(trio.nodes[nodes - 1].mqtt, SESSION_S, Some("$client-events/#"), move |message| {
        let Some(number) = message.topic.strip_prefix(TOPIC) else { return false };
        let connected = message.payload.starts_with(b"{\"Event type\":\"CONNECTED\"");
        *sees.lock().unwrap().entry((number.to_owned(), connected)).or_default() += 1;
        true
    })?;
    let cpu_before = trio.cpu_time();
    let expected = settings.clients as u64;
    let mut watch = Watch { trio: &trio, analyst: &analyst, expected: on.then_some(expected), lag: None, cpu_after: cpu_before };
    let storm = load::run(&plan(settings, &trio), &mut watch)?;
    if !storm.is_fine() {
        return Err(storm.faults.join("; ").into());
    }
    let cpu = watch.cpu_after - cpu_before;
    let lag = watch.lag.ok_or_else(|| format!("{} of {expected} events came", analyst.counted()))?;
    if on && analyst.wait_for(2 * expected, EVENTS_WITHIN).is_none() {
        return Err(format!("{} of {} events came", analyst.counted(), 2 * expected).into());
    }
    analyst.finish()?;
    let seen = seen.lock().unwrap();
    let wanted = if on { 2 * settings.clients } else { 0 };
    if seen.len() != wanted || seen.values().any(|count| *count != 1) {
        return Err(format!("{} events of {wanted}, some {:?} times", seen.len(), seen.values().max()).into());
    }
    Ok(Reading {
        rate: storm.figure("connects_per_s").unwrap_or_default(),
        cpu_us: cpu.as_secs_f64() * 1e6 / settings.clients as f64,
        lag,
    })
}

/// Waits for the events while all clients are connected.
struct Watch<'a> {
    trio: &'a Trio,
    analyst: &'a Analyst,
    /// Events that are to come, if any are.
    expected: Option<u64>,
    /// From the last CONNACK to the last event; none where they did not come in time.
    lag: Option<Duration>,
    cpu_after: Duration,
}

impl Observer for Watch<'_> {
    fn at(&mut self, mark: Mark) -> Result<(), load::Failure> {
        if mark == Mark::Connected {
            self.lag = match self.expected {
                None => Some(Duration::ZERO),
                Some(expected) => self.analyst.wait_for(expected, EVENTS_WITHIN),
            };
            self.cpu_after = self.trio.cpu_time();
        }
        Ok(())
    }
}

fn plan(settings: &Settings, trio: &Trio) -> Plan {
    let servers = trio.nodes.iter().map(|node| node.mqtt.to_string()).collect();
    let sources = (1..=8).map(|last| IpAddr::from([127, 0, 0, last])).collect();
    let storm = ConnectPlan {
        clients: settings.clients,
        pace: ConnectPace::Handshakes(settings.handshakes),
        session_expiry_s: 0,
        hold: Duration::ZERO,
        keep: false,
        retry: None,
    };
    Plan {
        target: TargetPlan { servers, sources, ..TargetPlan::default() },
        common: Common { threads: settings.threads, client_id: Some("bench-".into()), ..Common::default() },
        scene: Scene::Connect(storm),
    }
}
