//! Limits a session obeys, all from `config.xml` (spec/hivemq.md 1.5, 1.6).

use bytestring::ByteString;

use super::alias_memory::AliasMemory;
use super::error::Offence;
pub use crate::config::settings::{KeepAlivePolicy, RefuseConnections};
use crate::mqtt::codec::has_discouraged;
use crate::mqtt::{QoS, ReasonCode, topic_name};

/// The settings of a connection; the same for all connections of a listener.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Seconds, 0 to 4,294,967,295.
    pub session_expiry_max_s: u32,
    /// Seconds; `None` = no limit (4,294,967,296 in the file).
    pub message_expiry_max_s: Option<u32>,
    /// Bytes of a whole packet, 15 to 268,435,460.
    pub max_packet_size_bytes: u32,
    pub server_receive_maximum: u16,
    pub keep_alive_policy: KeepAlivePolicy,
    /// Keep Alives of silence before a connection is closed, in thousandths; 1,500 or more.
    pub keep_alive_multiplier_milli: u32,
    /// From clients; 0 where topic aliases are off.
    pub topic_alias_max: u16,
    /// Towards each client; 0 where they are off.
    pub sent_topic_alias_max: u16,
    /// Shared by all connections of the node.
    pub alias_memory: AliasMemory,
    /// The Response Information, with `${{clientid}}` for the client id; `None`: clients get none.
    pub response_information: Option<ByteString>,
    pub server_reference: Option<ServerReference>,
    pub subscription_identifiers: bool,
    pub wildcard_subscriptions: bool,
    pub shared_subscriptions: bool,
    pub max_qos: QoS,
    pub retained_messages: bool,
    pub allow_empty_client_id: bool,
    pub payload_format_validation: bool,
    /// Whether control characters and non-characters make names malformed (spec/hivemq.md 1.6).
    pub utf8_validation: bool,
    pub allow_request_problem_information: bool,
    pub max_client_id_length: u16,
    pub max_topic_length: u16,
    /// Milliseconds from accept to CONNECT.
    pub no_connect_idle_timeout_ms: u64,
    /// Upper bound of messages in flight to one client (spec/hivemq.md 2.5): 50.
    pub max_inflight: u16,
}

/// Where clients are sent that cannot stay (MQTT 5 section 4.11).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerReference {
    pub reference: ByteString,
    /// A node that stops sends its clients there.
    pub at_shutdown: bool,
    pub refuse: RefuseConnections,
}

/// Stands for the client id in the template of the Response Information.
const CLIENT_ID: &str = "${{clientid}}";

impl SessionSettings {
    /// Refuses a name that holds control or non-characters where they are not wanted; `what` names it.
    pub(super) fn check_text(&self, text: &str, what: &'static str) -> Result<(), Offence> {
        if self.utf8_validation && has_discouraged(text) { Err(Offence::Discouraged(what)) } else { Ok(()) }
    }

    /// The Response Information of a client. `None` where its id would make something else of it than the start of one topic name.
    pub(super) fn response_information_of(&self, client_id: &str) -> Option<ByteString> {
        let template = self.response_information.as_ref()?;
        let information = template.replace(CLIENT_ID, client_id);
        topic_name::is_valid(&information).then(|| information.into())
    }

    /// The code with which a connection ends, and the Server Reference beside it.
    pub(super) fn redirect_disconnect(&self, code: ReasonCode) -> (ReasonCode, Option<ByteString>) {
        let Some(server) = &self.server_reference else { return (code, None) };
        match code {
            // spec/hivemq.md 9.8
            ReasonCode::ServerShuttingDown if server.at_shutdown => {
                (ReasonCode::UseAnotherServer, Some(server.reference.clone()))
            }
            ReasonCode::UseAnotherServer | ReasonCode::ServerMoved => (code, Some(server.reference.clone())),
            _ => (code, None),
        }
    }

    /// The same for a CONNECT that is refused.
    pub(super) fn redirect_connect(&self, code: ReasonCode) -> (ReasonCode, Option<ByteString>) {
        use ReasonCode as C;
        let unavailable = matches!(
            code,
            C::QuotaExceeded | C::ServerUnavailable | C::ServerBusy | C::ServerShuttingDown | C::ConnectionRateExceeded
        );
        match &self.server_reference {
            Some(ServerReference {
                reference, refuse: RefuseConnections::WhenUnavailable | RefuseConnections::Always, ..
            }) if unavailable => (C::UseAnotherServer, Some(reference.clone())),
            _ => self.redirect_disconnect(code),
        }
    }
}
