//! The sending half of a pair.

use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::AsyncWriteExt;
use troupemq::mqtt::packet::{Publish, PublishProperties};
use troupemq::mqtt::{Packet, QoS, codec};

use super::client::Client;
use super::pairs::Pair;
use crate::Failure;

const PUBACK: u8 = 4;
/// A QoS 0 message that is not received for so long is written off; a QoS 1 publisher waits so long for its last PUBACK.
const PATIENCE: Duration = Duration::from_secs(2);
const INBOX_BYTES: usize = 4 * 1024;

pub struct Publisher {
    pair: Rc<Pair>,
    client: Client,
    template: Template,
    window: u64,
    packet_id: u16,
    out: Vec<u8>,
}

/// One PUBLISH as the codec wrote it, with the places that change from message to message.
struct Template {
    packet: Vec<u8>,
    packet_id_at: Option<usize>,
    sequence_at: usize,
}

impl Publisher {
    pub fn new(pair: Rc<Pair>, mut client: Client) -> Self {
        let plan = pair.plan;
        let allowed = if plan.qos == QoS::AtMostOnce { plan.window } else { plan.window.min(client.receive_maximum) };
        client.inbox.grow_to(INBOX_BYTES);
        let template = Template::new(&pair);
        Self { pair, client, template, window: u64::from(allowed), packet_id: 0, out: Vec::new() }
    }

    /// Publishes until told to stop, and gives the connection back with the outcome.
    pub async fn run(mut self) -> (Client, Result<(), Failure>) {
        let result = match self.pair.plan.qos {
            QoS::AtMostOnce => self.run_by_receipts().await,
            QoS::AtLeastOnce | QoS::ExactlyOnce => self.run_by_acknowledgements().await,
        };
        (self.client, result)
    }

    async fn run_by_receipts(&mut self) -> Result<(), Failure> {
        let mut written_off = 0;
        while !self.pair.is_stopping() {
            let under_way = self.pair.sent.get().saturating_sub(self.pair.received.get() + written_off);
            if under_way < self.window {
                self.send(self.window - under_way).await?;
                continue;
            }
            if tokio::time::timeout(PATIENCE, self.pair.progress.notified()).await.is_err() {
                written_off += under_way;
            }
        }
        Ok(())
    }

    async fn run_by_acknowledgements(&mut self) -> Result<(), Failure> {
        let mut in_flight = 0;
        loop {
            if self.pair.is_stopping() {
                // What stays unacknowledged shows as lost where it did not arrive either.
                let _ = tokio::time::timeout(PATIENCE, self.await_last_acknowledgements(in_flight)).await;
                return Ok(());
            }
            self.send(self.window - in_flight).await?;
            in_flight = self.window;
            self.client.inbox.fill(&mut self.client.stream).await?;
            in_flight -= self.take_acknowledgements()?.min(in_flight);
        }
    }

    async fn await_last_acknowledgements(&mut self, mut in_flight: u64) -> Result<(), Failure> {
        while in_flight > 0 {
            self.client.inbox.fill(&mut self.client.stream).await?;
            in_flight -= self.take_acknowledgements()?.min(in_flight);
        }
        Ok(())
    }

    async fn send(&mut self, count: u64) -> Result<(), Failure> {
        self.out.clear();
        for _ in 0..count {
            self.packet_id = self.packet_id.checked_add(1).unwrap_or(1);
            self.template.append(self.packet_id, self.pair.sent.get(), &mut self.out);
            self.pair.sent.set(self.pair.sent.get() + 1);
        }
        self.client.stream.write_all(&self.out).await?;
        Ok(())
    }

    fn take_acknowledgements(&mut self) -> Result<u64, Failure> {
        let mut count = 0;
        while let Some((frame, packet)) = self.client.inbox.next()? {
            if frame.first_byte >> 4 != PUBACK {
                return Err(format!("expected PUBACK, got a packet of type {}", frame.first_byte >> 4).into());
            }
            // Packet Identifier, then a Reason Code where it is not Success.
            if packet.get(frame.header_len + 2).is_some_and(|code| *code >= 0x80) {
                self.pair.refused.set(self.pair.refused.get() + 1);
            }
            count += 1;
        }
        Ok(count)
    }
}

impl Template {
    fn new(pair: &Pair) -> Self {
        let plan = pair.plan;
        let has_id = plan.qos != QoS::AtMostOnce;
        let publish = Publish {
            dup: false,
            qos: plan.qos,
            retain: false,
            topic: pair.topic.as_str().into(),
            packet_id: has_id.then_some(std::num::NonZeroU16::MIN),
            properties: PublishProperties::default(),
            payload: Bytes::from(vec![b'.'; plan.payload_bytes]),
        };
        let mut out = BytesMut::new();
        codec::encode(&Packet::Publish(Box::new(publish)), plan.version, &mut out);
        let header_len = codec::frame(&out, codec::MAX_PACKET_SIZE).ok().flatten().map_or(0, |frame| frame.header_len);
        Self {
            packet_id_at: has_id.then_some(header_len + 2 + pair.topic.len()),
            sequence_at: out.len() - plan.payload_bytes,
            packet: out.to_vec(),
        }
    }

    fn append(&mut self, packet_id: u16, sequence: u64, out: &mut Vec<u8>) {
        if let Some(at) = self.packet_id_at {
            self.packet[at..at + 2].copy_from_slice(&packet_id.to_be_bytes());
        }
        self.packet[self.sequence_at..self.sequence_at + 8].copy_from_slice(&sequence.to_be_bytes());
        out.extend_from_slice(&self.packet);
    }
}
