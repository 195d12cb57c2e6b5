//! MQTT over WebSocket (MQTT 5 section 6). tungstenite does the protocol; packets may be split and joined over binary frames.

use std::io;
use std::net::TcpListener as StdListener;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::{Sink, Stream};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_util::sync::CancellationToken;

use crate::actor::Transport;
use crate::actor::client::Client;
use crate::actor::hub::Local;
use crate::actor::transport::Accepted;

/// Bytes put into one frame at most.
const FRAME_BYTES_MAX: usize = 64 * 1024;

/// Where the configuration sets no limit.
const HANDSHAKE_MS_MAX: u64 = 60_000;

/// What a WebSocket listener answers to.
#[derive(Debug)]
pub struct Endpoint {
    /// Matched exactly (spec/hivemq.md 1.3).
    pub path: String,
    pub subprotocols: Vec<String>,
    pub handshake_timeout_ms: u64,
    pub message_bytes_max: usize,
}

/// Accepts connections, upgrades them and starts their actors.
pub async fn accept(socket: StdListener, local: Rc<Local>, stop: CancellationToken, endpoint: Rc<Endpoint>) {
    super::socket::accept_loop(socket, stop, |stream, peer| {
        let (local, endpoint) = (Rc::clone(&local), Rc::clone(&endpoint));
        // The handshake takes as long as the peer likes; others are accepted meanwhile.
        actix_rt::spawn(async move {
            let address = stream.local_addr().ok();
            let listener_port = address.map_or(0, |a| a.port());
            // 0 is off (spec/hivemq.md 1.6), and a handshake has to end some day.
            let timeout_ms = if endpoint.handshake_timeout_ms == 0 { HANDSHAKE_MS_MAX } else { endpoint.handshake_timeout_ms };
            let timeout = Duration::from_millis(timeout_ms);
            match actix_rt::time::timeout(timeout, upgrade(stream, &endpoint)).await {
                Ok(Ok(socket)) => {
                    let accepted = Accepted { peer: Some(peer), local: address, listener_port, secure: false };
                    let transport = WebSocketTransport { socket, pending: Bytes::new() };
                    Client::start_for(local, Box::new(transport), accepted);
                }
                Ok(Err(error)) => tracing::debug!(%peer, %error, "WebSocket handshake failed"),
                Err(_) => tracing::debug!(%peer, "WebSocket handshake took too long"),
            }
        });
        std::future::ready(())
    })
    .await;
}

#[expect(clippy::result_large_err, reason = "the callback's signature is the library's")]
async fn upgrade(stream: TcpStream, endpoint: &Endpoint) -> Result<WebSocketStream<TcpStream>, tungstenite::Error> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(endpoint.message_bytes_max))
        .max_frame_size(Some(endpoint.message_bytes_max))
        .read_buffer_size(4096)
        .write_buffer_size(0);
    let check = |request: &Request, response: Response| answer(request, response, endpoint);
    tokio_tungstenite::accept_hdr_async_with_config(stream, check, Some(config)).await
}

/// Checks path and sub-protocols; names the chosen one [MQTT-6.0.0-4].
#[expect(clippy::result_large_err, reason = "the signature is the library's")]
fn answer(request: &Request, mut response: Response, endpoint: &Endpoint) -> Result<Response, ErrorResponse> {
    if request.uri().path() != endpoint.path {
        return Err(refusal(StatusCode::NOT_FOUND, format!("MQTT is served on {}\n", endpoint.path)));
    }
    let offered: Vec<&str> = request
        .headers()
        .get_all(SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .filter(|name| !name.is_empty())
        .collect();
    if offered.is_empty() {
        return Ok(response); // tolerated: old clients leave it out
    }
    let chosen = offered.iter().find(|name| endpoint.subprotocols.iter().any(|known| known == *name));
    match chosen.and_then(|name| HeaderValue::from_str(name).ok()) {
        Some(value) => {
            response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, value);
            Ok(response)
        }
        None => {
            let text = format!("sub-protocols served: {}\n", endpoint.subprotocols.join(", "));
            Err(refusal(StatusCode::BAD_REQUEST, text))
        }
    }
}

fn refusal(status: StatusCode, text: String) -> ErrorResponse {
    let mut response = ErrorResponse::new(Some(text));
    *response.status_mut() = status;
    response
}

/// A WebSocket connection as a stream of bytes.
struct WebSocketTransport {
    socket: WebSocketStream<TcpStream>,
    pending: Bytes,
}

impl WebSocketTransport {
    fn next(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            let message = match Pin::new(&mut self.socket).poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(None)),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(to_io(error))),
                Poll::Ready(Some(Ok(message))) => message,
            };
            match message {
                Message::Binary(bytes) if bytes.is_empty() => {}
                Message::Binary(bytes) => return Poll::Ready(Ok(Some(bytes))),
                Message::Close(_) => return Poll::Ready(Ok(None)),
                // tungstenite answers a ping by itself at the next write or flush.
                Message::Ping(_) => {
                    let _ = Pin::new(&mut self.socket).poll_flush(cx);
                }
                Message::Pong(_) | Message::Frame(_) => {}
                // [MQTT-6.0.0-1]
                Message::Text(_) => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a text frame carries no MQTT")));
                }
            }
        }
    }
}

impl Transport for WebSocketTransport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.pending.is_empty() {
            match self.next(cx) {
                Poll::Ready(Ok(Some(bytes))) => self.pending = bytes,
                Poll::Ready(Ok(None)) => return Poll::Ready(Ok(0)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        let count = self.pending.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), self.pending.get(..count)) {
            to.copy_from_slice(from);
        }
        self.pending.advance(count);
        Poll::Ready(Ok(count))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.socket).poll_ready(cx) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(to_io(error))),
            Poll::Pending => return Poll::Pending,
        }
        let count = bytes.len().min(FRAME_BYTES_MAX);
        let frame = Bytes::copy_from_slice(bytes.get(..count).unwrap_or_default());
        Poll::Ready(Pin::new(&mut self.socket).start_send(Message::Binary(frame)).map(|()| count).map_err(to_io))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx).map_err(to_io)
    }

    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_close(cx).map_err(to_io)
    }
}

fn to_io(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        other => io::Error::other(other),
    }
}
