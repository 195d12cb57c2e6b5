//! The Will of a CONNECT (MQTT 5 section 3.1.2.5, spec/hivemq.md 9.1, 9.7). Whether an end publishes it is said by `end`.

use bytestring::ByteString;

use super::effect::WillRegistration;
use super::error::Offence;
use super::inbound::{breaks_payload_format, capped_expiry};
use super::settings::SessionSettings;
use crate::mqtt::packet::Will;
use crate::mqtt::{Message, Origin, topic_name};

/// Checks a Will and makes the message that may be published one day.
///
/// # Errors
/// What CONNECT is refused for.
pub(super) fn registration(
    will: Will,
    client_id: &ByteString,
    settings: &SessionSettings,
    wall_ms: u64,
) -> Result<WillRegistration, Offence> {
    check(&will, settings)?;
    let properties = will.properties;
    let message = Message {
        topic: will.topic,
        payload: will.payload,
        qos: will.qos,
        retain: will.retain,
        payload_format_indicator: properties.payload_format_indicator,
        content_type: properties.content_type,
        response_topic: properties.response_topic,
        correlation_data: properties.correlation_data,
        user_properties: properties.user_properties,
        message_expiry_interval: capped_expiry(properties.message_expiry_interval, settings),
        received_at_ms: wall_ms,
        origin: Origin::Client(client_id.clone()),
    };
    Ok(WillRegistration { message: Box::new(message), delay_interval_s: properties.will_delay_interval.unwrap_or(0) })
}

fn check(will: &Will, settings: &SessionSettings) -> Result<(), Offence> {
    if !topic_name::is_valid(&will.topic) {
        return Err(Offence::WillTopicInvalid);
    }
    if will.topic.len() > usize::from(settings.max_topic_length) {
        return Err(Offence::WillTopicTooLong);
    }
    if topic_name::is_reserved(&will.topic) {
        return Err(Offence::WillTopicReserved);
    }
    // [MQTT-3.2.2-12]
    if will.qos > settings.max_qos {
        return Err(Offence::WillQoSNotSupported);
    }
    // [MQTT-3.2.2-13]
    if will.retain && !settings.retained_messages {
        return Err(Offence::WillRetainNotSupported);
    }
    if breaks_payload_format(will.properties.payload_format_indicator, &will.payload, settings) {
        return Err(Offence::WillPayloadFormatInvalid);
    }
    Ok(())
}
