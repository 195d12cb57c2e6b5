//! Connect Return Codes (3.1.1 section 3.2.2.3) and the Reason Codes they stand for (spec/hivemq.md 9.1).

use crate::mqtt::ReasonCode;
use crate::mqtt::codec::DecodeError;

const ACCEPTED: u8 = 0;
const UNACCEPTABLE_PROTOCOL_VERSION: u8 = 1;
const IDENTIFIER_REJECTED: u8 = 2;
const SERVER_UNAVAILABLE: u8 = 3;
const BAD_USER_NAME_OR_PASSWORD: u8 = 4;
pub(super) const NOT_AUTHORIZED: u8 = 5;

/// The return code that an MQTT 3 CONNACK carries; `None` where the server closes without a CONNACK.
pub fn v3_return_code(code: ReasonCode) -> Option<u8> {
    match code {
        ReasonCode::UnsupportedProtocolVersion => Some(UNACCEPTABLE_PROTOCOL_VERSION),
        ReasonCode::ClientIdentifierNotValid => Some(IDENTIFIER_REJECTED),
        ReasonCode::ServerUnavailable | ReasonCode::ServerBusy | ReasonCode::UseAnotherServer | ReasonCode::ServerMoved => {
            Some(SERVER_UNAVAILABLE)
        }
        ReasonCode::BadUserNameOrPassword | ReasonCode::BadAuthenticationMethod => Some(BAD_USER_NAME_OR_PASSWORD),
        ReasonCode::UnspecifiedError
        | ReasonCode::MalformedPacket
        | ReasonCode::ProtocolError
        | ReasonCode::ImplementationSpecificError => None,
        code if code.is_error() => Some(NOT_AUTHORIZED),
        _ => Some(ACCEPTED),
    }
}

/// The Reason Code of a received return code.
pub(super) fn from_return_code(byte: u8) -> Result<ReasonCode, DecodeError> {
    match byte {
        ACCEPTED => Ok(ReasonCode::Success),
        UNACCEPTABLE_PROTOCOL_VERSION => Ok(ReasonCode::UnsupportedProtocolVersion),
        IDENTIFIER_REJECTED => Ok(ReasonCode::ClientIdentifierNotValid),
        SERVER_UNAVAILABLE => Ok(ReasonCode::ServerUnavailable),
        BAD_USER_NAME_OR_PASSWORD => Ok(ReasonCode::BadUserNameOrPassword),
        NOT_AUTHORIZED => Ok(ReasonCode::NotAuthorized),
        _ => Err(DecodeError::Malformed("connect return code")),
    }
}
