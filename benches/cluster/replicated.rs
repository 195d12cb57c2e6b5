//! Acknowledgements of messages for persistent receivers: replicated and flushed on a majority before they are sent.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{interval_at, sleep, timeout};
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::client::{self, Client, VERSION, encode, publish};
use crate::common::nodes::Trio;
use crate::common::report::{Report, Times};
use crate::settings::Settings;

/// Messages an offline receiver may have queued: no limit decides the scene.
const QUEUE_MAX: usize = 10_000_000;
const SESSION_S: u32 = 3600;
const WARM_UP: Duration = Duration::from_millis(1500);
const CATCH_UP: Duration = Duration::from_millis(500);
const DRAIN_WITHIN: Duration = Duration::from_secs(20);
const PACE: Duration = Duration::from_millis(10);
const INBOX_BYTES: usize = 32 * 1024;
const MESSAGES_GOAL: f64 = 30_000.0;
const P99_GOAL_MS: f64 = 25.0;

/// What is published by whom.
#[derive(Clone)]
pub struct Plan {
    pub publishers: usize,
    pub window: u16,
    pub payload_bytes: usize,
    pub qos: QoS,
    /// Receivers are connected; else they are away and their messages are queued.
    pub online: bool,
    /// Messages a second of all publishers; `None`: as fast as they are acknowledged.
    pub offered: Option<usize>,
}

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let plan = |qos, online, offered: Option<usize>| Plan {
        publishers: settings.publishers,
        window: if offered.is_some() { 1000 } else { settings.window },
        payload_bytes: settings.payload_bytes,
        qos,
        online,
        offered,
    };
    let offered = Some(settings.offered);
    let (once, exactly) = (QoS::AtLeastOnce, QoS::ExactlyOnce);
    let cases = [
        ("QoS 1, receivers away", plan(once, false, None)),
        ("QoS 1, receivers online", plan(once, true, None)),
        ("QoS 1, receivers away, rate given", plan(once, false, offered)),
        ("QoS 1, receivers online, rate given", plan(once, true, offered)),
        ("QoS 2, receivers away", plan(exactly, false, None)),
        ("QoS 2, receivers online", plan(exactly, true, None)),
    ];
    let mut trios = Vec::new();
    for program in &settings.programs {
        trios.push(Trio::start(program, QUEUE_MAX)?);
    }
    trios.iter().try_for_each(Trio::wait_spread)?;
    for (name, plan) in cases {
        let mut readings: Vec<Vec<Reading>> = settings.programs.iter().map(|_| Vec::new()).collect();
        for _ in 0..settings.rounds {
            for ((program, readings), trio) in settings.programs.iter().zip(&mut readings).zip(&trios) {
                let reading = measure(trio, &plan, settings.measure)?;
                eprintln!("      {name}, {}: {}", program.name, reading.text());
                readings.push(reading);
            }
        }
        for (program, mut readings) in settings.programs.iter().zip(readings) {
            // Where the rate is given the readings differ in their times only. Of two the worse one counts.
            match plan.offered {
                None => readings.sort_by(|a, b| b.per_second.total_cmp(&a.per_second)),
                Some(_) => readings.sort_by(|a, b| a.latencies.at(0.99).total_cmp(&b.latencies.at(0.99))),
            }
            let median = &readings[readings.len() / 2];
            let goal = match (plan.qos, plan.offered) {
                (QoS::AtLeastOnce, None) => {
                    Some((format!(">= {MESSAGES_GOAL:.0} messages/s"), median.per_second >= MESSAGES_GOAL))
                }
                (_, Some(_)) => Some((format!("p99 < {P99_GOAL_MS:.0} ms"), median.latencies.at(0.99) < P99_GOAL_MS)),
                _ => None,
            };
            report.add(name, program.name, median.text(), goal);
            let wrong: u64 = readings.iter().map(|reading| reading.outcome.missing + reading.outcome.refused).sum();
            if wrong > 0 {
                report.add(
                    &format!("{name}: acknowledged and not received in order, or refused"),
                    program.name,
                    wrong.to_string(),
                    Some(("none".to_owned(), false)),
                );
            }
        }
    }
    Ok(())
}

struct Reading {
    per_second: f64,
    latencies: Times,
    /// Per message, all three nodes together.
    cpu_us: f64,
    flushes: f64,
    entries: f64,
    /// Mean.
    flush_ms: f64,
    outcome: Outcome,
}

impl Reading {
    fn text(&self) -> String {
        let (p50, p99) = (self.latencies.at(0.5), self.latencies.at(0.99));
        format!(
            "{:.0} messages/s, p50 {p50:.1}, p99 {p99:.1} ms; a message costs {:.0} us of CPU, {:.4} flushes (of {:.1} ms), {:.4} log entries on \
             all nodes",
            self.per_second, self.cpu_us, self.flushes, self.flush_ms, self.entries
        )
    }
}

fn measure(trio: &Trio, plan: &Plan, during: Duration) -> Result<Reading, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let addresses = trio.mqtt();
    LocalSet::new().block_on(&runtime, async {
        let load = Load::start(plan, &addresses, WARM_UP + CATCH_UP + during + CATCH_UP).await?;
        sleep(WARM_UP).await;
        let counts = || {
            let entries = trio.sum("troupemq_raft_last_log_index");
            let flush_s = trio.sum("troupemq_storage_flush_seconds_total");
            (trio.cpu_time(), trio.sum("troupemq_storage_flushes_total"), entries, flush_s)
        };
        let (before, counted_before) = (counts(), load.shared.acknowledged.get());
        // Nobody published while the nodes were asked: what that held up is no part of the reading.
        sleep(CATCH_UP).await;
        let (began, done_before) = (Instant::now(), load.shared.acknowledged.get());
        load.shared.latencies.borrow_mut().clear();
        sleep(during).await;
        let (elapsed, done) = (began.elapsed(), load.shared.acknowledged.get() - done_before);
        let latencies = std::mem::take(&mut *load.shared.latencies.borrow_mut());
        let counted = (load.shared.acknowledged.get() - counted_before) as f64;
        let after = counts();
        let outcome = load.finish().await?;
        let mut times = Times::default();
        latencies.into_iter().for_each(|us| times.push(Duration::from_micros(us.into())));
        Ok(Reading {
            per_second: done as f64 / elapsed.as_secs_f64(),
            latencies: times,
            cpu_us: (after.0 - before.0).as_secs_f64() * 1e6 / counted,
            flushes: (after.1 - before.1) / counted,
            entries: (after.2 - before.2) / counted,
            flush_ms: (after.3 - before.3) / (after.1 - before.1) * 1000.0,
            outcome,
        })
    })
}

/// What came of a load.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outcome {
    pub acknowledged: u64,
    pub refused: u64,
    /// Acknowledged and not received when all was quiet, or received out of order (receivers that are online).
    pub missing: u64,
}

/// All clients of a plan.
pub struct Load {
    shared: Rc<Shared>,
    publishers: Vec<JoinHandle<Result<(), Failure>>>,
    receivers: Vec<JoinHandle<Result<(), Failure>>>,
    online: bool,
}

#[derive(Default)]
struct Shared {
    acknowledged: Cell<u64>,
    received: Cell<u64>,
    refused: Cell<u64>,
    out_of_order: Cell<u64>,
    /// From the moment a message was due to its last acknowledgement, us.
    latencies: RefCell<Vec<u32>>,
}

impl Load {
    /// Connects everybody; publishers begin, and end after this time.
    pub async fn start(plan: &Plan, addresses: &[SocketAddr], during: Duration) -> Result<Self, Failure> {
        let shared = Rc::new(Shared::default());
        let (mut publishers, mut receivers) = (Vec::new(), Vec::new());
        let mut connected = Vec::new();
        for number in 0..plan.publishers {
            // Not the publisher's node.
            let address = addresses[(number + 1) % addresses.len()];
            let mut receiver = client::connect(address, &format!("receiver-{number}"), true, SESSION_S).await?;
            receiver.subscribe(&topic(number), plan.qos).await?;
            if plan.online {
                receiver.inbox.grow_to(INBOX_BYTES);
                receivers.push(spawn_local(receive(receiver, Rc::clone(&shared), plan.payload_bytes)));
            } else {
                receiver.disconnect().await?;
            }
            connected.push(client::connect(addresses[number % addresses.len()], &format!("publisher-{number}"), true, 0).await?);
        }
        let until = Instant::now() + during;
        for (number, client) in connected.into_iter().enumerate() {
            let publisher = Publisher::new(plan, number, client, Rc::clone(&shared));
            publishers.push(spawn_local(publisher.run(plan.offered.map(|all| all as f64 / plan.publishers as f64), until)));
        }
        Ok(Self { shared, publishers, receivers, online: plan.online })
    }

    /// Waits until all publishers are done and everything that was acknowledged is received.
    pub async fn finish(self) -> Result<Outcome, Failure> {
        for publisher in self.publishers {
            publisher.await??;
        }
        let shared = &self.shared;
        let began = Instant::now();
        while self.online && shared.received.get() < shared.acknowledged.get() && began.elapsed() < DRAIN_WITHIN {
            sleep(Duration::from_millis(20)).await;
        }
        for receiver in self.receivers {
            if receiver.is_finished() {
                receiver.await??;
            } else {
                receiver.abort();
            }
        }
        let missing = if self.online { shared.acknowledged.get().saturating_sub(shared.received.get()) } else { 0 };
        Ok(Outcome {
            acknowledged: shared.acknowledged.get(),
            refused: shared.refused.get(),
            missing: missing + shared.out_of_order.get(),
        })
    }
}

fn topic(number: usize) -> String {
    format!("bench/replicated/{number}")
}

struct Publisher {
    client: Client,
    shared: Rc<Shared>,
    qos: QoS,
    packet: Vec<u8>,
    id_at: usize,
    sequence_at: usize,
    sequence: u64,
    /// Identifiers not in use.
    free: Vec<u16>,
    in_flight: usize,
    /// When the message of an identifier was due.
    due: Vec<Instant>,
    /// Due and not sent, as no identifier was free.
    late: std::collections::VecDeque<Instant>,
    out: Vec<u8>,
}

impl Publisher {
    fn new(plan: &Plan, number: usize, mut client: Client, shared: Rc<Shared>) -> Self {
        let topic = topic(number);
        let packet = encode(&publish(&topic, plan.qos, NonZeroU16::MIN, &vec![b'.'; plan.payload_bytes]), VERSION).to_vec();
        client.inbox.grow_to(INBOX_BYTES);
        let sequence_at = packet.len() - plan.payload_bytes;
        Self {
            // Identifier, then the length of no properties.
            id_at: sequence_at - 3,
            sequence_at,
            packet,
            client,
            shared,
            qos: plan.qos,
            sequence: 0,
            free: (1..=plan.window).rev().collect(),
            in_flight: 0,
            due: vec![Instant::now(); usize::from(plan.window) + 1],
            late: std::collections::VecDeque::new(),
            out: Vec::new(),
        }
    }

    async fn run(mut self, per_second: Option<f64>, until: Instant) -> Result<(), Failure> {
        let began = Instant::now();
        let mut ticks = interval_at((began + PACE).into(), PACE);
        let mut offered = 0;
        while Instant::now() < until {
            let now = Instant::now();
            match per_second {
                None => (0..self.free.len()).for_each(|_| self.late.push_back(now)),
                Some(rate) => {
                    let mut due = began + Duration::from_secs_f64(f64::from(offered) / rate);
                    while due <= now {
                        self.late.push_back(due);
                        offered += 1;
                        due = began + Duration::from_secs_f64(f64::from(offered) / rate);
                    }
                }
            }
            self.append_due();
            self.flush().await?;
            tokio::select! {
                filled = self.client.inbox.fill(&mut self.client.stream) => filled?,
                _ = ticks.tick(), if per_second.is_some() => continue,
            }
            self.take_acknowledgements()?;
        }
        let rest = async {
            while self.in_flight > 0 {
                self.flush().await?;
                self.client.inbox.fill(&mut self.client.stream).await?;
                self.take_acknowledgements()?;
            }
            self.flush().await
        };
        timeout(DRAIN_WITHIN, rest).await.map_err(|_| "messages are not acknowledged")?
    }

    fn append_due(&mut self) {
        while !self.late.is_empty()
            && let Some(id) = self.free.pop()
            && let Some(due) = self.late.pop_front()
        {
            self.due[usize::from(id)] = due;
            self.packet[self.id_at..self.id_at + 2].copy_from_slice(&id.to_be_bytes());
            self.packet[self.sequence_at..self.sequence_at + 8].copy_from_slice(&self.sequence.to_be_bytes());
            self.sequence += 1;
            self.in_flight += 1;
            self.out.extend_from_slice(&self.packet);
        }
    }

    async fn flush(&mut self) -> Result<(), Failure> {
        if !self.out.is_empty() {
            self.client.stream.write_all(&self.out).await?;
            self.out.clear();
        }
        Ok(())
    }

    fn take_acknowledgements(&mut self) -> Result<(), Failure> {
        while let Some((frame, packet)) = self.client.inbox.take()? {
            let at = frame.header_len;
            let id =
                packet.get(at..at + 2).map(|id| u16::from_be_bytes([id[0], id[1]])).ok_or("a packet without an identifier")?;
            let failed = packet.get(at + 2).is_some_and(|code| *code >= 0x80);
            match frame.first_byte >> 4 {
                4 | 7 => self.acknowledged(id, failed),
                5 if failed => self.acknowledged(id, true),
                5 => self.out.extend_from_slice(&[0x62, 2, packet[at], packet[at + 1]]),
                other => return Err(format!("a packet of type {other} for a publisher of {:?}", self.qos).into()),
            }
        }
        Ok(())
    }

    fn acknowledged(&mut self, id: u16, failed: bool) {
        if failed {
            self.shared.refused.set(self.shared.refused.get() + 1);
        } else {
            self.shared.acknowledged.set(self.shared.acknowledged.get() + 1);
        }
        let took = self.due[usize::from(id)].elapsed().as_micros();
        self.shared.latencies.borrow_mut().push(u32::try_from(took).unwrap_or(u32::MAX));
        self.free.push(id);
        self.in_flight -= 1;
    }
}

/// Receives and acknowledges until the connection ends.
async fn receive(mut client: Client, shared: Rc<Shared>, payload_bytes: usize) -> Result<(), Failure> {
    let (mut expected, mut out) = (0_u64, Vec::new());
    loop {
        client.inbox.fill(&mut client.stream).await?;
        while let Some((frame, packet)) = client.inbox.take()? {
            let at = frame.header_len;
            match frame.first_byte >> 4 {
                3 => {
                    let topic_len = usize::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
                    let id = &packet[at + 2 + topic_len..at + 4 + topic_len];
                    out.extend_from_slice(if frame.first_byte & 0b0100 != 0 { &[0x50, 2] } else { &[0x40, 2] });
                    out.extend_from_slice(id);
                    let from = packet.len() - payload_bytes;
                    let sequence = u64::from_be_bytes(packet[from..from + 8].try_into()?);
                    if sequence != expected {
                        shared.out_of_order.set(shared.out_of_order.get() + 1);
                    }
                    expected = sequence + 1;
                    shared.received.set(shared.received.get() + 1);
                }
                6 => out.extend_from_slice(&[0x70, 2, packet[at], packet[at + 1]]),
                other => return Err(format!("a packet of type {other} for a receiver").into()),
            }
        }
        if !out.is_empty() {
            client.stream.write_all(&out).await?;
            out.clear();
        }
    }
}
