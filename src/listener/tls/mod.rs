//! TLS of a listener: handshakes on the arbiter that accepted the connection, with what `reload` last found in the files.

mod certificate;
pub mod reload;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::server::TlsStream;

use super::connection::within;
use super::stream::Replay;
use crate::actor::transport::PeerCertificate;

/// Handshakes under way on one arbiter, each with some ten kilobytes of buffers. More wait, within their time limit. A client that has not
/// sent a byte yet does not count.
const HANDSHAKES_MAX: usize = 1024;
/// After a failed handshake, how long and how much is read and thrown away, so that the peer gets the alert and not a reset.
const LINGER: Duration = Duration::from_millis(300);
const LINGER_BYTES_MAX: u64 = 64 * 1024;

thread_local! {
    static HANDSHAKES: Arc<Semaphore> = Arc::new(Semaphore::new(HANDSHAKES_MAX));
}

/// What new handshakes are served with; connections keep what they began with.
#[derive(Debug)]
pub struct Current {
    config: RwLock<Arc<ServerConfig>>,
    handshake_timeout: Duration,
}

impl Current {
    pub fn new(config: ServerConfig, handshake_timeout: Duration) -> Self {
        Self { config: RwLock::new(Arc::new(config)), handshake_timeout }
    }

    fn replace(&self, config: ServerConfig) {
        *self.config.write() = Arc::new(config);
    }

    /// Shakes hands; gives the client's certificate, where it showed one.
    ///
    /// # Errors
    /// The socket's, `InvalidData` for what TLS refuses, `TimedOut`.
    pub async fn accept(&self, stream: Replay) -> io::Result<(TlsStream<Replay>, Option<PeerCertificate>)> {
        let stream = within(self.handshake_timeout, self.shake_hands(stream)).await?;
        let (_, session) = stream.get_ref();
        let certificate = session.peer_certificates().and_then(|chain| chain.first()).map(|own| certificate::facts(own));
        Ok((stream, certificate))
    }

    async fn shake_hands(&self, stream: Replay) -> io::Result<TlsStream<Replay>> {
        stream.readable().await?;
        let _permit = HANDSHAKES.with(Arc::clone).acquire_owned().await.map_err(io::Error::other)?;
        let config = Arc::clone(&self.config.read());
        match TlsAcceptor::from(config).accept(stream).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, stream)) => {
                linger(stream).await;
                Err(error)
            }
        }
    }
}

/// The alert is written; closing with unread bytes would make it a reset.
async fn linger(mut stream: Replay) {
    let read = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = actix_rt::time::timeout(LINGER, read).await;
}

#[cfg(test)]
#[path = "tls_test.rs"]
pub(super) mod tests;
