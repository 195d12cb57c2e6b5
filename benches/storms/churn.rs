//! Clients that come, subscribe, publish and go, and come again, for half an hour: whether the node grows.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::runtime;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use troupemq::load::{Client, Session, Target};
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::load::{target, user_bytes};
use crate::settings::Settings;

/// Names that a client of the churn has, in turn: a session that is kept is found again.
const NAMES: usize = 50;
const MESSAGES: u16 = 5;
/// Kept sessions live as long between two visits.
const EXPIRY_S: u32 = 60;
const SAMPLE: Duration = Duration::from_millis(500);
/// Part of the time in which sessions, caches and tables come to their size.
const WARM_UP: f64 = 1.0 / 3.0;
/// Growth that is no growth: what one table more or less of the storage engine makes.
const GROWN_MAX_PARTS: f64 = 0.05;
const GROWN_MAX_BYTES: f64 = 6.0 * 1024.0 * 1024.0;
/// Stretches of the measured time that the line goes through.
const BLOCKS: usize = 20;
const VISIT_WITHIN: Duration = Duration::from_secs(30);

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let trio = Trio::start_as(&settings.program, &Shape { nodes: 1, queue_max: 1_000, ..Shape::default() })?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (visits, samples) = LocalSet::new().block_on(&runtime, churn(settings, &trio))?;
    let warm = settings.churn.as_secs_f64() * WARM_UP;
    let measured: Vec<(f64, f64)> = samples.into_iter().filter(|(at, _)| *at >= warm).collect();
    let seconds = settings.churn.as_secs_f64() - warm;
    let Line { mean, slope, error } = line(&blocks(&measured));
    let grown = slope * seconds;
    let unsure = 2.0 * error * seconds;
    let verdict = if grown.abs() <= unsure { "none measurable" } else { "measurable" };
    let bound = (mean * GROWN_MAX_PARTS).max(GROWN_MAX_BYTES);
    let mib = |bytes: f64| bytes / 1_048_576.0;
    report.add(
        &format!(
            "Churn of {} clients at a time, {:.0} s, the last {seconds:.0} measured",
            settings.churners,
            settings.churn.as_secs_f64()
        ),
        settings.program.name,
        format!(
            "{visits} visits of {MESSAGES} messages; user memory {:.1} MiB, growth {verdict}: {:+.1} MiB over that time, give or take {:.1}",
            mib(mean),
            mib(grown),
            mib(unsure)
        ),
        // In a few seconds all grows.
        (!settings.quick).then(|| (format!("<= {:.1} MiB more", mib(bound)), grown <= bound)),
    );
    Ok(())
}

/// How many visits there were, and the memory: seconds and bytes.
async fn churn(settings: &Settings, trio: &Trio) -> Result<(usize, Vec<(f64, f64)>), Failure> {
    let server = trio.mqtt()[0];
    let began = Instant::now();
    let visits = Rc::new(Cell::new(0));
    let clients: Vec<_> = (0..settings.churners)
        .map(|number| spawn_local(come_and_go(server, number, began + settings.churn, Rc::clone(&visits))))
        .collect();
    let mut samples = Vec::new();
    while began.elapsed() < settings.churn {
        sleep(SAMPLE).await;
        samples.push((began.elapsed().as_secs_f64(), user_bytes(trio) as f64));
    }
    for client in clients {
        client.await??;
    }
    Ok((visits.get(), samples))
}

/// Every other visit is of a session that is kept.
async fn come_and_go(server: SocketAddr, number: usize, until: Instant, visits: Rc<Cell<usize>>) -> Result<(), Failure> {
    let target = Target::find(&target(server))?;
    let mut turn = number;
    while Instant::now() < until {
        turn += 1;
        let id = format!("churn-{number}-{}", turn % NAMES);
        let session = if turn.is_multiple_of(2) { Session::kept(EXPIRY_S) } else { Session::CLEAN };
        let visited = timeout(VISIT_WITHIN, visit(&target, number, &id, &session)).await;
        visited.map_err(|_| format!("a visit of {id} took more than {} s", VISIT_WITHIN.as_secs()))??;
        visits.set(visits.get() + 1);
    }
    Ok(())
}

/// Subscribes to its own topic, and goes when it has all that it published.
async fn visit(target: &Target, number: usize, id: &str, session: &Session) -> Result<(), Failure> {
    let mut client = Client::open(target, number, id, session).await?;
    let topic = format!("churn/{id}");
    client.subscribe(&topic, QoS::AtLeastOnce).await?;
    for packet_id in 1..=MESSAGES {
        client.publish(&topic, packet_id.try_into()?, b"a message of the churn").await?;
    }
    for _ in 0..MESSAGES {
        client.message().await?;
    }
    client.disconnect().await?;
    Ok(())
}

/// Means of stretches of the time: what one reading tells of the next would make the error too small.
fn blocks(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mean = |block: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| block.iter().map(of).sum::<f64>() / block.len() as f64;
    points
        .chunks(points.len().div_ceil(BLOCKS).max(1))
        .map(|block| (mean(block, |(at, _)| *at), mean(block, |(_, y)| *y)))
        .collect()
}

/// A line of least squares.
struct Line {
    mean: f64,
    /// A second.
    slope: f64,
    /// Standard error of the slope; infinite where there are too few points to tell.
    error: f64,
}

fn line(points: &[(f64, f64)]) -> Line {
    let count = points.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (at, bytes) = (mean(|(at, _)| *at), mean(|(_, bytes)| *bytes));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(above, below), (x, y)| (above + (x - at) * (y - bytes), below + (x - at) * (x - at)));
    if points.len() < 3 || below <= 0.0 {
        return Line { mean: bytes, slope: 0.0, error: f64::INFINITY };
    }
    let slope = above / below;
    let left = points.iter().map(|(x, y)| (y - bytes - slope * (x - at)).powi(2)).sum::<f64>();
    Line { mean: bytes, slope, error: (left / (count - 2.0) / below).sqrt() }
}
