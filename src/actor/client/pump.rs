//! Reading and writing, polled inside the actor's context: once for each wake-up, after the messages were handled, so that everything they
//! produced leaves in one write.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::fut::ActorFuture;
use actix::{AsyncContext, Context};
use bytes::Buf;

use super::super::clock;
use super::Client;

/// The thread's read buffer.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Reads in a row before others get their turn.
const READS_MAX: usize = 4;
/// A peer that does not take the last bytes is closed after this.
const LINGER: Duration = Duration::from_secs(5);
/// How long, and how much, is read and thrown away after the last packet.
const DRAIN: Duration = Duration::from_millis(500);
const DRAIN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// A publisher is not read for so long when too much waits for the arbiters.
const PAUSE: Duration = Duration::from_millis(2);

/// The shortest timer.
const TURN: Duration = Duration::from_millis(1);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER_BYTES]);
}

/// The loop of one connection.
pub(super) struct Pump {
    lingering: bool,
    paused: bool,
    shut: bool,
    /// The timer runs that makes `settle_due`.
    settling: bool,
    drained_bytes: usize,
}

impl Pump {
    pub(super) fn new() -> Self {
        Self { lingering: false, paused: false, shut: false, settling: false, drained_bytes: 0 }
    }

    /// Closes the sending side, then reads on for a moment: closing a socket with unread bytes would reset the connection, and the
    /// peer could lose the last packet (a DISCONNECT with its reason). True where all is done.
    fn say_goodbye(&mut self, client: &mut Client, ctx: &mut Context<Client>, cx: &mut TaskContext<'_>) -> bool {
        if !self.shut {
            match client.transport.poll_shutdown(cx) {
                Poll::Pending => return false,
                Poll::Ready(Err(_)) => return true,
                Poll::Ready(Ok(())) => {}
            }
            self.shut = true;
            ctx.run_later(DRAIN, |client, ctx| client.now_stop(ctx));
        }
        READ_BUFFER.with_borrow_mut(|buffer| {
            while self.drained_bytes < DRAIN_BYTES_MAX {
                match client.transport.poll_read(cx, buffer) {
                    Poll::Ready(Ok(0) | Err(_)) => return true,
                    Poll::Ready(Ok(count)) => self.drained_bytes += count,
                    Poll::Pending => return false,
                }
            }
            true
        })
    }

    /// Writes what waits; false where the socket failed.
    fn write(client: &mut Client, cx: &mut TaskContext<'_>) -> bool {
        while !client.out.is_empty() {
            match client.transport.poll_write(cx, &client.out) {
                Poll::Ready(Ok(0)) => return false,
                Poll::Ready(Ok(count)) => {
                    client.local.node().metrics.transferred(0, count);
                    client.out.advance(count);
                    if !client.writable {
                        // Not read because of what it has to take first (`read`), and taking it.
                        client.machine.handle_unheard(client.now);
                    }
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(peer = ?client.accepted.peer, %error, "cannot write");
                    return false;
                }
                Poll::Pending => break,
            }
        }
        client.written();
        !matches!(client.transport.poll_flush(cx), Poll::Ready(Err(_)))
    }

    /// Tells who is to take over that all is read. Bytes may be there of which the reactor knows nothing yet; when a timer fires it has looked.
    fn settle(&mut self, client: &mut Client, ctx: &mut Context<Client>, will_read: bool) {
        if client.settling.is_empty() {
            return;
        }
        if client.settle_due || client.closing || client.gone {
            if !will_read {
                client.settling = Vec::new();
                (client.settle_due, self.settling) = (false, false);
            }
        } else if !self.settling {
            self.settling = true;
            ctx.run_later(TURN, |client, _| {
                client.settle_due = !client.settling.is_empty();
                client.wake();
            });
        }
    }

    /// Reads a few times; true where there is more.
    fn read(client: &mut Client, ctx: &mut Context<Client>, cx: &mut TaskContext<'_>) -> bool {
        for _ in 0..READS_MAX {
            // A peer that does not read its answers is not read either.
            if client.closing || client.gone || !client.writable || !client.machine.wants_input() || client.stores_much() {
                return false;
            }
            let outcome = READ_BUFFER.with_borrow_mut(|buffer| match client.transport.poll_read(cx, buffer) {
                Poll::Ready(Ok(0)) => Some(false),
                Poll::Ready(Ok(count)) => {
                    // Not the turn's: the clock of Keep Alive starts where the bytes came.
                    client.now = clock::now();
                    client.on_bytes(buffer.get(..count).unwrap_or_default(), ctx);
                    Some(true)
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(peer = ?client.accepted.peer, %error, "cannot read");
                    Some(false)
                }
                Poll::Pending => None,
            });
            match outcome {
                None => {
                    if client.transport.take_heard() {
                        client.machine.handle_bytes(client.now);
                    }
                    return false;
                }
                Some(true) => {}
                Some(false) => {
                    client.on_closed(ctx);
                    return false;
                }
            }
        }
        true
    }
}

impl ActorFuture<Client> for Pump {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        client: &mut Client,
        ctx: &mut Context<Client>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Self::Output> {
        client.now = clock::now();
        if client.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            client.waker = Some(cx.waker().clone());
        }
        client.poll_deferred(ctx, cx);
        // What was kept while the machine wanted no input.
        if !client.partial.is_empty() && !client.gone && client.machine.wants_input() {
            client.on_partial(ctx);
        }
        let mut more = false;
        if !client.closing && !client.gone {
            let node = Arc::clone(client.local.node());
            if node.is_pressed() || node.is_stale() {
                client.machine.handle_unheard(client.now);
                if !self.paused {
                    self.paused = true;
                    ctx.run_later(PAUSE, |client, _| client.wake());
                }
            } else {
                self.paused = false;
                more = Self::read(client, ctx, cx);
            }
        }
        // A paused one reads in a moment.
        let will_read = more || (self.paused && !client.closing && !client.gone);
        self.settle(client, ctx, will_read);
        client.poll_deferred(ctx, cx);
        let stuffed = !client.writable;
        if !client.gone && !Self::write(client, cx) {
            client.on_closed(ctx);
        }
        if stuffed && client.writable {
            cx.waker().wake_by_ref(); // there is something to read, maybe
        }
        if client.closing {
            if client.gone || (client.out.is_empty() && self.say_goodbye(client, ctx, cx)) {
                client.now_stop(ctx);
                return Poll::Ready(());
            }
            if !self.lingering {
                self.lingering = true;
                ctx.run_later(LINGER, |client, ctx| client.now_stop(ctx));
            }
        } else if more {
            cx.waker().wake_by_ref();
        }
        client.schedule();
        Poll::Pending
    }
}
