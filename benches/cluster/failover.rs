//! A node is killed, or falls silent: how long until a message reaches a subscriber whose shard it led, and until its clients' sessions go on
//! elsewhere.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::runtime::{self, Runtime};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};
use troupemq::mqtt::QoS;
use troupemq::replica::ShardId;

use crate::Failure;
use crate::client::{self, Client};
use crate::common::environment::Program;
use crate::common::nodes::{SHARDS, Trio};
use crate::common::report::{Report, Times};
use crate::settings::Settings;

/// Persistent subscribers on the survivors for each shard that the lost node led.
const SUBSCRIBERS: usize = 2;
/// Persistent sessions connected to the lost node.
const SESSIONS: usize = 12;
const SESSION_S: u32 = 600;
const GIVE_UP: Duration = Duration::from_secs(30);
/// Between two attempts of a client whose node is gone.
const RETRY: Duration = Duration::from_millis(10);

/// How a node is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Kill,
    Silence,
}

pub fn kill(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    scene(settings, report, Loss::Kill, settings.kills, "SIGKILL", 2000.0)
}

pub fn silence(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    scene(settings, report, Loss::Silence, settings.stops, "SIGSTOP", 5000.0)
}

#[derive(Default)]
struct Readings {
    messages: Times,
    sessions: Times,
}

fn scene(settings: &Settings, report: &mut Report, loss: Loss, times: usize, name: &str, goal_ms: f64) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let mut clusters = Vec::new();
    for program in &settings.programs {
        clusters.push((program, Trio::start(program, 1000)?, StdRng::seed_from_u64(settings.seed), Readings::default()));
    }
    for round in 0..times {
        for (program, trio, draw, readings) in &mut clusters {
            lose(&runtime, trio, loss, draw, &format!("{name}-{round}"), readings)
                .map_err(|error| format!("{} round {round} of seed {}: {error}", program.name, settings.seed))?;
        }
    }
    for (program, _, _, readings) in clusters {
        let Program { name: program, .. } = program;
        let (messages, sessions) = (&readings.messages, &readings.sessions);
        report.times(&format!("{name}: QoS 1 publish through a survivor to its subscriber"), program, messages, Some(goal_ms));
        report.times(&format!("{name}: persistent session goes on elsewhere"), program, sessions, Some(goal_ms));
    }
    Ok(())
}

fn lose(
    runtime: &Runtime,
    trio: &mut Trio,
    loss: Loss,
    draw: &mut StdRng,
    name: &str,
    readings: &mut Readings,
) -> Result<(), Failure> {
    let leaders = trio.wait_leaders()?;
    let mut leading: Vec<usize> = leaders.values().copied().collect();
    leading.sort_unstable();
    leading.dedup();
    let victim = leading[draw.random_range(0..leading.len())];
    let led: Vec<u16> = (0..SHARDS).filter(|shard| leaders.get(shard) == Some(&victim)).collect();
    let addresses = trio.mqtt();
    let survivors: Vec<SocketAddr> = (0..3).filter(|node| *node != victim).map(|node| addresses[node]).collect();
    let outcome = LocalSet::new().block_on(runtime, async {
        let scene = Scene::prepare(name, &led, addresses[victim], &survivors).await?;
        let lost_at = match loss {
            Loss::Kill => trio.nodes[victim].kill(),
            Loss::Silence => trio.nodes[victim].signal("STOP")?,
        };
        scene.measure(lost_at, &survivors).await
    });
    match loss {
        Loss::Kill => {
            trio.nodes[victim].reap();
            trio.nodes[victim].launch()?;
        }
        Loss::Silence => _ = trio.nodes[victim].signal("CONT")?,
    }
    trio.wait_ready()?;
    let (messages, sessions) = outcome?;
    eprintln!(
        "      {name}: node {} led {led:?}: messages up to {:.0} ms, sessions up to {:.0} ms",
        victim + 1,
        messages.at(1.0),
        sessions.at(1.0)
    );
    readings.messages.extend(messages);
    readings.sessions.extend(sessions);
    Ok(())
}

/// Clients that wait for the loss.
struct Scene {
    publisher: Client,
    subscribers: Vec<(String, Client)>,
    sessions: Vec<String>,
    /// Connections to the node that will be lost.
    held: Vec<Client>,
}

impl Scene {
    async fn prepare(name: &str, led: &[u16], victim: SocketAddr, survivors: &[SocketAddr]) -> Result<Self, Failure> {
        let mut publisher = client::connect(survivors[0], &format!("{name}-publisher"), true, 0).await?;
        let mut subscribers = Vec::new();
        for shard in led {
            let ids = (0..).map(|number| format!("{name}-subscriber-{number}"));
            for (number, id) in ids.filter(|id| ShardId::of(id, SHARDS) == ShardId(*shard)).take(SUBSCRIBERS).enumerate() {
                let mut client = client::connect(survivors[number % survivors.len()], &id, true, SESSION_S).await?;
                let topic = format!("to/{id}");
                client.subscribe(&topic, QoS::AtLeastOnce).await?;
                publisher.publish(&topic, NonZeroU16::MIN, b"before").await?;
                timeout(GIVE_UP, client.message()).await.map_err(|_| "nothing arrives before the loss")??;
                subscribers.push((topic, client));
            }
        }
        let (mut sessions, mut held) = (Vec::new(), Vec::new());
        for number in 0..SESSIONS {
            let id = format!("{name}-session-{number}");
            held.push(client::connect(victim, &id, true, SESSION_S).await?);
            sessions.push(id);
        }
        Ok(Self { publisher, subscribers, sessions, held })
    }

    async fn measure(mut self, lost_at: Instant, survivors: &[SocketAddr]) -> Result<(Times, Times), Failure> {
        let mut receiving: Vec<JoinHandle<Result<Duration, Failure>>> = Vec::new();
        for (number, (topic, mut client)) in (1..).zip(self.subscribers) {
            let id = NonZeroU16::new(number).ok_or("no identifier")?;
            self.publisher.publish(&topic, id, b"after").await?;
            let published = Instant::now();
            receiving.push(spawn_local(async move {
                loop {
                    let message = timeout(GIVE_UP, client.message()).await.map_err(|_| "a message did not arrive")??;
                    if &*message == b"after" {
                        return Ok(published.elapsed());
                    }
                }
            }));
        }
        let mut resuming: Vec<JoinHandle<Result<Duration, Failure>>> = Vec::new();
        for (number, id) in self.sessions.into_iter().enumerate() {
            let survivor = survivors[number % survivors.len()];
            resuming.push(spawn_local(async move {
                loop {
                    match client::connect(survivor, &id, false, SESSION_S).await {
                        Ok(client) if client.session_present => return Ok(lost_at.elapsed()),
                        Ok(_) => return Err("a session was lost".into()),
                        Err(error) if lost_at.elapsed() > GIVE_UP => return Err(error),
                        Err(_) => sleep(RETRY).await,
                    }
                }
            }));
        }
        let (mut messages, mut sessions) = (Times::default(), Times::default());
        for received in receiving {
            messages.push(received.await??);
        }
        for resumed in resuming {
            sessions.push(resumed.await??);
        }
        drop(self.held);
        Ok((messages, sessions))
    }
}
