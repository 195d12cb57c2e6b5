//! Runs a client's machine over its connection: one task, woken by the socket or by its gate.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::Failure;
use super::connection::{Connection, OUT_BYTES};
use super::gate::Gate;
use super::thread::Thread;
use crate::mqtt::codec::{self, Frame};
use crate::mqtt::{Packet, ProtocolVersion};

/// Acknowledgements that wait for a server to read at most, bytes.
const ANSWERS_MAX: usize = 4 * OUT_BYTES;
const PINGRESP: u8 = 13;
const DISCONNECT: u8 = 14;
const PINGREQ: [u8; 2] = [0xC0, 0];

/// What a client does with its packets.
pub(super) trait Machine {
    /// Appends what is to be sent now, until there is no more or `out` has [`OUT_BYTES`].
    fn produce(&mut self, thread: &Thread, now_ns: u64, out: &mut Vec<u8>);

    /// Handles one packet; its bytes are valid for the call only.
    fn handle(&mut self, thread: &Thread, frame: Frame, packet: &[u8], now_ns: u64, out: &mut Vec<u8>) -> Result<(), Failure>;

    /// All packets of one read are handled.
    fn settle(&mut self, thread: &Thread, now_ns: u64);

    /// The connection is a new one.
    fn resume(&mut self, _session_present: bool, _receive_maximum: u16) {}
}

/// A client that only stays.
pub(super) struct Idle;

impl Machine for Idle {
    fn produce(&mut self, _: &Thread, _: u64, _: &mut Vec<u8>) {}

    fn handle(&mut self, _: &Thread, _: Frame, _: &[u8], _: u64, _: &mut Vec<u8>) -> Result<(), Failure> {
        Ok(())
    }

    fn settle(&mut self, _: &Thread, _: u64) {}
}

/// Until the thread finishes, which gives the connection back.
///
/// # Errors
/// Whatever ended the connection before.
pub(super) async fn drive<M: Machine>(
    mut connection: Connection,
    machine: &RefCell<M>,
    gate: &Arc<Gate>,
    thread: &Thread,
) -> Result<Connection, Failure> {
    poll_fn(|cx| poll_drive(&mut connection, &mut *machine.borrow_mut(), gate, thread, cx)).await?;
    Ok(connection)
}

fn poll_drive<M: Machine>(
    connection: &mut Connection,
    machine: &mut M,
    gate: &Gate,
    thread: &Thread,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Failure>> {
    gate.register(cx.waker());
    if gate.is_dead() {
        return Poll::Ready(Err(Failure::Timeout { what: "PINGRESP", ms: u128::from(thread.keep_alive_s) * 500 }));
    }
    if gate.take_ping() {
        connection.out.extend_from_slice(&PINGREQ);
    }
    let version = connection.version();
    loop {
        // Sends all there is, or all the socket takes.
        let is_blocked = loop {
            if connection.out.len() < OUT_BYTES {
                machine.produce(thread, thread.clock.now_ns(), &mut connection.out);
            }
            let had = connection.out.len();
            match connection.poll_flush(cx) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) if had > 0 => gate.note_written(),
                Poll::Ready(Ok(())) => break false,
                Poll::Pending => break true,
            }
            if had < OUT_BYTES {
                break false;
            }
        };
        if thread.is_finishing() && !is_blocked {
            return Poll::Ready(Ok(()));
        }
        if is_blocked && connection.out.len() >= ANSWERS_MAX {
            // A server that does not read is not read from either.
            return Poll::Pending;
        }
        let mut scratch = thread.scratch.borrow_mut();
        let filled = match connection.poll_fill(cx, &mut scratch) {
            Poll::Ready(Ok(filled)) => filled,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => return Poll::Pending,
        };
        let now_ns = thread.clock.now_ns();
        gate.note_heard();
        let filled = scratch.get(..filled).unwrap_or_default();
        let taken = connection.take_packets(filled, thread.packet_bytes_max, |frame, packet, out| match frame.first_byte >> 4 {
            PINGRESP => Ok(()),
            DISCONNECT => Err(Failure::Closed(Some(said(frame, packet, version)))),
            _ => machine.handle(thread, frame, packet, now_ns, out),
        });
        machine.settle(thread, now_ns);
        if let Err(error) = taken {
            return Poll::Ready(Err(error));
        }
    }
}

/// What a server says with its DISCONNECT.
fn said(frame: Frame, packet: &[u8], version: ProtocolVersion) -> String {
    match codec::decode(frame, Bytes::copy_from_slice(packet), Some(version)) {
        Ok(Packet::Disconnect(disconnect)) => disconnect.reason_code.name().to_owned(),
        _ => "DISCONNECT".to_owned(),
    }
}
