//! The receiving half of a pair.

use std::rc::Rc;

use tokio::io::AsyncWriteExt;
use troupemq::mqtt::codec::Frame;

use super::client::Client;
use super::pairs::Pair;
use crate::Failure;

const PUBLISH: u8 = 3;
const PUBACK_HEADER: [u8; 2] = [0x40, 2];
const INBOX_BYTES: usize = 16 * 1024;

pub struct Subscriber {
    pair: Rc<Pair>,
    client: Client,
    /// The number the next message has if none is lost.
    expected: u64,
    acknowledgements: Vec<u8>,
}

impl Subscriber {
    pub fn new(pair: Rc<Pair>, mut client: Client) -> Self {
        client.inbox.grow_to(INBOX_BYTES);
        Self { pair, client, expected: 0, acknowledgements: Vec::new() }
    }

    /// Receives, checks and acknowledges until the connection ends.
    pub async fn run(mut self) -> Result<(), Failure> {
        loop {
            self.client.inbox.fill(&mut self.client.stream).await?;
            let received = self.take_messages()?;
            self.pair.count_received(received);
            if !self.acknowledgements.is_empty() {
                self.client.stream.write_all(&self.acknowledgements).await?;
                self.acknowledgements.clear();
            }
        }
    }

    fn take_messages(&mut self) -> Result<u64, Failure> {
        let mut count = 0;
        while let Some((frame, packet)) = self.client.inbox.next()? {
            let (packet_id, sequence) = read(frame, packet, self.pair.plan.payload_bytes)?;
            if let Some(id) = packet_id {
                self.acknowledgements.extend_from_slice(&PUBACK_HEADER);
                self.acknowledgements.extend_from_slice(&id);
            }
            if sequence < self.expected {
                self.pair.out_of_order.set(self.pair.out_of_order.get() + 1);
            }
            self.expected = self.expected.max(sequence + 1);
            count += 1;
        }
        Ok(count)
    }
}

/// Packet Identifier and sequence number of a PUBLISH, read in place: the codec's packet would cost more than the rest of the client.
fn read(frame: Frame, packet: &[u8], payload_bytes: usize) -> Result<(Option<[u8; 2]>, u64), Failure> {
    if frame.first_byte >> 4 != PUBLISH {
        return Err(format!("expected PUBLISH, got a packet of type {}", frame.first_byte >> 4).into());
    }
    let short = || Failure::from("a PUBLISH shorter than those published");
    let bytes = |at: usize| packet.get(at..at + 2).and_then(|two| <[u8; 2]>::try_from(two).ok()).ok_or_else(short);
    let topic_len = usize::from(u16::from_be_bytes(bytes(frame.header_len)?));
    let has_id = frame.first_byte & 0b0110 != 0;
    let packet_id = if has_id { Some(bytes(frame.header_len + 2 + topic_len)?) } else { None };
    let payload = packet.len().checked_sub(payload_bytes).and_then(|at| packet.get(at..at + 8));
    let sequence = payload.and_then(|eight| <[u8; 8]>::try_from(eight).ok()).ok_or_else(short)?;
    Ok((packet_id, u64::from_be_bytes(sequence)))
}
