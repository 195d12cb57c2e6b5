//! What a million queued messages of 300 bytes cost one node: `cargo bench --bench stored_queues [SCENE...]`.
//!
//! Builds nothing: `target/release/troupemq` must be there (`cargo build --release`; another program in TROUPEMQ_BENCH_BROKER). For each scene
//! a fresh node is filled while its sessions are offline, killed, started again and drained; order and number of what comes are checked.
//! The scene `online` measures QoS 1 to persistent sessions that are connected. `--quick` divides all numbers by 20. The seed (TROUPEMQ_BENCH_SEED)
//! makes the payloads.

// A program for people, like a test: it prints, and a broken assumption may end it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// A byte of a number is meant where one is taken.
#![allow(clippy::cast_possible_truncation)]
// A process is ready when it answers: it gives no condition to wait on.
#![allow(clippy::disallowed_methods)]

mod client;
#[path = "../common/mod.rs"]
mod common;
mod node;

use std::env;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use client::Client;
use common::Failure;
use common::environment::Program;
use node::Node;

const PAYLOAD_BYTES: usize = 300;
const THREADS: usize = 4;
const ONLINE_PAIRS: usize = 20;
/// Before memory is read: the engine writes out and the allocator gives back.
const SETTLE: Duration = Duration::from_secs(5);
const MIB: f64 = 1024.0 * 1024.0;

struct Scene {
    name: &'static str,
    sessions: usize,
    /// For each session.
    messages: usize,
    /// All sessions get the same messages.
    fan_out: bool,
}

const SCENES: [Scene; 3] = [
    Scene { name: "many", sessions: 1000, messages: 1000, fan_out: false },
    Scene { name: "one", sessions: 1, messages: 1_000_000, fan_out: false },
    Scene { name: "fan-out", sessions: 20, messages: 50_000, fan_out: true },
];

fn main() -> ExitCode {
    common::exit("stored_queues", || measure().map(|()| true))
}

fn measure() -> Result<(), Failure> {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let quick = arguments.iter().any(|argument| argument == "--quick");
    let wanted = |name: &str| arguments.iter().all(|a| a.starts_with("--")) || arguments.iter().any(|a| a == name);
    let seed = env::var("TROUPEMQ_BENCH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let program = Program::under_test()?;
    println!("stored_queues: seed {seed}, payloads of {PAYLOAD_BYTES} bytes, {}", program.path.display());
    for scene in SCENES.iter().filter(|scene| wanted(scene.name)) {
        let scale = if quick { 20 } else { 1 };
        let (sessions, messages) = if scene.messages > scene.sessions {
            (scene.sessions, scene.messages / scale)
        } else {
            (scene.sessions / scale, scene.messages)
        };
        run(&Scene { sessions, messages, ..*scene }, &program, seed);
    }
    if wanted("online") {
        online(&program, seed, Duration::from_secs(if quick { 2 } else { 10 }));
    }
    Ok(())
}

fn run(scene: &Scene, program: &Program, seed: u64) {
    let total = scene.sessions * scene.messages;
    println!("\n{}: {} sessions x {} messages", scene.name, scene.sessions, scene.messages);
    let mut node = Node::start(program);
    let idle = node.resident();
    (0..scene.sessions).for_each(|number| {
        let mut client = Client::connect(node.address, &session(number), true);
        client.subscribe(&topic(scene, number));
        client.disconnect();
    });

    let began = Instant::now();
    let topics: Vec<usize> = if scene.fan_out { vec![0] } else { (0..scene.sessions).collect() };
    thread::scope(|scope| {
        for part in topics.chunks(topics.len().div_ceil(THREADS)) {
            let node = &node;
            scope.spawn(move || {
                let mut client = Client::connect(node.address, &format!("publisher{}", part[0]), false);
                for sequence in 0..scene.messages {
                    for number in part {
                        client.publish(&topic(scene, *number), &payload(seed, *number, sequence));
                    }
                }
                client.await_acknowledgements();
            });
        }
    });
    let filled = began.elapsed();
    let at_once = node.resident();
    thread::sleep(SETTLE);
    println!("  filled       {:>9.0} queued/s", total as f64 / filled.as_secs_f64());
    println!(
        "  memory       {:>9.1} MiB idle, {:.1} filled, {:.1} settled, {:.1} at the most",
        mib(idle),
        mib(at_once),
        mib(node.resident()),
        mib(node.peak())
    );
    println!("  a message    {:>9.0} bytes of memory", node.resident().saturating_sub(idle) as f64 / total as f64);

    node.kill();
    let began = Instant::now();
    node.start_again();
    let connected = began.elapsed();
    Client::connect(node.address, &session(0), true).glance(|topic_bytes, bytes| check(scene, seed, 0, 0, topic_bytes, bytes));
    let served = began.elapsed();
    println!(
        "  restart      {:>9.2} s to the first CONNACK, {:.2} s to the first message",
        connected.as_secs_f64(),
        served.as_secs_f64()
    );
    thread::sleep(SETTLE);
    println!("  memory       {:>9.1} MiB after the restart, {:.1} at the most", mib(node.resident()), mib(node.peak()));

    let began = Instant::now();
    let numbers: Vec<usize> = (0..scene.sessions).collect();
    thread::scope(|scope| {
        for part in numbers.chunks(scene.sessions.div_ceil(THREADS)) {
            let node = &node;
            scope.spawn(move || {
                for number in part {
                    let mut client = Client::connect(node.address, &session(*number), true);
                    let mut sequence = 0;
                    client.receive(scene.messages, |topic_bytes, bytes| {
                        check(scene, seed, *number, sequence, topic_bytes, bytes);
                        sequence += 1;
                    });
                    client.disconnect();
                }
            });
        }
    });
    let drained = began.elapsed();
    thread::sleep(SETTLE);
    println!("  drained      {:>9.0} messages/s, all in order, none missing, none twice", total as f64 / drained.as_secs_f64());
    println!("  memory       {:>9.1} MiB drained, {:.1} at the most", mib(node.resident()), mib(node.peak()));
}

/// Publishers, each with a persistent session that is connected.
fn online(program: &Program, seed: u64, time: Duration) {
    let node = Node::start(program);
    let (stop, received) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for number in 0..ONLINE_PAIRS {
            let (stop, received, node) = (&stop, &received, &node);
            let topic = format!("s/{number}");
            let mut subscriber = Client::connect(node.address, &session(number), true);
            subscriber.subscribe(&topic);
            scope.spawn(move || subscriber.receive_all(|_| _ = received.fetch_add(1, Ordering::Relaxed)));
            scope.spawn(move || {
                let mut publisher = Client::connect(node.address, &format!("p{number}"), false);
                publisher.window = 10;
                let mut sequence = 0;
                while !stop.load(Ordering::Relaxed) {
                    publisher.publish(&topic, &payload(seed, number, sequence));
                    sequence += 1;
                }
                // The subscriber has it all when it has this.
                publisher.publish(&topic, b"end");
                publisher.await_acknowledgements();
            });
        }
        thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    let messages = received.load(Ordering::Relaxed);
    println!("\nonline: {ONLINE_PAIRS} publishers, each with a persistent subscriber, 10 messages in flight");
    println!("  delivered    {:>9.0} messages/s", messages as f64 / time.as_secs_f64());
    println!("  memory       {:>9.1} MiB, {:.1} at the most", mib(node.resident()), mib(node.peak()));
}

fn session(number: usize) -> String {
    format!("session{number}")
}

fn topic(scene: &Scene, number: usize) -> String {
    if scene.fan_out { "all".to_owned() } else { format!("s/{number}") }
}

/// Number of the topic and of the message, and bytes that follow from them and the seed.
fn payload(seed: u64, number: usize, sequence: usize) -> Vec<u8> {
    let mut bytes = [number as u64, sequence as u64].map(u64::to_be_bytes).as_flattened().to_vec();
    let mut state = seed ^ (number as u64) << 32 ^ sequence as u64;
    while bytes.len() < PAYLOAD_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.push((state >> 56) as u8);
    }
    bytes
}

fn check(scene: &Scene, seed: u64, number: usize, sequence: usize, topic_bytes: &[u8], bytes: &[u8]) {
    assert_eq!(topic_bytes, topic(scene, number).as_bytes());
    let number = if scene.fan_out { 0 } else { number };
    assert!(bytes == payload(seed, number, sequence), "another message than number {sequence}: {:?}", bytes.get(..16));
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / MIB
}
