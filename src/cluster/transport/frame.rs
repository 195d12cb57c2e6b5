//! Frames on a peer connection: a length (u32, little endian) and so many bytes, bincode inside.

use std::io;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::cluster::control::Control;
use crate::cluster::peer_message::PeerMessage;
use crate::cluster::raft::codec::{decode, decode_small, encode};
use crate::cluster::raft::rpc::{Request, Response};
use crate::cluster::visibility::Progress;

/// Largest frame; a longer one ends the connection before anything is allocated for it.
const FRAME_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Largest frame of a peer that has not proved itself yet.
const HELLO_FRAME_BYTES_MAX: usize = 8 * 1024;
/// Bytes of a read buffer grown at a time, so that a length alone costs the sender's bytes, not ours.
const READ_STEP_BYTES: usize = 256 * 1024;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Class {
    /// Raft calls and their answers.
    Consensus,
    /// Everything else, one way.
    Messages,
    /// Bytes for another node, which the dialer cannot reach.
    Relay,
}

/// From the dialing side to the accepting one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outbound {
    /// Answered by `Inbound::Answer` with the same id, in any order; an answer nobody waits for is dropped.
    Call {
        id: u64,
        group: u16,
        request: Request,
    },
    Message(PeerMessage),
    Control(Control),
    Ping,
    /// A message whose large payload, of `bytes`, follows in pieces; other frames may stand between them.
    Large {
        message: PeerMessage,
        bytes: u64,
    },
    /// The next piece of the one large payload that is under way.
    Piece(Bytes),
    /// How far replicas are; on the link for consensus, so that no publish delays it.
    Progress(Progress),
    /// First on a connection for messages, to peers that speak `FEATURES` or more: its number among those that the process dialed. What a
    /// lower one still brings once this came is not taken: it would come late.
    Turn(u64),
}

/// From the accepting side back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Inbound {
    Answer { id: u64, response: Response },
    Pong,
}

/// Encodes a value as one frame.
pub fn frame<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let body = encode(value)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= FRAME_BYTES_MAX)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, format!("a frame of {} bytes is too long", body.len())))?;
    let mut bytes = Vec::with_capacity(body.len() + 4);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// Reads one frame of a peer that proved itself.
pub async fn read_frame<T: for<'de> Deserialize<'de>>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    decode(&read_frame_bytes(from, FRAME_BYTES_MAX).await?)
}

/// Reads one frame of the hello.
pub async fn read_hello_frame<T: for<'de> Deserialize<'de>>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    decode_small(&read_frame_bytes(from, HELLO_FRAME_BYTES_MAX).await?)
}

/// Reads one frame's content.
async fn read_frame_bytes(from: &mut (impl AsyncRead + Unpin), bytes_max: usize) -> io::Result<Vec<u8>> {
    let length = from.read_u32_le().await? as usize;
    if length > bytes_max {
        let what = format!("a frame of {length} bytes, {bytes_max} are allowed");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let mut bytes = Vec::new();
    while bytes.len() < length {
        let start = bytes.len();
        bytes.resize((start + READ_STEP_BYTES).min(length), 0);
        from.read_exact(&mut bytes[start..]).await?;
    }
    Ok(bytes)
}

/// Writes one frame, to the end: what TLS holds back goes too.
pub async fn write_frame<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), value: &T) -> io::Result<()> {
    to.write_all(&frame(value)?).await?;
    to.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_frame_survives_the_round_trip() {
        let bytes = frame(&"hello".to_owned()).unwrap();
        let back: String = read_frame(&mut bytes.as_slice()).await.unwrap();
        assert_eq!(back, "hello");
    }

    #[tokio::test]
    async fn a_frame_over_the_limit_is_refused_by_its_length_alone() {
        let length = 101_u32.to_le_bytes();
        let error = read_frame_bytes(&mut length.as_slice(), 100).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[tokio::test]
    async fn a_cut_frame_is_an_error() {
        let bytes = frame(&"hello".to_owned()).unwrap();
        let cut = &bytes[..bytes.len() - 1];
        let error = read_frame::<String>(&mut &cut[..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
