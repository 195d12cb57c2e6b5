//! PROXY protocol headers, versions 1 and 2, of <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>. Pure: it looks at the bytes
//! read so far and says how many more surely belong to the header, so that nothing behind a header is ever read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bytestring::ByteString;

const V1_PREFIX: &[u8] = b"PROXY ";
/// `PROXY UNKNOWN` with its line end, bytes.
const V1_LEN_MIN: usize = 15;
/// The longest line the specification has, with its end, bytes.
const V1_LEN_MAX: usize = 107;
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED_LEN: usize = 16;
/// Addresses and TLVs accepted, bytes. The length field could say four times as much; a client's certificate fits.
const V2_BODY_LEN_MAX: usize = 16 * 1024;

const TLV_CRC32C: u8 = 0x03;
const TLV_SSL: u8 = 0x20;
const SSL_COMMON_NAME: u8 = 0x22;
/// Bit of the SSL TLV: the client came over TLS.
const CLIENT_SSL: u8 = 0x01;

/// What became of the bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// At least so many more bytes belong to the header, if there is one.
    More(usize),
    /// There is no header.
    Absent,
    /// Exactly the bytes given.
    Header(Header),
}

/// What a proxy says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The proxy connects for itself, as for a health check.
    pub local: bool,
    /// The client's address; `None` where the proxy does not know or the client came by no IP socket.
    pub source: Option<SocketAddr>,
    pub destination: Option<SocketAddr>,
    /// The client came to the proxy over TLS.
    pub tls: Option<ProxyTls>,
}

/// TLS between the client and the proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProxyTls {
    /// Of the client's certificate, where it showed one and the proxy has verified it.
    pub common_name: Option<ByteString>,
}

/// Why a header is none; the proxy's fault, or that of somebody who plays one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    #[error("a PROXY line is longer than {V1_LEN_MAX} bytes")]
    LineTooLong,
    #[error("a PROXY line is malformed")]
    Line,
    #[error("a PROXY header has another version than 2, or an unknown command or address family")]
    Kind,
    #[error("a PROXY header is longer than {V2_BODY_LEN_MAX} bytes")]
    TooLong,
    #[error("a PROXY header ends inside its addresses or TLVs")]
    Truncated,
    #[error("a PROXY header does not have the checksum it states")]
    Checksum,
}

/// Looks at all bytes read so far.
pub(super) fn parse(bytes: &[u8]) -> Result<Step, HeaderError> {
    if bytes.len() < V2_SIGNATURE.len() {
        let begins = |with: &[u8]| bytes.iter().zip(with).all(|(a, b)| a == b);
        return Ok(if begins(V1_PREFIX) || begins(V2_SIGNATURE) {
            Step::More(V2_SIGNATURE.len() - bytes.len())
        } else {
            Step::Absent
        });
    }
    if bytes.starts_with(V1_PREFIX) {
        version_1(bytes)
    } else if bytes.starts_with(V2_SIGNATURE) {
        version_2(bytes)
    } else {
        Ok(Step::Absent)
    }
}

fn version_1(bytes: &[u8]) -> Result<Step, HeaderError> {
    let Some(line) = bytes.strip_suffix(b"\r\n") else {
        let ending = if bytes.ends_with(b"\r") { 1 } else { 2 };
        if bytes.len() + ending > V1_LEN_MAX {
            return Err(HeaderError::LineTooLong);
        }
        // A line feed that ends nothing cannot be part of a line.
        if bytes.contains(&b'\n') {
            return Err(HeaderError::Line);
        }
        return Ok(Step::More(ending.max(V1_LEN_MIN.saturating_sub(bytes.len()))));
    };
    let line = str::from_utf8(line).map_err(|_| HeaderError::Line)?;
    let mut words = line.split(' ').skip(1);
    let v4 = match words.next() {
        // What follows is to be ignored.
        Some("UNKNOWN") => return Ok(Step::Header(Header::default())),
        Some("TCP4") => true,
        Some("TCP6") => false,
        _ => return Err(HeaderError::Line),
    };
    let words: Vec<&str> = words.collect();
    let [source, destination, source_port, destination_port] = words.as_slice() else { return Err(HeaderError::Line) };
    let address = |ip: &str, port: &str| -> Result<SocketAddr, HeaderError> {
        let ip: IpAddr = ip.parse().map_err(|_| HeaderError::Line)?;
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && (port == "0" || !port.starts_with('0'));
        if ip.is_ipv4() != v4 || !digits {
            return Err(HeaderError::Line);
        }
        Ok(SocketAddr::new(ip, port.parse().map_err(|_| HeaderError::Line)?))
    };
    let (source, destination) = (address(source, source_port)?, address(destination, destination_port)?);
    Ok(Step::Header(Header { source: Some(source), destination: Some(destination), ..Header::default() }))
}

fn version_2(bytes: &[u8]) -> Result<Step, HeaderError> {
    let Some((fixed, body)) = bytes.split_first_chunk::<V2_FIXED_LEN>() else {
        return Ok(Step::More(V2_FIXED_LEN - bytes.len()));
    };
    let [.., version_command, family, len_high, len_low] = *fixed;
    let len = usize::from(u16::from_be_bytes([len_high, len_low]));
    let local = match version_command {
        0x20 => true,
        0x21 => false,
        _ => return Err(HeaderError::Kind),
    };
    if len > V2_BODY_LEN_MAX {
        return Err(HeaderError::TooLong);
    }
    if body.len() < len {
        return Ok(Step::More(len - body.len()));
    }
    let mut rest = Fields(body);
    let mut header = Header { local, ..Header::default() };
    match family {
        // Whatever is behind it is to be skipped.
        _ if local => return Ok(Step::Header(header)),
        0x00 => return Ok(Step::Header(header)),
        // Over TCP or UDP.
        0x11 | 0x12 => (header.source, header.destination) = rest.addresses::<4>(|ip| Ipv4Addr::from(ip).into())?,
        0x21 | 0x22 => (header.source, header.destination) = rest.addresses::<16>(|ip| Ipv6Addr::from(ip).into())?,
        // Unix sockets: two paths.
        0x31 | 0x32 => _ = rest.array::<216>()?,
        _ => return Err(HeaderError::Kind),
    }
    while let Some((kind, value)) = rest.tlv()? {
        match kind {
            TLV_SSL => header.tls = ssl(value)?,
            TLV_CRC32C if !is_intact(bytes, value) => return Err(HeaderError::Checksum),
            _ => {}
        }
    }
    Ok(Step::Header(header))
}

fn ssl(value: &[u8]) -> Result<Option<ProxyTls>, HeaderError> {
    let mut fields = Fields(value);
    let [client] = fields.array()?;
    let verified = fields.array::<4>()? == [0; 4];
    let mut tls = ProxyTls::default();
    while let Some((kind, value)) = fields.tlv()? {
        // A certificate that did not stand the proxy's check says nothing about the client.
        if kind == SSL_COMMON_NAME && verified {
            tls.common_name = str::from_utf8(value).ok().map(ByteString::from);
        }
    }
    Ok((client & CLIENT_SSL != 0).then_some(tls))
}

/// CRC32c over the header with the checksum's own bytes as zero. The field lies inside the header, so its place tells where.
fn is_intact(header: &[u8], field: &[u8]) -> bool {
    let Ok(stated) = <[u8; 4]>::try_from(field) else { return false };
    let start = (field.as_ptr() as usize).saturating_sub(header.as_ptr() as usize);
    let bytes = header.iter().enumerate().map(|(n, byte)| if (start..start + 4).contains(&n) { 0 } else { *byte });
    crc32c(bytes) == u32::from_be_bytes(stated)
}

fn crc32c(bytes: impl Iterator<Item = u8>) -> u32 {
    /// The Castagnoli polynomial, lowest bit first.
    const POLYNOMIAL: u32 = 0x82F6_3B78;
    !bytes.fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 })
    })
}

/// Reads from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], HeaderError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(HeaderError::Truncated)?;
        self.0 = rest;
        Ok(*array)
    }

    /// Both addresses, then both ports.
    fn addresses<const N: usize>(
        &mut self,
        ip: impl Fn([u8; N]) -> IpAddr,
    ) -> Result<(Option<SocketAddr>, Option<SocketAddr>), HeaderError> {
        let (source, destination) = (self.array()?, self.array()?);
        let (source_port, destination_port) = (self.array()?, self.array()?);
        let address = |bytes, port| Some(SocketAddr::new(ip(bytes), u16::from_be_bytes(port)));
        Ok((address(source, source_port), address(destination, destination_port)))
    }

    /// Type and value; `None` at the end.
    fn tlv(&mut self) -> Result<Option<(u8, &'a [u8])>, HeaderError> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let [kind] = self.array()?;
        let len = usize::from(u16::from_be_bytes(self.array()?));
        let (value, rest) = self.0.split_at_checked(len).ok_or(HeaderError::Truncated)?;
        self.0 = rest;
        Ok(Some((kind, value)))
    }
}

#[cfg(test)]
#[path = "header_test.rs"]
mod tests;
