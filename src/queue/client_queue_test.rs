use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::mqtt::{Message, Origin, Source, SubscriptionIds};

const LIMITS: QueueLimits = QueueLimits { max_queue_size: 3, discard_oldest: false, qos0_bytes_max: 1000 };
const OLDEST: QueueLimits = QueueLimits { discard_oldest: true, ..LIMITS };

/// A delivery told apart by its topic; received at 0.
fn delivery(name: u32, qos: QoS, expiry_s: Option<u32>) -> Delivery {
    let message = Message {
        topic: name.to_string().into(),
        payload: Bytes::from_static(b"payload"),
        qos,
        retain: false,
        payload_format_indicator: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
        message_expiry_interval: expiry_s,
        received_at_ms: 0,
        origin: Origin::Extension,
    };
    let message = Arc::new(message);
    Delivery { message, qos, retain: false, subscription_ids: SubscriptionIds::new(), dup: false, source: Source::Local }
}

fn name(delivery: &Delivery) -> u32 {
    delivery.message.topic.parse().unwrap()
}

fn pop(queue: &mut ClientQueue, quota: usize) -> Option<u32> {
    match queue.pop(quota, 0) {
        Pop::Deliver(delivery) => Some(name(&delivery)),
        Pop::Expired(delivery) => panic!("{delivery:?} is not expired"),
        Pop::Empty => None,
    }
}

fn drain(queue: &mut ClientQueue) -> Vec<u32> {
    std::iter::from_fn(|| pop(queue, 1)).collect()
}

fn dropped(push: Push) -> (u32, DropReason, bool) {
    match push {
        Push::Dropped { delivery, reason, pushed_accepted } => (name(&delivery), reason, pushed_accepted),
        Push::Accepted => panic!("nothing was dropped"),
    }
}

fn filled(names: impl IntoIterator<Item = (u32, QoS, bool)>) -> ClientQueue {
    let mut queue = ClientQueue::new();
    for (n, qos, retained) in names {
        assert_eq!(queue.push(delivery(n, qos, None), retained, 0, &LIMITS), Push::Accepted);
    }
    queue
}

#[test]
fn one_qos0_message_comes_after_each_qos_1_or_2_message() {
    use QoS::{AtLeastOnce, AtMostOnce, ExactlyOnce};
    let mut queue = filled([
        (1, AtMostOnce, false),
        (2, AtMostOnce, false),
        (3, AtMostOnce, false),
        (4, AtLeastOnce, false),
        (5, ExactlyOnce, false),
    ]);
    assert_eq!(drain(&mut queue), [4, 1, 5, 2, 3]);
    assert!(queue.is_empty());
}

#[test]
fn without_quota_only_qos0_comes_out() {
    let mut queue = filled([(1, QoS::AtLeastOnce, false), (2, QoS::AtMostOnce, false), (3, QoS::AtMostOnce, false)]);
    assert_eq!([pop(&mut queue, 0), pop(&mut queue, 0), pop(&mut queue, 0)], [Some(2), Some(3), None]);
    assert_eq!(pop(&mut queue, 1), Some(1));
}

#[test]
fn retained_and_other_messages_come_out_in_order_of_arrival() {
    let qos = QoS::AtLeastOnce;
    let mut queue = filled([(1, qos, true), (2, qos, false), (3, qos, true), (4, qos, true), (5, qos, false)]);
    assert_eq!(drain(&mut queue), [1, 2, 3, 4, 5]);
}

#[test]
fn a_full_queue_discards_the_new_or_the_oldest_message() {
    let qos = QoS::AtLeastOnce;
    let full = [(1, qos, true), (2, qos, false), (3, qos, false), (4, qos, false)];
    let reason = DropReason::ClientMessageQueueFull;

    let mut queue = filled(full);
    assert_eq!(dropped(queue.push(delivery(5, qos, None), false, 0, &LIMITS)), (5, reason, false));
    assert_eq!(drain(&mut queue), [1, 2, 3, 4]);

    let mut queue = filled(full);
    assert_eq!(dropped(queue.push(delivery(5, qos, None), false, 0, &OLDEST)), (2, reason, true));
    assert_eq!(drain(&mut queue), [1, 3, 4, 5]);
}

#[test]
fn messages_in_flight_count_and_are_never_discarded() {
    let qos = QoS::AtLeastOnce;
    let mut queue = filled([(1, qos, true)]);
    let reason = DropReason::ClientMessageQueueFull;
    assert_eq!(queue.push(delivery(2, qos, None), false, 2, &OLDEST), Push::Accepted);
    assert_eq!(dropped(queue.push(delivery(3, qos, None), false, 2, &OLDEST)), (2, reason, true));
    assert_eq!(pop(&mut queue, 1), Some(1));
    assert_eq!(pop(&mut queue, 1), Some(3));
    assert_eq!(dropped(queue.push(delivery(4, qos, None), false, 3, &OLDEST)), (4, reason, false));
    assert_eq!(queue.push(delivery(5, qos, None), true, 3, &OLDEST), Push::Accepted);
}

#[test]
fn retained_qos_0_messages_are_not_lost_to_the_limit_of_bytes_and_keep_the_order() {
    let (qos, limits) = (QoS::AtMostOnce, QueueLimits { qos0_bytes_max: 1, ..LIMITS });
    let mut queue = ClientQueue::new();
    assert_eq!(queue.push(delivery(1, qos, None), true, 0, &limits), Push::Accepted);
    assert_eq!(queue.push(delivery(2, qos, None), true, 0, &limits), Push::Accepted);
    assert_eq!(queue.push(delivery(3, qos, None), false, 0, &limits), Push::Accepted);
    assert_eq!(dropped(queue.push(delivery(4, qos, None), false, 0, &limits)).1, DropReason::Qos0MemoryExceeded);
    assert_eq!(queue.push(delivery(5, qos, None), true, 0, &limits), Push::Accepted);
    let popped: Vec<_> = std::iter::from_fn(|| pop(&mut queue, 0)).collect();
    assert_eq!((popped, queue.qos0_bytes()), (vec![1, 2, 3, 5], 0));
    for _ in 0..RETAINED_LEN_MAX {
        assert_eq!(queue.push(delivery(6, qos, None), true, 0, &limits), Push::Accepted);
    }
    assert_eq!(dropped(queue.push(delivery(7, qos, None), true, 0, &limits)).1, DropReason::ClientMessageQueueFull);
}

#[test]
fn retained_messages_have_a_limit_and_a_strategy_of_their_own() {
    let qos = QoS::AtLeastOnce;
    let mut queue = ClientQueue::new();
    queue.push(delivery(1, qos, None), false, 0, &LIMITS);
    let retained = delivery(2, qos, None);
    for _ in 0..RETAINED_LEN_MAX {
        assert_eq!(queue.push(retained.clone(), true, 0, &LIMITS), Push::Accepted);
    }
    let reason = DropReason::ClientMessageQueueFull;
    assert_eq!(dropped(queue.push(delivery(3, qos, None), true, 0, &LIMITS)), (3, reason, false));
    assert_eq!(dropped(queue.push(delivery(3, qos, None), true, 0, &OLDEST)), (2, reason, true));
    assert_eq!(queue.push(delivery(4, qos, None), false, 0, &LIMITS), Push::Accepted);
    assert_eq!(queue.len(), RETAINED_LEN_MAX + 2);
}

#[test]
fn the_qos0_limit_is_checked_before_so_that_one_message_may_overshoot() {
    let mut queue = ClientQueue::new();
    let size = delivery(1, QoS::AtMostOnce, None).message.size_bytes();
    let limits = QueueLimits { qos0_bytes_max: size + 1, ..LIMITS };
    assert_eq!(queue.push(delivery(1, QoS::AtMostOnce, None), false, 0, &limits), Push::Accepted);
    assert_eq!(queue.push(delivery(2, QoS::AtMostOnce, None), false, 0, &limits), Push::Accepted);
    let third = dropped(queue.push(delivery(3, QoS::AtMostOnce, None), false, 0, &limits));
    assert_eq!(third, (3, DropReason::Qos0MemoryExceeded, false));
    assert_eq!(queue.qos0_bytes(), 2 * size);
    assert_eq!(drain(&mut queue), [1, 2]);
    assert_eq!(queue.qos0_bytes(), 0);
}

#[test]
fn expired_messages_are_told_apart_and_cost_no_turn() {
    let mut queue = ClientQueue::new();
    queue.push(delivery(1, QoS::AtLeastOnce, Some(1)), false, 0, &LIMITS);
    queue.push(delivery(2, QoS::AtLeastOnce, None), false, 0, &LIMITS);
    queue.push(delivery(3, QoS::AtMostOnce, Some(1)), false, 0, &LIMITS);
    queue.push(delivery(4, QoS::AtMostOnce, None), false, 0, &LIMITS);
    let out: Vec<(bool, u32)> = std::iter::from_fn(|| match queue.pop(1, 1000) {
        Pop::Deliver(d) => Some((true, name(&d))),
        Pop::Expired(d) => Some((false, name(&d))),
        Pop::Empty => None,
    })
    .collect();
    assert_eq!(out, [(false, 1), (true, 2), (false, 3), (true, 4)]);
    assert_eq!((queue.qos0_bytes(), queue.next_expiry_ms()), (0, None));
}

#[test]
fn the_next_expiry_is_exact_and_expired_messages_leave_from_the_middle() {
    let mut queue = ClientQueue::new();
    let limits = QueueLimits { max_queue_size: 100, ..LIMITS };
    assert_eq!(queue.next_expiry_ms(), None);
    for (n, expiry) in [(1, None), (2, Some(5)), (3, Some(2)), (4, None), (5, Some(9))] {
        queue.push(delivery(n, QoS::AtLeastOnce, expiry), n == 3, 0, &limits);
    }
    assert_eq!(queue.next_expiry_ms(), Some(2000));
    assert!(queue.take_expired(1999).is_empty());
    assert_eq!(queue.take_expired(5000).iter().map(name).collect::<Vec<_>>(), [3, 2]);
    assert_eq!((queue.next_expiry_ms(), queue.len()), (Some(9000), 3));
    assert_eq!(drain(&mut queue), [1, 4, 5]);
    assert_eq!(queue.next_expiry_ms(), None);
}

#[test]
fn gaps_behind_a_message_that_waits_do_not_pile_up() {
    let mut queue = ClientQueue::new();
    queue.push(delivery(0, QoS::AtLeastOnce, None), false, 0, &LIMITS);
    for n in 1..1000 {
        queue.push(delivery(n, QoS::AtLeastOnce, Some(1)), false, 0, &LIMITS);
        assert_eq!(queue.take_expired(1000).len(), 1);
        assert!(queue.normal.slots.len() <= 3);
    }
    assert_eq!(queue.len(), 1);
}

/// A model: one list with what each entry is.
#[derive(Debug, Clone)]
struct Waiting {
    name: u32,
    qos: QoS,
    retained: bool,
    expires_s: Option<u32>,
    bytes: usize,
}

#[derive(Debug, Clone)]
enum Op {
    Push { qos: u8, retained: bool, expires_s: Option<u32>, in_flight: u32 },
    Pop { quota: usize },
    Expire { after_s: u32 },
}

fn op_strategy() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0_u8..3, any::<bool>(), prop::option::of(1_u32..60), 0_u32..4)
            .prop_map(|(qos, retained, expires_s, in_flight)| Op::Push { qos, retained, expires_s, in_flight }),
        3 => (0_usize..2).prop_map(|quota| Op::Pop { quota }),
        1 => (0_u32..10).prop_map(|after_s| Op::Expire { after_s }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_queue_does_what_a_plain_list_does(ops in prop::collection::vec(op_strategy(), 1..300), discard_oldest: bool) {
        let limits = QueueLimits { max_queue_size: 8, discard_oldest, qos0_bytes_max: 1500 };
        let (mut queue, mut model) = (ClientQueue::new(), Vec::<Waiting>::new());
        let (mut now_s, mut qos0_turn) = (0, false);
        for (n, op) in (0_u32..).zip(ops) {
            match op {
                Op::Push { qos, retained, expires_s, in_flight } => {
                    let qos = QoS::from_bits(qos).unwrap();
                    let expires_s = expires_s.map(|s| s + now_s);
                    let pushed = delivery(n, qos, expires_s);
                    let entry = Waiting { name: n, qos, retained, expires_s, bytes: pushed.message.size_bytes() };
                    let live = |w: &&Waiting| w.qos == QoS::AtMostOnce && !w.retained;
                    let bytes: usize = model.iter().filter(live).map(|w| w.bytes).sum();
                    let counts = |w: &Waiting| w.qos != QoS::AtMostOnce && !w.retained;
                    let is_full = match qos {
                        QoS::AtMostOnce => !retained && bytes >= limits.qos0_bytes_max,
                        _ => !retained && model.iter().filter(|w| counts(w)).count() + in_flight as usize >= 8,
                    };
                    let oldest = model.iter().position(counts).filter(|_| discard_oldest && qos != QoS::AtMostOnce);
                    let result = queue.push(pushed, retained, in_flight, &limits);
                    match (is_full, oldest) {
                        (false, _) => {
                            prop_assert_eq!(result, Push::Accepted);
                            model.push(entry);
                        }
                        (true, Some(at)) => {
                            let gone = model.remove(at);
                            model.push(entry);
                            prop_assert_eq!(dropped(result), (gone.name, DropReason::ClientMessageQueueFull, true));
                        }
                        (true, None) => {
                            let (gone, _, accepted) = dropped(result);
                            prop_assert_eq!((gone, accepted), (n, false));
                        }
                    }
                }
                Op::Pop { quota } => {
                    let qos0 = model.iter().position(|w| w.qos == QoS::AtMostOnce);
                    let qos12 = model.iter().position(|w| w.qos != QoS::AtMostOnce).filter(|_| quota > 0);
                    let at = if qos0_turn { qos0.or(qos12) } else { qos12.or(qos0) };
                    let expected = at.map(|at| model.remove(at));
                    match (queue.pop(quota, u64::from(now_s) * 1000), expected) {
                        (Pop::Empty, None) => {}
                        (Pop::Expired(d), Some(w)) => {
                            prop_assert_eq!(name(&d), w.name);
                            prop_assert!(w.expires_s.is_some_and(|s| s <= now_s));
                        }
                        (Pop::Deliver(d), Some(w)) => {
                            prop_assert_eq!(name(&d), w.name);
                            prop_assert!(w.expires_s.is_none_or(|s| s > now_s));
                            qos0_turn = w.qos != QoS::AtMostOnce;
                        }
                        (popped, expected) => prop_assert!(false, "{:?} instead of {:?}", popped, expected),
                    }
                }
                Op::Expire { after_s } => {
                    now_s += after_s;
                    let mut expired: Vec<_> = model.extract_if(.., |w| w.expires_s.is_some_and(|s| s <= now_s)).collect();
                    expired.sort_by_key(|w| (w.expires_s, w.name));
                    let taken: Vec<u32> = queue.take_expired(u64::from(now_s) * 1000).iter().map(name).collect();
                    prop_assert_eq!(taken, expired.iter().map(|w| w.name).collect::<Vec<_>>());
                }
            }
            let cost = |w: &Waiting| if w.retained { RETAINED_QOS0_BYTES } else { w.bytes };
            let bytes: usize = model.iter().filter(|w| w.qos == QoS::AtMostOnce).map(cost).sum();
            prop_assert_eq!((queue.len(), queue.qos0_bytes()), (model.len(), bytes));
            let next = model.iter().filter_map(|w| w.expires_s).min().map(|s| u64::from(s) * 1000);
            prop_assert_eq!(queue.next_expiry_ms(), next);
        }
    }
}
