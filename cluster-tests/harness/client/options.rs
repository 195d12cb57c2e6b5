//! How a client connects.

use std::time::Duration;

use bytes::Bytes;
use troupemq::mqtt::packet::{Connect, ConnectProperties, Will, WillProperties};
use troupemq::mqtt::{Packet, ProtocolVersion, QoS};

use super::tap::Tap;
use crate::harness::SOON;

#[derive(Debug, Clone)]
pub struct Options {
    connect: Connect,
    pub auto_ack: bool,
    /// Every byte is a write of its own.
    pub byte_by_byte: bool,
    /// The socket, and then CONNACK, are waited for so long.
    pub connack_within: Duration,
    /// Sees every packet of the connection.
    pub tap: Option<Tap>,
}

impl Options {
    /// MQTT 5, Clean Start, a session that ends with the connection, no Keep Alive.
    pub fn v5(client_id: &str) -> Self {
        let connect = Connect {
            protocol: ProtocolVersion::V5,
            clean_start: true,
            keep_alive: 0,
            client_id: client_id.into(),
            will: None,
            username: None,
            password: None,
            properties: ConnectProperties::default(),
        };
        Self { connect, auto_ack: true, byte_by_byte: false, connack_within: SOON, tap: None }
    }

    /// MQTT 3.1.1 with Clean Session.
    pub fn v3(client_id: &str) -> Self {
        let mut options = Self::v5(client_id);
        options.connect.protocol = ProtocolVersion::V3_1_1;
        options
    }

    /// Either version.
    pub fn of(version: ProtocolVersion, client_id: &str) -> Self {
        let mut options = Self::v5(client_id);
        options.connect.protocol = version;
        options
    }

    /// With any change to the CONNECT.
    pub fn with(mut self, change: impl FnOnce(&mut Connect)) -> Self {
        change(&mut self.connect);
        self
    }

    /// The same with another client id.
    pub fn named(mut self, client_id: &str) -> Self {
        self.connect.client_id = client_id.into();
        self
    }

    /// A session that is resumed and outlives the connection by an hour.
    pub fn persistent(mut self) -> Self {
        self.connect.clean_start = false;
        self.expiry(3600)
    }

    /// Session Expiry Interval in seconds.
    pub fn expiry(mut self, seconds: u32) -> Self {
        self.connect.properties.session_expiry_interval = Some(seconds);
        self
    }

    pub fn clean_start(mut self, clean_start: bool) -> Self {
        self.connect.clean_start = clean_start;
        self
    }

    pub fn keep_alive(mut self, seconds: u16) -> Self {
        self.connect.keep_alive = seconds;
        self
    }

    pub fn username(mut self, username: &str) -> Self {
        self.connect.username = Some(username.into());
        self
    }

    pub fn password(mut self, password: &str) -> Self {
        self.connect.password = Some(Bytes::copy_from_slice(password.as_bytes()));
        self
    }

    /// Authentication Method, and the data of its first step.
    pub fn authentication(mut self, method: &str, data: &str) -> Self {
        self.connect.properties.authentication_method = Some(method.into());
        self.connect.properties.authentication_data = Some(Bytes::copy_from_slice(data.as_bytes()));
        self
    }

    pub fn user_property(mut self, name: &str, value: &str) -> Self {
        self.connect.properties.user_properties.push((name.into(), value.into()));
        self
    }

    pub fn maximum_packet_size(mut self, bytes: u32) -> Self {
        self.connect.properties.maximum_packet_size = Some(bytes);
        self
    }

    pub fn receive_maximum(mut self, messages: u16) -> Self {
        self.connect.properties.receive_maximum = Some(messages);
        self
    }

    /// A Will with QoS 1.
    pub fn will(mut self, topic: &str, payload: &str, delay_s: u32) -> Self {
        let properties = WillProperties { will_delay_interval: Some(delay_s), ..WillProperties::default() };
        let payload = Bytes::copy_from_slice(payload.as_bytes());
        self.connect.will = Some(Will { topic: topic.into(), payload, qos: QoS::AtLeastOnce, retain: false, properties });
        self
    }

    /// The Will is retained.
    pub fn retained_will(mut self) -> Self {
        if let Some(will) = &mut self.connect.will {
            will.retain = true;
        }
        self
    }

    pub fn byte_by_byte(mut self) -> Self {
        self.byte_by_byte = true;
        self
    }

    /// The patience of a client that has other nodes to go to.
    pub fn connack_within(mut self, within: Duration) -> Self {
        self.connack_within = within;
        self
    }

    /// Every packet of the connection is shown to the tap, in the order it is sent or read.
    pub fn tapped(mut self, tap: Tap) -> Self {
        self.tap = Some(tap);
        self
    }

    /// Messages are acknowledged by the test only.
    pub fn manual_ack(mut self) -> Self {
        self.auto_ack = false;
        self
    }

    pub fn version(&self) -> ProtocolVersion {
        self.connect.protocol
    }

    pub fn client_id(&self) -> &str {
        &self.connect.client_id
    }

    pub fn packet(&self) -> Packet {
        Packet::Connect(Box::new(self.connect.clone()))
    }
}
