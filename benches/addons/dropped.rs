//! Sessions whose queues are full: every message for them is dropped. The same load with `$dropped` off, on with an analyst who reads, and on
//! with one who does not.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{self, Runtime};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::sleep;
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::analyst::{self, Analyst};
use crate::client;
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::publishers::{Message, Next, Publishers};
use crate::settings::{Settings, addon, median};

/// Of the throughput with the add-on off.
const GOAL: f64 = 0.70;
const FILTER: &str = "$dropped/#";
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
/// The counters are written by the nodes a moment after they moved.
const POLL: Duration = Duration::from_millis(100);
/// Sessions that are set up at a time.
const WORKERS: usize = 16;

const CREATED: &str = "com_hivemq_messages_dropped_topic_message_created_client_count";
const TOPIC_DROPPED: &str = "com_hivemq_messages_dropped_topic_dropped_count";
const DROPPED: &str = "com_hivemq_messages_dropped_count";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Off,
    Reads,
    Away,
}

struct Reading {
    /// Acknowledged messages a second.
    rate: f64,
    cpu_us: f64,
    /// What came of the dropped messages, of all that were published.
    published: u64,
    received: u64,
    topic_dropped: f64,
    /// From the last PUBACK until everything was told.
    catch_up: Duration,
    resident_mib: f64,
}

pub fn run(settings: &Settings, nodes: usize, report: &mut Report) -> Result<(), Failure> {
    const VARIANTS: [Variant; 3] = [Variant::Off, Variant::Reads, Variant::Away];
    let mut readings: [Vec<Reading>; 3] = Default::default();
    for round in 0..settings.rounds {
        for turn in 0..VARIANTS.len() {
            let which = (round + turn) % VARIANTS.len();
            let reading = measure(settings, nodes, VARIANTS[which])?;
            let (rate, cpu_us) = (reading.rate, reading.cpu_us);
            eprintln!("      {:?}: {rate:.0} messages/s, {cpu_us:.0} us of CPU each", VARIANTS[which]);
            readings[which].push(reading);
        }
    }
    let of = |which: usize, what: fn(&Reading) -> f64| median(&readings[which].iter().map(what).collect::<Vec<_>>());
    let off = of(0, |reading| reading.rate);
    for (which, name) in [(1, "an analyst reads"), (2, "the analyst is too slow")] {
        let rate = of(which, |reading| reading.rate);
        let value = format!(
            "{rate:.0} messages/s, {off:.0} off: costs {:.0} %; {:.0} and {:.0} us of CPU each; of {:.0} dropped the analyst got {:.0}, its \
             queue refused {:.0}, all told {:.0} ms after the last PUBACK; {:.0} MiB",
            (1.0 - rate / off) * 100.0,
            of(which, |reading| reading.cpu_us),
            of(0, |reading| reading.cpu_us),
            of(which, |reading| reading.published as f64),
            of(which, |reading| reading.received as f64),
            of(which, |reading| reading.topic_dropped),
            of(which, |reading| reading.catch_up.as_secs_f64() * 1000.0),
            of(which, |reading| reading.resident_mib),
        );
        let what = format!("`$dropped`, {} full queues, {name}, {nodes} node(s)", settings.subscribers);
        report.add(&what, "TroupeMQ", value, Some((format!("costs < {:.0} %", (1.0 - GOAL) * 100.0), rate / off > GOAL)));
    }
    Ok(())
}

fn measure(settings: &Settings, nodes: usize, variant: Variant) -> Result<Reading, Failure> {
    let more = addon("dropped-messages-topic", variant != Variant::Off);
    let trio = Trio::start_as(&settings.program, &Shape { nodes, queue_max: settings.queue, more: &more, ..Shape::default() })?;
    trio.wait_spread()?;
    let addresses = trio.mqtt();
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    block_on(&runtime, fill(settings, &addresses))?;
    let received = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&received);
    let count = move |_: &_| {
        counts.fetch_add(1, Ordering::Relaxed);
        true
    };
    let server = addresses[nodes - 1];
    let reader = if variant == Variant::Away {
        block_on(&runtime, analyst::away(server, FILTER))?;
        None
    } else {
        Some(Analyst::start(server, analyst::SESSION_S, Some(FILTER), count.clone())?)
    };
    let mut reading = block_on(&runtime, load(settings, &trio))?;
    let last_acknowledged = Instant::now();
    // Every message that was published was dropped, and is told of where the add-on is on.
    let published = reading.published as f64;
    settled("dropped messages are counted", published, || trio.sum(DROPPED) - trio.sum(TOPIC_DROPPED))?;
    if variant == Variant::Off {
        if trio.sum(CREATED) + trio.sum(TOPIC_DROPPED) > 0.0 {
            return Err("an add-on that is off made messages".into());
        }
        return Ok(reading);
    }
    settled("each is told of once", published, || trio.sum(CREATED))?;
    if let Some(reader) = reader {
        settled("what is told of is read or refused", published, || reader.counted() as f64 + trio.sum(TOPIC_DROPPED))?;
        reading.catch_up = last_acknowledged.elapsed();
        reader.finish()?;
    } else {
        let queue = settings.queue as f64;
        let refused = (published - queue).max(0.0);
        settled("the analyst's queue refuses what it has no room for", refused, || trio.sum(TOPIC_DROPPED))?;
        reading.catch_up = last_acknowledged.elapsed();
        let reader = Analyst::start(server, analyst::SESSION_S, None, count)?;
        settled("the analyst finds its queue", queue.min(published), || reader.counted() as f64)?;
        reader.finish()?;
    }
    reading.received = received.load(Ordering::Relaxed);
    reading.topic_dropped = trio.sum(TOPIC_DROPPED);
    if reading.received as f64 + reading.topic_dropped != published {
        return Err(format!("{} read, {} refused, {} dropped", reading.received, reading.topic_dropped, reading.published).into());
    }
    Ok(reading)
}

/// Sessions with queues that are full.
async fn fill(settings: &Settings, nodes: &[SocketAddr]) -> Result<(), Failure> {
    let next_session = Rc::new(Cell::new(0));
    let workers = (0..WORKERS).map(|_| {
        let (next, subscribers, nodes) = (Rc::clone(&next_session), settings.subscribers, nodes.to_vec());
        spawn_local(async move {
            while next.get() < subscribers {
                let number = next.replace(next.get() + 1);
                let mut client =
                    client::connect(nodes[number % nodes.len()], &format!("full-{number}"), false, analyst::SESSION_S).await?;
                client.subscribe("fill", QoS::AtLeastOnce).await?;
                client.subscribe(&format!("s/{number}"), QoS::AtLeastOnce).await?;
                client.disconnect().await?;
            }
            Ok::<(), Failure>(())
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await??;
    }
    let (left, payload) = (Cell::new(settings.queue), vec![b'.'; settings.payload_bytes]);
    let next: Next = Rc::new(move || {
        left.set(left.get().checked_sub(1)?);
        Some(Message { topic: "fill".to_owned(), payload: payload.clone(), expiry_s: None })
    });
    Publishers::start(1, settings.window, nodes, &next).await?.finish().await?;
    Ok(())
}

async fn load(settings: &Settings, trio: &Trio) -> Result<Reading, Failure> {
    let stopped = Rc::new(Cell::new(false));
    let (stop, turn, subscribers) = (Rc::clone(&stopped), Cell::new(0), settings.subscribers);
    let payload = vec![b'.'; settings.payload_bytes];
    let next: Next = Rc::new(move || {
        let number = turn.replace(turn.get() + 1) % subscribers;
        (!stop.get()).then(|| Message { topic: format!("s/{number}"), payload: payload.clone(), expiry_s: None })
    });
    let publishers = Publishers::start(settings.publishers, settings.window, &trio.mqtt(), &next).await?;
    sleep(settings.warm_up).await;
    let cpu_before = trio.cpu_time();
    let (began, before) = (Instant::now(), publishers.acknowledged());
    sleep(settings.measure).await;
    let (elapsed, done) = (began.elapsed(), publishers.acknowledged() - before);
    let cpu = trio.cpu_time() - cpu_before;
    let resident: u64 = trio.resident_bytes().into_iter().max().unwrap_or(0);
    stopped.set(true);
    let published = publishers.finish().await?;
    Ok(Reading {
        rate: done as f64 / elapsed.as_secs_f64(),
        cpu_us: cpu.as_secs_f64() * 1e6 / done.max(1) as f64,
        published,
        received: 0,
        topic_dropped: 0.0,
        catch_up: Duration::ZERO,
        resident_mib: resident as f64 / (1024.0 * 1024.0),
    })
}

/// Waits until a number is what it is to be.
fn settled(what: &str, wanted: f64, number: impl Fn() -> f64) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        let is = number();
        if is == wanted {
            return Ok(());
        }
        if began.elapsed() > SETTLED_WITHIN {
            return Err(format!("not within {} s: {what}: {is} of {wanted}", SETTLED_WITHIN.as_secs()).into());
        }
        thread::sleep(POLL);
    }
}

fn block_on<T>(runtime: &Runtime, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    LocalSet::new().block_on(runtime, work)
}
