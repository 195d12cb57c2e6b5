use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn member(n: u64) -> MemberKey {
    (n, 1, n)
}

fn members(windows: &[(u64, u32)]) -> Vec<(MemberKey, u32)> {
    windows.iter().map(|&(n, window)| (member(n), window)).collect()
}

fn dispatch(dispatcher: &mut Dispatcher) -> Vec<(u64, u64)> {
    dispatcher.dispatch(u64::MAX).iter().map(|d| (d.seq, d.member.0)).collect()
}

fn group(windows: &[(u64, u32)], entries: u64) -> Dispatcher {
    let mut dispatcher = Dispatcher::new();
    dispatcher.set_members(&members(windows));
    dispatcher.offer(1..=entries);
    dispatcher
}

#[test]
fn entries_go_in_turn_to_members_with_equally_many() {
    let mut dispatcher = group(&[(1, 10), (2, 10), (3, 10)], 6);
    assert_eq!(dispatch(&mut dispatcher), [(1, 1), (2, 2), (3, 3), (4, 1), (5, 2), (6, 3)]);
    (1..=6).for_each(|seq| dispatcher.done(seq));
    assert!(dispatcher.is_idle());
    for (seq, to) in [(7, 1), (8, 2), (9, 3), (10, 1)] {
        dispatcher.offer([seq]);
        assert_eq!(dispatch(&mut dispatcher), [(seq, to)]);
        dispatcher.done(seq);
    }
}

#[test]
fn nothing_behind_the_number_given_is_handed_out() {
    let mut dispatcher = group(&[(1, 10)], 6);
    assert_eq!(dispatcher.dispatch(0), []);
    assert_eq!(dispatcher.dispatch(2).len(), 2);
    assert_eq!(dispatcher.dispatch(2), []);
    assert_eq!((dispatcher.room(), dispatcher.waiting_after(4).collect::<Vec<_>>()), (8, vec![5, 6]));
    dispatcher.set_members(&[]);
    assert!(!dispatcher.has_members());
    dispatcher.set_members(&members(&[(2, 1)]));
    assert_eq!(dispatcher.dispatch(2), [Dispatched { seq: 1, member: member(2) }], "what was given back too");
}

#[test]
fn the_number_that_so_many_entries_come_to_is_known_ahead() {
    let mut dispatcher = group(&[(1, 2)], 5);
    let reach = |dispatcher: &Dispatcher| [0, 1, 3, 5, 6, 9].map(|count| dispatcher.reach(count));
    assert_eq!(reach(&dispatcher), [0, 1, 3, 5, 6, 9]);
    dispatcher.dispatch(u64::MAX);
    dispatcher.done(1);
    dispatcher.done(4);
    // In flight: 2; waiting: 3 and 5.
    assert_eq!(reach(&dispatcher), [2, 3, 6, 8, 9, 12]);
    assert_eq!(Dispatcher::new().reach(usize::MAX), usize::MAX as u64);
}

#[test]
fn the_member_with_the_fewest_in_flight_comes_first() {
    let mut dispatcher = group(&[(1, 10), (2, 10)], 4);
    dispatch(&mut dispatcher);
    dispatcher.done(2);
    dispatcher.done(4);
    dispatcher.offer([5, 6, 7]);
    assert_eq!(dispatch(&mut dispatcher), [(5, 2), (6, 2), (7, 1)]);
}

#[test]
fn no_member_gets_more_than_its_window() {
    let mut dispatcher = group(&[(1, 1), (2, 2), (3, 0)], 10);
    assert_eq!(dispatch(&mut dispatcher), [(1, 1), (2, 2), (3, 2)]);
    assert_eq!([1, 2, 3].map(|n| dispatcher.in_flight_of(member(n))), [1, 2, 0]);
    assert_eq!((dispatcher.waiting(), dispatcher.offered()), (7, 10));
    dispatcher.done(1);
    assert_eq!(dispatch(&mut dispatcher), [(4, 1)]);
    dispatcher.set_members(&members(&[(1, 3), (2, 1)]));
    assert_eq!(dispatch(&mut dispatcher), [(5, 1), (6, 1)]);
    dispatcher.done(2);
    assert!(dispatch(&mut dispatcher).is_empty());
    dispatcher.done(3);
    assert_eq!(dispatch(&mut dispatcher), [(7, 2)]);
}

#[test]
fn what_a_lost_member_had_goes_to_others_at_once_and_first() {
    let mut dispatcher = group(&[(1, 2), (2, 2)], 6);
    assert_eq!(dispatch(&mut dispatcher), [(1, 1), (2, 2), (3, 1), (4, 2)]);
    assert_eq!(dispatcher.set_members(&members(&[(2, 4)])), [1, 3]);
    assert_eq!(dispatch(&mut dispatcher), [(1, 2), (3, 2)]);
    assert_eq!(dispatcher.set_members(&[]), [1, 2, 3, 4]);
    assert!(dispatch(&mut dispatcher).is_empty());
    dispatcher.set_members(&members(&[(3, 9)]));
    assert_eq!(dispatch(&mut dispatcher), (1..=6).map(|seq| (seq, 3)).collect::<Vec<_>>());
}

#[test]
fn an_entry_given_back_goes_to_another_member_first() {
    let mut dispatcher = group(&[(1, 5), (2, 5)], 3);
    assert_eq!(dispatch(&mut dispatcher), [(1, 1), (2, 2), (3, 1)]);
    dispatcher.give_back(2);
    dispatcher.offer([4]);
    assert_eq!(dispatch(&mut dispatcher), [(2, 1), (4, 1)]);
    assert_eq!(dispatcher.holder(2), Some(member(1)));
}

#[test]
fn a_member_that_refused_all_is_tried_with_one_entry_after_a_pause() {
    let mut dispatcher = group(&[(1, 5)], 3);
    dispatch(&mut dispatcher);
    (1..=3).for_each(|seq| dispatcher.refuse(seq));
    dispatcher.set_members(&members(&[(1, 5)]));
    assert!(dispatch(&mut dispatcher).is_empty());
    dispatcher.retry();
    assert_eq!(dispatch(&mut dispatcher), [(1, 1)]);
    dispatcher.done(1);
    assert_eq!(dispatch(&mut dispatcher), [(2, 1)]);
}

#[test]
fn a_member_that_was_out_of_reach_is_tried_with_all_it_may_have() {
    let mut dispatcher = group(&[(1, 5)], 3);
    dispatch(&mut dispatcher);
    (1..=3).for_each(|seq| dispatcher.give_back(seq));
    assert!(dispatch(&mut dispatcher).is_empty());
    dispatcher.retry();
    assert_eq!(dispatch(&mut dispatcher), [(1, 1), (2, 1), (3, 1)]);
}

#[test]
fn a_member_gets_as_much_as_it_kept_and_now_and_then_one_more() {
    let mut dispatcher = group(&[(1, 8)], 1000);
    assert_eq!(dispatch(&mut dispatcher).len(), 8);
    (3..=8).for_each(|seq| dispatcher.refuse(seq));
    let (mut held, mut tried, mut finished) = (BTreeSet::from([1, 2]), 0, 0);
    while finished < 10 * 2 * u64::from(TRIED_AFTER) {
        dispatcher.done(held.pop_first().unwrap());
        finished += 1;
        held.extend(dispatch(&mut dispatcher).iter().map(|(seq, _)| *seq));
        if held.len() > 2 {
            tried += 1;
            dispatcher.refuse(held.pop_last().unwrap());
        }
        assert_eq!(held.len(), 2);
    }
    assert!((5..=10).contains(&tried), "{tried}");
}

#[test]
fn unknown_entries_and_those_offered_twice_are_ignored() {
    let mut dispatcher = group(&[(1, 5)], 2);
    dispatch(&mut dispatcher);
    dispatcher.done(1);
    dispatcher.done(1);
    dispatcher.give_back(1);
    dispatcher.give_back(77);
    dispatcher.done(77);
    dispatcher.offer([1, 2]);
    assert!(dispatch(&mut dispatcher).is_empty());
    assert_eq!((dispatcher.in_flight_of(member(1)), dispatcher.in_flight_of(member(9))), (1, 0));
}

#[test]
fn an_entry_acknowledged_by_a_member_that_went_is_not_given_out_again() {
    let mut dispatcher = group(&[(1, 5)], 1);
    dispatch(&mut dispatcher);
    dispatcher.set_members(&members(&[(2, 5)]));
    dispatcher.done(1);
    assert!(dispatch(&mut dispatcher).is_empty() && dispatcher.is_idle());
}

#[derive(Debug, Clone)]
enum Op {
    Offer(u64),
    Members(Vec<(u64, u32)>),
    Dispatch,
    Done(prop::sample::Index),
    GiveBack(prop::sample::Index),
    Stray(u64),
}

fn op_strategy() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (0_u64..6).prop_map(Op::Offer),
        1 => prop::collection::vec((0_u64..6, 0_u32..5), 0..6).prop_map(Op::Members),
        4 => Just(Op::Dispatch),
        4 => any::<prop::sample::Index>().prop_map(Op::Done),
        1 => any::<prop::sample::Index>().prop_map(Op::GiveBack),
        1 => (0_u64..100).prop_map(Op::Stray),
    ]
}

/// The outside: who really holds what.
#[derive(Default)]
struct World {
    windows: BTreeMap<MemberKey, u32>,
    held: BTreeMap<u64, MemberKey>,
    done: BTreeSet<u64>,
}

impl World {
    fn held_by(&self, member: MemberKey) -> u32 {
        u32::try_from(self.held.values().filter(|m| **m == member).count()).unwrap()
    }

    fn take(&mut self, dispatcher: &mut Dispatcher) {
        let before: BTreeMap<_, _> = self.windows.keys().map(|m| (*m, self.held_by(*m))).collect();
        let mut last = 0;
        for Dispatched { seq, member } in dispatcher.dispatch(u64::MAX) {
            assert!(seq > last && !self.done.contains(&seq));
            assert!(self.held.insert(seq, member).is_none(), "{seq} is held twice");
            // A window that shrank may be over, but nothing is added then.
            assert!(self.held_by(member) <= self.windows[&member].max(before[&member]));
            last = seq;
        }
        for &member in self.windows.keys() {
            assert_eq!(dispatcher.in_flight_of(member), self.held_by(member));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_entry_is_done_once_whoever_comes_and_goes(ops in prop::collection::vec(op_strategy(), 1..200)) {
        let (mut dispatcher, mut world) = (Dispatcher::new(), World::default());
        for op in ops {
            match op {
                Op::Offer(n) => {
                    let next = dispatcher.offered() + 1;
                    dispatcher.offer(next..next + n);
                }
                Op::Members(now) => {
                    world.windows = members(&now).into_iter().collect();
                    let lost: Vec<u64> =
                        world.held.extract_if(.., |_, m| !world.windows.contains_key(m)).map(|(seq, _)| seq).collect();
                    prop_assert_eq!(dispatcher.set_members(&members(&now)), lost);
                }
                Op::Dispatch => world.take(&mut dispatcher),
                Op::Done(_) | Op::GiveBack(_) if world.held.is_empty() => {}
                Op::Done(index) => {
                    let seq = *world.held.keys().nth(index.index(world.held.len())).unwrap();
                    world.held.remove(&seq);
                    world.done.insert(seq);
                    dispatcher.done(seq);
                }
                Op::GiveBack(index) => {
                    let seq = *world.held.keys().nth(index.index(world.held.len())).unwrap();
                    world.held.remove(&seq);
                    dispatcher.give_back(seq);
                    dispatcher.retry();
                }
                Op::Stray(seq) if !world.held.contains_key(&seq) => dispatcher.give_back(seq),
                Op::Stray(_) => {}
            }
        }
        // One member that finishes what it gets is enough.
        let keep = world.windows.keys().next().copied().unwrap_or(member(1));
        world.windows = [(keep, 1)].into();
        world.held.retain(|_, m| *m == keep);
        dispatcher.set_members(&[(keep, 1)]);
        for _ in 0..=2 * dispatcher.offered() {
            world.take(&mut dispatcher);
            if let Some((seq, _)) = world.held.pop_first() {
                world.done.insert(seq);
                dispatcher.done(seq);
            }
        }
        prop_assert!(dispatcher.is_idle());
        prop_assert_eq!(world.done, (1..=dispatcher.offered()).collect::<BTreeSet<_>>());
    }
}
