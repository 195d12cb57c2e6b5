//! Keys that are longer than the engine takes.
//!
//! A record's key holds names of up to 65,535 bytes each (an MQTT client id and a Topic Filter, say), and the engine's limit is 65,535 for the
//! whole. A long key is stored as its beginning, a mark, a digest and its last 8 bytes: so records stay in the order that their first bytes and,
//! among those of one owner, their last 8 (a position in a queue) give. The whole key stands in front of the value.

use std::borrow::Cow;

use sha2::{Digest, Sha256};

/// Keys up to this length are stored as they are.
const SHORT_LEN_MAX: usize = 32_768;
const BEGINNING: usize = 1024;
const TAIL: usize = 8;
const DIGEST: usize = 32;
/// No key has this anywhere: names are UTF-8, and numbers have 12 bytes in a row at most.
const MARK: [u8; 16] = [0xFF; 16];

/// The key the engine is given, and what stands in front of the value.
pub(super) fn stored(key: &[u8]) -> (Cow<'_, [u8]>, Vec<u8>) {
    if key.len() <= SHORT_LEN_MAX {
        return (Cow::Borrowed(key), Vec::new());
    }
    let (head, tail) = key.split_at(key.len() - TAIL);
    let beginning = head.get(..BEGINNING).unwrap_or(head);
    let stored = [beginning, &MARK, &Sha256::digest(head), tail].concat();
    let length = u32::try_from(key.len()).unwrap_or(u32::MAX).to_be_bytes();
    (Cow::Owned(stored), [&length, key].concat())
}

/// The whole key and the value of what the engine holds under `stored`; `None` where they do not belong together.
pub(super) fn original<'a>(stored: &'a [u8], value: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let is_long = stored.len() == BEGINNING + MARK.len() + DIGEST + TAIL
        && stored.get(BEGINNING..BEGINNING + MARK.len()).is_some_and(|mark| mark == MARK);
    if !is_long {
        return Some((stored, value));
    }
    let (length, rest) = value.split_first_chunk()?;
    let (key, value) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    (self::stored(key).0 == stored).then_some((key, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(key: &[u8]) -> Vec<u8> {
        let (stored, front) = stored(key);
        assert!(stored.len() <= SHORT_LEN_MAX);
        let value = [&front[..], b"value"].concat();
        assert_eq!(original(&stored, &value), Some((key, &b"value"[..])));
        stored.into_owned()
    }

    #[test]
    fn keys_of_any_length_come_back() {
        for length in [1, 1080, SHORT_LEN_MAX, SHORT_LEN_MAX + 1, 65_536, 140_000] {
            round(&vec![b'k'; length]);
        }
    }

    #[test]
    fn entries_of_an_owner_with_a_long_name_stay_together_and_in_order() {
        let key = |name: u8, seq: u64| round(&[&vec![name; 65_535][..], &seq.to_be_bytes()].concat());
        let keys = [key(b'a', 1), key(b'a', 2), key(b'a', 256), key(b'b', 1)];
        assert!(keys.is_sorted());
        let short = round(&[&[b'a'; 2000][..], &1_u64.to_be_bytes()].concat());
        assert_ne!(short, keys[0]);
    }

    #[test]
    fn a_key_that_is_not_that_of_its_value_is_noticed() {
        let (one, front) = stored(&[b'a'; 40_000]);
        let (other, _) = stored(&[b'b'; 40_000]);
        assert_eq!(original(&other, &front), None);
        assert_eq!(original(&one, b"\0\0\0\x01"), None);
        assert_eq!(original(&one, b""), None);
    }
}
