//! TCP between nodes, and TLS over it; in a simulated node a stream of the simulated network.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
#[cfg(any(test, feature = "sim"))]
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, tcp};
#[cfg(any(test, feature = "sim"))]
use tokio::{io::DuplexStream, sync::mpsc};
use tokio_rustls::TlsStream;

#[cfg(any(test, feature = "sim"))]
use crate::cluster::simulated;
use crate::config::tls::names;

/// Where peers are accepted.
pub enum Listener {
    Tcp(TcpListener),
    #[cfg(any(test, feature = "sim"))]
    Simulated(tokio::sync::Mutex<mpsc::Receiver<(Stream, SocketAddr)>>),
}

/// A connection with a peer.
pub enum Stream {
    Tcp(TcpStream),
    /// Over TCP, or over the TLS of a connection with a third node that passes the bytes on.
    Tls(Box<TlsStream<Self>>),
    /// With it whether what was not delivered is to be lost once the stream is dropped.
    #[cfg(any(test, feature = "sim"))]
    Simulated(DuplexStream, Arc<AtomicBool>),
}

/// The reading side of a connection.
pub enum Reading {
    Tcp(tcp::OwnedReadHalf),
    Tls(Shared),
    #[cfg(any(test, feature = "sim"))]
    Simulated(tokio::io::ReadHalf<DuplexStream>),
}

/// The writing side of a connection.
pub enum Writing {
    Tcp(tcp::OwnedWriteHalf),
    Tls(Shared),
    #[cfg(any(test, feature = "sim"))]
    Simulated(tokio::io::WriteHalf<DuplexStream>, Arc<AtomicBool>),
}

/// A TLS session that both sides of its connection use. The one task of a connection polls them, so nobody waits for the lock.
pub struct Shared(Arc<Mutex<TlsStream<Stream>>>);

impl Listener {
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        #[cfg(any(test, feature = "sim"))]
        if let Some(net) = simulated::net() {
            return net.listen(address);
        }
        TcpListener::bind(address).await.map(Self::Tcp)
    }

    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, address)| (Stream::Tcp(stream), address)),
            #[cfg(any(test, feature = "sim"))]
            Self::Simulated(accepted) => match accepted.lock().await.recv().await {
                Some(accepted) => Ok(accepted),
                None => std::future::pending().await,
            },
        }
    }
}

impl Stream {
    pub async fn connect(address: &str) -> io::Result<Self> {
        #[cfg(any(test, feature = "sim"))]
        if simulated::is_on() {
            let connecting = simulated::net().map(|net| net.connect(address));
            return match connecting {
                Some(connecting) => connecting.await,
                None => Err(io::ErrorKind::NotConnected.into()),
            };
        }
        TcpStream::connect(address).await.map(Self::Tcp)
    }

    /// The socket at the bottom; `None` in a simulated node.
    pub fn tcp(&self) -> Option<&TcpStream> {
        match self {
            Self::Tcp(stream) => Some(stream),
            Self::Tls(stream) => stream.get_ref().0.tcp(),
            #[cfg(any(test, feature = "sim"))]
            Self::Simulated(..) => None,
        }
    }

    pub fn is_encrypted(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Names that the peer's certificate is for; `None` on a connection without TLS.
    pub fn peer_names(&self) -> Option<Vec<String>> {
        let Self::Tls(stream) = self else { return None };
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        Some(shown.map_or_else(Vec::new, |own| names::of(own)))
    }

    /// Small frames go at once.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
            Self::Tls(stream) => stream.get_ref().0.set_nodelay(),
            #[cfg(any(test, feature = "sim"))]
            Self::Simulated(..) => Ok(()),
        }
    }

    pub fn into_split(self) -> (Reading, Writing) {
        match self {
            Self::Tcp(stream) => {
                let (read, write) = stream.into_split();
                (Reading::Tcp(read), Writing::Tcp(write))
            }
            Self::Tls(stream) => {
                let stream = Arc::new(Mutex::new(*stream));
                (Reading::Tls(Shared(Arc::clone(&stream))), Writing::Tls(Shared(stream)))
            }
            #[cfg(any(test, feature = "sim"))]
            Self::Simulated(stream, discarded) => {
                let (read, write) = tokio::io::split(stream);
                (Reading::Simulated(read), Writing::Simulated(write, discarded))
            }
        }
    }
}

impl Writing {
    /// What the peer has not acknowledged when the connection is dropped is not sent any more.
    pub fn discard_unsent(&self) -> io::Result<()> {
        match self {
            Self::Tcp(write) => socket2::SockRef::from(write.as_ref()).set_linger(Some(Duration::ZERO)),
            Self::Tls(Shared(stream)) => match stream.lock().get_ref().0.tcp() {
                Some(socket) => socket2::SockRef::from(socket).set_linger(Some(Duration::ZERO)),
                None => Ok(()),
            },
            #[cfg(any(test, feature = "sim"))]
            Self::Simulated(_, discarded) => {
                discarded.store(true, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

/// Hands a call on to whichever carries the bytes.
macro_rules! on_either {
    ($self:ident, $inner:ident => $call:expr) => {
        match $self.get_mut() {
            Self::Tcp($inner) => $call,
            Self::Tls($inner) => $call,
            #[cfg(any(test, feature = "sim"))]
            Self::Simulated($inner, ..) => $call,
        }
    };
}

macro_rules! reads {
    ($what:ty) => {
        impl AsyncRead for $what {
            fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
                on_either!(self, inner => Pin::new(inner).poll_read(cx, buffer))
            }
        }
    };
}

macro_rules! writes {
    ($what:ty) => {
        impl AsyncWrite for $what {
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
                on_either!(self, inner => Pin::new(inner).poll_write(cx, bytes))
            }

            /// Several records of TLS at a time.
            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                slices: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                on_either!(self, inner => Pin::new(inner).poll_write_vectored(cx, slices))
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                on_either!(self, inner => Pin::new(inner).poll_flush(cx))
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                on_either!(self, inner => Pin::new(inner).poll_shutdown(cx))
            }
        }
    };
}

reads!(Stream);
reads!(Reading);
writes!(Stream);
writes!(Writing);

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(cx, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(cx)
    }
}
