//! A connection's bytes: TCP or TLS, with or without WebSocket. An enum, so that the way of plain TCP costs no indirect call.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::HandshakeKind;

use super::websocket::WebSocket;

pub enum Socket {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Socket {
    /// Whether TLS went on with an earlier session; false without TLS.
    pub(super) fn is_resumed(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        ready!(match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, &mut read),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, &mut read),
        })?;
        Poll::Ready(Ok(read.filled().len()))
    }

    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(match self {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        })?;
        Poll::Ready(if count == 0 && !bytes.is_empty() { Err(io::ErrorKind::WriteZero.into()) } else { Ok(count) })
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    pub(super) async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    pub(super) async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        poll_fn(|cx| self.poll_flush(cx)).await
    }
}

pub enum Stream {
    Direct(Socket),
    WebSocket(Box<WebSocket>),
}

impl Stream {
    pub(super) fn is_resumed(&self) -> bool {
        match self {
            Self::Direct(socket) => socket.is_resumed(),
            Self::WebSocket(socket) => socket.socket().is_resumed(),
        }
    }

    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(socket) => socket.poll_read(cx, buffer),
            Self::WebSocket(socket) => socket.poll_read(cx, buffer),
        }
    }

    /// Takes some of the bytes; they have left once `poll_flush` is ready.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Direct(socket) => socket.poll_write(cx, bytes),
            Self::WebSocket(socket) => socket.poll_write(cx, bytes),
        }
    }

    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Direct(socket) => socket.poll_flush(cx),
            Self::WebSocket(socket) => socket.poll_flush(cx),
        }
    }

    /// Reads some bytes; 0 when the server has closed.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, buffer)).await
    }

    /// Writes all bytes out.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let count = poll_fn(|cx| self.poll_write(cx, bytes)).await?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        poll_fn(|cx| self.poll_flush(cx)).await
    }
}
