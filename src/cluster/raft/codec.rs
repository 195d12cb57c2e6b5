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

/// Decodes a value; refuses a newer version, a damaged encoding and trailing bytes.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    let Some((&version, body)) = bytes.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "empty encoding"));
    };
    if version != FORMAT_VERSION {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("format version {version}, this program reads {FORMAT_VERSION}"),
        ));
    }
    let (value, read) = bincode::serde::decode_from_slice(body, bincode::config::standard())
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
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
}
