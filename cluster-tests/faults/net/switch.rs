//! The switch: one thread that reads packets from every device and hands each to the device of its addressee.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::SyncDevice;

use super::namespace::Address;
use super::{ENDS, Quality};
use crate::faults::random::Random;

/// Larger than any packet of these devices.
const PACKET_MAX: usize = 4096;
/// Packets that wait for their time; more are lost, as in a full buffer of a router.
const WAITING_MAX: usize = 20_000;
/// Packets of one device in a row, before others have their turn.
const BURST: usize = 64;
/// The switch looks so often whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

pub struct Switch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    table: Mutex<Table>,
    stop: AtomicBool,
}

struct Table {
    links: [[Link; ENDS]; ENDS],
    random: Random,
}

#[derive(Clone, Copy, Default)]
struct Link {
    quality: Quality,
    given: u64,
    handed_on: u64,
}

impl Switch {
    /// Devices in the order of the ends; reading one must not block.
    pub fn start(devices: Vec<SyncDevice>, seed: u64) -> Self {
        let table = Table { links: Default::default(), random: Random::new(seed) };
        let shared = Arc::new(Shared { table: Mutex::new(table), stop: AtomicBool::new(false) });
        let port = Ports { devices, shared: Arc::clone(&shared), late: BinaryHeap::new(), numbered: 0 };
        let thread = std::thread::Builder::new().name("switch".to_owned()).spawn(|| port.run()).expect("a thread");
        Self { shared, thread: Some(thread) }
    }

    pub fn set(&self, from: usize, to: usize, quality: Quality) {
        self.shared.table.lock().expect("not poisoned").links[from][to].quality = quality;
    }

    /// Packets given and handed on in one direction.
    pub fn carried(&self, from: usize, to: usize) -> (u64, u64) {
        let link = self.shared.table.lock().expect("not poisoned").links[from][to];
        (link.given, link.handed_on)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// A packet that arrives later: when, its number (those of one moment keep their order), for whom, and its bytes.
type Late = Reverse<(Instant, u64, usize, Vec<u8>)>;

/// What the thread has.
struct Ports {
    devices: Vec<SyncDevice>,
    shared: Arc<Shared>,
    late: BinaryHeap<Late>,
    numbered: u64,
}

impl Ports {
    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.wait();
            for end in 0..self.devices.len() {
                self.receive(end);
            }
            self.deliver_late();
        }
    }

    /// Until a device has something, or the next packet is due.
    fn wait(&self) {
        let due = self.late.peek().map_or(LOOK, |Reverse((at, ..))| at.saturating_duration_since(Instant::now()));
        let mut ready: Vec<PollFd<'_>> = self.devices.iter().map(|device| PollFd::new(device, PollFlags::IN)).collect();
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(due.min(LOOK).subsec_nanos()) };
        if poll(&mut ready, Some(&timeout)).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Takes what comes out of one device; an error is one that has nothing, or that goes with its namespace.
    fn receive(&mut self, end: usize) {
        let mut buffer = [0; PACKET_MAX];
        for _ in 0..BURST {
            let Ok(count) = self.devices[end].recv(&mut buffer) else { return };
            self.pass(end, &buffer[..count]);
        }
    }

    fn pass(&mut self, from: usize, packet: &[u8]) {
        let Some(to) = addressee(packet) else { return };
        let fate = self.shared.table.lock().expect("not poisoned").fate(from, to);
        for delay in fate {
            if delay.is_zero() {
                _ = self.devices[to].send(packet);
            } else if self.late.len() < WAITING_MAX {
                self.numbered += 1;
                self.late.push(Reverse((Instant::now() + delay, self.numbered, to, packet.to_vec())));
            }
        }
    }

    fn deliver_late(&mut self) {
        while self.late.peek().is_some_and(|Reverse((at, ..))| *at <= Instant::now()) {
            if let Some(Reverse((_, _, to, packet))) = self.late.pop() {
                _ = self.devices[to].send(&packet);
            }
        }
    }
}

/// The end that an IPv4 packet is for; nothing else is carried.
fn addressee(packet: &[u8]) -> Option<usize> {
    if packet.first()? >> 4 != 4 {
        return None;
    }
    let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    Address::end(Ipv4Addr::from(octets))
}

impl Table {
    /// After what times a packet arrives: none, one, or two of them.
    fn fate(&mut self, from: usize, to: usize) -> Vec<Duration> {
        let link = &mut self.links[from][to];
        link.given += 1;
        let quality = link.quality;
        if quality.cut || self.random.below(1000) < u64::from(quality.lost_per_mille) {
            return Vec::new();
        }
        let copies = if self.random.below(1000) < u64::from(quality.doubled_per_mille) { 2 } else { 1 };
        link.handed_on += copies;
        let jitter_us = u64::try_from(quality.jitter.as_micros()).unwrap_or(u64::MAX - 1);
        (0..copies).map(|_| quality.delay + Duration::from_micros(self.random.below(jitter_us + 1))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(quality: Quality) -> Table {
        let mut table = Table { links: Default::default(), random: Random::new(7) };
        table.links[0][1].quality = quality;
        table
    }

    #[test]
    fn a_packet_goes_to_the_end_that_its_address_names() {
        let mut packet = [0; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&[10, 192, 7, 16 + 2]);
        assert_eq!(addressee(&packet), Some(1));
        packet[19] = 16 + 9;
        assert_eq!(addressee(&packet), None, "nobody is there");
        packet[0] = 0x60;
        assert_eq!(addressee(&packet), None, "IPv6");
        assert_eq!(addressee(&packet[..3]), None);
    }

    #[test]
    fn links_lose_and_double_as_many_as_they_are_told_to_and_only_in_their_direction() {
        assert!(table(Quality::CUT).fate(0, 1).is_empty());
        assert_eq!(table(Quality::CUT).fate(1, 0), [Duration::ZERO]);
        let quality = Quality { lost_per_mille: 300, doubled_per_mille: 100, ..Quality::default() };
        let mut table = table(quality);
        let fates: Vec<usize> = (0..10_000).map(|_| table.fate(0, 1).len()).collect();
        let of = |count| fates.iter().filter(|copies| **copies == count).count();
        assert!((2_700..3_300).contains(&of(0)), "{}", of(0));
        assert!((500..900).contains(&of(2)), "{}", of(2));
    }

    #[test]
    fn delays_keep_within_their_jitter() {
        let (delay, jitter) = (Duration::from_millis(50), Duration::from_millis(20));
        let mut table = table(Quality { delay, jitter, ..Quality::default() });
        let delays: Vec<Duration> = (0..1_000).flat_map(|_| table.fate(0, 1)).collect();
        assert!(delays.iter().all(|at| (delay..=delay + jitter).contains(at)));
        assert!(delays.iter().max() > delays.iter().min());
    }
}
