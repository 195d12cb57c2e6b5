//! The scenes, and what they have in common: connecting many clients, keeping each at its post, and the heads of reports.

mod connect;
mod flow;
mod offline;
mod retained;
mod verdict;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use rand::Rng;
use serde_json::{Map, Value, json};

use super::client::{Client, Session};
use super::connection::Connection;
use super::counters::add;
use super::crew::{Crew, Line, Setting};
use super::drive::{Machine, drive};
use super::gate::Gate;
use super::latency::Latency;
use super::numbering::share;
use super::progress::Progress;
use super::report::{Outcome, ToolUse};
use super::target::Target;
use super::thread::Thread;
use super::{Failure, Observer, Plan, Scene};
use crate::mqtt::QoS;

/// For connecting and subscribing everybody, beyond what one client may take.
const SETUP_WITHIN: Duration = Duration::from_secs(600);
/// For one client of `failover` to be let in at first.
const SETUP_CONNECT: Duration = Duration::from_secs(20);
/// Between two attempts to connect again.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Sessions of a run live so long if the run is cut off, seconds.
const SESSION_S: u32 = 3600;

pub(super) async fn play(plan: &Plan, target: Target, observer: &mut dyn Observer) -> Result<Outcome, Failure> {
    let tag: u32 = rand::rng().random();
    let names = Arc::new(Names {
        target,
        clients: plan.common.client_id.clone().unwrap_or_else(|| format!("bench-{tag:08x}-")),
        topics: plan.common.topic.clone().unwrap_or_else(|| format!("bench/{tag:08x}")),
        handshakes: plan.common.handshakes,
        // Where clients are to notice soon that a server is gone, that is no haste before anything happens.
        setup_timeout: match plan.name() {
            "failover" => plan.target.connect_timeout.max(SETUP_CONNECT),
            _ => plan.target.connect_timeout,
        },
    });
    let setting = Setting {
        threads: plan.common.threads,
        run: tag,
        keep_alive_s: plan.target.keep_alive,
        // A server may add properties; more than a string's worth of them is not ours.
        packet_bytes_max: plan.payload_bytes() + 256 * 1024,
        slice: plan.common.slice,
        progress: Progress::new(plan.common.progress),
    };
    let mut outcome = Outcome { scene: plan.name(), settings: settings(plan), ..Outcome::default() };
    match &plan.scene {
        Scene::Connect(scene) => connect::play(scene, names, setting, &mut outcome, observer).await,
        Scene::Flow(scene) => flow::play(scene, names, setting, &mut outcome, observer).await,
        Scene::Retained(scene) => retained::play(scene, names, setting, &mut outcome, observer).await,
        Scene::Offline(scene) => offline::play(scene, names, setting, &mut outcome, observer).await,
    }?;
    Ok(outcome)
}

/// Whom all clients of a run connect to, and what they are called.
struct Names {
    target: Target,
    clients: String,
    topics: String,
    handshakes: usize,
    /// From SYN to CONNACK, before the load.
    setup_timeout: Duration,
}

impl Names {
    fn client(&self, role: &str, number: usize) -> String {
        format!("{}{role}{number}", self.clients)
    }

    /// Connections this thread may have under way.
    fn handshakes_of(&self, thread: &Thread) -> usize {
        share(self.handshakes, thread.threads, thread.index).max(1)
    }

    /// Opens the clients of these numbers, several at a time, and subscribes them where there is a filter; `name` gives server, client
    /// identifier and filter of a number.
    async fn open_all(
        &self,
        thread: &Thread,
        numbers: impl Iterator<Item = usize>,
        session: &Session,
        qos: QoS,
        name: impl Fn(usize) -> Identity,
    ) -> Result<Vec<(usize, Client)>, Failure> {
        let name = &name;
        let open = |number: usize| async move {
            let Identity { server, id, filter } = name(number);
            let mut client = Client::open_within(self.setup_timeout, &self.target, server, &id, session).await?;
            add(&thread.counters.connected, 1);
            if let Some(filter) = filter {
                client.subscribe(&filter, qos).await?;
            }
            Ok((number, client))
        };
        stream::iter(numbers).map(open).buffer_unordered(self.handshakes_of(thread)).try_collect().await
    }
}

/// Who a client is.
struct Identity {
    /// The number of its server, and of its source.
    server: usize,
    id: String,
    filter: Option<String>,
}

/// A client at its post.
struct Post<M> {
    identity: Identity,
    qos: QoS,
    session: Session,
    machine: Rc<RefCell<M>>,
    gate: Arc<Gate>,
    /// Where it is to go on at the next server: how long each return took.
    returns: Option<Rc<RefCell<Latency>>>,
}

/// Keeps a client at its post until the thread finishes; then it parts, and its session ends.
async fn serve<M: Machine>(thread: Rc<Thread>, line: Line, names: Arc<Names>, mut post: Post<M>, client: Client) {
    let mut client = client;
    loop {
        match drive(Connection::from(client), &post.machine, &post.gate, &thread).await {
            Ok(connection) => {
                part(&thread, &names, &post, connection).await;
                return;
            }
            Err(failure) => {
                add(&thread.counters.lost, 1);
                if post.returns.is_none() {
                    line.failed(Failure::Protocol(format!("{}: {failure}", post.identity.id)));
                    return;
                }
            }
        }
        let lost_ns = thread.clock.now_ns();
        let Some(returned) = come_back(&thread, &names, &mut post).await else { return };
        client = returned;
        if let Some(returns) = &post.returns {
            returns.borrow_mut().record(thread.clock.now_ns().saturating_sub(lost_ns));
        }
    }
}

/// Connects again, at the next server first; `None` once the thread finishes.
async fn come_back<M: Machine>(thread: &Thread, names: &Names, post: &mut Post<M>) -> Option<Client> {
    while !thread.is_finishing() {
        post.identity.server += 1;
        let session = Session { clean_start: false, ..post.session.clone() };
        let attempt = async {
            let mut client = Client::open(&names.target, post.identity.server, &post.identity.id, &session).await?;
            if let Some(filter) = post.identity.filter.as_deref().filter(|_| !client.session_present) {
                client.subscribe(filter, post.qos).await?;
            }
            Ok::<_, Failure>(client)
        };
        if let Ok(client) = attempt.await {
            add(&thread.counters.connected, 1);
            post.gate.revive();
            // A session that was to end with its connection is none that is missed.
            post.machine.borrow_mut().resume(client.session_present || session.expiry_s == 0, client.receive_maximum);
            return Some(client);
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
    None
}

async fn part<M>(thread: &Thread, names: &Names, post: &Post<M>, connection: Connection) {
    let client = connection.into_client();
    let is_kept = post.session.expiry_s > 0;
    add(&thread.counters.parted, 1);
    // What the server makes of a good-bye is its own affair.
    _ = client.part(is_kept.then_some(0)).await;
    if is_kept && !names.target.version.is_v5() {
        forget(names, post.identity.server, &post.identity.id).await;
    }
}

/// Ends a session the way MQTT 3 knows.
async fn forget(names: &Names, server: usize, id: &str) {
    if let Ok(client) = Client::open(&names.target, server, id, &Session::CLEAN).await {
        _ = client.part(None).await;
    }
}

/// The numbers of this thread's clients.
fn mine(thread: &Thread, all: usize) -> impl Iterator<Item = usize> + use<> {
    (thread.index..all).step_by(thread.threads)
}

/// Waits for the tasks to end, and ends those that do not.
async fn join_all(tasks: Vec<tokio::task::JoinHandle<()>>, within: Duration) {
    let aborts: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
    let all = async {
        for task in tasks {
            _ = task.await;
        }
    };
    if tokio::time::timeout(within, all).await.is_err() {
        aborts.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

/// Whatever a crew tells when it is through.
fn conclude<P>(crew: &mut Crew<P>, threads: usize, is_open_loop: bool, outcome: &mut Outcome) {
    let mut told: Vec<(String, u64)> = Vec::new();
    for failure in &crew.failures {
        let text = failure.to_string();
        match told.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => told.push((text, 1)),
        }
    }
    let shown = 5;
    let more: u64 = told.iter().skip(shown).map(|(_, count)| count).sum();
    outcome.faults.extend(
        told.into_iter().take(shown).map(|(text, count)| if count > 1 { format!("{text} ({count} times)") } else { text }),
    );
    outcome.fault_if(more, "more failures");
    outcome.interrupted = crew.interrupted;
    outcome.series = std::mem::take(&mut crew.series);
    outcome.tool = ToolUse { threads, busiest: crew.busiest(), lag_p99_ms: is_open_loop.then(|| crew.times.lag.times().p99) };
}

fn settings(plan: &Plan) -> Map<String, Value> {
    let target = &plan.target;
    let mut map = Map::new();
    let mut add = |name: &str, value: Value| _ = map.insert(name.to_owned(), value);
    add("servers", json!(target.servers));
    add("mqtt", json!(target.version.name()));
    add("tls", json!(target.tls.is_some()));
    add("websocket", json!(target.websocket));
    add("threads", json!(plan.common.threads));
    add("keep_alive_s", json!(target.keep_alive));
    let seconds = |time: Duration| json!(time.as_secs_f64());
    match &plan.scene {
        Scene::Connect(scene) => {
            add("clients", json!(scene.clients));
            let (name, value) = match scene.pace {
                super::ConnectPace::Handshakes(count) => ("handshakes", json!(count)),
                super::ConnectPace::Rate(rate) => ("rate", json!(rate)),
                super::ConnectPace::Burst => ("burst", json!(true)),
            };
            add(name, value);
            add("session_expiry_s", json!(scene.session_expiry_s));
            add("hold_s", seconds(scene.hold));
        }
        Scene::Flow(scene) => {
            add("publishers", json!(scene.shape.publishers()));
            add("subscribers", json!(scene.shape.subscribers()));
            add("qos", json!(scene.qos as u8));
            add("payload_bytes", json!(scene.payload_bytes));
            add("rate", json!(scene.rate));
            add("in_flight", json!(scene.in_flight));
            add("until_received", json!(scene.waits_for_receipts()));
            add("session_expiry_s", json!(scene.session_expiry_s));
            add("warm_up_s", seconds(scene.warm_up));
            add("duration_s", seconds(scene.duration));
        }
        Scene::Retained(scene) => {
            add("messages", json!(scene.messages));
            add("publishers", json!(scene.publishers));
            add("subscribers", json!(scene.subscribers));
            add("qos", json!(scene.qos as u8));
            add("payload_bytes", json!(scene.payload_bytes));
        }
        Scene::Offline(scene) => {
            add("sessions", json!(scene.sessions));
            add("messages_of_each", json!(scene.messages));
            add("publishers", json!(scene.publishers));
            add("qos", json!(scene.qos as u8));
            add("payload_bytes", json!(scene.payload_bytes));
            add("in_flight", json!(scene.in_flight));
        }
    }
    map
}
