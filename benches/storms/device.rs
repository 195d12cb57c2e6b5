//! Devices as they stand in the field: each has a Will and a short Keep Alive, and pings. They notice when they are lost; a watcher notices
//! Wills.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep, timeout};

use crate::Failure;

const WILLS: &str = "storm/will/";
/// Seconds; a server ends the connection after one and a half of it.
pub const KEEP_ALIVE_S: u16 = 4;
const PING: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(20);
/// A device that has no answer for so long takes itself for lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// What the devices saw.
#[derive(Default)]
pub struct Seen {
    pub lost: Cell<usize>,
    /// Wills that the watcher got.
    pub wills: Cell<usize>,
    /// From a PINGREQ to its PINGRESP, the longest.
    pub slowest_ping: Cell<Duration>,
    over: Cell<bool>,
}

impl Seen {
    /// They part in peace from now on.
    pub fn end(&self) {
        self.over.set(true);
    }
}

/// A string as MQTT has it.
fn text(into: &mut Vec<u8>, text: &str) {
    into.extend(u16::try_from(text.len()).expect("a short text").to_be_bytes());
    into.extend(text.as_bytes());
}

fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128, "one byte of Remaining Length");
    [&[first, u8::try_from(body.len()).expect("below 128")][..], body].concat()
}

/// A CONNECT of MQTT 3.1.1 with Clean Session, with a Will if it has a topic.
fn connect(id: &str, will: Option<&str>) -> Vec<u8> {
    let mut body = Vec::new();
    text(&mut body, "MQTT");
    body.extend([4, if will.is_some() { 0b110 } else { 0b10 }]);
    body.extend(KEEP_ALIVE_S.to_be_bytes());
    text(&mut body, id);
    if let Some(topic) = will {
        text(&mut body, topic);
        text(&mut body, "gone");
    }
    packet(0x10, &body)
}

async fn open(server: SocketAddr, connect: &[u8]) -> Result<TcpStream, Failure> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(connect).await?;
    let mut connack = [0; 4];
    timeout(ANSWER_WITHIN, stream.read_exact(&mut connack)).await.map_err(|_| "no CONNACK")??;
    if connack != [0x20, 2, 0, 0] {
        return Err(format!("a device was refused: {connack:?}").into());
    }
    Ok(stream)
}

/// A device that goes without DISCONNECT: whether the watcher gets its Will, without which no Wills would mean nothing.
pub async fn shows_wills(server: SocketAddr, seen: &Seen) -> Result<bool, Failure> {
    let before = seen.wills.get();
    drop(open(server, &connect("storm-control", Some(&format!("{WILLS}control")))).await?);
    let began = Instant::now();
    while seen.wills.get() == before && began.elapsed() < ANSWER_WITHIN {
        sleep(POLL).await;
    }
    Ok(seen.wills.get() == before + 1)
}

/// Connects all and lets them live until `Seen::end`.
pub async fn start(server: SocketAddr, devices: usize, seen: &Rc<Seen>) -> Result<Vec<JoinHandle<()>>, Failure> {
    let mut watcher = open(server, &connect("storm-watcher", None)).await?;
    let mut subscribe = vec![0, 1];
    text(&mut subscribe, &format!("{WILLS}#"));
    subscribe.push(0);
    watcher.write_all(&packet(0x82, &subscribe)).await?;
    let mut suback = [0; 5];
    timeout(ANSWER_WITHIN, watcher.read_exact(&mut suback)).await.map_err(|_| "no SUBACK")??;
    let mut tasks = vec![spawn_local(live(watcher, Duration::ZERO, Rc::clone(seen)))];
    for number in 0..devices {
        let stream = open(server, &connect(&format!("storm-device-{number}"), Some(&format!("{WILLS}{number}")))).await?;
        let phase = PING * u32::try_from(number)? / u32::try_from(devices)?;
        tasks.push(spawn_local(live(stream, phase, Rc::clone(seen))));
    }
    Ok(tasks)
}

async fn live(mut stream: TcpStream, phase: Duration, seen: Rc<Seen>) {
    sleep(phase).await;
    let mut bytes = BytesMut::new();
    while !seen.over.get() {
        if !ping(&mut stream, &mut bytes, &seen).await {
            if !seen.over.get() {
                seen.lost.set(seen.lost.get() + 1);
            }
            return;
        }
    }
    let _ = stream.write_all(&[0xE0, 0]).await;
}

/// One ping, and the pause behind it, in which Wills may come.
async fn ping(stream: &mut TcpStream, bytes: &mut BytesMut, seen: &Seen) -> bool {
    let sent = Instant::now();
    if stream.write_all(&[0xC0, 0]).await.is_err() {
        return false;
    }
    let mut answered = false;
    loop {
        let until = sent + if answered { PING } else { ANSWER_WITHIN };
        match timeout(until.saturating_duration_since(Instant::now()), stream.read_buf(bytes)).await {
            Err(_) => return answered,
            Ok(Ok(0) | Err(_)) => return false,
            Ok(Ok(_)) => {}
        }
        while bytes.len() >= 2 && bytes.len() >= 2 + usize::from(bytes[1]) {
            let whole = bytes.split_to(2 + usize::from(bytes[1]));
            match whole[0] {
                0xD0 => {
                    answered = true;
                    seen.slowest_ping.set(seen.slowest_ping.get().max(sent.elapsed()));
                }
                0x30..=0x3F => seen.wills.set(seen.wills.get() + 1),
                _ => return false,
            }
        }
    }
}
