//! What one connection, subscription or queued message costs among ten times as many: none may cost more than n log n.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use tokio::runtime;
use troupemq::load::{Client, ConnectPace, Mark, Scene, Session, Target};
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::load::{Watch, connects, figure, offline, pairs, play, target, user_bytes};
use crate::settings::Settings;

const HANDSHAKES: usize = 96;
/// Clients that share the subscriptions.
const SUBSCRIBERS: usize = 100;
/// Sessions that share the queued messages.
const SESSIONS: usize = 100;
const SETTLE: Duration = Duration::from_secs(2);
/// Pairs that publish among the subscriptions.
const PAIRS: usize = 50;
/// Times the logarithm: what single readings on a machine with other work differ by.
const SCATTER: f64 = 1.5;

/// What one costs, among so many.
struct Reading {
    count: usize,
    costs: Vec<f64>,
}

/// What one of a kind costs at each size.
struct Kind {
    what: &'static str,
    costs: &'static [&'static str],
    readings: Vec<Reading>,
}

impl Kind {
    /// Costs of one at each size, and the worst of all steps: cost at one size by cost at the one before, over the ratio of their logarithms.
    fn report(&self, settings: &Settings, report: &mut Report) {
        for (place, cost) in self.costs.iter().enumerate() {
            let of = |reading: &Reading| reading.costs.get(place).copied().unwrap_or(f64::NAN);
            let mut value = String::new();
            for reading in &self.readings {
                _ = write!(value, "{}{:.2} of {}", if value.is_empty() { "" } else { ", " }, of(reading), reading.count);
            }
            let mut worst: f64 = 0.0;
            value.push_str("; steps");
            for (one, next) in self.readings.iter().zip(self.readings.iter().skip(1)) {
                let ratio = of(next) / of(one);
                let logarithms = (next.count as f64).ln() / (one.count as f64).ln();
                _ = write!(value, " {ratio:.2}");
                // What is no number is no step that was kept to.
                worst = if ratio.is_nan() { f64::INFINITY } else { worst.max(ratio / logarithms) };
            }
            _ = write!(value, "; worst by n log n {worst:.2}");
            let what = format!("Growth, {}: {cost}", self.what);
            // One size alone shows no growth.
            let goal = (self.readings.len() > 1).then(|| (format!("<= {SCATTER:.2}"), worst <= SCATTER));
            report.add(&what, settings.program.name, value, goal);
        }
    }
}

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    connections(settings)?.report(settings, report);
    for (what, wild) in [("subscriptions without wildcard", false), ("subscriptions with wildcard", true)] {
        subscriptions(settings, what, wild)?.report(settings, report);
    }
    queued(settings)?.report(settings, report);
    Ok(())
}

fn start(settings: &Settings) -> Result<Trio, Failure> {
    Trio::start_as(&settings.program, &Shape { nodes: 1, queue_max: 10_000_000, ..Shape::default() })
}

fn connections(settings: &Settings) -> Result<Kind, Failure> {
    let mut readings = Vec::new();
    for count in [1_000, 10_000, 19_000].into_iter().filter(|count| *count <= settings.connections) {
        let trio = start(settings)?;
        let mut watch = Watch::new(&trio, Mark::Begin, Mark::End, Mark::Held);
        let before = user_bytes(&trio);
        let plan = connects(count, ConnectPace::Handshakes(HANDSHAKES), SETTLE);
        let outcome = play(target(trio.mqtt()[0]), Scene::Connect(plan), &mut watch)?;
        let each = |of: f64| of / count as f64;
        readings.push(Reading {
            count,
            costs: vec![
                each(watch.cpu_s() * 1e6),
                1e6 / figure(&outcome, "connects_per_s"),
                each(watch.bytes.saturating_sub(before) as f64 / 1024.0),
            ],
        });
    }
    Ok(Kind { what: "connections", costs: &["us of CPU each", "us each", "KiB each"], readings })
}

fn sizes(settings: &Settings) -> impl Iterator<Item = usize> {
    (3..=settings.growth).map(|power| 10_usize.pow(power))
}

fn subscriptions(settings: &Settings, what: &'static str, wild: bool) -> Result<Kind, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut readings = Vec::new();
    for count in sizes(settings) {
        let trio = start(settings)?;
        let server = target(trio.mqtt()[0]);
        let (before, cpu_before) = (user_bytes(&trio), trio.cpu_time());
        let began = Instant::now();
        let clients = runtime.block_on(subscribe(&Target::find(&server)?, count / SUBSCRIBERS, wild))?;
        let took = began.elapsed();
        let cpu = trio.cpu_time().saturating_sub(cpu_before);
        let bytes = user_bytes(&trio).saturating_sub(before);
        // Messages that match one subscription each, among all of these.
        let mut watch = Watch::new(&trio, Mark::Begin, Mark::End, Mark::End);
        let flow = play(server, Scene::Flow(pairs(PAIRS, None, Duration::from_millis(500), settings.measure)), &mut watch)?;
        let each = |of: f64| of / count as f64;
        readings.push(Reading {
            count,
            costs: vec![
                each(took.as_secs_f64() * 1e6),
                each(cpu.as_secs_f64() * 1e6),
                each(bytes as f64),
                watch.cpu_s() * 1e6 / figure(&flow, "measured_messages").max(1.0),
            ],
        });
        drop(clients);
    }
    Ok(Kind { what, costs: &["us each", "us of CPU each", "bytes each", "us of CPU of a message among them"], readings })
}

/// One filter in a SUBSCRIBE, each awaited.
async fn subscribe(target: &Target, each: usize, wild: bool) -> Result<Vec<Client>, Failure> {
    let subscribers = (0..SUBSCRIBERS).map(|number| async move {
        let mut client = Client::open(target, number, &format!("growth-{number}"), &Session::CLEAN).await?;
        for filter in 0..each {
            let filter = if wild { format!("growth/{number}/+/{filter}") } else { format!("growth/{number}/{filter}") };
            client.subscribe(&filter, QoS::AtLeastOnce).await?;
        }
        Ok::<_, Failure>(client)
    });
    futures_util::future::try_join_all(subscribers).await
}

fn queued(settings: &Settings) -> Result<Kind, Failure> {
    let mut readings = Vec::new();
    for count in sizes(settings) {
        let trio = start(settings)?;
        let before = user_bytes(&trio);
        let mut watch = Watch::new(&trio, Mark::Begin, Mark::Drained, Mark::Filled);
        let plan = offline(SESSIONS, count / SESSIONS);
        let outcome = play(target(trio.mqtt()[0]), Scene::Offline(plan), &mut watch)?;
        if figure(&outcome, "lost") + figure(&outcome, "doubled") > 0.0 {
            return Err("messages were lost or doubled".into());
        }
        let each = |of: f64| of / count as f64;
        readings.push(Reading {
            count,
            costs: vec![
                1e6 / figure(&outcome, "fill_per_s"),
                1e6 / figure(&outcome, "drain_per_s"),
                each(watch.cpu_s() * 1e6),
                each(watch.bytes.saturating_sub(before) as f64),
            ],
        });
    }
    Ok(Kind {
        what: "queued messages",
        costs: &["us each to fill", "us each to drain", "us of CPU each", "bytes each"],
        readings,
    })
}
