//! A connection's byte stream, whatever carries it. `listener` implements it for TCP, TLS and WebSocket.

use std::io;
use std::task::{Context, Poll};

use bytestring::ByteString;

/// Bytes in and out, polled inside the Client actor's context.
pub trait Transport {
    /// Reads into `buffer`; 0 = the peer closed.
    ///
    /// # Errors
    /// The socket's; one that holds a `BadFrame` where the broker ends the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;
    /// Whether bytes came since the last time, though `poll_read` had nothing to give of them: a part of a TLS record.
    fn take_heard(&mut self) -> bool {
        false
    }
    /// Writes some of `bytes`.
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Drives what a transport buffers itself to the socket.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
    /// Says goodbye and closes the sending side.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

/// What the peer sent breaks the rules of what carries MQTT; it was told so there, so that no DISCONNECT can follow.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadFrame(pub String);

impl BadFrame {
    /// Whether that is what ended the reading.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|inner| inner.is::<Self>())
    }
}

/// What is known of a connection when it is accepted.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// The client's address; behind a proxy that is believed, what the proxy says. (In two: a `SocketAddr` has room for what clients have not.)
    pub peer_ip: Option<std::net::IpAddr>,
    pub peer_port: u16,
    /// The node's address that the client connected to.
    pub local: Option<std::net::IpAddr>,
    pub listener_port: u16,
    pub listener: std::sync::Arc<ListenerName>,
    /// Over TLS, to the broker or to a proxy in front of it.
    pub secure: bool,
    /// The client's certificate, where it showed one and it was verified.
    pub certificate: Option<Box<PeerCertificate>>,
}

impl Accepted {
    pub fn peer(&self) -> Option<std::net::SocketAddr> {
        self.peer_ip.map(|ip| (ip, self.peer_port).into())
    }

    pub fn set_peer(&mut self, peer: Option<std::net::SocketAddr>) {
        (self.peer_ip, self.peer_port) = (peer.map(|peer| peer.ip()), peer.map_or(0, |peer| peer.port()));
    }
}

/// The listener that a connection came through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenerName {
    pub name: std::sync::Arc<str>,
    /// `TCP Listener` and so on.
    pub kind: &'static str,
}

/// What a client's certificate says of the client.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeerCertificate {
    pub common_name: Option<ByteString>,
    /// DNS names and IP addresses, empty where there are none; `None` where only a proxy has seen the certificate.
    pub subject_alternative_names: Option<Vec<ByteString>>,
}
