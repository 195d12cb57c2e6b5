//! Looks whether keys, certificates or revocation lists have changed, and serves new handshakes with them.

use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;

use super::Current;
use crate::config::settings::{ClientAuthentication, TlsSettings};
use crate::config::tls::{self, Files, Resumption, TlsError};

/// spec/hivemq.md 1.4.
pub const PERIOD: Duration = Duration::from_secs(10);

/// The files of a `tls` block as they were last seen.
pub struct Reloader {
    settings: Arc<TlsSettings>,
    resumption: Resumption,
    /// A fingerprint of the content, or why there was none.
    seen: Result<u128, TlsError>,
}

impl Reloader {
    /// Reads the files for the start. Blocks.
    ///
    /// # Errors
    /// Files that cannot be served with.
    pub fn start(settings: Arc<TlsSettings>) -> Result<(Self, ServerConfig), TlsError> {
        let files = Files::read(&settings)?;
        let resumption = Resumption::new();
        let config = tls::server_config(&settings, &files.parse(&settings)?, &resumption)?;
        Ok((Self { settings, resumption, seen: Ok(files.fingerprint()) }, config))
    }

    /// `None` where nothing has changed since the last call; each change gives its outcome once. Blocks.
    pub fn check(&mut self) -> Option<Result<ServerConfig, TlsError>> {
        let files = Files::read(&self.settings);
        let seen = files.as_ref().map(Files::fingerprint).map_err(Clone::clone);
        if seen == self.seen {
            return None;
        }
        self.seen = seen;
        Some(files.and_then(|files| self.build(&files)))
    }

    fn build(&mut self, files: &Files) -> Result<ServerConfig, TlsError> {
        let material = files.parse(&self.settings)?;
        // A resumed session shows no certificate: one that has just been revoked must not come in by an old ticket.
        let resumption = match self.settings.client_authentication {
            ClientAuthentication::None => self.resumption.clone(),
            ClientAuthentication::Optional | ClientAuthentication::Required => Resumption::new(),
        };
        let config = tls::server_config(&self.settings, &material, &resumption)?;
        self.resumption = resumption;
        Ok(config)
    }
}

/// Checks every `period` until the listener stops. A file that cannot be used is logged once; what was served before goes on.
pub async fn watch(listener: String, mut reloader: Reloader, current: Arc<Current>, period: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = actix_rt::time::sleep(period) => {}
            () = stop.cancelled() => return,
        }
        // Reading files and stretching passwords would hold up the thread.
        let checked = actix_rt::task::spawn_blocking(move || {
            let outcome = reloader.check();
            (reloader, outcome)
        });
        let Ok((back, outcome)) = checked.await else { return };
        reloader = back;
        match outcome {
            None => {}
            Some(Ok(config)) => {
                current.replace(config);
                tracing::info!(listener, "TLS files have changed; new handshakes are served with them");
            }
            Some(Err(error)) => {
                tracing::error!(listener, %error, "changed TLS files cannot be used; those from before are served with");
            }
        }
    }
}
