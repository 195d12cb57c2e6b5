//! MQTT over WebSocket (MQTT 5 section 6): tungstenite upgrades, `transport` carries; packets may be split and joined over binary frames.

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod transport;

use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode, header::SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{accept_hdr_async_with_config, tungstenite};

/// What a WebSocket listener answers to.
#[derive(Debug)]
pub struct Endpoint {
    /// Matched exactly (spec/hivemq.md 1.3).
    pub path: String,
    pub subprotocols: Vec<String>,
}

/// Answers the HTTP request and gives the stream back; no byte behind the request has been read.
///
/// # Errors
/// The socket's, or `InvalidData` for a request that was refused.
pub async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(stream: S, endpoint: &Endpoint) -> io::Result<S> {
    // Its buffers are gone with it.
    let config = WebSocketConfig::default().read_buffer_size(0).write_buffer_size(0);
    #[expect(clippy::result_large_err, reason = "the callback's signature is the library's")]
    let check = |request: &Request, response: Response| answer(request, response, endpoint);
    match accept_hdr_async_with_config(stream, check, Some(config)).await {
        Ok(socket) => Ok(socket.into_inner()),
        Err(tungstenite::Error::Io(error)) => Err(error),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
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
