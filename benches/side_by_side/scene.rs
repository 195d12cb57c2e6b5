//! The scenes: each starts a fresh broker, loads it, and gives figures.

use std::thread;
use std::time::Duration;

use troupemq::mqtt::QoS;

use crate::Failure;
use crate::broker::{Broker, Kind};
use crate::load::pairs::{self, Plan};
use crate::load::storm::{self, StormPlan};
use crate::proc;
use crate::settings::Settings;

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
    /// The load tool's own use of the processor, in parts of what its threads may use; not in the table, a warning where it is high.
    LoadTool,
}

pub struct Scene {
    pub name: &'static str,
    pub title: &'static str,
    pub run: fn(Kind, &Settings) -> Result<Vec<Figure>, Failure>,
}

pub const SCENES: [Scene; 3] = [
    Scene { name: "connect", title: "Connect, clean start", run: connect },
    Scene { name: "qos0", title: "Pairs, QoS 0", run: |kind, settings| publish(kind, settings, QoS::AtMostOnce) },
    Scene { name: "qos1", title: "Pairs, QoS 1", run: |kind, settings| publish(kind, settings, QoS::AtLeastOnce) },
];

fn connect(kind: Kind, settings: &Settings) -> Result<Vec<Figure>, Failure> {
    let broker = Broker::start(kind)?;
    thread::sleep(settings.settle);
    let memory_before = broker.resident_bytes()?;
    let (cpu_before, own_before) = (broker.cpu_time()?, proc::own_cpu_time()?);
    let storm = storm::run(&StormPlan {
        first: 0,
        address: broker.address,
        clients: settings.clients,
        handshakes: settings.handshakes,
        sources: settings.sources,
        threads: settings.load_threads,
        version: settings.version,
    })?;
    let (cpu, own) = (broker.cpu_time()? - cpu_before, proc::own_cpu_time()? - own_before);
    thread::sleep(settings.settle);
    let memory = broker.resident_bytes()?.saturating_sub(memory_before);
    if let Some(error) = &storm.first_error {
        eprintln!("{} connections failed; the first: {error}", storm.failed);
    }
    let accepted = storm.held.len() as f64;
    Ok(vec![
        higher("accepted connections", "per second", accepted / storm.elapsed.as_secs_f64()),
        lower("server CPU", "s per 10,000 connections", cpu.as_secs_f64() / accepted * 10_000.0),
        lower("handshake, p50", "ms", storm.handshake_ms(0.50)),
        lower("handshake, p99", "ms", storm.handshake_ms(0.99)),
        total("connections failed", storm.failed as f64),
        lower("memory per idle connection", "KiB", memory as f64 / 1024.0 / accepted),
        lower("memory before the first client", "MiB", memory_before as f64 / 1024.0 / 1024.0),
        load_tool(own, storm.elapsed, settings),
    ])
}

fn publish(kind: Kind, settings: &Settings, qos: QoS) -> Result<Vec<Figure>, Failure> {
    let broker = Broker::start(kind)?;
    let mut load = pairs::start(&Plan {
        address: broker.address,
        pairs: settings.pairs,
        window: settings.window,
        payload_bytes: settings.payload_bytes,
        qos,
        sources: settings.sources,
        threads: settings.load_threads,
        version: settings.version,
    })?;
    load.go()?;
    thread::sleep(settings.warm_up);
    let (began, received_before) = load.received();
    let (cpu_before, own_before) = (broker.cpu_time()?, proc::own_cpu_time()?);
    thread::sleep(settings.measure);
    let (ended, received) = load.received();
    let (cpu, own) = (broker.cpu_time()? - cpu_before, proc::own_cpu_time()? - own_before);
    let outcome = load.stop()?;
    let (elapsed, received) = (ended - began, (received - received_before) as f64);
    Ok(vec![
        higher("messages", "per second", received / elapsed.as_secs_f64()),
        lower("server CPU", "s per million messages", cpu.as_secs_f64() / received * 1_000_000.0),
        total("messages lost", outcome.lost() as f64),
        total("messages out of order or twice", outcome.out_of_order as f64),
        total("publishes refused", outcome.refused as f64),
        load_tool(own, elapsed, settings),
    ])
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

fn load_tool(own: Duration, elapsed: Duration, settings: &Settings) -> Figure {
    let value = own.as_secs_f64() / elapsed.as_secs_f64() / settings.load_threads as f64;
    Figure { name: "load tool", unit: "of its threads", value, combine: Combine::LoadTool }
}
