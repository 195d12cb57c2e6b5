//! TLS between nodes, where it is configured. Each end shows a certificate and checks that the other's goes back to the trust store, with the handshake;
//! that it is the certificate of the node that the peer says it is, with the hello, in which the peer says it. The hello stays what it is,
//! the proof of the cluster's secret included.
//!
//! A node without TLS and one with it understand each other well enough to say why they do not talk: a plain hello begins with a length below 8 KiB, a
//! handshake with the head of a TLS record, and who is refused is told so in the language it speaks.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, AlertDescription};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tokio_util::sync::CancellationToken;

use crate::cluster::clock::wall_ms;
use crate::config::settings::NodeTlsSettings;
use crate::config::tls::{self, Fault, Files, NodeConfig, TlsError, names};

use super::hello::{self, HelloError, Refusal};
use super::link::HELLO_TIMEOUT;
use super::socket::Stream;

/// Between two looks at the files (spec/hivemq.md 1.4).
const PERIOD: Duration = Duration::from_secs(10);
/// A certificate that ends within this is told of.
const ENDS_SOON_S: i64 = 3 * 24 * 3_600;
/// Between two such lines in the log.
const ENDS_AGAIN: Duration = Duration::from_secs(3_600);
/// The first byte of a TLS record with a handshake.
const HANDSHAKE: u8 = 22;
/// A TLS record that holds a fatal alert, insufficient_security, which rustls never sends: a node without TLS says with it that it has none.
const NO_TLS_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 71];
/// Between two looks at the head of a dialer's first record, where it comes in parts.
const HEAD_AGAIN: Duration = Duration::from_millis(5);
/// After a refusal, how long and how much is read and thrown away, so that the peer gets the reason and not a reset.
const LINGER: Duration = Duration::from_millis(300);
const LINGER_BYTES_MAX: u64 = 64 * 1024;

/// What this node shakes hands with.
pub struct Tls {
    settings: NodeTlsSettings,
    current: RwLock<NodeConfig>,
    /// When the own certificate ends, seconds since 1970.
    ends_s: AtomicI64,
    /// A fingerprint of the files' content, or why there was none.
    seen: Mutex<Result<u128, TlsError>>,
}

impl Tls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// Files that no handshake can be made with.
    pub fn load(settings: NodeTlsSettings) -> Result<Self, TlsError> {
        let files = Files::read(&settings.files)?;
        let (config, ends_s) = build(&settings, &files)?;
        Ok(Self {
            current: RwLock::new(config),
            ends_s: AtomicI64::new(ends_s),
            seen: Mutex::new(Ok(files.fingerprint())),
            settings,
        })
    }

    /// Takes changed files up; `None` where nothing has changed since the last call, each change gives its outcome once. Blocks.
    fn look(&self) -> Option<Result<(), TlsError>> {
        let files = Files::read(&self.settings.files);
        let now = files.as_ref().map(Files::fingerprint).map_err(Clone::clone);
        if std::mem::replace(&mut *self.seen.lock(), now.clone()) == now {
            return None;
        }
        Some(files.and_then(|files| build(&self.settings, &files)).map(|(config, ends_s)| {
            *self.current.write() = config;
            self.ends_s.store(ends_s, Ordering::Relaxed);
        }))
    }

    pub(super) fn is_optional(&self) -> bool {
        self.settings.optional
    }

    /// Whether a certificate with these names may be that of a node of this name.
    pub(super) fn check_name(&self, shown: &[String], node: &str) -> Result<(), Refusal> {
        let allowed = self.settings.names_of(node);
        if !self.settings.hostname_verification || names::is_for(shown, &allowed) {
            return Ok(());
        }
        Err(Refusal::Name { name: node.to_owned(), found: names::listed(shown), allowed: allowed.join(" or ") })
    }

    /// Shakes hands with a node that was dialed.
    pub(super) async fn dial(&self, stream: Stream) -> Result<Stream, HelloError> {
        let config = Arc::clone(&self.current.read().client);
        // Not sent, and not looked at: who the peer is, it says in its hello.
        let name = ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into());
        match timeout(self.limit(), TlsConnector::from(config).connect(name, stream)).await.map_err(io::Error::from)? {
            Ok(stream) => Ok(Stream::Tls(Box::new(TlsStream::Client(stream)))),
            Err(error) if is_end(&error) => Err(HelloError::Ended(error)),
            Err(error) => Err(told(HelloError::Io(error))),
        }
    }

    async fn shake_hands(&self, stream: Stream) -> Result<Stream, HelloError> {
        let config = Arc::clone(&self.current.read().server);
        match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(stream) => Ok(Stream::Tls(Box::new(TlsStream::Server(stream)))),
            Err((error, stream)) => {
                linger(stream).await;
                Err(told(HelloError::Io(error)))
            }
        }
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.settings.files.handshake_timeout_ms)
    }

    /// Says when the own certificate is about to end, or has ended.
    fn tell_end(&self, now_s: i64) -> bool {
        let (ends_s, path) = (self.ends_s.load(Ordering::Relaxed), self.settings.files.keystore.path.display());
        let left_s = ends_s.saturating_sub(now_s);
        if left_s <= 0 {
            tracing::error!(%path, "this node's certificate has expired: other nodes refuse its new connections; renew it, it is taken up without a restart");
        } else if left_s < ENDS_SOON_S {
            let hours = left_s / 3_600;
            tracing::warn!(%path, hours, "this node's certificate ends soon; renew it, it is taken up without a restart");
        }
        left_s < ENDS_SOON_S
    }
}

fn build(settings: &NodeTlsSettings, files: &Files) -> Result<(NodeConfig, i64), TlsError> {
    let material = files.parse(&settings.files)?;
    let config = tls::node_config(&settings.files, &material)?;
    Ok((config, material.own_end_s().unwrap_or(i64::MAX)))
}

/// Looks for changed files until the transport stops. New connections are made with them; those that are there go on. A file that cannot be used is
/// told of once, and what was read before goes on to be used.
pub(super) async fn watch(tls: Arc<Tls>, cancel: CancellationToken) {
    let mut told_end: Option<Instant> = None;
    loop {
        if told_end.is_none_or(|at| at.elapsed() >= ENDS_AGAIN) {
            let now_s = i64::try_from(wall_ms() / 1_000).unwrap_or(i64::MAX);
            told_end = tls.tell_end(now_s).then(Instant::now);
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let looking = Arc::clone(&tls);
        match tokio::task::spawn_blocking(move || looking.look()).await {
            Ok(None) => {}
            Ok(Some(Ok(()))) => {
                told_end = None;
                tracing::info!("TLS files of the cluster have changed; new connections between nodes are made with them");
            }
            Ok(Some(Err(error))) => {
                tracing::error!(%error, "changed TLS files of the cluster cannot be used; those from before are used");
            }
            Err(_) => return,
        }
    }
}

/// A connection that was accepted, behind its handshake where there is to be one. Without TLS configured a node knows one that is dialed with TLS.
pub(super) async fn accept(tls: Option<&Tls>, mut stream: Stream) -> Result<Stream, HelloError> {
    let limit = tls.map_or(HELLO_TIMEOUT, Tls::limit);
    let accepting = async {
        match (tls, begins_with_tls(&stream).await?) {
            (Some(tls), true) => tls.shake_hands(stream).await,
            (Some(tls), false) if !tls.is_optional() => {
                hello::refuse(&mut stream, Refusal::Plain).await?;
                linger(stream).await;
                Err(HelloError::Refused(Refusal::Plain))
            }
            (None, true) => {
                stream.write_all(&NO_TLS_ALERT).await?;
                linger(stream).await;
                Err(HelloError::Refused(Refusal::Tls))
            }
            (_, false) => Ok(stream),
        }
    };
    timeout(limit, accepting).await.map_err(io::Error::from)?
}

/// Looks at what a dialer begins with, and takes nothing.
async fn begins_with_tls(stream: &Stream) -> io::Result<bool> {
    let Some(socket) = stream.tcp() else { return Ok(false) };
    let mut head = [0; 3];
    loop {
        let count = socket.peek(&mut head).await?;
        match head.get(..count).unwrap_or_default() {
            [] => return Err(io::ErrorKind::UnexpectedEof.into()),
            [first, ..] if *first != HANDSHAKE => return Ok(false),
            // The lower part of the version of a record; in the length of a hello that byte is 0.
            [_, _, third] => return Ok(*third != 0),
            _ => tokio::time::sleep(HEAD_AGAIN).await,
        }
    }
}

/// What is written arrives: closing with unread bytes would make it a reset.
async fn linger(mut stream: Stream) {
    let read = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER, read).await;
}

fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

/// Names what TLS has to say in an error of the socket.
pub(super) fn told(error: HelloError) -> HelloError {
    let HelloError::Io(io) = error else { return error };
    let Some(error) = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else { return HelloError::Io(io) };
    match error {
        rustls::Error::InvalidCertificate(error) => HelloError::Certificate { fault: Fault::of(error) },
        rustls::Error::AlertReceived(AlertDescription::InsufficientSecurity) => HelloError::RefusedByPeer(Refusal::Tls),
        rustls::Error::AlertReceived(alert) => match Fault::of_alert(*alert) {
            Some(fault) => HelloError::OwnCertificate { fault },
            None => HelloError::Tls(error.clone()),
        },
        other => HelloError::Tls(other.clone()),
    }
}

#[cfg(test)]
#[path = "tls_test.rs"]
mod tests;
