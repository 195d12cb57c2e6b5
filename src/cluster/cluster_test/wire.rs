//! A wire between two nodes that can be cut: connections stay open and nothing passes, as with a pulled cable.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;

/// Forwards to one node what others send it, unless it is cut.
pub struct Wire {
    pub address: SocketAddr,
    cut: watch::Sender<bool>,
    _forward: Arc<RwLock<()>>,
}

impl Wire {
    pub async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let cut = watch::Sender::new(false);
        let alive = Arc::new(RwLock::new(()));
        let watched = Arc::downgrade(&alive);
        let is_cut = cut.subscribe();
        tokio::spawn(async move {
            while watched.upgrade().is_some() {
                let Ok((from, _)) = listener.accept().await else { return };
                let is_cut = is_cut.clone();
                tokio::spawn(async move {
                    wait_whole(&is_cut).await;
                    let Ok(to) = TcpStream::connect(target).await else { return };
                    let (from_read, from_write) = from.into_split();
                    let (to_read, to_write) = to.into_split();
                    tokio::select! {
                        () = pump(from_read, to_write, is_cut.clone()) => {}
                        () = pump(to_read, from_write, is_cut) => {}
                    }
                });
            }
        });
        Self { address, cut, _forward: alive }
    }

    pub fn cut(&self) {
        self.cut.send_replace(true);
    }

    pub fn mend(&self) {
        self.cut.send_replace(false);
    }
}

async fn wait_whole(is_cut: &watch::Receiver<bool>) {
    let _ = is_cut.clone().wait_for(|cut| !cut).await;
}

async fn pump(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, is_cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        wait_whole(&is_cut).await;
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
