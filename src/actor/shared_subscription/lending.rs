//! What a group's dispatcher asks of the shard before it hands out entries, and what it does about those that nobody takes.

use std::time::Duration;

use actix::fut::ActorFutureExt;
use actix::{AsyncContext, Context, WrapFuture};

use super::super::clock;
use super::{AHEAD_MAX, RETRY, SharedSubscription, submit_steps};
use crate::queue::lending::LENT_AHEAD_MAX;
use crate::queue::{Ask, Lender};
use crate::replica::command::QueueStep;
use crate::replica::{Command, State};

/// How long nobody is done with anything before what members do not take is given back to the shard.
const STALL: Duration = Duration::from_millis(250);
/// Pause between two looks for lent entries that expired, unless one is due before; and the least.
const EXPIRY_LOOK: Duration = Duration::from_millis(500);
const EXPIRY_LOOK_MIN: Duration = Duration::from_millis(20);
/// Entries looked at for that: what is held, lent ahead and not taken out yet is less.
const LENT_MAX: usize = 2 * (AHEAD_MAX + LENT_AHEAD_MAX);
impl SharedSubscription {
    fn lender(&self) -> Option<Lender> {
        let read = |state: &State| {
            let head = &state.group(&self.group)?.queue_head;
            Some(Lender { through: head.sent_seq, limit: head.limit as usize, discard_oldest: head.discard_oldest })
        };
        self.node.cluster().and_then(|cluster| cluster.read(self.shard, read)).flatten()
    }

    /// Up to where entries may be handed out; asks the shard for more where that is not enough.
    pub(super) fn borrow(&mut self, ctx: &mut Context<Self>) -> u64 {
        let Some(cluster) = self.node.cluster() else { return 0 };
        if cluster.level() < Command::LEND_SHARED_SINCE {
            return u64::MAX;
        }
        let Some(lender) = self.lender() else { return 0 };
        self.lending.look(lender);
        let mut ask = self.lending.ask(lender, &self.dispatcher);
        if ask.is_some() && self.forget_missing(self.lending.through(lender)) {
            self.read_ahead(ctx);
            ask = self.lending.ask(lender, &self.dispatcher);
        }
        if let Some(ask) = ask {
            self.ask(ask, ctx);
        }
        if self.lending.is_idle_loan(lender, &self.dispatcher) {
            self.give_back_unless_it_goes_on(ctx);
        }
        if lender.through > 0 && !self.expiry_look && !self.entries.is_empty() {
            self.expire_lent(lender.through, ctx);
        }
        self.lending.through(lender)
    }

    fn ask(&mut self, ask: Ask, ctx: &mut Context<Self>) {
        let Some(cluster) = self.node.cluster() else { return };
        self.lending.asked(ask);
        let command = Command::LendShared { group: self.group.clone(), from: ask.from, through: ask.through };
        ctx.spawn(cluster.submit(self.shard, command).into_actor(self).map(|outcome, actor, ctx| {
            let lender = actor.lender().filter(|_| outcome.is_ok());
            if let Some(before) = actor.lending.answered(lender) {
                actor.forget_missing(before);
            }
            match outcome {
                Ok(_) => actor.look(ctx),
                Err(_) => actor.retry_after(RETRY, ctx),
            }
        }));
    }

    /// Forgets entries that wait behind `after` and that the queue has no more: the shard may have discarded them, or let them expire, before it
    /// lent them. True if there were any.
    fn forget_missing(&mut self, after: u64) -> bool {
        let waiting = self.dispatcher.waiting_after(after);
        let read = |state: &State| state.missing_in_group(&self.group, waiting);
        let missing = self.node.cluster().and_then(|cluster| cluster.read(self.shard, read)).unwrap_or_default();
        for seq in &missing {
            self.dispatcher.done(*seq);
            self.entries.remove(seq);
        }
        !missing.is_empty()
    }

    /// More is lent than members take: if they are done with nothing in a while, the shard may discard it.
    fn give_back_unless_it_goes_on(&mut self, ctx: &mut Context<Self>) {
        if self.stall_from.is_some() {
            return;
        }
        self.stall_from = Some(self.finished);
        ctx.run_later(STALL, |actor, ctx| {
            if actor.stall_from.take() == Some(actor.finished) {
                actor.lending.stall();
            }
            actor.look(ctx);
        });
    }

    /// Takes out what expired of the lent entries that no member has, for the shard does not; goes on while there is something to be handed out.
    fn expire_lent(&mut self, through: u64, ctx: &mut Context<Self>) {
        let expiring = |state: &State| state.lent_expiring(&self.group, LENT_MAX);
        let lent = self.node.cluster().and_then(|cluster| cluster.read(self.shard, expiring)).unwrap_or_default();
        let now_ms = clock::wall_ms();
        let is_free = |seq| seq <= through && self.lending.is_known(seq) && self.dispatcher.holder(seq).is_none();
        let free = lent.into_iter().filter(|(seq, _)| is_free(*seq));
        let (expired, later): (Vec<_>, Vec<_>) = free.partition(|(_, at_ms)| *at_ms <= now_ms);
        for (seq, _) in &expired {
            self.forget(*seq);
        }
        submit_steps(&self.node, &self.group, expired.into_iter().map(|(seq, _)| (seq, QueueStep::Expired)).collect());
        let next_ms = later.into_iter().map(|(_, at_ms)| at_ms).min();
        let pause = next_ms.map_or(EXPIRY_LOOK, |at_ms| Duration::from_millis(at_ms.saturating_sub(now_ms)));
        self.expiry_look = true;
        ctx.run_later(pause.clamp(EXPIRY_LOOK_MIN, EXPIRY_LOOK), |actor, ctx| {
            actor.expiry_look = false;
            actor.look(ctx);
        });
    }
}
