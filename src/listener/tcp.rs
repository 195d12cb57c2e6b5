//! MQTT over plain TCP.

use std::future::ready;
use std::io;
use std::net::TcpListener as StdListener;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::actor::Transport;
use crate::actor::client::Client;
use crate::actor::hub::Local;
use crate::actor::transport::Accepted;

/// Accepts connections and starts their actors.
pub async fn accept(socket: StdListener, local: Rc<Local>, stop: CancellationToken) {
    super::socket::accept_loop(socket, stop, |stream, peer| {
        let address = stream.local_addr().ok();
        let listener_port = address.map_or(0, |a| a.port());
        let accepted = Accepted { peer: Some(peer), local: address, listener_port, secure: false };
        Client::start_for(Rc::clone(&local), Box::new(TcpTransport { stream }), accepted);
        ready(())
    })
    .await;
}

/// A TCP connection.
struct TcpTransport {
    stream: TcpStream,
}

impl Transport for TcpTransport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut read = ReadBuf::new(buffer);
        Pin::new(&mut self.stream).poll_read(cx, &mut read).map_ok(|()| read.filled().len())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
