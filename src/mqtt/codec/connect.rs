//! The start of a CONNECT, which says what version the rest is in (MQTT 5 section 3.1.2).

use super::reader::Reader;
use super::writer::Sink;
use super::{DecodeError, v3_1_1, v5};
use crate::mqtt::packet::Connect;
use crate::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode, topic_name};

/// Bytes of a foreign protocol name kept for the log.
const SHOWN_NAME_LEN: usize = 32;

/// Peeks the version of a CONNECT whose later fields may be broken, or not received yet; `packet` starts at the fixed header.
/// `None` where it is no CONNECT or the version is not supported.
pub fn connect_version(packet: &[u8]) -> Option<ProtocolVersion> {
    let (first_byte, rest) = packet.split_first()?;
    if first_byte >> 4 != super::fixed_header::CONNECT {
        return None;
    }
    let last_length_byte = rest.iter().take(4).position(|byte| byte & 0x80 == 0)?;
    let body = rest.get(last_length_byte + 1..)?;
    [ProtocolVersion::V5, ProtocolVersion::V3_1_1, ProtocolVersion::V3_1].into_iter().find(|version| {
        let (name, level) = name_and_level(*version);
        let (len, text) = body.split_at_checked(2).unwrap_or_default();
        text.strip_prefix(name.as_bytes()).is_some_and(|after| after.first() == Some(&level))
            && len.last().is_some_and(|len| usize::from(*len) == name.len())
            && len.first() == Some(&0)
    })
}

/// Reads a CONNECT of any supported version.
pub(super) fn read(reader: &mut Reader) -> Result<Packet, DecodeError> {
    let protocol = read_version(reader)?;
    let flags = Flags::from_byte(reader.u8()?)?;
    // MQTT 5 allows a password alone; MQTT 3 does not [MQTT-3.1.2-22 of 3.1.1].
    if !protocol.is_v5() && flags.password && !flags.username {
        return Err(DecodeError::Malformed("password flag without user name flag"));
    }
    let keep_alive = reader.u16()?;
    let connect = if protocol.is_v5() {
        v5::read_connect(flags, keep_alive, reader)?
    } else {
        v3_1_1::read_connect(protocol, flags, keep_alive, reader)?
    };
    Ok(Packet::Connect(Box::new(connect)))
}

/// Writes what stands before Keep Alive, and Keep Alive.
pub(super) fn write_start<S: Sink>(connect: &Connect, out: &mut S) {
    let (name, level) = name_and_level(connect.protocol);
    out.string(name);
    out.u8(level);
    out.u8(Flags::byte(connect));
    out.u16(connect.keep_alive);
}

/// Refuses a Will Topic that is no Topic Name.
pub(super) fn check_will_topic(topic: &str) -> Result<(), DecodeError> {
    if topic_name::is_valid(topic) {
        Ok(())
    } else {
        Err(DecodeError::Code(ReasonCode::TopicNameInvalid, "will topic is not valid"))
    }
}

fn name_and_level(version: ProtocolVersion) -> (&'static str, u8) {
    match version {
        ProtocolVersion::V3_1 => ("MQIsdp", 3),
        ProtocolVersion::V3_1_1 => ("MQTT", 4),
        ProtocolVersion::V5 => ("MQTT", 5),
    }
}

fn read_version(reader: &mut Reader) -> Result<ProtocolVersion, DecodeError> {
    let name = reader.binary()?;
    let level = reader.u8()?;
    // [MQTT-3.1.2-1] [MQTT-3.1.2-2]
    [ProtocolVersion::V5, ProtocolVersion::V3_1_1, ProtocolVersion::V3_1]
        .into_iter()
        .find(|version| name_and_level(*version) == (str::from_utf8(&name).unwrap_or_default(), level))
        .ok_or_else(|| {
            let shown = name.get(..SHOWN_NAME_LEN).unwrap_or(&name);
            DecodeError::UnsupportedProtocolVersion { name: String::from_utf8_lossy(shown).into_owned(), level }
        })
}

/// Connect Flags (MQTT 5 section 3.1.2.3).
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    pub(super) clean_start: bool,
    /// QoS and RETAIN of the Will, where there is one.
    pub(super) will: Option<(QoS, bool)>,
    pub(super) password: bool,
    pub(super) username: bool,
}

impl Flags {
    fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        let set = |bit: u8| byte & (1 << bit) != 0;
        // [MQTT-3.1.2-3]
        if set(0) {
            return Err(DecodeError::Malformed("reserved connect flag"));
        }
        // [MQTT-3.1.2-12]
        let qos = QoS::from_bits((byte >> 3) & 0b11).ok_or(DecodeError::Malformed("will QoS 3"))?;
        let will_retain = set(5);
        // [MQTT-3.1.2-11] [MQTT-3.1.2-13]
        if !set(2) && (qos != QoS::AtMostOnce || will_retain) {
            return Err(DecodeError::Malformed("will QoS or will retain without will flag"));
        }
        Ok(Self { clean_start: set(1), will: set(2).then_some((qos, will_retain)), password: set(6), username: set(7) })
    }

    fn byte(connect: &Connect) -> u8 {
        let will = connect.will.as_ref().map_or(0, |will| 1 << 2 | (will.qos as u8) << 3 | u8::from(will.retain) << 5);
        u8::from(connect.clean_start) << 1
            | will
            | u8::from(connect.password.is_some()) << 6
            | u8::from(connect.username.is_some()) << 7
    }
}
