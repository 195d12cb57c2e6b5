use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::queue::Dispatched;
use crate::queue::dispatch::MemberKey;

/// A group's queue, its shard and its dispatcher.
#[derive(Debug)]
struct World {
    lender: Lender,
    queue: BTreeSet<u64>,
    next_seq: u64,
    dispatcher: Dispatcher,
    lending: Lending,
    asked: Option<Ask>,
    asks: usize,
    held: BTreeSet<u64>,
    discarded: BTreeSet<u64>,
}

fn member(n: u64) -> MemberKey {
    (n, 1, n)
}

impl World {
    fn new(limit: usize, discard_oldest: bool, windows: &[u32]) -> Self {
        let mut world = Self {
            lender: Lender { through: 0, limit, discard_oldest },
            queue: BTreeSet::new(),
            next_seq: 1,
            dispatcher: Dispatcher::new(),
            lending: Lending::default(),
            asked: None,
            asks: 0,
            held: BTreeSet::new(),
            discarded: BTreeSet::new(),
        };
        world.members(windows);
        world
    }

    fn expiring(mut self) -> Self {
        self.lending.saw_expiry();
        self
    }

    fn members(&mut self, windows: &[u32]) {
        let members: Vec<_> = (1..).zip(windows).map(|(n, window)| (member(n), *window)).collect();
        for seq in self.dispatcher.set_members(&members) {
            self.held.remove(&seq);
        }
        self.pass();
    }

    fn arrive(&mut self, count: u64) {
        for _ in 0..count {
            if self.queue.len() >= self.lender.limit {
                let oldest = self.queue.range(self.lender.through + 1..).next().copied().filter(|_| self.lender.discard_oldest);
                let Some(oldest) = oldest else { continue };
                assert!(!self.held.contains(&oldest), "{oldest} is discarded and a member has it");
                self.queue.remove(&oldest);
                self.discarded.insert(oldest);
            }
            self.queue.insert(self.next_seq);
            self.next_seq += 1;
        }
        self.pass();
    }

    fn finish(&mut self, count: usize) {
        let done: Vec<u64> = self.held.iter().copied().take(count).collect();
        for seq in &done {
            self.held.remove(seq);
            self.queue.remove(seq);
            self.dispatcher.done(*seq);
            self.lending.finished();
        }
        self.pass();
    }

    /// What the actor does in a look.
    fn pass(&mut self) {
        self.lending.look(self.lender);
        self.offer();
        if self.lending.ask(self.lender, &self.dispatcher).is_some() {
            self.forget_missing(self.lending.through(self.lender));
            self.offer();
        }
        if let Some(ask) = self.lending.ask(self.lender, &self.dispatcher) {
            self.lending.asked(ask);
            self.asked = Some(ask);
            self.asks += 1;
        }
        for Dispatched { seq, .. } in self.dispatcher.dispatch(self.lending.through(self.lender)) {
            assert!(self.queue.contains(&seq), "{seq} was discarded and is handed out");
            assert!(!self.lending.is_needed(self.lender) || seq <= self.lender.through);
            self.held.insert(seq);
        }
    }

    fn offer(&mut self) {
        let known = self.dispatcher.waiting() + self.held.len();
        let after = self.dispatcher.offered();
        self.dispatcher.offer(self.queue.range(after + 1..).copied().take(256_usize.saturating_sub(known)));
    }

    fn forget_missing(&mut self, after: u64) {
        let waiting: Vec<u64> = self.dispatcher.waiting_after(after).collect();
        waiting.iter().filter(|seq| !self.queue.contains(seq)).for_each(|seq| self.dispatcher.done(*seq));
    }

    /// The command is applied, or lost.
    fn answer(&mut self, applied: bool) {
        let Some(ask) = self.asked.take() else { return };
        if applied && ask.from == self.lender.through {
            self.lender.through = ask.through;
        }
        if let Some(before) = self.lending.answered(applied.then_some(self.lender)) {
            self.forget_missing(before);
        }
        self.pass();
    }

    /// Until nothing is asked any more.
    fn settle(&mut self) {
        let asks = self.asks;
        while self.asked.is_some() {
            self.answer(true);
            assert!(self.asks - asks < 10, "it asks again and again");
        }
    }
}

#[test]
fn where_nothing_is_discarded_or_expires_nothing_is_lent() {
    let mut world = World::new(10, false, &[4]);
    world.arrive(6);
    assert_eq!((world.held.len(), world.asks), (4, 0));
    world.lending.saw_expiry();
    world.pass();
    assert_eq!(world.asked, Some(Ask { from: 0, through: 6 + SURPLUS_MAX as u64 - 2 }), "what members have already included");
    world.finish(2);
    assert_eq!(world.held.len(), 2, "nothing more before it is lent");
    world.answer(true);
    assert_eq!(world.held.len(), 4);
}

#[test]
fn a_command_does_for_many_messages_and_none_waits_for_it() {
    for (discard_oldest, messages_a_command_min) in [(false, 60), (true, 60)] {
        let mut world = World::new(1_000, discard_oldest, &[32, 32]).expiring();
        world.arrive(1);
        world.settle();
        let begun = world.asks;
        for _ in 0..3_000 {
            world.arrive(1);
            assert_eq!(world.held.len(), 2, "it was lent before it came");
            world.finish(1);
            world.answer(true);
        }
        assert!(3_000 / (world.asks - begun) >= messages_a_command_min, "{}", world.asks);
        // A backlog: windows are always full, though the answer comes a while later.
        world.arrive(900);
        world.settle();
        let mut waited = 0;
        for round in 0..840 {
            world.finish(1);
            waited += usize::from(world.held.len() < 64);
            if round % 16 == 0 {
                world.answer(true);
            }
        }
        assert!(waited < 20, "{waited}");
    }
}

#[test]
fn the_oldest_that_no_member_has_is_discarded() {
    let mut world = World::new(5, true, &[1]);
    world.arrive(1);
    world.settle();
    assert_eq!((&world.held, world.lender.through), (&BTreeSet::from([1]), 1));
    world.arrive(5);
    world.settle();
    assert_eq!(world.discarded, BTreeSet::from([2]));
    world.finish(1);
    world.settle();
    assert_eq!(world.held, BTreeSet::from([3]), "the discarded one is not handed out");
}

#[test]
fn what_members_do_not_take_is_given_back_where_the_oldest_is_discarded() {
    for (discard_oldest, limit, moving, stalled) in
        [(true, 400, 100, 0), (true, 60, 0, 0), (false, 400, SURPLUS_MAX, SURPLUS_MAX)]
    {
        let mut world = World::new(limit, discard_oldest, &[4]).expiring();
        world.arrive(20);
        world.settle();
        let lent = |world: &World| world.lender.through as usize - world.held.last().map_or(0, |last| *last as usize);
        assert_eq!((world.held.len(), lent(&world)), (4, stalled), "nobody is known to be done with anything");
        world.finish(4);
        world.settle();
        // More is asked for when a part of it is used up.
        assert!(world.held.len() == 4 && (moving.saturating_sub(4)..=moving).contains(&lent(&world)));
        assert_eq!(world.lending.is_idle_loan(world.lender, &world.dispatcher), discard_oldest && moving > 0);
        world.lending.stall();
        world.pass();
        world.settle();
        assert!((stalled.saturating_sub(4)..=stalled).contains(&lent(&world)));
    }
}

#[test]
fn while_no_member_is_there_nothing_is_lent() {
    let mut world = World::new(100, false, &[4]).expiring();
    world.arrive(3);
    world.settle();
    world.members(&[]);
    assert_eq!(world.asked.map(|ask| ask.through), Some(0));
    world.answer(false);
    assert!(world.asked.is_some(), "it is asked again");
    world.settle();
    assert_eq!(world.lender.through, 0);
    // What expired or was discarded meanwhile is not handed out.
    world.queue.remove(&2);
    world.members(&[4]);
    assert_eq!(world.held.len(), 0);
    world.settle();
    assert_eq!(world.held, BTreeSet::from([1, 3]));
}

#[test]
fn what_another_dispatcher_was_lent_is_asked_for_anew() {
    let mut world = World::new(100, false, &[4]);
    world.lending = Lending::default();
    world = world.expiring();
    world.lender.through = 50;
    world.arrive(2);
    assert_eq!(world.held.len(), 0);
    assert_eq!(world.asked.map(|ask| ask.from), Some(50));
    assert_eq!(
        [1, 50, 51].map(|seq| world.lending.is_known(seq)),
        [false, false, true],
        "members may have what the other one gave them"
    );
    // The other one's last word comes after all.
    world.lender.through = 0;
    world.answer(true);
    assert_eq!((world.held.len(), world.asked.map(|ask| ask.from)), (0, Some(0)));
    world.answer(true);
    assert_eq!(world.held.len(), 2);
    world.members(&[]);
    assert!(world.lending.is_known(1), "no member is there");
    world.lending.forget_holders();
    assert!(!world.lending.is_known(u64::MAX), "nothing is known before the queue is looked at");
}

#[derive(Debug, Clone)]
enum Op {
    Arrive(u64),
    Finish(usize),
    Members(Vec<u32>),
    Refuse,
    Answer(bool),
    Stall,
    AnotherLeader(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..40u64).prop_map(Op::Arrive),
        4 => (1..40usize).prop_map(Op::Finish),
        1 => proptest::collection::vec(0..40u32, 0..4).prop_map(Op::Members),
        1 => Just(Op::Refuse),
        5 => proptest::bool::weighted(0.8).prop_map(Op::Answer),
        1 => Just(Op::Stall),
        1 => (0..100u64).prop_map(Op::AnotherLeader),
    ]
}

proptest! {
    #[test]
    fn nothing_in_flight_is_discarded_nothing_discarded_is_handed_out_and_nothing_stays(
        limit in 1..400usize,
        discard_oldest: bool,
        expiring: bool,
        ops in proptest::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new(limit, discard_oldest, &[20]);
        if expiring {
            world.lending.saw_expiry();
        }
        for op in ops {
            match op {
                Op::Arrive(count) => world.arrive(count),
                Op::Finish(count) => world.finish(count),
                Op::Members(windows) => world.members(&windows),
                Op::Refuse => {
                    if let Some(seq) = world.held.pop_last() {
                        world.dispatcher.refuse(seq);
                    }
                    world.pass();
                    world.dispatcher.retry();
                }
                Op::Answer(applied) => world.answer(applied),
                Op::Stall => {
                    world.lending.stall();
                    world.pass();
                }
                // A new leader knows nothing of what members have.
                Op::AnotherLeader(through) => {
                    world.dispatcher = Dispatcher::new();
                    world.lending = Lending::default();
                    if expiring {
                        world.lending.saw_expiry();
                    }
                    world.held.clear();
                    world.asked = None;
                    world.lender.through = through;
                    world.members(&[10, 3]);
                }
            }
        }
        world.members(&[7, 7]);
        for _ in 0..2_000 {
            world.settle();
            world.dispatcher.retry();
            world.finish(14);
        }
        prop_assert!(world.queue.is_empty(), "{} stay", world.queue.len());
        world.members(&[]);
        world.settle();
        prop_assert_eq!(world.lender.through, 0);
    }
}
