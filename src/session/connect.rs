//! CONNECT to CONNACK (MQTT 5 sections 3.1, 3.2; spec/hivemq.md 9.1 to 9.5).

use std::sync::Arc;

use bytestring::ByteString;

use super::effect::{Effect, Registration};
use super::error::Offence;
use super::keep_alive;
use super::peer::{PROTOCOL_MAX_PACKET_SIZE_BYTES, Peer};
use super::settings::{RefuseConnections, SessionSettings};
use super::will;
use crate::auth::Principal;
use crate::mqtt::codec::DecodeError;
use crate::mqtt::packet::{Connack, ConnackProperties, Connect};
use crate::mqtt::{Packet, ProtocolVersion, QoS, ReasonCode};

/// What a CONNECT settled; in force once the registration is granted.
#[derive(Debug)]
pub(super) struct Terms {
    pub(super) peer: Peer,
    pub(super) client_id: ByteString,
    pub(super) session_expiry_interval_s: u32,
    pub(super) keep_alive_s: u16,
    /// Messages of QoS above 0 that may be in flight to the client.
    pub(super) send_window: usize,
    /// From the client, as CONNACK announces it.
    pub(super) topic_alias_max: u16,
    /// Towards the client.
    pub(super) sent_topic_alias_max: u16,
    pub(super) connack: ConnackProperties,
    /// Authentication Method.
    pub(super) method: Option<ByteString>,
    /// The user name in CONNECT, where there is a method.
    pub(super) claimed_name: Option<ByteString>,
    /// Known once the client is let in.
    pub(super) principal: Arc<Principal>,
}

/// Checks a CONNECT.
///
/// # Errors
/// What it is refused for.
pub(super) fn negotiate(
    connect: Connect,
    peer: Peer,
    settings: &SessionSettings,
    assigned_id: &dyn Fn() -> String,
    wall_ms: u64,
) -> Result<(Terms, Registration), Offence> {
    if settings.server_reference.as_ref().is_some_and(|server| server.refuse == RefuseConnections::Always) {
        return Err(Offence::Moved);
    }
    check_text(&connect, settings)?;
    let (client_id, client_id_assigned) = client_id(&connect, settings, assigned_id)?;
    let will = connect.will.map(|w| will::registration(w, &client_id, settings, wall_ms)).transpose()?;
    let requested_expiry_s = match (connect.protocol, connect.clean_start) {
        (ProtocolVersion::V5, _) => connect.properties.session_expiry_interval.unwrap_or(0),
        (ProtocolVersion::V3_1 | ProtocolVersion::V3_1_1, true) => 0,
        (ProtocolVersion::V3_1 | ProtocolVersion::V3_1_1, false) => u32::MAX,
    };
    let session_expiry_interval_s = requested_expiry_s.min(settings.session_expiry_max_s);
    let (keep_alive_s, server_keep_alive) =
        keep_alive::negotiate(connect.keep_alive, connect.protocol, settings.keep_alive_policy)?;

    let mut connack = capabilities(settings);
    connack.session_expiry_interval = (session_expiry_interval_s < requested_expiry_s).then_some(session_expiry_interval_s);
    connack.server_keep_alive = server_keep_alive;
    // [MQTT-3.1.3-7] [MQTT-3.2.2-16]
    connack.assigned_client_identifier = client_id_assigned.then(|| client_id.clone());
    if connect.properties.request_response_information == Some(true) {
        // [MQTT-3.1.2-28]
        connack.response_information = settings.response_information_of(&client_id);
    }

    let receive_maximum = connect.properties.receive_maximum.unwrap_or(u16::MAX);
    let terms = Terms {
        peer,
        client_id: client_id.clone(),
        session_expiry_interval_s,
        keep_alive_s,
        send_window: usize::from(receive_maximum.min(settings.max_inflight)),
        topic_alias_max: connack.topic_alias_maximum.unwrap_or(0),
        // [MQTT-3.1.2-26] [MQTT-3.1.2-27]
        sent_topic_alias_max: connect.properties.topic_alias_maximum.unwrap_or(0).min(settings.sent_topic_alias_max),
        connack,
        method: connect.properties.authentication_method,
        claimed_name: None,
        principal: Arc::default(),
    };
    let registration = Registration {
        client_id,
        client_id_assigned,
        protocol: connect.protocol,
        clean_start: connect.clean_start,
        session_expiry_interval_s,
        will,
        username: connect.username.as_deref().map(ByteString::from),
        user_properties: connect.properties.user_properties,
        send_window: terms.send_window,
    };
    Ok((terms, registration))
}

/// Refuses control and non-characters where they are not wanted (spec/hivemq.md 1.6).
fn check_text(connect: &Connect, settings: &SessionSettings) -> Result<(), Offence> {
    settings.check_text(&connect.client_id, "client identifier")?;
    settings.check_text(connect.username.as_deref().unwrap_or_default(), "user name")?;
    let Some(will) = &connect.will else { return Ok(()) };
    settings.check_text(&will.topic, "will topic")?;
    settings.check_text(will.properties.response_topic.as_deref().unwrap_or_default(), "response topic of the will")
}

/// The client id, and whether the server made it (spec/hivemq.md 9.3).
fn client_id(
    connect: &Connect,
    settings: &SessionSettings,
    assigned_id: &dyn Fn() -> String,
) -> Result<(ByteString, bool), Offence> {
    if connect.client_id.len() > usize::from(settings.max_client_id_length) {
        return Err(Offence::ClientIdTooLong);
    }
    if !connect.client_id.is_empty() {
        // A copy: what was decoded holds the whole CONNECT, for as long as the connection lasts.
        return Ok((ByteString::from(&*connect.client_id), false));
    }
    let assignable = match connect.protocol {
        ProtocolVersion::V5 => true,
        // [MQTT-3.1.3-7] of 3.1.1: a session nobody can name again must be a clean one.
        ProtocolVersion::V3_1_1 => connect.clean_start,
        ProtocolVersion::V3_1 => false,
    };
    if assignable && settings.allow_empty_client_id {
        return Ok((ByteString::from(assigned_id()), true));
    }
    // [MQTT-3.1.3-8]
    Err(Offence::ClientIdEmpty)
}

/// What the server tells every client of itself; the specification's defaults are left out (spec/hivemq.md 9.2).
fn capabilities(settings: &SessionSettings) -> ConnackProperties {
    let unless_available = |available: bool| (!available).then_some(false);
    let max_packet_size = settings.max_packet_size_bytes;
    ConnackProperties {
        receive_maximum: (settings.server_receive_maximum != u16::MAX).then_some(settings.server_receive_maximum),
        maximum_qos: (settings.max_qos != QoS::ExactlyOnce).then_some(settings.max_qos),
        retain_available: unless_available(settings.retained_messages),
        maximum_packet_size: (max_packet_size < PROTOCOL_MAX_PACKET_SIZE_BYTES).then_some(max_packet_size),
        // spec/hivemq.md 9.2
        topic_alias_maximum: Some(settings.topic_alias_max).filter(|max| *max > 0 && settings.alias_memory.is_plenty()),
        wildcard_subscription_available: unless_available(settings.wildcard_subscriptions),
        subscription_identifiers_available: unless_available(settings.subscription_identifiers),
        shared_subscription_available: unless_available(settings.shared_subscriptions),
        ..ConnackProperties::default()
    }
}

/// CONNACK of an accepted CONNECT. False where it does not fit the client's Maximum Packet Size.
pub(super) fn accept(peer: &Peer, session_present: bool, properties: ConnackProperties, out: &mut Vec<Effect>) -> bool {
    // MQTT 3.1 has no Session Present.
    let session_present = session_present && peer.protocol != ProtocolVersion::V3_1;
    peer.send(Packet::Connack(Box::new(Connack { session_present, reason_code: ReasonCode::Success, properties })), out)
}

/// CONNACK with a failure, where the version has one for it, and the close behind it [MQTT-3.2.2-7].
pub(super) fn refuse(peer: &Peer, code: ReasonCode, reason: &str, out: &mut Vec<Effect>) {
    refuse_towards(peer, (code, None), reason, out);
}

/// The same with a Server Reference.
pub(super) fn refuse_towards(
    peer: &Peer,
    (code, server_reference): (ReasonCode, Option<ByteString>),
    reason: &str,
    out: &mut Vec<Effect>,
) {
    if let Some(reason_code) = connack_code(code, peer.protocol) {
        let reason_string = (!reason.is_empty()).then(|| ByteString::from(reason));
        let properties = ConnackProperties { reason_string, server_reference, ..ConnackProperties::default() };
        peer.send(Packet::Connack(Box::new(Connack { session_present: false, reason_code, properties })), out);
    }
    out.push(Effect::Close);
}

/// The code as CONNACK may carry it (MQTT 5 section 3.2.2.2); `None` closes without a packet.
fn connack_code(code: ReasonCode, protocol: ProtocolVersion) -> Option<ReasonCode> {
    use ReasonCode as C;
    match code {
        // MQTT 3 closes without a packet for what its return codes cannot say (spec/hivemq.md 9.1).
        C::UnspecifiedError | C::MalformedPacket | C::ProtocolError | C::ImplementationSpecificError => {
            protocol.is_v5().then_some(code)
        }
        C::UnsupportedProtocolVersion
        | C::ClientIdentifierNotValid
        | C::BadUserNameOrPassword
        | C::NotAuthorized
        | C::ServerUnavailable
        | C::ServerBusy
        | C::Banned
        | C::BadAuthenticationMethod
        | C::TopicNameInvalid
        | C::PacketTooLarge
        | C::QuotaExceeded
        | C::PayloadFormatInvalid
        | C::RetainNotSupported
        | C::QoSNotSupported
        | C::UseAnotherServer
        | C::ServerMoved
        | C::ConnectionRateExceeded => Some(code),
        C::ServerShuttingDown => Some(C::ServerUnavailable),
        _ => None,
    }
}

/// The version in which a CONNECT that could not be decoded is answered; `None` closes without a packet. A version nobody
/// knows is answered in the nearest one (spec/hivemq.md 9.1).
pub(super) fn version_to_refuse_in(error: &DecodeError, known: Option<ProtocolVersion>) -> Option<ProtocolVersion> {
    if let DecodeError::UnsupportedProtocolVersion { name, level } = error {
        return match (name.as_str(), *level) {
            ("MQTT", 6..) => Some(ProtocolVersion::V5),
            ("MQTT" | "MQIsdp", _) => Some(ProtocolVersion::V3_1_1),
            _ => None,
        };
    }
    known
}
