//! Publishers of QoS 1 messages in a closed loop: each sends on as its window allows.

use std::cell::Cell;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::rc::Rc;

use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_local};
use troupemq::mqtt::packet::Publish;
use troupemq::mqtt::{Packet, QoS, codec};

use crate::Failure;
use crate::client::{self, Client, VERSION, encode};

const PUBACK: u8 = 4;
const INBOX_BYTES: usize = 4 * 1024;

/// What is to be published next: topic, payload, seconds until it expires. `None`: no more.
pub type Next = Rc<dyn Fn() -> Option<Message>>;

pub struct Message {
    pub topic: String,
    pub payload: Vec<u8>,
    pub expiry_s: Option<u32>,
}

/// Publishers at work, on this thread's `LocalSet`.
pub struct Publishers {
    acknowledged: Rc<Cell<u64>>,
    tasks: Vec<JoinHandle<Result<(), Failure>>>,
}

impl Publishers {
    /// Connects so many, in turn to the nodes; they publish what `next` gives until it gives no more.
    pub async fn start(count: usize, window: usize, nodes: &[SocketAddr], next: &Next) -> Result<Self, Failure> {
        let acknowledged = Rc::new(Cell::new(0));
        let mut tasks = Vec::new();
        for number in 0..count {
            let mut client = client::connect(nodes[number % nodes.len()], &format!("publisher-{number}"), true, 0).await?;
            client.inbox.grow_to(INBOX_BYTES);
            tasks.push(spawn_local(publish(client, window, Rc::clone(next), Rc::clone(&acknowledged))));
        }
        Ok(Self { acknowledged, tasks })
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.get()
    }

    /// Waits until all that is to be published is acknowledged; the number.
    pub async fn finish(self) -> Result<u64, Failure> {
        for task in self.tasks {
            task.await??;
        }
        Ok(self.acknowledged.get())
    }
}

async fn publish(mut client: Client, window: usize, next: Next, acknowledged: Rc<Cell<u64>>) -> Result<(), Failure> {
    let (mut in_flight, mut ended, mut id) = (0, false, 0_u16);
    let mut out = Vec::new();
    loop {
        while in_flight < window && !ended {
            let Some(message) = next() else {
                ended = true;
                break;
            };
            id = id.checked_add(1).unwrap_or(1);
            out.extend_from_slice(&encode(&packet(&message, id), VERSION));
            in_flight += 1;
        }
        if !out.is_empty() {
            client.stream.write_all(&out).await?;
            out.clear();
        }
        if in_flight == 0 {
            return Ok(());
        }
        client.inbox.fill(&mut client.stream).await?;
        while let Some((frame, bytes)) = client.inbox.take()? {
            if frame.first_byte >> 4 != PUBACK {
                let packet = codec::decode(frame, Bytes::copy_from_slice(bytes), Some(VERSION))?;
                return Err(format!("expected PUBACK, got {packet:?}").into());
            }
            in_flight -= 1;
            acknowledged.set(acknowledged.get() + 1);
        }
    }
}

fn packet(message: &Message, id: u16) -> Packet {
    let packet_id = NonZeroU16::new(id).unwrap_or(NonZeroU16::MIN);
    let packet = client::publish(&message.topic, QoS::AtLeastOnce, packet_id, &message.payload);
    match (packet, message.expiry_s) {
        (Packet::Publish(publish), Some(_)) => {
            let mut publish: Publish = *publish;
            publish.properties.message_expiry_interval = message.expiry_s;
            Packet::Publish(Box::new(publish))
        }
        (packet, _) => packet,
    }
}
