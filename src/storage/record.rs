//! The envelope around every stored value: a format version and a checksum.
//!
//! `version u8 | crc32 u32 BE | value`. The checksum covers key, version and value, so a value that turns up under a foreign key
//! is found too. Released versions do not change; a new layout gets a new number and the old one stays readable.

/// The format written today.
const VERSION: u8 = 1;
const HEADER_LEN: usize = 5;

/// Longest key in bytes: far more than the names of a record.
pub(super) const KEY_LEN_MAX: usize = 1024 * 1024;
/// Longest value in bytes, less than the engine's 2^32 by the envelope.
pub(super) const VALUE_LEN_MAX: usize = u32::MAX as usize - HEADER_LEN;

/// Wraps `value` as it is stored under `key`.
pub(super) fn seal(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(HEADER_LEN + value.len());
    stored.push(VERSION);
    stored.extend_from_slice(&checksum(key, VERSION, value).to_be_bytes());
    stored.extend_from_slice(value);
    stored
}

/// Unwraps what is stored under `key`. Errors say what is wrong, in words for a `Damaged`.
pub(super) fn unseal<'a>(key: &[u8], stored: &'a [u8]) -> Result<&'a [u8], String> {
    let Some((header, value)) = stored.split_first_chunk::<HEADER_LEN>() else {
        return Err(format!("record of {} bytes is too short", stored.len()));
    };
    let [version, crc @ ..] = *header;
    if version != VERSION {
        return Err(format!("record has format version {version}, this program reads {VERSION}"));
    }
    let (expected, found) = (u32::from_be_bytes(crc), checksum(key, version, value));
    if expected != found {
        return Err(format!("record checksum is {found:08x}, stored is {expected:08x}"));
    }
    Ok(value)
}

fn checksum(key: &[u8], version: u8, value: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(key);
    crc.update(&[version]);
    crc.update(value);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_is_returned_unchanged() {
        for value in [&b""[..], b"x", &[7; 5000]] {
            assert_eq!(unseal(b"key", &seal(b"key", value)), Ok(value));
        }
    }

    #[test]
    fn any_flipped_bit_is_found() {
        let stored = seal(b"key", b"value");
        for at in 0..stored.len() * 8 {
            let mut damaged = stored.clone();
            damaged[at / 8] ^= 1 << (at % 8);
            assert!(unseal(b"key", &damaged).is_err(), "bit {at}");
        }
    }

    #[test]
    fn a_value_under_a_foreign_key_or_cut_short_is_found() {
        let stored = seal(b"key", b"value");
        assert!(unseal(b"kez", &stored).is_err());
        for len in 0..stored.len() {
            assert!(unseal(b"key", &stored[..len]).is_err(), "len {len}");
        }
    }
}
