//! Clients by the hundred at a service, played by `troupemq bench`, and a watcher that reads every lifecycle event meanwhile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use troupemq::mqtt::QoS;

use crate::harness::client::{Client, Options};
use crate::harness::events::{Event, FILTER};
use crate::harness::roamer::Roamer;
use crate::harness::{SOON, program, wait};

/// The load ends, and is judged, within this after it was told to.
const END: Duration = Duration::from_secs(90);
/// After so much silence no event comes any more.
const SILENCE: Duration = Duration::from_secs(2);

/// Pairs of a publisher and a subscriber, both with sessions that persist, which connect anew through the service whenever they must.
pub struct Load {
    child: Child,
    /// Where it writes what it found.
    verdict: tempfile::NamedTempFile,
}

impl Load {
    /// Waits until all are connected; the client ids begin with `prefix`. They are patient: who gives an attempt up and tries again moves twice, and
    /// here nobody is silent.
    pub fn start(service: SocketAddr, prefix: &str, pairs: usize, rate: usize, events: &Watcher) -> Self {
        let arguments = format!(
            "bench failover {service} --pairs {pairs} --rate {rate} --qos 1 --session-expiry 600 --client-id {prefix} --keep-alive 60 \
             --connect-timeout 20 --warm-up 0 --duration 10m --drain 20 --quiet --json"
        );
        let verdict = tempfile::NamedTempFile::new().expect("a file");
        let mut command = Command::new(program());
        command.args(arguments.split_whitespace()).arg(verdict.path()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut load = Self { child: command.spawn().expect("the load tool starts"), verdict };
        wait::until("all clients of the load are connected", 2 * SOON, || {
            let ended = load.child.try_wait().expect("it can be asked");
            assert!(ended.is_none(), "the load has ended before: {ended:?}");
            (events.connected() >= 2 * pairs).then_some(())
        });
        load
    }

    /// Ends the load; what it found. Nothing that was acknowledged may be lost, no session, nothing out of order.
    #[track_caller]
    pub fn judge(mut self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::INT).expect("it can be signalled");
        let status = wait::until("the load ends", END, || self.child.try_wait().expect("it can be asked"));
        let text = std::fs::read_to_string(self.verdict.path()).expect("its verdict");
        let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(status.code(), Some(0), "{} {}", json["faults"], json["figures"]);
        let figure = |name: &str| json["figures"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", json["figures"]));
        assert_eq!((figure("lost"), figure("out_of_order")), (0.0, 0.0), "{}", json["figures"]);
        assert!(figure("acknowledged") > 0.0 && figure("acknowledged") == figure("sent"), "{}", json["figures"]);
        json
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Reads all lifecycle events with a session that persists, QoS 2, through the service.
pub struct Watcher {
    enough: Arc<AtomicBool>,
    connected: Arc<AtomicUsize>,
    thread: JoinHandle<Vec<Event>>,
}

impl Watcher {
    /// Counts the clients whose ids begin with `prefix`. Waits until it is subscribed.
    pub fn start(service: SocketAddr, prefix: &str) -> Self {
        let (enough, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stop, count, prefix) = (Arc::clone(&enough), Arc::clone(&connected), prefix.to_owned());
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                // A ping finds a pod that went without a word.
                let mut options = Options::v5("watcher").persistent().keep_alive(8);
                options = options.connack_within(Duration::from_secs(5));
                let mut watcher = Roamer::connect(vec![service], 0, options).await;
                watcher.client().await.subscribe(FILTER, QoS::ExactlyOnce).await;
                tell.send(()).expect("somebody waits");
                watch(&mut watcher, &prefix, &stop, &count).await
            })
        });
        told.recv().expect("the watcher subscribes");
        Self { enough, connected, thread }
    }

    /// How many clients have connected so far.
    pub fn connected(&self) -> usize {
        self.connected.load(Ordering::Relaxed)
    }

    /// All events, once no more come.
    pub fn end(self) -> Vec<Event> {
        self.enough.store(true, Ordering::Relaxed);
        self.thread.join().expect("the watcher reads to its end")
    }
}

async fn watch(watcher: &mut Roamer, prefix: &str, enough: &AtomicBool, connected: &AtomicUsize) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let told = enough.load(Ordering::Relaxed);
        let Some(message) = watcher.message(SILENCE).await else {
            // Asks whether the connection is there; no answer is its end.
            if watcher.client().await.try_ping().await.is_err() {
                watcher.lost();
            } else if told {
                return events;
            }
            continue;
        };
        let event = Event::of(&message);
        if event.client_id.starts_with(prefix) {
            if event.connected {
                connected.fetch_add(1, Ordering::Relaxed);
            }
            events.push(event);
        }
    }
}

/// Connects and disconnects of each client come in turn, each once, and none connected more than `moves` times after the first; the most that
/// one did.
#[track_caller]
pub fn judge_events(events: &[Event], clients: usize, moves: usize) -> usize {
    let mut histories: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in events {
        histories.entry(&event.client_id).or_default().push(event);
    }
    assert_eq!(histories.len(), clients, "clients with events");
    let mut most = 0;
    for (client, history) in histories {
        let shorts: Vec<String> = history.iter().map(|event| format!("{} {}", event.json["Timestamp"], event.short())).collect();
        let in_turn = history.iter().enumerate().all(|(index, event)| event.connected == (index.is_multiple_of(2)));
        assert!(in_turn && history.len().is_multiple_of(2), "{client}: {shorts:?}");
        let connects = history.len() / 2;
        assert!(connects <= moves + 1, "{client} connected {connects} times: {shorts:?}");
        most = most.max(connects - 1);
    }
    most
}

/// Sessions that are away while messages are queued for them, and that must get all of them.
pub struct Sleepers {
    ids: Vec<String>,
    queued: usize,
}

impl Sleepers {
    /// Subscribes at each of these servers in turn, leaves, and queues messages, acknowledged.
    pub async fn fall_asleep(servers: &[SocketAddr], name: &str, sessions: usize, messages: usize) -> Self {
        let ids: Vec<String> = (0..sessions).map(|index| format!("{name}-sleeper-{index}")).collect();
        for (index, id) in ids.iter().enumerate() {
            let mut client = Client::connect(servers[index % servers.len()], &Options::v5(id).persistent()).await;
            client.subscribe(&format!("{name}/{id}"), QoS::AtLeastOnce).await;
            client.disconnect().await;
        }
        let mut sleepers = Self { ids, queued: 0 };
        sleepers.queue(servers, name, messages).await;
        sleepers
    }

    /// So many messages more for each.
    pub async fn queue(&mut self, servers: &[SocketAddr], name: &str, messages: usize) {
        let mut publisher = Client::connect(servers[0], &Options::v5(&format!("{name}-publisher"))).await;
        for number in self.queued..self.queued + messages {
            for id in &self.ids {
                publisher.publish(&format!("{name}/{id}"), number.to_string().as_bytes(), QoS::AtLeastOnce).await;
            }
        }
        publisher.disconnect().await;
        self.queued += messages;
    }

    /// Each wakes up at one of these servers and has all its messages, in order, once.
    pub async fn wake_up(self, servers: &[SocketAddr]) {
        for (index, id) in self.ids.iter().enumerate() {
            let mut client = Client::connect(servers[index % servers.len()], &Options::v5(id).persistent()).await;
            assert!(client.session_present(), "the session of {id} is gone");
            for number in 0..self.queued {
                assert_eq!(client.text().await, number.to_string(), "{id}");
            }
            client.nothing().await;
            client.disconnect().await;
        }
    }
}
