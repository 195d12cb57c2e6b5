//! MQTT over WebSocket (MQTT 5 section 6): tungstenite upgrades, `transport` carries; packets may be split and joined over binary frames.

mod frame;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
pub mod transport;

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::{
    HeaderValue, StatusCode,
    header::{SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL},
};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{accept_hdr_async_with_config, tungstenite};

/// After a handshake that was refused, how long and how much is read and thrown away.
const LINGER: Duration = Duration::from_millis(300);
const LINGER_BYTES_MAX: u64 = 64 * 1024;
/// Length of a `Sec-WebSocket-Key`: 16 bytes in base64.
const KEY_LEN: usize = 24;

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
pub async fn upgrade<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, endpoint: &Endpoint) -> io::Result<S> {
    // Its buffers are gone with it.
    let config = WebSocketConfig::default().read_buffer_size(0).write_buffer_size(0);
    #[expect(clippy::result_large_err, reason = "the callback's signature is the library's")]
    let check = |request: &Request, response: Response| answer(request, response, endpoint);
    match accept_hdr_async_with_config(&mut stream, check, Some(config)).await.map(drop) {
        Ok(()) => Ok(stream),
        Err(tungstenite::Error::Io(error)) => Err(error),
        Err(error) => {
            // The library answers what `answer` refuses, and nothing else.
            if !matches!(error, tungstenite::Error::Http(_)) {
                let _ = refuse(&mut stream, &error).await;
            }
            Err(io::Error::new(io::ErrorKind::InvalidData, error))
        }
    }
}

/// Answers what is no opening handshake (RFC 6455 4.2.1), or one of another version (4.4). What the peer still sends is read and thrown away,
/// since closing with unread bytes would reset the connection, and the answer be lost.
async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, error: &tungstenite::Error) -> io::Result<()> {
    use tungstenite::error::ProtocolError::{MissingSecWebSocketVersionHeader, MissingUpgradeWebSocketHeader};
    let status = match error {
        tungstenite::Error::Protocol(MissingSecWebSocketVersionHeader | MissingUpgradeWebSocketHeader) => "426 Upgrade Required",
        _ => "400 Bad Request",
    };
    let text = format!("{error}\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\nUpgrade: websocket\r\nConnection: close\r\nSec-WebSocket-Version: 13\r\nContent-Type: text/plain\r\n\
         Content-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    let rest = async { tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await };
    let _ = actix_rt::time::timeout(LINGER, rest).await;
    Ok(())
}

/// Checks path and sub-protocols; names the chosen one [MQTT-6.0.0-4].
#[expect(clippy::result_large_err, reason = "the signature is the library's")]
fn answer(request: &Request, mut response: Response, endpoint: &Endpoint) -> Result<Response, ErrorResponse> {
    // RFC 6455 4.2.1
    if request.headers().get(SEC_WEBSOCKET_KEY).is_none_or(|key| key.len() != KEY_LEN || !key.as_bytes().ends_with(b"==")) {
        return Err(refusal(StatusCode::BAD_REQUEST, "Sec-WebSocket-Key has to be 16 bytes in base64\n".to_owned()));
    }
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
