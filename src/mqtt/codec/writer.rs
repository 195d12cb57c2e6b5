//! Writes the data types of MQTT (MQTT 5 section 1.5).
//!
//! Each packet is written by one function over a [`Sink`]: into [`Counter`] to learn lengths, then into the buffer, so the two
//! cannot disagree.

use bytes::BytesMut;

/// Largest value of a Variable Byte Integer.
pub(super) const VAR_INT_MAX: u32 = 268_435_455;

const STRING_LEN_MAX: usize = 65_535;

/// Takes bytes, or only counts them.
pub(super) trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, value: u8) {
        self.put(&[value]);
    }

    fn u16(&mut self, value: u16) {
        self.put(&value.to_be_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.put(&value.to_be_bytes());
    }

    /// Variable Byte Integer; `value` is at most [`VAR_INT_MAX`].
    fn var_int(&mut self, value: u32) {
        let mut rest = value.min(VAR_INT_MAX);
        while rest >= 0x80 {
            self.u8((rest & 0x7F) as u8 | 0x80);
            rest >>= 7;
        }
        self.u8((rest & 0x7F) as u8);
    }

    /// Binary Data, cut at 65,535 bytes.
    fn binary(&mut self, value: &[u8]) {
        let value = value.get(..STRING_LEN_MAX).unwrap_or(value);
        self.u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
        self.put(value);
    }

    /// UTF-8 Encoded String, cut between characters where it is above 65,535 bytes.
    fn string(&mut self, value: &str) {
        let end = value.floor_char_boundary(STRING_LEN_MAX);
        self.binary(value.get(..end).unwrap_or(value).as_bytes());
    }
}

impl Sink for BytesMut {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Counts what would be written.
#[derive(Default)]
pub(super) struct Counter {
    len: usize,
}

impl Counter {
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Sink for Counter {
    fn put(&mut self, bytes: &[u8]) {
        self.len = self.len.saturating_add(bytes.len());
    }
}

/// Bytes of a Variable Byte Integer.
pub(super) fn var_int_len(value: u32) -> usize {
    let mut counter = Counter::default();
    counter.var_int(value);
    counter.len()
}
