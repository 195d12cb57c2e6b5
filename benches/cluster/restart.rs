//! All three nodes are killed at once and started again: how long until each of them serves.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use tokio::runtime::{self, Runtime};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::client;
use crate::common::environment::Program;
use crate::common::nodes::{Node, Trio};
use crate::common::report::{Report, Times};
use crate::settings::Settings;

const SESSION_S: u32 = 100_000;
const GIVE_UP: Duration = Duration::from_secs(120);
const RETRY: Duration = Duration::from_millis(20);
/// Handshakes under way while sessions are stored.
const HANDSHAKES: usize = 96;
const CONNECT_TRIES: usize = 50;

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    for program in &settings.programs {
        let Program { name, .. } = program;
        let mut trio = Trio::start(program, 1000)?;
        let mut times = Times::default();
        for round in 0..settings.rounds {
            times.push(restart(&runtime, &mut trio, &format!("few-{round}"))?);
        }
        report.times("All killed and started again: every node serves", name, &times, Some(10_000.0));
        store(&runtime, &trio.mqtt(), settings.sessions)?;
        let stored = format!("the same with {} stored sessions", settings.sessions);
        let mut times = Times::default();
        for round in 0..settings.rounds {
            times.push(restart(&runtime, &mut trio, &format!("many-{round}"))?);
        }
        report.times(&stored, name, &times, Some(20_000.0));
        let resident: Vec<String> = trio.resident_bytes().iter().map(|bytes| format!("{} MiB", bytes >> 20)).collect();
        report.add(&format!("{stored}: resident memory of each node"), name, resident.join(", "), None);
    }
    Ok(())
}

/// From the start of the processes until a message went through each node to a session that was there before.
fn restart(runtime: &Runtime, trio: &mut Trio, name: &str) -> Result<Duration, Failure> {
    let addresses = trio.mqtt();
    LocalSet::new().block_on(runtime, async {
        for (number, address) in addresses.iter().enumerate() {
            let id = format!("{name}-{number}");
            let mut client = client::connect(*address, &id, true, SESSION_S).await?;
            client.subscribe(&format!("to/{id}"), QoS::AtLeastOnce).await?;
        }
        Ok::<_, Failure>(())
    })?;
    trio.nodes.iter_mut().for_each(|node| _ = node.kill());
    trio.nodes.iter_mut().for_each(Node::reap);
    let started = Instant::now();
    trio.start_all()?;
    LocalSet::new().block_on(runtime, async {
        let serving: Vec<_> =
            (0..addresses.len()).map(|number| spawn_local(serves(addresses[number], format!("{name}-{number}")))).collect();
        for serving in serving {
            timeout(GIVE_UP, serving).await.map_err(|_| "a node does not serve")???;
        }
        Ok::<_, Failure>(())
    })?;
    let took = started.elapsed();
    eprintln!("      {name}: {} ms", took.as_millis());
    trio.wait_ready()?;
    Ok(took)
}

async fn serves(address: SocketAddr, id: String) -> Result<(), Failure> {
    let mut client = loop {
        match client::connect(address, &id, false, SESSION_S).await {
            Ok(client) if client.session_present => break client,
            Ok(_) => return Err("a session was lost".into()),
            Err(_) => sleep(RETRY).await,
        }
    };
    client.publish(&format!("to/{id}"), NonZeroU16::MIN, b"again").await?;
    client.message().await?;
    Ok(())
}

/// Leaves so many sessions behind, each with a subscription.
fn store(runtime: &Runtime, addresses: &[SocketAddr], count: usize) -> Result<(), Failure> {
    let began = Instant::now();
    LocalSet::new().block_on(runtime, async {
        let workers: Vec<_> = (0..HANDSHAKES)
            .map(|worker| {
                let address = addresses[worker % addresses.len()];
                spawn_local(async move {
                    for number in (worker..count).step_by(HANDSHAKES) {
                        let id = format!("stored-{number}");
                        let mut tries = 0;
                        let mut client = loop {
                            match client::connect(address, &id, true, SESSION_S).await {
                                Ok(client) => break client,
                                Err(error) if tries == CONNECT_TRIES => return Err(error),
                                Err(_) => sleep(RETRY).await,
                            }
                            tries += 1;
                        };
                        client.subscribe(&format!("stored/{number}"), QoS::AtLeastOnce).await?;
                    }
                    Ok::<_, Failure>(())
                })
            })
            .collect();
        for worker in workers {
            worker.await??;
        }
        Ok::<_, Failure>(())
    })?;
    eprintln!("      stored {count} sessions in {} s", began.elapsed().as_secs());
    Ok(())
}
