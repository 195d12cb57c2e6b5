//! What a client did that ends its connection, and the Reason Code for each.

use crate::mqtt::ReasonCode;

/// An offence of the peer, or a refusal by the outside, that ends the connection. The text goes to an MQTT 5 client as Reason String.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Offence {
    #[error("empty client identifier is not allowed here")]
    ClientIdEmpty,
    #[error("client identifier is too long")]
    ClientIdTooLong,
    #[error("will topic is not a valid topic name")]
    WillTopicInvalid,
    #[error("will topic is too long")]
    WillTopicTooLong,
    #[error("will topic starts with '$'")]
    WillTopicReserved,
    #[error("will QoS is not supported")]
    WillQoSNotSupported,
    #[error("will retain is not supported")]
    WillRetainNotSupported,
    #[error("will payload is not UTF-8 as its payload format indicator says")]
    WillPayloadFormatInvalid,
    /// MQTT 3 cannot be told of another one.
    #[error("keep alive is 0 or above the maximum")]
    KeepAliveRefused,
    /// Names what has them.
    #[error("control or non-character in {0}")]
    Discouraged(&'static str),
    #[error("all clients are to use another server")]
    Moved,
    #[error("authentication method is not the one of CONNECT")]
    AuthenticationMethodChanged,
    #[error("only AUTH and DISCONNECT may come before CONNACK")]
    PacketBeforeConnack,
    #[error("authentication took too long")]
    AuthenticationTimeout,
    #[error("authentication as another user")]
    AnotherUser,
    #[error("authentication data is larger than the client takes")]
    AuthTooLarge,
    /// Of a re-authentication.
    #[error("authentication failed")]
    NotAuthenticated(ReasonCode),
    #[error("the will may not be published")]
    WillNotAuthorized,
    #[error("second CONNECT")]
    SecondConnect,
    #[error("packet that only a server sends")]
    ServerPacket,
    #[error("AUTH that nobody waits for")]
    UnexpectedAuth,
    #[error("topic of PUBLISH is not a valid topic name")]
    TopicInvalid,
    #[error("topic of PUBLISH is too long")]
    TopicTooLong,
    #[error("topic of PUBLISH starts with '$'")]
    TopicReserved,
    #[error("PUBLISH without topic and topic alias")]
    TopicMissing,
    #[error("topic alias 0")]
    TopicAliasZero,
    #[error("topic alias is above the maximum")]
    TopicAliasTooLarge,
    #[error("no memory for more topic aliases")]
    TopicAliasMemory,
    #[error("topic alias was never set")]
    TopicAliasUnknown,
    #[error("subscription identifier in a PUBLISH from a client")]
    SubscriptionIdentifierInPublish,
    #[error("QoS is not supported")]
    QoSNotSupported,
    #[error("retained messages are not supported")]
    RetainNotSupported,
    #[error("payload is not UTF-8 as its payload format indicator says")]
    PayloadFormatInvalid,
    #[error("receive maximum exceeded")]
    ReceiveMaximumExceeded,
    #[error("topic filter is not valid")]
    FilterInvalid,
    #[error("topic filter is too long")]
    FilterTooLong,
    #[error("wildcard subscriptions are not supported")]
    WildcardSubscription,
    #[error("shared subscriptions are not supported")]
    SharedSubscription,
    #[error("subscription identifiers are not supported")]
    SubscriptionIdentifier,
    #[error("no local on a shared subscription")]
    NoLocalShared,
    #[error("session expiry interval raised from 0")]
    SessionExpiryRaised,
    #[error("reason code of DISCONNECT that only a server sends")]
    DisconnectCode,
    #[error("too many packets before their turn")]
    BacklogFull,
    /// Same words as HiveMQ's (spec/hivemq.md 9.4).
    #[error("The client was idle for too long without sending an MQTT control packet.")]
    KeepAliveTimeout,
    #[error("what the client proved itself by has expired")]
    ProofExpired,
    /// A verdict from the outside after which the connection does not go on.
    #[error("{}", .0.name())]
    Refused(ReasonCode),
}

impl Offence {
    /// The code of the DISCONNECT or CONNACK (spec/hivemq.md 9.1, 9.8).
    pub(super) fn reason_code(self) -> ReasonCode {
        match self {
            Self::ClientIdEmpty | Self::ClientIdTooLong => ReasonCode::ClientIdentifierNotValid,
            // Mosquitto's "identifier rejected".
            Self::KeepAliveRefused => ReasonCode::ClientIdentifierNotValid,
            Self::Discouraged(_) => ReasonCode::MalformedPacket,
            Self::Moved => ReasonCode::ServerMoved,
            Self::WillTopicInvalid
            | Self::WillTopicTooLong
            | Self::WillTopicReserved
            | Self::TopicInvalid
            | Self::TopicTooLong => ReasonCode::TopicNameInvalid,
            Self::WillQoSNotSupported | Self::QoSNotSupported => ReasonCode::QoSNotSupported,
            Self::WillRetainNotSupported | Self::RetainNotSupported => ReasonCode::RetainNotSupported,
            Self::WillPayloadFormatInvalid | Self::PayloadFormatInvalid => ReasonCode::PayloadFormatInvalid,
            Self::AuthenticationMethodChanged => ReasonCode::BadAuthenticationMethod,
            Self::AuthenticationTimeout | Self::AnotherUser | Self::WillNotAuthorized => ReasonCode::NotAuthorized,
            Self::AuthTooLarge => ReasonCode::PacketTooLarge,
            Self::NotAuthenticated(code) => code,
            Self::SecondConnect
            | Self::ServerPacket
            | Self::UnexpectedAuth
            | Self::PacketBeforeConnack
            | Self::TopicReserved
            | Self::TopicMissing
            | Self::TopicAliasZero
            | Self::SubscriptionIdentifierInPublish
            | Self::NoLocalShared
            | Self::SessionExpiryRaised
            | Self::DisconnectCode => ReasonCode::ProtocolError,
            Self::TopicAliasTooLarge | Self::TopicAliasUnknown => ReasonCode::TopicAliasInvalid,
            Self::ReceiveMaximumExceeded => ReasonCode::ReceiveMaximumExceeded,
            Self::FilterInvalid | Self::FilterTooLong => ReasonCode::TopicFilterInvalid,
            Self::WildcardSubscription => ReasonCode::WildcardSubscriptionsNotSupported,
            Self::SharedSubscription => ReasonCode::SharedSubscriptionsNotSupported,
            Self::SubscriptionIdentifier => ReasonCode::SubscriptionIdentifiersNotSupported,
            Self::BacklogFull | Self::TopicAliasMemory => ReasonCode::QuotaExceeded,
            Self::KeepAliveTimeout => ReasonCode::KeepAliveTimeout,
            Self::ProofExpired => ReasonCode::MaximumConnectTime,
            Self::Refused(code) => code,
        }
    }
}
