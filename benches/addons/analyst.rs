//! The subscriber of an add-on topic, on a thread of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime;
use tokio::sync::oneshot;
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{Packet, QoS, codec};

use crate::Failure;
use crate::client::{self, Client, VERSION};

const INBOX_BYTES: usize = 64 * 1024;
/// A session that outlives all scenes.
pub const SESSION_S: u32 = 3600;
/// A session that ends with its connection: what it is sent is not stored for it.
pub const LIVE_S: u32 = 0;
const ANALYST: &str = "analyst";
const POLL: Duration = Duration::from_millis(5);

pub struct Analyst {
    /// Messages that `counts` said yes to.
    counted: Arc<AtomicU64>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

impl Analyst {
    /// Connects with a session of that length, subscribes (QoS 1) where a filter is given, and reads until it is stopped. `counts` sees every
    /// message and says whether it is one of those to be counted.
    pub fn start(
        server: SocketAddr,
        session_s: u32,
        filter: Option<&'static str>,
        counts: impl FnMut(&Publish) -> bool + Send + 'static,
    ) -> Result<Self, Failure> {
        let counted = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let counter = Arc::clone(&counted);
        let thread = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let client = match connected(server, session_s, filter).await {
                    Ok(client) => client,
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        return Ok(());
                    }
                };
                let _ = ready.send(Ok(()));
                tokio::select! {
                    _ = stopped => Ok(()),
                    read = read(client, counts, &counter) => read,
                }
            })
        });
        is_ready.recv()??;
        Ok(Self { counted, stop, thread })
    }

    pub fn counted(&self) -> u64 {
        self.counted.load(Ordering::Acquire)
    }

    /// Waits until so many are counted; the time it took, none where it is not within that time.
    pub fn wait_for(&self, count: u64, within: Duration) -> Option<Duration> {
        let began = Instant::now();
        while self.counted() < count {
            if began.elapsed() > within || self.thread.is_finished() {
                return None;
            }
            thread::sleep(POLL);
        }
        Some(began.elapsed())
    }

    /// Ends the connection.
    pub fn finish(self) -> Result<(), Failure> {
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| "the analyst panicked")?
    }
}

/// Subscribes and goes away: a session that only queues.
pub async fn away(server: SocketAddr, filter: &str) -> Result<(), Failure> {
    let mut client = client::connect(server, ANALYST, false, SESSION_S).await?;
    client.subscribe(filter, QoS::AtLeastOnce).await?;
    Ok(client.disconnect().await?)
}

async fn connected(server: SocketAddr, session_s: u32, filter: Option<&str>) -> Result<Client, Failure> {
    let id = if session_s == LIVE_S { "live-analyst" } else { ANALYST };
    let mut client = client::connect(server, id, false, session_s).await?;
    if let Some(filter) = filter {
        client.subscribe(filter, QoS::AtLeastOnce).await?;
    }
    client.inbox.grow_to(INBOX_BYTES);
    Ok(client)
}

async fn read(mut client: Client, mut counts: impl FnMut(&Publish) -> bool, counter: &AtomicU64) -> Result<(), Failure> {
    let mut acknowledgements = Vec::new();
    loop {
        let mut counted = 0;
        while let Some((frame, bytes)) = client.inbox.take()? {
            let Packet::Publish(publish) = codec::decode(frame, Bytes::copy_from_slice(bytes), Some(VERSION))? else { continue };
            if let Some(id) = publish.packet_id {
                let [high, low] = id.get().to_be_bytes();
                acknowledgements.extend_from_slice(&[0x40, 2, high, low]);
            }
            counted += u64::from(counts(&publish));
        }
        counter.fetch_add(counted, Ordering::Release);
        if !acknowledgements.is_empty() {
            client.stream.write_all(&acknowledgements).await?;
            acknowledgements.clear();
        }
        client.inbox.fill(&mut client.stream).await?;
    }
}
