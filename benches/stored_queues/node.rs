//! The node that is measured.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::common::environment::Program;
use crate::common::nodes::{Shape, Trio};

const READY_WITHIN: Duration = Duration::from_secs(120);
const QUEUE_MAX: usize = 1_000_000;

pub struct Node {
    pub address: SocketAddr,
    alone: Trio,
}

impl Node {
    pub fn start(program: &Program) -> Self {
        let alone = Trio::start_as(program, &Shape { nodes: 1, queue_max: QUEUE_MAX, more: "", ..Shape::default() })
            .expect("the node starts");
        let address = alone.nodes[0].mqtt;
        Self { address, alone }
    }

    pub fn kill(&mut self) {
        self.alone.nodes[0].kill();
        self.alone.nodes[0].reap();
    }

    /// Returns when a client is let in.
    pub fn start_again(&mut self) {
        self.alone.nodes[0].launch().expect("the program starts");
        let began = Instant::now();
        while !Client::is_served(self.address) {
            assert!(began.elapsed() < READY_WITHIN, "the node is not ready; its log: {}", self.alone.nodes[0].log_tail());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Bytes of resident memory.
    pub fn resident(&self) -> u64 {
        self.status("VmRSS:")
    }

    /// The most it was since the start.
    pub fn peak(&self) -> u64 {
        self.status("VmHWM:")
    }

    fn status(&self, name: &str) -> u64 {
        let pid = self.alone.nodes[0].pid().expect("the node runs");
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the node runs");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("memory in /proc/PID/status");
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }
}
