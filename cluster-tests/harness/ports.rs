//! Ports that must be known before a process starts.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex};

/// Below the range from which the kernel gives ports to outgoing connections: while a node is down, none of the clients that try to
/// reach it may be given its port.
const FIRST: u16 = 12_000;
const LAST: u16 = 31_900;

struct Given {
    next: u16,
    taken: HashSet<u16>,
}

static GIVEN: LazyLock<Mutex<Given>> = LazyLock::new(|| {
    // Test runs at the same time start at different places.
    let start = FIRST + (std::process::id() as u16).wrapping_mul(997) % (LAST - FIRST);
    Mutex::new(Given { next: start, taken: HashSet::new() })
});

/// A port that was free a moment ago and that this process gives to nobody else.
pub fn reserve() -> u16 {
    let mut given = GIVEN.lock().expect("nobody panics while holding it");
    for _ in FIRST..LAST {
        let port = given.next;
        given.next = if port + 1 >= LAST { FIRST } else { port + 1 };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && given.taken.insert(port) {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {LAST}");
}
