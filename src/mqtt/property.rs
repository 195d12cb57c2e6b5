//! Property identifiers (MQTT 5 section 2.2.2).

use bytestring::ByteString;

/// User Properties in the order received; names may repeat.
pub type UserProperties = Vec<(ByteString, ByteString)>;
