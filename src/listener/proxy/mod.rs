//! The PROXY protocol: what a proxy in front of the broker says of the client, where a listener is set to believe it.

mod header;

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt};

pub use header::{Header, ProxyTls};
use header::{Step, parse};

/// How a connection begins.
#[derive(Debug)]
pub enum Beginning {
    Header(Header),
    /// No header; what was read to find that out belongs to what follows.
    Absent(Bytes),
}

/// Reads a header and not one byte more. It waits as long as the peer likes; bytes held are bounded by the longest header allowed.
///
/// # Errors
/// The socket's, `UnexpectedEof` where the peer closed first, `InvalidData` for a header that is none.
pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Beginning> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
            Step::Header(header) => return Ok(Beginning::Header(header)),
            Step::Absent => return Ok(Beginning::Absent(bytes.into())),
            Step::More(more) => {
                let before = bytes.len();
                bytes.resize(before + more, 0);
                let count = stream.read(bytes.get_mut(before..).unwrap_or_default()).await?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes.truncate(before + count);
            }
        }
    }
}
