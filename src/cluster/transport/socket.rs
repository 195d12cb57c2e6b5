//! TCP between nodes; in a simulated node a stream of the simulated network.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
#[cfg(any(test, feature = "sim"))]
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, tcp};
#[cfg(any(test, feature = "sim"))]
use tokio::{io::DuplexStream, sync::mpsc};

#[cfg(any(test, feature = "sim"))]
use crate::cluster::simulated;

/// Where peers are accepted.
pub enum Listener {
    Tcp(TcpListener),
    #[cfg(any(test, feature = "sim"))]
    Simulated(tokio::sync::Mutex<mpsc::Receiver<(Stream, SocketAddr)>>),
}

/// A connection with a peer.
pub enum Stream {
    Tcp(TcpStream),
    /// With it whether what was not delivered is to be lost once the stream is dropped.
    #[cfg(any(test, feature = "sim"))]
    Simulated(DuplexStream, Arc<AtomicBool>),
}

/// The reading side of a connection.
pub enum Reading {
    Tcp(tcp::OwnedReadHalf),
    #[cfg(any(test, feature = "sim"))]
    Simulated(tokio::io::ReadHalf<DuplexStream>),
}

/// The writing side of a connection.
pub enum Writing {
    Tcp(tcp::OwnedWriteHalf),
    #[cfg(any(test, feature = "sim"))]
    Simulated(tokio::io::WriteHalf<DuplexStream>, Arc<AtomicBool>),
}

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

    /// Small frames go at once.
    pub fn set_nodelay(&self) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_nodelay(true),
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
