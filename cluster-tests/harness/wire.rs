//! Wires between the nodes of a cluster that can be cut: connections stay open and nothing passes, as with a pulled cable.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;

use super::config::Config;
use super::permit::Weight;
use super::trio::Trio;

/// Forwards to one node what another sends it, unless it is cut.
pub struct Wire {
    port: u16,
    cut: watch::Sender<bool>,
}

impl Wire {
    async fn to(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let target = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port));
        let cut = watch::Sender::new(false);
        let is_cut = cut.subscribe();
        tokio::spawn(async move {
            while let Ok((from, _)) = listener.accept().await {
                tokio::spawn(forward(from, target, is_cut.clone()));
            }
        });
        Self { port: own, cut }
    }
}

async fn forward(from: TcpStream, target: SocketAddr, is_cut: watch::Receiver<bool>) {
    whole(&is_cut).await;
    let Ok(to) = TcpStream::connect(target).await else { return };
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    tokio::select! {
        () = pump(from_read, to_write, is_cut.clone()) => {}
        () = pump(to_read, from_write, is_cut) => {}
    }
}

async fn whole(is_cut: &watch::Receiver<bool>) {
    _ = is_cut.clone().wait_for(|cut| !cut).await;
}

async fn pump(mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf, is_cut: watch::Receiver<bool>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        whole(&is_cut).await;
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}

/// Three nodes; each reaches another by a wire of its own only.
pub struct WiredTrio {
    pub trio: Trio,
    /// `wires[a][b]` carries what `a` dials to `b`.
    wires: Vec<Vec<Wire>>,
}

impl WiredTrio {
    /// Three nodes with wires between them, started and ready.
    pub async fn ready(weight: Weight, shape: impl Fn(&mut Config)) -> Self {
        let mut trio = Trio::new(weight, shape);
        let ports: Vec<u16> = trio.nodes.iter().map(|node| node.config.cluster.as_ref().expect("a cluster").port).collect();
        let mut wires = Vec::new();
        for node in &mut trio.nodes {
            let mut row = Vec::new();
            for port in &ports {
                row.push(Wire::to(*port).await);
            }
            let cluster = node.config.cluster.as_mut().expect("a cluster");
            cluster.all_ports = row.iter().map(|wire| wire.port).collect();
            // What it says of itself leads nowhere: port 1 answers nobody.
            cluster.external_port = Some(1);
            wires.push(row);
        }
        trio.start_all();
        Self { trio, wires }
    }

    /// Cuts a pair of nodes, or mends it.
    pub fn set_cut(&self, a: usize, b: usize, cut: bool) {
        self.wires[a][b].cut.send_replace(cut);
        self.wires[b][a].cut.send_replace(cut);
    }

    /// Cuts a node from both others, or mends that.
    pub fn set_alone(&self, node: usize, cut: bool) {
        (0..3).filter(|other| *other != node).for_each(|other| self.set_cut(node, other, cut));
    }
}
