//! Which Reason Codes each packet may carry.

use crate::mqtt::ReasonCode::{self, *};
use crate::mqtt::codec::DecodeError;
use crate::mqtt::codec::reader::Reader;

/// Reads a Reason Code: one that MQTT 5 does not know is malformed, one of another packet a protocol error.
pub(super) fn read(allowed: fn(ReasonCode) -> bool, reader: &mut Reader) -> Result<ReasonCode, DecodeError> {
    let code = ReasonCode::from_byte(reader.u8()?).ok_or(DecodeError::Malformed("unknown reason code"))?;
    if allowed(code) { Ok(code) } else { Err(DecodeError::Protocol("reason code not allowed in this packet")) }
}

/// Table 3-1 [MQTT-3.2.2-8].
pub(super) fn of_connack(code: ReasonCode) -> bool {
    matches!(
        code,
        Success
            | UnspecifiedError
            | MalformedPacket
            | ProtocolError
            | ImplementationSpecificError
            | UnsupportedProtocolVersion
            | ClientIdentifierNotValid
            | BadUserNameOrPassword
            | NotAuthorized
            | ServerUnavailable
            | ServerBusy
            | Banned
            | BadAuthenticationMethod
            | TopicNameInvalid
            | PacketTooLarge
            | QuotaExceeded
            | PayloadFormatInvalid
            | RetainNotSupported
            | QoSNotSupported
            | UseAnotherServer
            | ServerMoved
            | ConnectionRateExceeded
    )
}

/// Tables 3-4 and 3-5: PUBACK and PUBREC [MQTT-3.4.2-1] [MQTT-3.5.2-1].
pub(super) fn of_puback(code: ReasonCode) -> bool {
    matches!(
        code,
        Success
            | NoMatchingSubscribers
            | UnspecifiedError
            | ImplementationSpecificError
            | NotAuthorized
            | TopicNameInvalid
            | PacketIdentifierInUse
            | QuotaExceeded
            | PayloadFormatInvalid
    )
}

/// Tables 3-6 and 3-7: PUBREL and PUBCOMP [MQTT-3.6.2-1] [MQTT-3.7.2-1].
pub(super) fn of_pubrel(code: ReasonCode) -> bool {
    matches!(code, Success | PacketIdentifierNotFound)
}

/// Table 3-8 [MQTT-3.9.3-2].
pub(super) fn of_suback(code: ReasonCode) -> bool {
    matches!(
        code,
        Success
            | GrantedQoS1
            | GrantedQoS2
            | UnspecifiedError
            | ImplementationSpecificError
            | NotAuthorized
            | TopicFilterInvalid
            | PacketIdentifierInUse
            | QuotaExceeded
            | SharedSubscriptionsNotSupported
            | SubscriptionIdentifiersNotSupported
            | WildcardSubscriptionsNotSupported
    )
}

/// Table 3-9 [MQTT-3.11.3-2].
pub(super) fn of_unsuback(code: ReasonCode) -> bool {
    matches!(
        code,
        Success
            | NoSubscriptionExisted
            | UnspecifiedError
            | ImplementationSpecificError
            | NotAuthorized
            | TopicFilterInvalid
            | PacketIdentifierInUse
    )
}

/// Table 3-10, either direction [MQTT-3.14.2-1].
pub(super) fn of_disconnect(code: ReasonCode) -> bool {
    disconnect_code_from_client(code)
        || matches!(
            code,
            NotAuthorized
                | ServerBusy
                | ServerShuttingDown
                | BadAuthenticationMethod
                | KeepAliveTimeout
                | SessionTakenOver
                | TopicFilterInvalid
                | RetainNotSupported
                | QoSNotSupported
                | UseAnotherServer
                | ServerMoved
                | SharedSubscriptionsNotSupported
                | ConnectionRateExceeded
                | MaximumConnectTime
                | SubscriptionIdentifiersNotSupported
                | WildcardSubscriptionsNotSupported
        )
}

/// Whether a client may send the code in a DISCONNECT (MQTT 5 table 3-10). The decoder serves both directions; the session asks.
pub fn disconnect_code_from_client(code: ReasonCode) -> bool {
    matches!(
        code,
        Success
            | DisconnectWithWillMessage
            | UnspecifiedError
            | MalformedPacket
            | ProtocolError
            | ImplementationSpecificError
            | TopicNameInvalid
            | ReceiveMaximumExceeded
            | TopicAliasInvalid
            | PacketTooLarge
            | MessageRateTooHigh
            | QuotaExceeded
            | AdministrativeAction
            | PayloadFormatInvalid
    )
}

/// Table 3-11 [MQTT-3.15.2-1].
pub(super) fn of_auth(code: ReasonCode) -> bool {
    matches!(code, Success | ContinueAuthentication | ReAuthenticate)
}
