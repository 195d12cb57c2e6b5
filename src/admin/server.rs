//! The node's side of the socket.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::handler::{self, Handler, Progress};
use super::protocol::{Line, REQUEST_BYTES_MAX, Request, VERSION};
use super::socket;

/// Connections at a time; more wait to be accepted.
const CONNECTIONS_MAX: u32 = 16;
/// A client has so long for its request, and to take a line.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// How long the end of the process waits for answers under way.
const FINISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The open socket. Dropped, it takes no more requests and its file is removed; commands under way go on.
pub struct AdminHandle {
    accepting: JoinHandle<()>,
    directory: PathBuf,
    connections: Arc<Semaphore>,
}

impl AdminHandle {
    /// Takes no more requests, and waits a moment for the answers to those it has.
    pub async fn finish(self) {
        self.accepting.abort();
        let _ = timeout(FINISH_TIMEOUT, self.connections.acquire_many(CONNECTIONS_MAX)).await;
    }
}

impl Drop for AdminHandle {
    fn drop(&mut self) {
        self.accepting.abort();
        socket::remove(&self.directory);
    }
}

/// Opens the socket in a directory that this process holds. To be called inside a runtime, which the commands run on.
pub fn serve(directory: &Path, handler: Arc<dyn Handler>) -> io::Result<AdminHandle> {
    let listener = socket::bind(directory)?;
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    let accepting = tokio::spawn(accept(listener, handler, Arc::clone(&connections)));
    Ok(AdminHandle { accepting, directory: directory.to_owned(), connections })
}

async fn accept(listener: UnixListener, handler: Arc<dyn Handler>, connections: Arc<Semaphore>) {
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let handler = Arc::clone(&handler);
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, handler).await {
                        tracing::debug!(%error, "a client of the admin socket went away");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept at the admin socket");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

async fn answer(stream: UnixStream, handler: Arc<dyn Handler>) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Vec::new();
    let mut read = BufReader::new(read).take(REQUEST_BYTES_MAX);
    timeout(CLIENT_TIMEOUT, read.read_until(b'\n', &mut line)).await??;
    let command = match understand(&line) {
        Ok(request) => request.command,
        Err(error) => return send(&mut write, &Line::Failed { error }).await,
    };
    let (progress, mut told) = Progress::new();
    // On its own: it is not to end half-way because the client did.
    let running = tokio::spawn(async move { handler::run(handler.as_ref(), command, progress).await });
    while let Some(text) = told.recv().await {
        send(&mut write, &Line::Progress { text }).await?;
    }
    let last = match running.await {
        Ok(Ok(answer)) => Line::Done { answer },
        Ok(Err(error)) => Line::Failed { error },
        Err(error) => Line::Failed { error: format!("the command ended early ({error}); see the log of the node") },
    };
    send(&mut write, &last).await
}

fn understand(line: &[u8]) -> Result<Request, String> {
    if line.last() != Some(&b'\n') {
        return Err(format!("the request is longer than {REQUEST_BYTES_MAX} bytes, or has no end"));
    }
    let value: serde_json::Value = serde_json::from_slice(line).map_err(|error| format!("the request is not JSON: {error}"))?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(VERSION)) {
        return Err(format!(
            "the node speaks version {VERSION} of the admin protocol; use the troupemq program that the node was started with ({})",
            env!("CARGO_PKG_VERSION")
        ));
    }
    serde_json::from_value(value).map_err(|error| {
        format!(
            "the node does not understand the command ({error}); use the troupemq program that it was started with ({})",
            env!("CARGO_PKG_VERSION")
        )
    })
}

async fn send(write: &mut (impl tokio::io::AsyncWrite + Unpin), line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    timeout(CLIENT_TIMEOUT, write.write_all(&text)).await?
}
