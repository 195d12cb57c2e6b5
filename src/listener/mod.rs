//! Sockets that clients connect to: TCP and WebSocket, each in plain text or over TLS, each with or without a PROXY header. An accept loop
//! on every arbiter (SO_REUSEPORT), so that a connect storm is spread by the kernel and no connection changes threads.

mod admission;
mod connect_rate;
pub mod connection;
pub mod proxy;
pub mod socket;
pub mod stream;
pub mod tls;
pub mod websocket;

use std::future::ready;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::ArbiterHandle;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::actor::client::Client;
use crate::actor::hub::Local;
use crate::actor::transport::ListenerName;
use crate::config::settings::{ListenerKind, ListenerSettings};
use crate::config::tls::TlsError;
use crate::telemetry::RateLimited;
use admission::{Admission, Admitted};
use connection::{Endpoint, HandshakeFailed, Opened};
use tls::reload::{self, Reloader};

/// Time of each step before MQTT where the configuration sets no limit.
const STEP_MAX: Duration = Duration::from_secs(60);

static HANDSHAKE: RateLimited = RateLimited::new(Duration::from_secs(5));

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
    #[error("listener {name} cannot serve TLS: {source}")]
    Tls {
        name: String,
        #[source]
        source: TlsError,
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

/// Binds a listener once for each arbiter and starts its accept loops there. `local` finds the arbiter's own state. To be called where
/// tasks can be spawned: one watches the files of TLS.
///
/// # Errors
/// A port that is in use, or TLS files that cannot be used.
pub fn start(
    settings: &ListenerSettings,
    arbiters: &[ArbiterHandle],
    local: fn() -> Option<Rc<Local>>,
    no_connect_idle_timeout_ms: u64,
) -> Result<Bound, ListenerError> {
    let stop = CancellationToken::new();
    let tls = start_tls(settings, &stop)?;
    let wanted = SocketAddr::new(settings.bind_address, settings.port);
    let failed = |address| move |source| ListenerError::Bind { name: settings.name.clone(), address, source };
    let mut sockets = socket::bind_shared(wanted, arbiters.len().max(1)).map_err(failed(wanted))?;
    let address = sockets.first().map_or(Ok(wanted), |s| s.local_addr()).map_err(failed(wanted))?;
    let admission = Arc::new(Admission::new(settings.name.clone(), settings.connect_overload));
    let kind = match (&settings.kind, &settings.tls) {
        (ListenerKind::Tcp, None) => "TCP Listener",
        (ListenerKind::Tcp, Some(_)) => "TCP Listener with TLS",
        (ListenerKind::WebSocket { .. }, None) => "Websocket Listener",
        (ListenerKind::WebSocket { .. }, Some(_)) => "Websocket Listener with TLS",
    };
    let endpoint = Arc::new(Endpoint {
        listener: Arc::new(ListenerName { name: settings.name.as_str().into(), kind }),
        proxy_protocol: settings.proxy_protocol,
        tls,
        web_socket: match &settings.kind {
            ListenerKind::Tcp => None,
            ListenerKind::WebSocket { path, subprotocols } => {
                Some(websocket::Endpoint { path: path.clone(), subprotocols: subprotocols.clone() })
            }
        },
        idle_timeout: limit(no_connect_idle_timeout_ms),
    });
    for arbiter in arbiters {
        let Some(socket) = sockets.pop() else { break };
        let (endpoint, admission, stop) = (Arc::clone(&endpoint), Arc::clone(&admission), stop.clone());
        arbiter.spawn_fn(move || {
            let Some(local) = local() else { return };
            actix_rt::spawn(accept(socket, local, stop, endpoint, admission));
        });
    }
    Ok(Bound { name: settings.name.clone(), kind, address, stop })
}

/// Reads keys and certificates, and has them watched until the listener stops.
fn start_tls(settings: &ListenerSettings, stop: &CancellationToken) -> Result<Option<Arc<tls::Current>>, ListenerError> {
    let Some(tls) = &settings.tls else { return Ok(None) };
    let name = settings.name.clone();
    let (reloader, config) =
        Reloader::start(Arc::clone(tls)).map_err(|source| ListenerError::Tls { name: name.clone(), source })?;
    let current = Arc::new(tls::Current::new(config, limit(tls.handshake_timeout_ms)));
    actix_rt::spawn(reload::watch(name, reloader, Arc::clone(&current), reload::PERIOD, stop.clone()));
    Ok(Some(current))
}

/// 0 is off in the configuration (spec/hivemq.md 1.6), and a step has to end some day.
fn limit(ms: u64) -> Duration {
    if ms == 0 { STEP_MAX } else { Duration::from_millis(ms) }
}

/// Accepts connections and starts their actors.
async fn accept(
    socket: StdListener,
    local: Rc<Local>,
    stop: CancellationToken,
    endpoint: Arc<Endpoint>,
    admission: Arc<Admission>,
) {
    socket::accept_loop(socket, stop.clone(), |stream, peer| {
        let (local, endpoint) = (Rc::clone(&local), Arc::clone(&endpoint));
        match admission.admit(&local.node().metrics.own) {
            Admitted::Now => open(local, endpoint, stream, peer),
            Admitted::Later(held) => {
                let stop = stop.clone();
                actix_rt::spawn(async move {
                    if held.wait(&stop).await {
                        open(local, endpoint, stream, peer);
                    }
                });
            }
            Admitted::Never(refusal) => {
                if let Some(refusal) = refusal.filter(|_| endpoint.is_plain()) {
                    actix_rt::spawn(refusal.tell(stream));
                }
            }
        }
        ready(())
    })
    .await;
}

fn open(local: Rc<Local>, endpoint: Arc<Endpoint>, stream: TcpStream, peer: SocketAddr) {
    if endpoint.is_plain() {
        let opened = endpoint.open_plain(stream, peer);
        return begin(local, opened);
    }
    // The steps take as long as the peer likes; others are accepted meanwhile.
    actix_rt::spawn(async move {
        match endpoint.open(stream, peer).await {
            Ok(Some(opened)) => begin(local, opened),
            Ok(None) => {}
            Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<HandshakeFailed>()) {
                Some(failed) => {
                    local.node().metrics.own.tls_handshakes_failed_total.inc();
                    let (listener, address) = (&endpoint.listener.name, failed.peer.unwrap_or(peer));
                    crate::warn_limited!(HANDSHAKE, %listener, %address, %error, "a client is refused");
                }
                None => tracing::debug!(%peer, %error, "a connection ended before MQTT began"),
            },
        }
    });
}

fn begin(local: Rc<Local>, opened: Opened) {
    Client::start_for(local, opened.transport, opened.accepted);
}
