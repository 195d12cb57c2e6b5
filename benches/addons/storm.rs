//! Many clients connect at once, with `$client-events` off and on; an analyst with a persistent session reads the events.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use troupemq::mqtt::ProtocolVersion;

use crate::Failure;
use crate::analyst::{Analyst, SESSION_S};
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::load::storm::{self, StormPlan};
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
    let shape = Shape { nodes, queue_max: 3 * settings.clients, more: &more };
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
    let plans: Vec<StormPlan> =
        trio.nodes.iter().enumerate().map(|(index, node)| plan(settings, nodes, index, node.mqtt)).collect();
    let running: Vec<_> = plans.into_iter().map(|plan| thread::spawn(move || storm::run(&plan))).collect();
    let mut storms = Vec::new();
    for storm in running {
        storms.push(storm.join().map_err(|_| "a storm panicked")??);
    }
    let failed: usize = storms.iter().map(|storm| storm.failed).sum();
    if failed > 0 {
        let error = storms.iter().find_map(|storm| storm.first_error.clone()).unwrap_or_default();
        return Err(format!("{failed} clients were not let in: {error}").into());
    }
    let elapsed = storms.iter().map(|storm| storm.elapsed).max().unwrap_or_default();
    let expected = settings.clients as u64;
    let lag = match on.then(|| analyst.wait_for(expected, EVENTS_WITHIN)) {
        None => Duration::ZERO,
        Some(Some(lag)) => lag,
        Some(None) => return Err(format!("{} of {expected} events came", analyst.counted()).into()),
    };
    let cpu = trio.cpu_time() - cpu_before;
    drop(storms);
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
        rate: settings.clients as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / settings.clients as f64,
        lag,
    })
}

/// The part of one node.
fn plan(settings: &Settings, nodes: usize, index: usize, address: std::net::SocketAddr) -> StormPlan {
    let first = settings.clients * index / nodes;
    StormPlan {
        address,
        first,
        clients: settings.clients * (index + 1) / nodes - first,
        handshakes: (settings.handshakes / nodes).max(1),
        sources: 8,
        threads: (settings.threads / nodes).max(1),
        version: ProtocolVersion::V5,
    }
}
