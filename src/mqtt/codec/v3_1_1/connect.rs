use crate::mqtt::ProtocolVersion;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::connect::{Flags, check_will_topic, write_start};
use crate::mqtt::codec::reader::Reader;
use crate::mqtt::codec::writer::Sink;
use crate::mqtt::packet::{Connect, ConnectProperties, Will, WillProperties};

/// Reads what follows Keep Alive.
pub(in crate::mqtt::codec) fn read_connect(
    protocol: ProtocolVersion,
    flags: Flags,
    keep_alive: u16,
    reader: &mut Reader,
) -> Result<Connect, DecodeError> {
    let client_id = reader.string()?;
    let mut will = None;
    if let Some((qos, retain)) = flags.will {
        let topic = reader.string()?;
        check_will_topic(&topic)?;
        will = Some(Will { topic, payload: reader.binary()?, qos, retain, properties: WillProperties::default() });
    }
    // MQTT 3.1 section 3.1: a missing user name or password outweighs its flag, for clients of older versions still.
    let present = |reader: &Reader| protocol != ProtocolVersion::V3_1 || !reader.is_empty();
    let username = if flags.username && present(reader) { Some(reader.string()?) } else { None };
    let password = if flags.password && present(reader) { Some(reader.binary()?) } else { None };
    Ok(Connect {
        protocol,
        clean_start: flags.clean_start,
        keep_alive,
        client_id,
        will,
        username,
        password,
        properties: ConnectProperties::default(),
    })
}

pub(super) fn write<S: Sink>(connect: &Connect, out: &mut S) {
    write_start(connect, out);
    out.string(&connect.client_id);
    if let Some(will) = &connect.will {
        out.string(&will.topic);
        out.binary(&will.payload);
    }
    if let Some(username) = &connect.username {
        out.string(username);
    }
    if let Some(password) = &connect.password {
        out.binary(password);
    }
}
