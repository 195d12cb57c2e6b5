//! From an accepted socket to a transport: PROXY header, TLS handshake, WebSocket upgrade, as the listener has them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio_rustls::rustls;

use super::stream::{Replay, Socket, StreamTransport};
use super::websocket::{self, transport::WebSocketTransport};
use super::{proxy, tls};
use crate::actor::Transport;
use crate::actor::transport::{Accepted, ListenerName, PeerCertificate};

/// What a listener does with a connection before MQTT begins.
#[derive(Debug)]
pub struct Endpoint {
    pub listener: Arc<ListenerName>,
    pub proxy_protocol: bool,
    pub tls: Option<Arc<tls::Current>>,
    pub web_socket: Option<websocket::Endpoint>,
    /// For a PROXY header and for a WebSocket upgrade, each.
    pub idle_timeout: Duration,
}

/// A connection that is ready for MQTT.
pub struct Opened {
    pub transport: Box<dyn Transport>,
    pub accepted: Accepted,
}

impl Endpoint {
    /// Whether a connection is ready at once.
    pub fn is_plain(&self) -> bool {
        !self.proxy_protocol && self.tls.is_none() && self.web_socket.is_none()
    }

    /// A plain connection.
    pub fn open_plain(&self, stream: TcpStream, peer: SocketAddr) -> Opened {
        let accepted = self.accepted(&stream, peer);
        let socket = Socket::Plain(Replay::new(Bytes::new(), stream));
        Opened { transport: Box::new(StreamTransport::new(socket)), accepted }
    }

    /// Takes a connection through all steps. `None`: a proxy's own connection, which is for nothing but to see that it can be made.
    ///
    /// # Errors
    /// Why the connection cannot be used: the peer's fault, or the network's.
    pub async fn open(&self, mut stream: TcpStream, peer: SocketAddr) -> io::Result<Option<Opened>> {
        let mut accepted = self.accepted(&stream, peer);
        let mut ahead = Bytes::new();
        if self.proxy_protocol {
            match within(self.idle_timeout, proxy::read(&mut stream)).await? {
                proxy::Beginning::Absent(read) => ahead = read,
                // A health check: the proxy has seen what it wanted. Nothing is said and nothing logged (cases.md 94).
                proxy::Beginning::Header(header) if header.local => return Ok(None),
                proxy::Beginning::Header(header) => believe(&mut accepted, header),
            }
        }
        let stream = Replay::new(ahead, stream);
        let socket = match &self.tls {
            None => Socket::Plain(stream),
            Some(tls) => {
                let (stream, certificate) = tls.accept(stream).await.map_err(|error| refused(error, accepted.peer()))?;
                accepted.secure = true;
                // What the client showed to the broker itself outweighs what a proxy says.
                if let Some(certificate) = certificate {
                    accepted.certificate = Some(Box::new(certificate));
                }
                Socket::Tls(Box::new(stream))
            }
        };
        let transport: Box<dyn Transport> = match &self.web_socket {
            None => Box::new(StreamTransport::new(socket)),
            Some(endpoint) => {
                let socket = within(self.idle_timeout, websocket::upgrade(socket, endpoint)).await?;
                Box::new(WebSocketTransport::new(socket))
            }
        };
        Ok(Some(Opened { transport, accepted }))
    }

    fn accepted(&self, stream: &TcpStream, peer: SocketAddr) -> Accepted {
        let local = stream.local_addr().ok();
        let (listener_port, listener) = (local.map_or(0, |a| a.port()), Arc::clone(&self.listener));
        Accepted {
            peer_ip: Some(peer.ip()),
            peer_port: peer.port(),
            local: local.map(|a| a.ip()),
            listener_port,
            listener,
            secure: false,
            certificate: None,
        }
    }
}

/// A TLS handshake that one side refused; whose it was, by what a proxy says where one is believed.
#[derive(Debug, thiserror::Error)]
#[error("TLS handshake failed: {error}")]
pub struct HandshakeFailed {
    pub peer: Option<SocketAddr>,
    error: io::Error,
}

/// Tells what TLS refuses from a network that fails.
fn refused(error: io::Error, peer: Option<SocketAddr>) -> io::Error {
    match error.get_ref() {
        Some(inner) if inner.is::<rustls::Error>() => io::Error::new(error.kind(), HandshakeFailed { peer, error }),
        _ => error,
    }
}

/// Puts what the proxy says in the place of what the socket shows. The node's own address stays: it is the one that was connected to.
fn believe(accepted: &mut Accepted, header: proxy::Header) {
    if header.source.is_some() {
        accepted.set_peer(header.source);
    }
    if let Some(tls) = header.tls {
        accepted.secure = true;
        if tls.common_name.is_some() {
            let certificate = PeerCertificate { common_name: tls.common_name, subject_alternative_names: None };
            accepted.certificate = Some(Box::new(certificate));
        }
    }
}

/// Runs a step within its time.
pub(super) async fn within<T>(limit: Duration, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    match actix_rt::time::timeout(limit, step).await {
        Ok(outcome) => outcome,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "took too long")),
    }
}

#[cfg(test)]
#[path = "connection_test.rs"]
mod tests;
