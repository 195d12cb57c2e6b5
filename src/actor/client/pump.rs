//! Reading and writing, polled inside the actor's context: once for each wake-up, after the messages were handled, so that everything they
//! produced leaves in one write.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::fut::ActorFuture;
use actix::{AsyncContext, Context};

use super::super::clock;
use super::super::transport::BadFrame;
use super::output::HIGH_WATER_BYTES;
use super::{Client, TURN_PACKETS_MAX, TimedOut};

/// The thread's read buffer.
const READ_BUFFER_BYTES: usize = 64 * 1024;
/// Reads in a row before others get their turn.
const READS_MAX: usize = 4;
/// A peer that does not take the last bytes is closed after this.
const LINGER: Duration = Duration::from_secs(5);
/// How long, and how much, is read and thrown away after the last packet.
const DRAIN: Duration = Duration::from_millis(500);
const DRAIN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Between a timer and its effect: the socket's state is learnt anew.
const MOMENT: Duration = Duration::from_millis(20);
/// Read from a client that takes nothing, before it is said to be silent: enough for a PINGREQ behind what it sent before.
const PROBE_BYTES: usize = 512;
/// Unsent bytes with which a client is not probed any more: its answers would pile up.
const PROBED_BYTES_MAX: usize = 2 * HIGH_WATER_BYTES;

/// The shortest timer.
const TURN: Duration = Duration::from_millis(1);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BUFFER_BYTES]);
}

/// The loop of one connection.
pub(super) struct Pump {
    lingering: bool,
    shut: bool,
    /// The timer runs that makes `settle_due`.
    settling: bool,
    drained_bytes: usize,
}

impl Pump {
    pub(super) fn new() -> Self {
        Self { lingering: false, shut: false, settling: false, drained_bytes: 0 }
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
        if client.write_failed || !client.write_out(cx) {
            return false;
        }
        client.written();
        !matches!(client.transport.poll_flush(cx), Poll::Ready(Err(_)))
    }

    /// Tells who is to take over that all is read. Bytes may be there of which the reactor knows nothing yet; when a timer fires it has looked.
    fn settle(&mut self, client: &mut Client, ctx: &mut Context<Client>, will_read: bool) {
        if client.rare.get().is_none_or(|rare| rare.settling.is_empty()) {
            return;
        }
        if client.settle_due || client.closing || client.gone {
            if !will_read {
                client.rare.get_mut().settling.clear();
                (client.settle_due, self.settling) = (false, false);
            }
        } else if !self.settling {
            self.settling = true;
            ctx.run_later(TURN, |client, _| {
                client.settle_due = client.rare.get().is_some_and(|rare| !rare.settling.is_empty());
                client.wake();
            });
        }
    }

    /// Reads a few times; true where there is more.
    fn read(client: &mut Client, ctx: &mut Context<Client>, cx: &mut TaskContext<'_>) -> bool {
        let node = Arc::clone(client.local.node());
        let Some(throttle) = &node.throttle else {
            // A peer that does not read its answers is not read either.
            return (0..READS_MAX).all(|_| client.writable && Self::read_once(client, READ_BUFFER_BYTES, ctx, cx) > 0);
        };
        if !client.writable || !client.takes_packets() {
            return false;
        }
        // Once: then it is the others' turn, who may wait for the same bytes.
        let allowed = throttle.take(READ_BUFFER_BYTES, client.now.mono_ms);
        if allowed == 0 {
            client.hold();
            return false;
        }
        let count = Self::read_once(client, allowed, ctx, cx);
        throttle.give_back(allowed - count);
        count > 0
    }

    /// Reads up to `max` bytes; 0 where there is no more, for now or for good.
    fn read_once(client: &mut Client, max: usize, ctx: &mut Context<Client>, cx: &mut TaskContext<'_>) -> usize {
        if !client.may_read() {
            return 0;
        }
        let outcome = READ_BUFFER.with_borrow_mut(|buffer| {
            let buffer = buffer.get_mut(..max.min(READ_BUFFER_BYTES)).unwrap_or_default();
            match client.transport.poll_read(cx, buffer) {
                Poll::Ready(Ok(count)) => {
                    if count > 0 {
                        // Not the turn's: the clock of Keep Alive starts where the bytes came.
                        client.now = clock::now();
                        client.on_bytes(buffer.get(..count).unwrap_or_default(), ctx);
                    }
                    Some(count)
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(peer = ?client.accepted.peer(), %error, "cannot read");
                    if BadFrame::is(&error) {
                        client.on_bad_frame(ctx);
                    }
                    Some(0)
                }
                Poll::Pending => {
                    if client.transport.take_heard() {
                        client.machine.handle_bytes(client.now);
                    }
                    None
                }
            }
        });
        if outcome == Some(0) {
            client.on_closed(ctx);
        }
        outcome.unwrap_or(0)
    }

    /// The machine's timer ran out. A client that takes nothing is not read, yet it may have sent what shows that it lives: a little is
    /// read before it is called silent.
    fn check_timer(client: &mut Client, ctx: &mut Context<Client>, cx: &mut TaskContext<'_>) {
        if !client.writable && client.out.len() < PROBED_BYTES_MAX {
            Self::read_once(client, PROBE_BYTES, ctx, cx);
        }
        client.machine.handle_timeout(client.now, &mut client.effects);
        client.count_login_timeout();
        client.run_effects(ctx);
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
            if let Some(lane) = &client.lane {
                lane.register(cx.waker());
            }
            client.inbox.register(cx.waker());
            client.waker = Some(cx.waker().clone());
        }
        if !client.inbox.is_empty() {
            client.on_mail(ctx);
        }
        client.turn_packets = 0;
        client.poll_deferred(ctx, cx);
        client.close_if_broken(ctx);
        // What was kept while the machine wanted no input, or after many packets.
        if !client.partial.is_empty() && !client.gone && client.machine.wants_input() {
            client.on_partial(ctx);
        }
        let mut more = false;
        let timed_out = std::mem::replace(&mut client.timed_out, TimedOut::No);
        if timed_out == TimedOut::Seen {
            ctx.run_later(MOMENT, |client, _| {
                client.timer_ms = 0;
                client.timed_out = TimedOut::Due;
                client.wake();
            });
        }
        if !client.closing && !client.gone {
            if client.held_since_ms.is_some() {
                // Its turn comes with `ClientItem::Read`.
            } else if client.must_wait() {
                client.hold();
            } else {
                more = Self::read(client, ctx, cx);
            }
            more |= client.turn_packets >= TURN_PACKETS_MAX;
            if timed_out == TimedOut::Due && !client.is_held() {
                Self::check_timer(client, ctx, cx);
            }
        }
        // One that is held reads in a moment.
        let will_read = more || (client.held_since_ms.is_some() && !client.closing && !client.gone);
        self.settle(client, ctx, will_read);
        let could_read = client.may_read();
        client.poll_deferred(ctx, cx);
        if !could_read && client.may_read() {
            // An answer that came this moment lets it read again, and nothing of the socket would wake it: it was not asked.
            cx.waker().wake_by_ref();
        }
        if client.leaving && client.deferred.get().is_none_or(VecDeque::is_empty) && !client.closing {
            client.part();
            client.run_effects(ctx);
        }
        let stuffed = !client.writable;
        if !client.gone && !Self::write(client, cx) {
            client.on_closed(ctx);
        }
        if stuffed && client.writable {
            client.run_effects(ctx); // what was held back
            cx.waker().wake_by_ref(); // there is something to read, maybe, and to write
        }
        if client.closing {
            client.partial.take_all();
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
