//! Sockets that clients connect to. An accept loop on every arbiter (SO_REUSEPORT), so that a connect storm is spread by the kernel and no
//! connection changes threads.

pub mod socket;
pub mod tcp;
pub mod websocket;

use std::net::SocketAddr;
use std::rc::Rc;

use actix_rt::ArbiterHandle;
use tokio_util::sync::CancellationToken;

use crate::actor::hub::Local;
use crate::config::settings::{ListenerKind, ListenerSettings};

/// Why a listener does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenerError {
    #[error("listener {name} cannot listen on {address}: {source}; is another program using the port?")]
    Bind {
        name: String,
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// A listener that is bound; its accept loops run until `stop`.
#[derive(Debug, Clone)]
pub struct Bound {
    pub name: String,
    pub kind: &'static str,
    pub address: SocketAddr,
    stop: CancellationToken,
}

impl Bound {
    /// Stops accepting; connections live on.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn is_running(&self) -> bool {
        !self.stop.is_cancelled()
    }
}

/// Binds a listener once for each arbiter and starts its accept loops there. `local` finds the arbiter's own state.
pub fn start(
    settings: &ListenerSettings,
    arbiters: &[ArbiterHandle],
    local: fn() -> Option<Rc<Local>>,
    handshake_timeout_ms: u64,
    message_bytes_max: usize,
) -> Result<Bound, ListenerError> {
    let wanted = SocketAddr::new(settings.bind_address, settings.port);
    let failed = |address| move |source| ListenerError::Bind { name: settings.name.clone(), address, source };
    let mut sockets = socket::bind_shared(wanted, arbiters.len().max(1)).map_err(failed(wanted))?;
    let address = sockets.first().map_or(Ok(wanted), |s| s.local_addr()).map_err(failed(wanted))?;
    let stop = CancellationToken::new();
    for arbiter in arbiters {
        let Some(socket) = sockets.pop() else { break };
        let (kind, stop) = (settings.kind.clone(), stop.clone());
        arbiter.spawn_fn(move || {
            let Some(local) = local() else { return };
            match kind {
                ListenerKind::Tcp => {
                    actix_rt::spawn(tcp::accept(socket, local, stop));
                }
                ListenerKind::WebSocket { path, subprotocols } => {
                    let endpoint = websocket::Endpoint { path, subprotocols, handshake_timeout_ms, message_bytes_max };
                    actix_rt::spawn(websocket::accept(socket, local, stop, Rc::new(endpoint)));
                }
            }
        });
    }
    let kind = match settings.kind {
        ListenerKind::Tcp => "TCP Listener",
        ListenerKind::WebSocket { .. } => "Websocket Listener",
    };
    Ok(Bound { name: settings.name.clone(), kind, address, stop })
}
