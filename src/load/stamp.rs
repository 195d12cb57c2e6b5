//! What a message carries to be known by: the run, its stream, its number in the stream, and when it was to be sent. And the PUBLISH
//! around it, encoded once.

use bytes::{Bytes, BytesMut};

use super::Failure;
use crate::mqtt::codec::{self, Frame};
use crate::mqtt::packet::{Publish, PublishProperties};
use crate::mqtt::{Packet, ProtocolVersion, QoS};

/// Bytes of a stamp, and so of the smallest payload.
pub const STAMP_BYTES: usize = 24;
/// Digits that every topic ends with.
pub(super) const TOPIC_DIGITS: usize = 7;
/// Topics of one run at most.
pub(super) const TOPICS_MAX: usize = 10_000_000;

const DUP: u8 = 0b1000;

/// The first bytes of each payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    /// The run: what is left of another is not counted.
    pub(super) run: u32,
    pub(super) stream: u32,
    /// From 0 in each stream, without gaps.
    pub(super) sequence: u64,
    /// When it was to be sent: the run's clock.
    pub(super) at_ns: u64,
}

impl Stamp {
    fn write(self, to: &mut [u8]) {
        let Some(to) = to.first_chunk_mut::<STAMP_BYTES>() else { return };
        to[..4].copy_from_slice(&self.run.to_be_bytes());
        to[4..8].copy_from_slice(&self.stream.to_be_bytes());
        to[8..16].copy_from_slice(&self.sequence.to_be_bytes());
        to[16..].copy_from_slice(&self.at_ns.to_be_bytes());
    }

    pub(super) fn read(from: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *from.first_chunk::<STAMP_BYTES>()?;
        let (sequence, at) = rest.split_first_chunk::<8>()?;
        Some(Self {
            run: u32::from_be_bytes([a, b, c, d]),
            stream: u32::from_be_bytes([e, f, g, h]),
            sequence: u64::from_be_bytes(*sequence),
            at_ns: u64::from_be_bytes(at.try_into().ok()?),
        })
    }
}

pub(super) fn topic(prefix: &str, number: usize) -> String {
    format!("{prefix}/{number:0TOPIC_DIGITS$}")
}

/// One PUBLISH as the codec wrote it, with the places that change from message to message.
pub(super) struct Template {
    packet: Vec<u8>,
    digits_at: usize,
    packet_id_at: Option<usize>,
    stamp_at: usize,
    run: u32,
}

impl Template {
    pub(super) fn new(version: ProtocolVersion, qos: QoS, retain: bool, prefix: &str, payload_bytes: usize, run: u32) -> Self {
        let topic = topic(prefix, 0);
        let topic_len = topic.len();
        let has_id = qos != QoS::AtMostOnce;
        let publish = Publish {
            dup: false,
            qos,
            retain,
            topic: topic.into(),
            packet_id: has_id.then_some(std::num::NonZeroU16::MIN),
            properties: PublishProperties::default(),
            payload: Bytes::from(vec![b'.'; payload_bytes]),
        };
        let mut out = BytesMut::new();
        codec::encode(&Packet::Publish(Box::new(publish)), version, &mut out);
        let header_len = codec::frame(&out, codec::MAX_PACKET_SIZE).ok().flatten().map_or(0, |frame| frame.header_len);
        Self {
            digits_at: header_len + 2 + topic_len - TOPIC_DIGITS,
            packet_id_at: has_id.then_some(header_len + 2 + topic_len),
            stamp_at: out.len() - payload_bytes,
            packet: out.to_vec(),
            run,
        }
    }

    /// Appends one message.
    pub(super) fn append(&mut self, message: &Message, out: &mut Vec<u8>) {
        let Message { packet_id, dup, topic, stream, sequence, at_ns } = *message;
        let mut rest = topic;
        if let Some(digits) = self.packet.get_mut(self.digits_at..self.digits_at + TOPIC_DIGITS) {
            for digit in digits.iter_mut().rev() {
                *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
                rest /= 10;
            }
        }
        if let Some(id) = self.packet_id_at.and_then(|at| self.packet.get_mut(at..at + 2)) {
            id.copy_from_slice(&packet_id.to_be_bytes());
        }
        if let Some(payload) = self.packet.get_mut(self.stamp_at..) {
            Stamp { run: self.run, stream, sequence, at_ns }.write(payload);
        }
        let at = out.len();
        out.extend_from_slice(&self.packet);
        if dup && let Some(first) = out.get_mut(at) {
            *first |= DUP;
        }
    }
}

/// What differs between messages of a publisher.
#[derive(Debug, Clone, Copy)]
pub(super) struct Message {
    /// Above QoS 0.
    pub(super) packet_id: u16,
    pub(super) dup: bool,
    pub(super) topic: u32,
    pub(super) stream: u32,
    pub(super) sequence: u64,
    pub(super) at_ns: u64,
}

/// Packet Identifier (above QoS 0) and stamp of a PUBLISH, read in place: the codec's packet would cost more than the rest of the client. The
/// stamp is `None` for what is too short to be ours.
pub(super) fn read(frame: Frame, packet: &[u8], payload_bytes: usize) -> Result<(Option<[u8; 2]>, Option<Stamp>), Failure> {
    let pair = |at: usize| {
        let pair = packet.get(at..at + 2).and_then(|two| <[u8; 2]>::try_from(two).ok());
        pair.ok_or_else(|| Failure::Protocol("a PUBLISH that is too short".into()))
    };
    let has_id = frame.first_byte & 0b0110 != 0;
    let packet_id = if has_id {
        let topic_len = usize::from(u16::from_be_bytes(pair(frame.header_len)?));
        Some(pair(frame.header_len + 2 + topic_len)?)
    } else {
        None
    };
    let payload = packet.len().checked_sub(payload_bytes).and_then(|at| packet.get(at..));
    Ok((packet_id, payload.and_then(Stamp::read)))
}

/// Packet Identifier and Reason Code of an acknowledgement; without a code it is 0.
pub(super) fn read_acknowledgement(frame: Frame, packet: &[u8]) -> Result<(u16, u8), Failure> {
    match packet.get(frame.header_len..) {
        Some([high, low]) => Ok((u16::from_be_bytes([*high, *low]), 0)),
        Some([high, low, code, ..]) => Ok((u16::from_be_bytes([*high, *low]), *code)),
        _ => Err(Failure::Protocol("an acknowledgement that is too short".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_gives_what_the_codec_reads_in_every_version() {
        for version in [ProtocolVersion::V3_1_1, ProtocolVersion::V5] {
            for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                for payload_bytes in [STAMP_BYTES, 64, 20_000] {
                    let mut template = Template::new(version, qos, true, "a/b", payload_bytes, 7);
                    let mut out = Vec::new();
                    let message = Message {
                        packet_id: 515,
                        dup: qos != QoS::AtMostOnce,
                        topic: 1_234_567,
                        stream: 9,
                        sequence: 1 << 40,
                        at_ns: 5,
                    };
                    template.append(&message, &mut out);
                    let frame = codec::frame(&out, codec::MAX_PACKET_SIZE).unwrap().unwrap();
                    let (id, stamp) = read(frame, &out, payload_bytes).unwrap();
                    assert_eq!(stamp, Some(Stamp { run: 7, stream: 9, sequence: 1 << 40, at_ns: 5 }));
                    assert_eq!(id, (qos != QoS::AtMostOnce).then_some([2, 3]));
                    let Packet::Publish(publish) = codec::decode(frame, Bytes::from(out), Some(version)).unwrap() else {
                        panic!()
                    };
                    assert_eq!(
                        (&*publish.topic, publish.qos, publish.retain, publish.payload.len()),
                        ("a/b/1234567", qos, true, payload_bytes)
                    );
                    assert_eq!(publish.dup, message.dup);
                    assert_eq!(publish.packet_id.map(std::num::NonZeroU16::get), (qos != QoS::AtMostOnce).then_some(515));
                }
            }
        }
    }

    #[test]
    fn what_is_too_short_is_not_ours_or_no_packet() {
        let foreign = [0x30, 5, 0, 1, b'a', b'x', b'y'];
        let frame = codec::frame(&foreign, 100).unwrap().unwrap();
        assert_eq!(read(frame, &foreign, 24), Ok((None, None)));
        let broken = [0x32, 2, 0, 9];
        let frame = codec::frame(&broken, 100).unwrap().unwrap();
        assert!(read(frame, &broken, 24).is_err());
        let ack = [0x40, 3, 1, 2, 0x97];
        assert_eq!(read_acknowledgement(codec::frame(&ack, 100).unwrap().unwrap(), &ack), Ok((258, 0x97)));
        let short = [0x40, 1, 1];
        assert!(read_acknowledgement(codec::frame(&short, 100).unwrap().unwrap(), &short).is_err());
    }
}
