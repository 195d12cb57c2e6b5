use tokio::sync::oneshot::Receiver;
use tokio::sync::oneshot::error::TryRecvError;

use super::*;
use crate::replica::body;

type Waiting = Receiver<Result<Settled, SubmitError>>;

fn command() -> Command {
    Command::Expire { limit: 1 }
}

fn pending() -> Pending {
    Pending::new(1, 100)
}

fn push(pending: &mut Pending, now_ms: u64) -> Waiting {
    let (waiter, waiting) = oneshot::channel();
    pending.push(Cut::Small(command()), Some(Waiter::new(waiter, None)), now_ms).unwrap();
    waiting
}

fn send(pending: &mut Pending) -> Option<(u64, usize)> {
    let batch = pending.next_batch()?;
    pending.batch_sent(batch.first_seq);
    Some((batch.first_seq, batch.commands.len()))
}

fn answer(seq: u64) -> Answer {
    Answer { node: 1, incarnation: 100, seq, index: seq + 10, outcome: Outcome::Done }
}

#[test]
fn commands_are_numbered_from_one_in_order() {
    let mut pending = pending();
    let _a = push(&mut pending, 0);
    assert_eq!(send(&mut pending), Some((1, 1)));
    let _b = push(&mut pending, 0);
    let _c = push(&mut pending, 0);
    assert_eq!(send(&mut pending), Some((2, 2)));
    assert_eq!(send(&mut pending), None);
}

#[test]
fn an_answer_reaches_its_waiter_and_frees_the_place() {
    let mut pending = pending();
    let mut a = push(&mut pending, 0);
    let mut b = push(&mut pending, 0);
    send(&mut pending);
    tell(pending.complete(vec![answer(1)], 1, 5));
    assert_eq!(a.try_recv().unwrap(), Ok(Settled { outcome: Outcome::Done, index: 11 }));
    assert_eq!(b.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(pending.len(), 2);
    tell(pending.complete(vec![answer(2)], 2, 6));
    assert_eq!(b.try_recv().unwrap(), Ok(Settled { outcome: Outcome::Done, index: 12 }));
    assert!(pending.is_empty());
    assert_eq!(pending.progress_ms(), 6);
}

#[test]
fn answers_for_others_are_none_of_ours() {
    let mut pending = pending();
    let mut a = push(&mut pending, 0);
    send(&mut pending);
    let other_node = Answer { node: 2, ..answer(1) };
    let other_run = Answer { incarnation: 99, ..answer(1) };
    tell(pending.complete(vec![other_node, other_run], 0, 0));
    assert_eq!(a.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn a_rewind_sends_the_same_batches_again() {
    let mut pending = pending();
    let _a = push(&mut pending, 0);
    send(&mut pending);
    let _b = push(&mut pending, 0);
    send(&mut pending);
    let _c = push(&mut pending, 0);
    pending.rewind();
    assert_eq!(send(&mut pending), Some((1, 1)));
    tell(pending.complete(vec![answer(1)], 1, 0));
    assert_eq!(send(&mut pending), Some((2, 1)));
    assert_eq!(send(&mut pending), Some((3, 1)));
}

#[test]
fn a_batch_not_sent_is_given_again() {
    let mut pending = pending();
    let _a = push(&mut pending, 0);
    assert_eq!(pending.next_batch().unwrap().first_seq, 1);
    assert_eq!(send(&mut pending), Some((1, 1)));
}

#[test]
fn the_window_makes_later_commands_go_together() {
    let mut pending = pending();
    let waiting: Vec<_> = (0..WINDOW_BATCHES)
        .map(|_| {
            let waiting = push(&mut pending, 0);
            send(&mut pending);
            waiting
        })
        .collect();
    let _more: Vec<_> = (0..10).map(|_| push(&mut pending, 0)).collect();
    assert_eq!(send(&mut pending), None);
    tell(pending.complete(vec![answer(1)], 1, 0));
    assert_eq!(send(&mut pending), Some((waiting.len() as u64 + 1, 10)));
}

#[test]
fn what_a_snapshot_skipped_is_unknown() {
    let mut pending = pending();
    let mut a = push(&mut pending, 0);
    send(&mut pending);
    let mut b = push(&mut pending, 0);
    tell(pending.complete(Vec::new(), 1, 0));
    assert_eq!(a.try_recv().unwrap(), Err(SubmitError::Unknown));
    assert_eq!(b.try_recv(), Err(TryRecvError::Empty));
}

#[test]
fn giving_up_withdraws_only_what_was_never_sent() {
    let mut pending = pending();
    let mut sent = push(&mut pending, 0);
    send(&mut pending);
    let mut late = push(&mut pending, 0);
    pending.push(Cut::Small(command()), None, 0).unwrap();
    let mut young = push(&mut pending, GIVE_UP_MS);
    tell(pending.give_up(GIVE_UP_MS - 1));
    assert_eq!(sent.try_recv(), Err(TryRecvError::Empty));
    tell(pending.give_up(GIVE_UP_MS));
    assert_eq!(sent.try_recv().unwrap(), Err(SubmitError::Unknown));
    assert_eq!(late.try_recv().unwrap(), Err(SubmitError::Unavailable));
    assert_eq!(young.try_recv(), Err(TryRecvError::Empty));
    pending.rewind();
    assert_eq!(send(&mut pending), Some((1, 1)));
    assert_eq!(send(&mut pending), Some((2, 2)));
}

#[test]
fn a_new_incarnation_begins_at_one_and_the_old_is_unknown() {
    let mut pending = pending();
    let mut a = push(&mut pending, 0);
    send(&mut pending);
    let mut b = push(&mut pending, 0);
    tell(pending.renew(101));
    assert_eq!(a.try_recv().unwrap(), Err(SubmitError::Unknown));
    assert_eq!(b.try_recv().unwrap(), Err(SubmitError::Unknown));
    let _c = push(&mut pending, 0);
    let batch = pending.next_batch().unwrap();
    assert_eq!((batch.incarnation, batch.first_seq), (101, 1));
}

#[test]
fn a_full_queue_refuses_all_but_the_end_of_connections() {
    let mut pending = pending();
    for _ in 0..PENDING_COMMANDS_MAX {
        pending.push(Cut::Small(command()), None, 0).unwrap();
    }
    assert_eq!(pending.push(Cut::Small(command()), None, 0), Err(SubmitError::Overloaded));
    let disconnect = Command::Disconnect {
        client: "c".into(),
        connection: ConnectionRef { node: 1, incarnation: 100, connection: 1 },
        initiator: crate::signal::Initiator::Client,
        reason_code: None,
        will: false,
        session_expiry_interval_s: None,
        sent_seq: 0,
    };
    assert_eq!(pending.push(Cut::Small(disconnect), None, 0), Ok(()));
}

#[test]
fn batches_are_bounded() {
    let mut pending = pending();
    for _ in 0..COMMANDS_MAX + 1 {
        pending.push(Cut::Small(command()), None, 0).unwrap();
    }
    assert_eq!(send(&mut pending), Some((1, COMMANDS_MAX)));
    assert_eq!(send(&mut pending), Some((COMMANDS_MAX as u64 + 1, 1)));
}

const LARGE: usize = PART_BYTES * 4 - 1;

fn large(publisher: &str, bytes: usize) -> Cut {
    let Command::Retain { message } = crate::cluster::cluster_test::kit::retain_bytes("t", bytes) else { panic!("a retain") };
    let origin = crate::mqtt::Origin::Client(publisher.into());
    body::cut(Command::Retain { message: Arc::new(crate::mqtt::Message { origin, ..crate::mqtt::Message::clone(&message) }) })
}

fn push_large(pending: &mut Pending, command: Cut, now_ms: u64) -> Waiting {
    let (waiter, waiting) = oneshot::channel();
    pending.push(command, Some(Waiter::new(waiter, None)), now_ms).unwrap();
    waiting
}

/// What the next batch holds: parts by their offset, others by a word.
fn send_shown(pending: &mut Pending) -> Vec<String> {
    let Some(batch) = pending.next_batch() else { return Vec::new() };
    pending.batch_sent(batch.first_seq);
    let shown = |command: &Command| match command {
        Command::Part(part) => format!("{} of {}", part.offset, part.bytes_total),
        Command::Whole { .. } => "whole".to_owned(),
        Command::Expire { .. } => "other".to_owned(),
        Command::Retain { .. } => "small".to_owned(),
        other => panic!("{other:?}"),
    };
    batch.commands.iter().map(shown).collect()
}

#[test]
fn a_large_payload_goes_in_parts_between_which_others_go_on_but_not_its_publisher() {
    let mut pending = pending();
    let mut whole = push_large(&mut pending, large("p", LARGE), 0);
    let _a = push(&mut pending, 0);
    let _same = push_large(&mut pending, large("p", 10), 0);
    let _other = push_large(&mut pending, large("q", 10), 0);
    let part = |number: usize| format!("{} of {LARGE}", number * PART_BYTES);
    assert_eq!(send_shown(&mut pending), ["other", "small", &part(0)]);
    let _b = push(&mut pending, 0);
    assert_eq!(send_shown(&mut pending), ["other", &part(1)]);
    assert_eq!(send_shown(&mut pending), [part(2)]);
    assert_eq!(send_shown(&mut pending), [&part(3), "whole", "small"]);
    // Seqs 1 to 3, 4 and 5, 6, 7 to 9.
    tell(pending.complete(vec![answer(8)], 9, 1));
    assert_eq!(whole.try_recv().unwrap().unwrap().outcome, Outcome::Done);
    assert!(pending.is_empty());
    assert_eq!((pending.bytes, pending.bulk_bytes, pending.bulk_publishers.len()), (0, 0, 0));
    let _c = push_large(&mut pending, large("p", 10), 2);
    assert_eq!(send_shown(&mut pending), ["small"]);
}

#[test]
fn a_full_line_of_others_does_not_keep_a_large_payload_waiting() {
    let mut pending = pending();
    let _large = push_large(&mut pending, large("p", LARGE), 0);
    for _ in 0..COMMANDS_MAX * 2 {
        pending.push(Cut::Small(command()), None, 0).unwrap();
    }
    assert_eq!(send_shown(&mut pending).last(), Some(&format!("0 of {LARGE}")));
}

#[test]
fn a_large_payload_is_given_up_only_when_nothing_moves_and_what_was_sent_of_it_is_ended() {
    let mut pending = pending();
    let mut whole = push_large(&mut pending, large("p", PART_BYTES * 10), 0);
    let mut behind = push_large(&mut pending, large("p", 10), 0);
    send(&mut pending);
    tell(pending.complete(Vec::new(), 1, GIVE_UP_MS * 3));
    tell(pending.give_up(GIVE_UP_MS * 3 + 1));
    assert_eq!(whole.try_recv(), Err(TryRecvError::Empty), "it moves");
    let mut next = push_large(&mut pending, large("q", LARGE), GIVE_UP_MS * 4);
    tell(pending.give_up(GIVE_UP_MS * 4));
    assert_eq!(whole.try_recv().unwrap(), Err(SubmitError::Unavailable));
    assert_eq!(behind.try_recv().unwrap(), Err(SubmitError::Unavailable));
    assert_eq!(next.try_recv(), Err(TryRecvError::Empty), "it is young");
    assert_eq!(send_shown(&mut pending), ["0 of 0", &format!("0 of {LARGE}")]);
    assert_eq!(pending.bulk_bytes, LARGE);
    tell(pending.renew(101));
    assert_eq!(next.try_recv().unwrap(), Err(SubmitError::Unknown));
}

#[test]
fn so_many_large_bytes_may_wait_and_no_more() {
    let mut pending = pending();
    let payload = Bytes::from(vec![0; 200 * 1024 * 1024]);
    let push = |pending: &mut Pending| {
        let Cut::Large { command, .. } = large("p", LARGE) else { panic!("large") };
        pending.push(Cut::Large { command, body: payload.clone() }, None, 0)
    };
    (0..6).for_each(|_| push(&mut pending).unwrap());
    assert_eq!(push(&mut pending), Err(SubmitError::Overloaded));
    pending.push(Cut::Small(command()), None, 0).unwrap();
}

fn message(publisher: &str) -> Cut {
    let small = large(publisher, 10);
    assert!(matches!(small, Cut::Small(_)));
    small
}

fn push_in(pending: &mut Pending, command: Cut, lane: &Arc<Lane>, now_ms: u64) -> Result<Waiting, SubmitError> {
    let (waiter, waiting) = oneshot::channel();
    pending.push(command, Some(Waiter::new(waiter, Some(Arc::clone(lane)))), now_ms).map(|()| waiting)
}

#[test]
fn behind_a_message_that_is_given_up_nothing_of_its_connection_goes_in() {
    let mut pending = pending();
    let (one, other, again) = (Arc::default(), Arc::default(), Arc::default());
    let mut first = push_in(&mut pending, message("p"), &one, 0).unwrap();
    let mut second = push_in(&mut pending, message("p"), &one, GIVE_UP_MS - 1).unwrap();
    let mut large_one = push_in(&mut pending, large("p", LARGE), &one, GIVE_UP_MS - 1).unwrap();
    let mut third = push_in(&mut pending, message("p"), &one, GIVE_UP_MS - 1).unwrap();
    let mut of_other = push_in(&mut pending, message("q"), &other, GIVE_UP_MS - 1).unwrap();
    // The client came back, and sends from the oldest on that is not acknowledged.
    let mut resent = push_in(&mut pending, message("p"), &again, GIVE_UP_MS - 1).unwrap();
    tell(pending.give_up(GIVE_UP_MS));
    for waiting in [&mut first, &mut second, &mut large_one, &mut third] {
        assert_eq!(waiting.try_recv().unwrap(), Err(SubmitError::Unavailable));
    }
    assert!(one.is_broken());
    assert_eq!(push_in(&mut pending, message("p"), &one, GIVE_UP_MS).err(), Some(SubmitError::Unavailable));
    assert_eq!(of_other.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(resent.try_recv(), Err(TryRecvError::Empty));
    assert!(!other.is_broken() && !again.is_broken());
    assert_eq!(send_shown(&mut pending), ["small", "small"]);
    assert_eq!((pending.len(), pending.bulk_bytes, pending.bulk_publishers.len()), (2, 0, 0));
}

#[test]
fn a_lane_breaks_with_the_first_failure_of_any_kind() {
    // Unknown after it was sent, skipped by a snapshot, void with its incarnation.
    let fail: [fn(&mut Pending) -> Told; 3] =
        [|pending| pending.give_up(GIVE_UP_MS), |pending| pending.complete(Vec::new(), 1, 0), |pending| pending.renew(101)];
    for fail in fail {
        let (mut pending, lane) = (pending(), Arc::default());
        let mut waiting = push_in(&mut pending, message("p"), &lane, 0).unwrap();
        send(&mut pending);
        let told = fail(&mut pending);
        assert!(lane.is_broken(), "before anything else is taken in");
        tell(told);
        assert_eq!(waiting.try_recv().unwrap(), Err(SubmitError::Unknown));
        assert!(push_in(&mut pending, message("p"), &lane, 0).is_err());
    }
    let (mut pending, lane) = (pending(), Arc::default());
    for _ in 0..PENDING_COMMANDS_MAX {
        pending.push(Cut::Small(command()), None, 0).unwrap();
    }
    assert_eq!(push_in(&mut pending, message("p"), &lane, 0).err(), Some(SubmitError::Overloaded));
    assert!(lane.is_broken());
}

#[test]
fn a_registration_is_taken_back_only_before_it_is_sent() {
    let mut pending = pending();
    let connection = ConnectionRef { node: 1, incarnation: 100, connection: 7 };
    let connect = || Cut::Small(crate::cluster::cluster_test::kit::connect_command(connection));
    pending.push(connect(), None, 0).unwrap();
    assert!(pending.withdraw_connect(connection));
    assert!(!pending.withdraw_connect(connection));
    assert!(pending.is_empty());
    pending.push(connect(), None, 0).unwrap();
    send(&mut pending);
    assert!(!pending.withdraw_connect(connection));
}
