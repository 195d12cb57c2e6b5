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
    #[error("authentication method is not supported")]
    AuthenticationMethod,
    #[error("second CONNECT")]
    SecondConnect,
    #[error("packet that only a server sends")]
    ServerPacket,
    #[error("AUTH without an authentication method in use")]
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
    /// A verdict from the outside after which the connection does not go on.
    #[error("{}", .0.name())]
    Refused(ReasonCode),
}

impl Offence {
    /// The code of the DISCONNECT or CONNACK (spec/hivemq.md 9.1, 9.8).
    pub(super) fn reason_code(self) -> ReasonCode {
        match self {
            Self::ClientIdEmpty | Self::ClientIdTooLong => ReasonCode::ClientIdentifierNotValid,
            Self::WillTopicInvalid
            | Self::WillTopicTooLong
            | Self::WillTopicReserved
            | Self::TopicInvalid
            | Self::TopicTooLong => ReasonCode::TopicNameInvalid,
            Self::WillQoSNotSupported | Self::QoSNotSupported => ReasonCode::QoSNotSupported,
            Self::WillRetainNotSupported | Self::RetainNotSupported => ReasonCode::RetainNotSupported,
            Self::WillPayloadFormatInvalid | Self::PayloadFormatInvalid => ReasonCode::PayloadFormatInvalid,
            Self::AuthenticationMethod => ReasonCode::BadAuthenticationMethod,
            Self::SecondConnect
            | Self::ServerPacket
            | Self::UnexpectedAuth
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
            Self::BacklogFull => ReasonCode::QuotaExceeded,
            Self::KeepAliveTimeout => ReasonCode::KeepAliveTimeout,
            Self::Refused(code) => code,
        }
    }
}
