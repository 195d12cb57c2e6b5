//! The socket of a connection: plain or TLS, with the bytes that were read from it to find out whether a PROXY header comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::actor::Transport;

/// A TCP connection, some bytes of which have been read already.
#[derive(Debug)]
pub struct Replay {
    /// `None`, as a rule.
    ahead: Option<Box<Bytes>>,
    stream: TcpStream,
    /// Bytes came since it was last asked.
    heard: bool,
}

/// A socket that tells whether bytes came.
pub(super) trait Heard {
    /// Whether bytes came since the last time.
    fn take_heard(&mut self) -> bool;
}

impl Replay {
    pub fn new(ahead: Bytes, stream: TcpStream) -> Self {
        Self { ahead: (!ahead.is_empty()).then(|| Box::new(ahead)), stream, heard: false }
    }

    /// Waits for the first byte without reading it.
    pub async fn readable(&self) -> io::Result<()> {
        if self.ahead.is_none() { self.stream.readable().await } else { Ok(()) }
    }
}

impl AsyncRead for Replay {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(ahead) = &mut self.ahead else {
            let before = buffer.filled().len();
            let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
            self.heard |= buffer.filled().len() > before;
            return outcome;
        };
        let count = ahead.len().min(buffer.remaining());
        buffer.put_slice(ahead.get(..count).unwrap_or_default());
        ahead.advance(count);
        if ahead.is_empty() {
            self.ahead = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Replay {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection's bytes as MQTT or WebSocket sees them.
#[derive(Debug)]
pub enum Socket {
    Plain(Replay),
    Tls(Box<TlsStream<Replay>>),
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl Heard for Socket {
    fn take_heard(&mut self) -> bool {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        };
        std::mem::take(&mut stream.heard)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut *self {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// MQTT straight over the socket.
pub struct StreamTransport {
    socket: Socket,
}

impl StreamTransport {
    pub fn new(socket: Socket) -> Self {
        Self { socket }
    }
}

impl Transport for StreamTransport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        let outcome = Pin::new(&mut self.socket).poll_read(cx, &mut read).map_ok(|()| read.filled().len());
        if outcome.is_ready() {
            self.socket.take_heard();
        }
        outcome
    }

    fn take_heard(&mut self) -> bool {
        self.socket.take_heard()
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}
