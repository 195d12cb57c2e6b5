//! A wire between two nodes that can be cut, in one direction or both, made slow, or made to refuse. Cut, its connections stay open and nothing
//! passes, as with a pulled cable.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::kit::free_address;

/// What is wrong with a wire.
#[derive(Debug, Clone, Copy, Default)]
struct Fault {
    /// Towards the node behind it, and back.
    cut: [bool; 2],
    delay: Duration,
    refuses: bool,
}

const THERE: usize = 0;
const BACK: usize = 1;

/// Forwards to one node what others send it, unless it is cut.
pub struct Wire {
    pub address: SocketAddr,
    fault: watch::Sender<Fault>,
    _forward: Arc<RwLock<()>>,
}

impl Wire {
    pub async fn to(target: SocketAddr) -> Self {
        // It stays free while the wire refuses.
        let mut listener = TcpListener::bind(free_address()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let fault = watch::Sender::new(Fault::default());
        let alive = Arc::new(RwLock::new(()));
        let watched = Arc::downgrade(&alive);
        let faults = fault.subscribe();
        tokio::spawn(async move {
            while watched.upgrade().is_some() {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = wait_refusing(&faults, true) => {
                        drop(listener);
                        wait_refusing(&faults, false).await;
                        listener = TcpListener::bind(address).await.unwrap();
                        continue;
                    }
                };
                let Ok((from, _)) = accepted else { return };
                let faults = faults.clone();
                tokio::spawn(async move {
                    // Without the way back a connection does not come to be either.
                    wait_whole(&faults, THERE).await;
                    wait_whole(&faults, BACK).await;
                    let Ok(to) = TcpStream::connect(target).await else { return };
                    let (from_read, from_write) = from.into_split();
                    let (to_read, to_write) = to.into_split();
                    tokio::select! {
                        () = wait_refusing(&faults, true) => {}
                        () = pump(from_read, to_write, faults.clone(), THERE) => {}
                        () = pump(to_read, from_write, faults.clone(), BACK) => {}
                    }
                });
            }
        });
        Self { address, fault, _forward: alive }
    }

    pub fn cut(&self) {
        self.fault.send_modify(|fault| fault.cut = [true; 2]);
    }

    /// Connections end, and new ones are refused, as by a firewall that rejects.
    pub fn refuse(&self) {
        self.fault.send_modify(|fault| fault.refuses = true);
    }

    /// Nothing comes to the node behind the wire; what it sends passes.
    pub fn cut_there(&self) {
        self.fault.send_modify(|fault| fault.cut[THERE] = true);
    }

    /// The other way round.
    pub fn cut_back(&self) {
        self.fault.send_modify(|fault| fault.cut[BACK] = true);
    }

    /// What passes takes so long, each way.
    pub fn delay(&self, delay: Duration) {
        self.fault.send_modify(|fault| fault.delay = delay);
    }

    pub fn mend(&self) {
        self.fault.send_replace(Fault::default());
    }
}

async fn wait_whole(faults: &watch::Receiver<Fault>, direction: usize) {
    let _ = faults.clone().wait_for(|fault| !fault.cut[direction]).await;
}

async fn wait_refusing(faults: &watch::Receiver<Fault>, refuses: bool) {
    let _ = faults.clone().wait_for(|fault| fault.refuses == refuses).await;
}

async fn pump(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, faults: watch::Receiver<Fault>, direction: usize) {
    let (sender, mut receiver) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let read = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            wait_whole(&faults, direction).await;
            let due = Instant::now() + faults.borrow().delay;
            if sender.send((due, buffer[..count].to_vec())).await.is_err() {
                return;
            }
        }
        // What is under way arrives.
        drop(sender);
        std::future::pending::<()>().await;
    };
    let write = async {
        while let Some((due, bytes)) = receiver.recv().await {
            tokio::time::sleep_until(due).await;
            wait_whole(&faults, direction).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = write => {}
    }
}
