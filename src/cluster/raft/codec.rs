//! Encoding of what is stored and of what is sent: a format version byte, then bincode.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The version this program writes, and the newest it reads.
const FORMAT_VERSION: u8 = 1;

/// Encodes a value behind the version byte.
pub fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let mut bytes = vec![FORMAT_VERSION];
    bincode::serde::encode_into_std_write(value, &mut bytes, bincode::config::standard()).map_err(io::Error::other)?;
    Ok(bytes)
}

/// Memory one decoded value may claim: a length that lies costs no more.
const DECODED_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The same for what a stranger sent.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Decodes a value; refuses a newer version, a damaged encoding and trailing bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    decode_within::<T, DECODED_BYTES_MAX>(bytes)
}

/// Decodes a small value of somebody who is not trusted yet.
pub fn decode_small<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    decode_within::<T, SMALL_BYTES_MAX>(bytes)
}

fn decode_within<T: DeserializeOwned, const BYTES_MAX: usize>(bytes: &[u8]) -> io::Result<T> {
    let Some((&version, body)) = bytes.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "empty encoding"));
    };
    if version != FORMAT_VERSION {
        let what = format!("format version {version}, this program reads {FORMAT_VERSION}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    let config = bincode::config::standard().with_limit::<BYTES_MAX>();
    let (value, read) =
        bincode::serde::decode_from_slice(body, config).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    if read != body.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "trailing bytes"));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_survives_the_round_trip() {
        let bytes = encode(&(7_u64, "x".to_owned())).unwrap();
        assert_eq!(decode::<(u64, String)>(&bytes).unwrap(), (7, "x".to_owned()));
    }

    #[test]
    fn a_newer_version_an_empty_value_and_trailing_bytes_are_refused() {
        let mut bytes = encode(&7_u64).unwrap();
        bytes.push(0);
        assert!(decode::<u64>(&bytes).is_err());
        bytes.pop();
        bytes[0] = FORMAT_VERSION + 1;
        assert!(decode::<u64>(&bytes).is_err());
        assert!(decode::<u64>(&[]).is_err());
    }

    #[test]
    fn a_length_that_lies_is_refused_before_memory_is_taken() {
        // 253 announces eight bytes of length.
        let mut bytes = vec![FORMAT_VERSION, 253];
        bytes.extend_from_slice(&(1_u64 << 60).to_le_bytes());
        assert!(decode::<String>(&bytes).is_err());
        assert!(decode::<Vec<u8>>(&bytes).is_err());
        assert!(decode_small::<Vec<String>>(&bytes).is_err());
    }

    #[test]
    fn a_small_value_must_be_small() {
        let bytes = encode(&"x".repeat(SMALL_BYTES_MAX + 1)).unwrap();
        assert!(decode::<String>(&bytes).is_ok());
        assert!(decode_small::<String>(&bytes).is_err());
    }
}
