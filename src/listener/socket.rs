//! Listening sockets and the accept loop that all listeners share.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Connections that wait in the kernel to be accepted.
const BACKLOG: i32 = 4096;
/// Pause after an accept that failed for want of file descriptors or memory.
const PAUSE: Duration = Duration::from_millis(50);

/// Binds `count` sockets to one address; port 0 becomes the same free port for all.
pub fn bind_shared(address: SocketAddr, count: usize) -> io::Result<Vec<StdListener>> {
    // SO_REUSEPORT would also let a second broker of the same user share the port unnoticed: an exclusive bind tells first.
    let probe = socket(address, false)?;
    let bound = probe.local_addr()?.as_socket().unwrap_or(address);
    drop(probe);
    (0..count).map(|_| socket(bound, true).map(StdListener::from)).collect()
}

fn socket(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    if share {
        // Accepted sockets have it from the listening one: a system call less for each.
        socket.set_tcp_nodelay(true)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
    } else {
        // Listening is what finds another listener with SO_REUSEADDR on the same port.
        socket.listen(1)?;
    }
    Ok(socket)
}

/// Accepts until stopped and hands each connection on.
pub async fn accept_loop<F, Fut>(socket: StdListener, stop: CancellationToken, handle: F)
where
    F: Fn(TcpStream, SocketAddr) -> Fut,
    Fut: Future<Output = ()>,
{
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "a listening socket cannot be used");
            return;
        }
    };
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                handle(stream, peer).await;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again shortly (too many open files?)");
                actix_rt::time::sleep(PAUSE).await;
            }
        }
    }
}
