//! One address in front of several: connections go to them in turn, byte for byte.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

/// A load balancer without a mind. It ends, and its connections with it, when dropped.
pub struct Spread {
    pub address: SocketAddr,
    _runtime: Runtime,
}

impl Spread {
    pub fn over(targets: Vec<SocketAddr>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        runtime.spawn(async move {
            let next = AtomicUsize::new(0);
            while let Ok((client, _)) = listener.accept().await {
                let target = targets[next.fetch_add(1, Ordering::Relaxed) % targets.len()];
                tokio::spawn(carry(client, target));
            }
        });
        Self { address, _runtime: runtime }
    }
}

/// A refusal, and a reset, show as a closed socket.
async fn carry(client: TcpStream, target: SocketAddr) {
    let Ok(node) = TcpStream::connect(target).await else { return };
    for stream in [&client, &node] {
        _ = stream.set_nodelay(true);
    }
    let ((from_client, to_client), (from_node, to_node)) = (client.into_split(), node.into_split());
    tokio::join!(one_way(from_client, to_node), one_way(from_node, to_client));
}

async fn one_way(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
    let mut buffer = vec![0; 256 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    _ = to.shutdown().await;
}
