//! Ten times as many connects as the listener allows, while others are served: what the storm does to those who are there.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::task::LocalSet;
use troupemq::load::{self, ConnectPace, ConnectPlan, Mark, Observer, Outcome, Scene};

use crate::Failure;
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::device::{self, Seen};
use crate::load::{connects, figure, pairs, play, target, user_bytes};
use crate::settings::Settings;

/// The storm comes at so many times the rate that is allowed.
const TIMES: u32 = 10;
/// A client that was turned away comes back after so long.
const RETRY: Duration = Duration::from_millis(500);
/// Messages a second of the publishers that are there.
const RATE: f64 = 1_000.0;
const CALM: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);

const P99_MS: f64 = 100.0;
/// Longer than the rate says, parts of it.
const LONGER: f64 = 0.25;
/// KiB of user memory for each client of the storm, at the most: what a connection takes, and what it takes to be let in.
const KIB_EACH: f64 = 8.0;

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let Settings { limit, storm, .. } = *settings;
    let protection = format!(
        "<connect-overload-protection><connect-rate>{limit}</connect-rate><connect-burst-size>{limit}</connect-burst-size>\
         </connect-overload-protection>"
    );
    let shape = Shape { nodes: 1, queue_max: 1_000, protection: &protection, ..Shape::default() };
    let trio = Trio::start_as(&settings.program, &shape)?;
    let server = trio.mqtt()[0];
    // The bucket is full when the storm begins; what is there before goes in at the rate.
    let expected = Duration::from_secs_f64(storm.saturating_sub(limit as usize) as f64 / f64::from(limit));
    let seen = Rc::new(Seen::default());
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let ((flow, connected, peak), lost, wills, shown) = LocalSet::new().block_on(&runtime, async {
        let devices = device::start(server, settings.devices, &seen).await?;
        let played = storm_beside(settings, &trio, server, expected).await?;
        // Before the control, which adds one.
        let (lost, wills) = (seen.lost.get(), seen.wills.get());
        let shown = device::shows_wills(server, &seen).await?;
        seen.end();
        for device in devices {
            device.await?;
        }
        Ok::<_, Failure>((played, lost, wills, shown))
    })?;
    let times = flow.times("latency").unwrap_or_default();
    let name = settings.program.name;
    let what = format!("{storm} clients at {} connects/s, {limit} allowed", limit * TIMES);
    report.add(
        &format!("{what}: publishers that are there, {RATE} messages/s QoS 1"),
        name,
        format!("latency p50 {:.2}, p99 {:.1}, max {:.0} ms; {:.0} lost", times.p50, times.p99, times.max, figure(&flow, "lost")),
        Some((format!("p99 < {P99_MS} ms, 0 lost"), times.p99 < P99_MS && figure(&flow, "lost") == 0.0)),
    );
    if !shown {
        return Err("the watcher did not get the one Will that was due: that it got none says nothing".into());
    }
    report.add(
        &format!("{what}: {} devices, Keep Alive {} s", settings.devices, device::KEEP_ALIVE_S),
        name,
        format!("{lost} lost, {wills} false Wills; slowest ping {} ms", seen.slowest_ping.get().as_millis()),
        Some(("0 lost, 0 Wills".to_owned(), lost == 0 && wills == 0)),
    );
    let took = figure(&connected, "elapsed_s");
    let bound = expected.as_secs_f64() * (1.0 + LONGER);
    report.add(
        &format!("{what}: until all are in"),
        name,
        format!(
            "{took:.1} s; {:.0} tries were turned away; {:.0} never got in",
            figure(&connected, "turned_away"),
            figure(&connected, "not_connected")
        ),
        Some((format!("<= {bound:.1} s, all"), took <= bound && figure(&connected, "not_connected") == 0.0)),
    );
    let each = peak as f64 / 1024.0 / storm as f64;
    report.add(
        &format!("{what}: user memory at its peak, more than before"),
        name,
        format!("{:.1} MiB, {each:.1} KiB for each client", peak as f64 / 1_048_576.0),
        Some((format!("<= {KIB_EACH} KiB each"), each <= KIB_EACH)),
    );
    Ok(())
}

/// The publishers' outcome, the storm's, and the bytes that the node took at the most.
async fn storm_beside(
    settings: &Settings,
    trio: &Trio,
    server: SocketAddr,
    expected: Duration,
) -> Result<(Outcome, Outcome, u64), Failure> {
    let begun = Arc::new(AtomicBool::new(false));
    let flow = pairs(settings.pairs, Some(RATE), CALM, expected + CALM / 2);
    let mut gate = Gate(Arc::clone(&begun));
    let flowing = thread::spawn(move || play(target(server), Scene::Flow(flow), &mut gate));
    while !begun.load(Ordering::Acquire) && !flowing.is_finished() {
        tokio::time::sleep(POLL).await;
    }
    let before = user_bytes(trio);
    let plan = ConnectPlan {
        retry: Some(RETRY),
        // They stay until the publishers are done: that thousands go at once is another storm.
        ..connects(settings.storm, ConnectPace::Rate(f64::from(settings.limit * TIMES)), CALM * 2)
    };
    let storming = thread::spawn(move || play(target(server), Scene::Connect(plan), &mut load::Nobody));
    let mut peak = 0;
    while !storming.is_finished() {
        peak = peak.max(user_bytes(trio));
        tokio::time::sleep(POLL).await;
    }
    let connected = storming.join().map_err(|_| "the storm's thread failed")??;
    while !flowing.is_finished() {
        tokio::time::sleep(POLL).await;
    }
    let flow = flowing.join().map_err(|_| "the publishers' thread failed")??;
    Ok((flow, connected, peak.saturating_sub(before)))
}

/// Says when what is there before is there.
struct Gate(Arc<AtomicBool>);

impl Observer for Gate {
    fn at(&mut self, mark: Mark) -> Result<(), load::Failure> {
        if mark == Mark::Begin {
            self.0.store(true, Ordering::Release);
        }
        Ok(())
    }
}
