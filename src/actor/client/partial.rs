//! Bytes of a packet of which not all has come. They grow with what arrives, never with what a header claims, and count against the
//! node's room for such packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes, BytesMut};

use crate::mqtt::codec;
use crate::session::Seldom;

/// Packets up to this size are copied out of a buffer that holds several.
const COPY_BYTES_MAX: usize = 65_536;
/// Bytes of the longest fixed header.
const HEADER_LEN_MAX: usize = 5;

/// The room for incomplete packets of all connections of a node, bytes.
#[derive(Debug)]
pub struct Room {
    max: usize,
    used: AtomicUsize,
}

impl Room {
    pub fn new(max: usize) -> Self {
        Self { max, used: AtomicUsize::new(0) }
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.max;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The buffer of a connection; empty, it owns nothing.
#[derive(Debug)]
pub(super) struct Partial {
    room: Arc<Room>,
    /// There while there are bytes.
    buffer: Seldom<Buffer>,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: BytesMut,
    /// Taken of the room.
    counted: usize,
}

impl Partial {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Self { room, buffer: Seldom::default() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.buffer.get().map(|buffer| &*buffer.bytes).unwrap_or_default()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// How many bytes to append before it is worth a look again; at least 1.
    pub(super) fn missing(&self, max_packet_size: usize) -> usize {
        match codec::frame(self.bytes(), max_packet_size) {
            Ok(Some(frame)) => frame.total_len().saturating_sub(self.bytes().len()).max(1),
            Ok(None) => HEADER_LEN_MAX.saturating_sub(self.bytes().len()).max(1),
            Err(_) => usize::MAX,
        }
    }

    /// Appends; false, with nothing appended, where the node has no room.
    pub(super) fn append(&mut self, bytes: &[u8], max_packet_size: usize) -> bool {
        if bytes.is_empty() {
            return true;
        }
        let buffer = self.buffer.get_mut();
        let needed = buffer.bytes.len() + bytes.len();
        if needed > buffer.bytes.capacity() {
            // Twice what came, and no more than the packet has.
            let claimed = match codec::frame(&buffer.bytes, max_packet_size) {
                Ok(Some(frame)) => frame.total_len(),
                Ok(None) | Err(_) => 0,
            };
            let capacity = needed.max(claimed.min(2 * buffer.bytes.len()));
            if !self.room.take(capacity) {
                return false;
            }
            let mut larger = BytesMut::with_capacity(capacity);
            larger.extend_from_slice(&buffer.bytes);
            buffer.bytes = larger;
            self.room.give_back(std::mem::replace(&mut buffer.counted, capacity));
        }
        buffer.bytes.extend_from_slice(bytes);
        true
    }

    /// Takes a whole packet of that length out.
    pub(super) fn take(&mut self, len: usize) -> Bytes {
        let Buffer { bytes, counted } = self.buffer.get_mut();
        // A slice would pin the whole buffer for as long as a topic or a client id of this packet lives.
        if len <= COPY_BYTES_MAX {
            let packet = Bytes::copy_from_slice(bytes.get(..len).unwrap_or_default());
            bytes.advance(packet.len());
            return packet;
        }
        let packet = bytes.split_to(len.min(bytes.len())).freeze();
        // And what follows must not pin the packet.
        *bytes = BytesMut::from(&bytes[..]);
        let less = counted.saturating_sub(bytes.capacity());
        *counted -= less;
        self.room.give_back(less);
        packet
    }

    /// Takes everything out and gives the buffer back.
    pub(super) fn take_all(&mut self) -> BytesMut {
        let Buffer { bytes, counted } = self.buffer.take();
        self.room.give_back(counted);
        bytes
    }

    /// Gives an empty buffer back.
    pub(super) fn tidy(&mut self) {
        if self.is_empty() {
            self.take_all();
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.take_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 28;

    fn publish_of(len: usize) -> Vec<u8> {
        let mut packet = vec![0x30];
        let mut remaining = len;
        while remaining > 0x7F {
            packet.push(0x80 | u8::try_from(remaining & 0x7F).unwrap());
            remaining >>= 7;
        }
        packet.push(u8::try_from(remaining).unwrap());
        packet.resize(packet.len() + len, b'x');
        packet
    }

    #[test]
    fn a_buffer_grows_with_what_comes_and_no_further_than_the_packet() {
        let room = Arc::new(Room::new(MAX));
        for len in [100, 70_000, 3_000_000] {
            let packet = publish_of(len);
            let mut partial = Partial::new(Arc::clone(&room));
            let mut came = 0;
            let mut rest = &packet[..];
            while !rest.is_empty() {
                let (some, after) = rest.split_at(partial.missing(MAX).min(1000).min(rest.len()));
                assert!(partial.append(some, MAX));
                (came, rest) = (came + some.len(), after);
                assert!(room.used() <= 2 * came.max(1000), "{} for {came} of {len}", room.used());
                assert!(room.used() <= packet.len(), "{} for {len}", room.used());
            }
            assert_eq!(partial.take(packet.len()), packet);
            partial.tidy();
            assert_eq!(room.used(), 0);
        }
    }

    #[test]
    fn what_follows_a_packet_stays_and_owns_little() {
        let room = Arc::new(Room::new(MAX));
        let mut partial = Partial::new(Arc::clone(&room));
        let (first, second) = (publish_of(1_000_000), publish_of(10));
        assert!(partial.append(&[&first[..], &second[..5]].concat(), MAX));
        assert_eq!(partial.take(first.len()), first);
        assert_eq!(partial.bytes(), &second[..5]);
        assert!(room.used() < 100, "{}", room.used());
        assert!(partial.append(&second[5..], MAX));
        assert_eq!(partial.take(second.len()), second);
        drop(partial);
        assert_eq!(room.used(), 0);
    }

    #[test]
    fn all_connections_share_the_room() {
        let room = Arc::new(Room::new(10_000));
        let packet = publish_of(100_000);
        let mut first = Partial::new(Arc::clone(&room));
        let mut second = Partial::new(Arc::clone(&room));
        assert!(first.append(&packet[..9_000], MAX));
        assert!(!second.append(&packet[..1_500], MAX));
        assert_eq!((second.is_empty(), room.used()), (true, 9_000));
        assert!(second.append(&packet[..900], MAX));
        drop(first);
        assert!(second.append(&packet[900..1_500], MAX));
        drop(second);
        assert_eq!(room.used(), 0);
    }
}
