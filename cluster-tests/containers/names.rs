//! A name server for one name, as slow as a test wants it. Containers ask the engine, which asks it for what it does not know itself.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Of a DNS message: that of a header, and codes (RFC 1035 section 4.1).
const HEADER: usize = 12;
const TYPE_A: u16 = 1;
const NAME_ERROR: u8 = 3;

pub struct NameServer {
    pub addresses: Arc<Mutex<Vec<Ipv4Addr>>>,
    /// Questions for the name so far.
    pub asked: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl NameServer {
    /// Listens on port 53 of an address of this machine. Each answer comes that late.
    pub fn start(at: Ipv4Addr, name: &str, late: Duration) -> Self {
        let socket = UdpSocket::bind((at, 53)).unwrap_or_else(|error| panic!("no name server on {at}:53: {error}"));
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        let (addresses, asked, ended) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (known, count, until, name) = (Arc::clone(&addresses), Arc::clone(&asked), Arc::clone(&ended), name.to_owned());
        std::thread::spawn(move || {
            let socket = Arc::new(socket);
            let mut question = [0; 512];
            while !until.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut question) else { continue };
                let addresses = known.lock().expect("no panic").clone();
                let Some(answer) = answer(&question[..len], &name, &addresses, &count) else { continue };
                let socket = Arc::clone(&socket);
                std::thread::spawn(move || {
                    std::thread::sleep(late);
                    _ = socket.send_to(&answer, from);
                });
            }
        });
        Self { addresses, asked, ended }
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// The answer to a message with one question.
fn answer(message: &[u8], name: &str, addresses: &[Ipv4Addr], asked: &AtomicUsize) -> Option<Vec<u8>> {
    let mut at = HEADER;
    let mut labels = Vec::new();
    loop {
        let len = usize::from(*message.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + len)?).to_ascii_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    let question = message.get(HEADER..at + 4)?;
    let known = labels.join(".") == name;
    if known && kind == TYPE_A {
        asked.fetch_add(1, Ordering::Relaxed);
    }
    let found: &[Ipv4Addr] = if known && kind == TYPE_A { addresses } else { &[] };
    // Response, recursion desired and available.
    let code = if known { 0 } else { NAME_ERROR };
    let mut answer = vec![message[0], message[1], 0x81, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0];
    answer.extend(question);
    for address in found {
        // A pointer to the name of the question, A, IN, no time to live, four bytes.
        answer.extend([0xC0, HEADER as u8, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}
