//! Hundreds of clients that come and go, and take their own connections over, while nodes are killed, stopped and restarted: every connection
//! has one CONNECTED and one DISCONNECTED.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::harness::client::{Client, ConnectError, Gone, Options, user_property};
use crate::harness::events::{self, Event};
use crate::harness::permit::Weight;
use crate::harness::roamer::Roamer;
use crate::harness::trio::{Trio, alive};
use crate::harness::{SOON, wait};

const CLIENTS: usize = 600;
/// Connections that must have been accepted between one kill and the next.
const ACCEPTED_BETWEEN_KILLS: usize = 300;
const HOLD_MIN_MS: u64 = 500;
const HOLD_MAX_MS: u64 = 5_000;
/// All events are there within this after the last client has gone.
const SETTLE: Duration = Duration::from_secs(40);

const ALL_OPTIONS: &str = "<identifier><username/></identifier><triggers><client-connected/><client-disconnected><client/><server/>\
    <session-taken-over/><unspecified/></client-disconnected></triggers>";

/// What a client knows of one attempt to connect; the attempt's number is a user property of its CONNECT, and so of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// CONNACK with success.
    Accepted,
    /// CONNACK with a Reason Code, or no connection at all.
    Refused,
    /// The socket closed before a CONNACK came: accepted or not.
    Unknown,
}

/// An event of a client: the attempt that was connected, or `None` for a disconnect.
type Told = BTreeMap<String, Vec<Option<usize>>>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_connection_has_one_connected_and_one_disconnected_while_nodes_are_killed_and_stopped() {
    let mut trio = Trio::ready_with(Weight::Whole, |config| {
        config.mqtt = "<queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>".to_owned();
        config.lifecycle = ALL_OPTIONS.to_owned();
    });
    let mut watcher = Roamer::connect(trio.all_mqtt(), 0, Options::v5("watcher").persistent()).await;
    watcher.client().await.subscribe(events::FILTER, troupemq::mqtt::QoS::ExactlyOnce).await;
    events::effective(watcher.client().await, &trio.all_mqtt()).await;
    let told = Arc::new(Mutex::new(Told::new()));
    let (stop_watching, watching) = watch::channel(false);
    let watcher = tokio::spawn(watch_events(watcher, Arc::clone(&told), watching));

    let accepted = Arc::new(AtomicUsize::new(0));
    let (stop, stopping) = watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let client = Restless::new(number, trio.all_mqtt(), Arc::clone(&accepted));
            tokio::spawn(client.live(stopping.clone()))
        })
        .collect();
    let more = async |what: &str, count: usize| {
        let goal = accepted.load(Ordering::Relaxed) + count;
        wait::until_async(what, Duration::from_secs(60), async || (accepted.load(Ordering::Relaxed) >= goal).then_some(())).await;
    };
    more("all clients have connected", CLIENTS).await;
    for node in 0..3 {
        // The last one in good order.
        match node {
            2 => assert!(trio.nodes[node].stop().success()),
            _ => trio.nodes[node].kill(),
        }
        let other = (node + 1) % 3;
        wait::until("a survivor has noticed", SOON, || {
            (alive(&trio.nodes[other]) == 2 && trio.nodes[other].is_up()).then_some(())
        });
        more("clients connect to the survivors", ACCEPTED_BETWEEN_KILLS).await;
        trio.nodes[node].launch();
        trio.wait_ready();
        more("clients connect to all nodes", ACCEPTED_BETWEEN_KILLS).await;
    }
    stop.send(true).expect("clients are there");
    let mut histories = BTreeMap::new();
    for client in clients {
        let (id, history) = client.await.expect("the client ends well");
        histories.insert(id, history);
    }
    let settled = Instant::now();
    while !complete(&histories, &told.lock().expect("not poisoned")) && settled.elapsed() < SETTLE {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("all events there {:?} after the last client had gone", settled.elapsed());
    stop_watching.send(true).expect("the watcher is there");
    let watcher = watcher.await.expect("the watcher ends well");
    judge(&histories, &told.lock().expect("not poisoned"));
    assert_eq!(watcher.wrongly_redelivered, Vec::<String>::new());
}

/// Whether nothing is awaited any more: each accepted connection was told, and each connection's end.
fn complete(histories: &BTreeMap<String, Vec<Attempt>>, told: &Told) -> bool {
    histories.iter().all(|(id, attempts)| {
        let told = told.get(id).map_or(&[][..], Vec::as_slice);
        let expected = attempts.iter().filter(|attempt| **attempt == Attempt::Accepted).count();
        told.iter().flatten().count() >= expected && told.last().is_none_or(Option::is_none)
    })
}

fn judge(histories: &BTreeMap<String, Vec<Attempt>>, told: &Told) {
    let mut faults = Vec::new();
    let (mut accepted, mut unknown, mut unknown_told) = (0, 0, 0);
    for (id, attempts) in histories {
        let told = told.get(id).map_or(&[][..], Vec::as_slice);
        if let Some(fault) = fault_of(attempts, told) {
            faults.push(format!("{id}: {fault}; attempts {attempts:?}; told {told:?}"));
        }
        accepted += attempts.iter().filter(|attempt| **attempt == Attempt::Accepted).count();
        for (number, _) in attempts.iter().enumerate().filter(|(_, attempt)| **attempt == Attempt::Unknown) {
            unknown += 1;
            unknown_told += usize::from(told.contains(&Some(number)));
        }
    }
    for id in told.keys().filter(|id| !histories.contains_key(*id)) {
        faults.push(format!("events of the unknown client {id}"));
    }
    println!(
        "{} clients, {accepted} accepted connections, {unknown} of unknown outcome ({unknown_told} of them told), {} faults",
        histories.len(),
        faults.len()
    );
    assert!(accepted > 2 * CLIENTS, "too few connections to prove anything: {accepted}");
    assert!(
        faults.is_empty(),
        "{} of {CLIENTS} clients, the first:\n{}",
        faults.len(),
        faults[..faults.len().min(10)].join("\n")
    );
}

/// What is wrong with what was told of one client.
fn fault_of(attempts: &[Attempt], told: &[Option<usize>]) -> Option<String> {
    for (index, event) in told.iter().enumerate() {
        if event.is_some() != (index % 2 == 0) {
            return Some(format!("event {index} does not alternate"));
        }
    }
    if !told.len().is_multiple_of(2) {
        return Some("the last DISCONNECTED is missing".to_owned());
    }
    let connected: Vec<usize> = told.iter().flatten().copied().collect();
    if !connected.is_sorted_by(|a, b| a < b) {
        return Some("attempts told twice or out of order".to_owned());
    }
    for (number, attempt) in attempts.iter().enumerate() {
        match (attempt, connected.contains(&number)) {
            (Attempt::Accepted, false) => return Some(format!("accepted attempt {number} was not told")),
            (Attempt::Refused, true) => return Some(format!("refused attempt {number} was told as connected")),
            _ => {}
        }
    }
    None
}

/// Writes down all events, until told to stop and nothing more comes.
async fn watch_events(mut watcher: Roamer, told: Arc<Mutex<Told>>, stop: watch::Receiver<bool>) -> Roamer {
    const SILENCE: Duration = Duration::from_millis(1_500);
    loop {
        let Some(message) = watcher.message(SILENCE).await else {
            if *stop.borrow() {
                println!("watcher connected {} times, {} redelivered", watcher.connects, watcher.redelivered);
                return watcher;
            }
            continue;
        };
        let event = Event::of(&message);
        if !event.client_id.starts_with("restless-") {
            continue;
        }
        let identifier = match user_of(&event.client_id) {
            Some(user) => format!("username/{}", user.replace('/', "%2F")),
            None => format!("client-id/{}", event.client_id),
        };
        assert_eq!(*message.topic, *format!("$client-events/all/{identifier}"));
        let attempt = event.connected.then(|| {
            let number = user_property(&message, "attempt").expect("the CONNECT had it");
            number.parse().expect("a number")
        });
        told.lock().expect("not poisoned").entry(event.client_id).or_default().push(attempt);
    }
}

/// The user name of every other client.
fn user_of(client_id: &str) -> Option<String> {
    let number: usize = client_id.rsplit('-').next()?.parse().ok()?;
    number.is_multiple_of(2).then(|| format!("fleet/{number}"))
}

/// A client that connects, stays a while and goes in one way or another.
struct Restless {
    id: String,
    persistent: bool,
    addresses: Vec<SocketAddr>,
    accepted: Arc<AtomicUsize>,
    random: u64,
    attempts: Vec<Attempt>,
}

impl Restless {
    fn new(number: usize, addresses: Vec<SocketAddr>, accepted: Arc<AtomicUsize>) -> Self {
        Self {
            id: format!("restless-{number}"),
            persistent: number.is_multiple_of(3),
            addresses,
            accepted,
            random: number as u64 * 0x9E37_79B9 + 0x1234_5678_9ABC,
            attempts: Vec::new(),
        }
    }

    /// A pseudo-random number below `limit`, the same in every run.
    fn draw(&mut self, limit: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % limit
    }

    async fn live(mut self, mut stop: watch::Receiver<bool>) -> (String, Vec<Attempt>) {
        // A connection left open until the next one takes it over.
        let mut left_open = None;
        while !*stop.borrow() {
            let Some(mut client) = self.attempt().await else {
                let pause = Duration::from_millis(50 + self.draw(200));
                tokio::time::sleep(pause).await;
                continue;
            };
            drop(left_open.take());
            let hold = Duration::from_millis(HOLD_MIN_MS + self.draw(HOLD_MAX_MS - HOLD_MIN_MS));
            let held = tokio::select! {
                held = hold_open(&mut client, hold) => held,
                _ = stop.wait_for(|stop| *stop) => true,
            };
            match self.draw(3) {
                _ if !held => {}
                0 => drop(client),
                1 if !*stop.borrow() => left_open = Some(client),
                _ => drop(client.disconnect().await),
            }
        }
        (self.id, self.attempts)
    }

    async fn attempt(&mut self) -> Option<Client> {
        let mut options = Options::v5(&self.id).user_property("attempt", &self.attempts.len().to_string());
        if self.persistent {
            options = options.persistent();
        }
        if let Some(user) = user_of(&self.id) {
            options = options.username(&user);
        }
        let node = self.draw(self.addresses.len() as u64) as usize;
        let (attempt, client) = match Client::try_connect(self.addresses[node], &options).await {
            Ok(client) => (Attempt::Accepted, Some(client)),
            Err(ConnectError::Refused(_)) => (Attempt::Refused, None),
            Err(ConnectError::Socket(_)) => (Attempt::Unknown, None),
        };
        self.attempts.push(attempt);
        self.accepted.fetch_add(usize::from(client.is_some()), Ordering::Relaxed);
        client
    }
}

/// Whether the connection still stood when the time was over.
async fn hold_open(client: &mut Client, time: Duration) -> bool {
    client.try_message(time).await == Err(Gone::Timeout) && client.disconnect.is_none()
}
