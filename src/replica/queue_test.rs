use std::sync::Arc;

use bytes::Bytes;

use super::ConnectionRef;
use super::command::{Assignment, Command, ConnectCommand, QueueStep, TakeCommand, Target};
use super::event::{Event, OutboxEvent, Outcome, Position};
use super::ids::ShardId;
use super::state::State;
use super::stored_queue::IN_FLIGHT_MAX;
use super::testing::{Bench, connect, disconnect, expiring, group, message, on, outbox_of, to_session};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{GroupId, Message, Origin, QoS};
use crate::signal::{DropReason, Receiver};

const FIRST: ConnectionRef = ConnectionRef { node: 1, incarnation: 1, connection: 1 };

/// A bench with the offline session `c`.
fn offline(queue_limit: u32, discard_oldest: bool) -> Bench {
    let mut bench = online(queue_limit, discard_oldest);
    bench.run(disconnect("c", FIRST, false));
    bench
}

fn online(queue_limit: u32, discard_oldest: bool) -> Bench {
    let mut bench = Bench::new();
    bench.connect(ConnectCommand { queue_limit, discard_oldest, ..connect("c", FIRST) });
    bench
}

fn last_outbox(bench: &Bench) -> Arc<OutboxEvent> {
    bench.state.outbox_after(Position::default(), usize::MAX).pop().unwrap().1
}

fn to_group(group: &GroupId, queue_limit: u32, discard_oldest: bool) -> Target {
    Target::Group { group: group.clone(), queue_limit, discard_oldest }
}

#[test]
fn a_full_queue_discards_the_new_message_or_the_oldest() {
    for (discard_oldest, dropped, kept) in [(false, "c", [1, 2]), (true, "a", [2, 3])] {
        let mut bench = offline(2, discard_oldest);
        bench.enqueue("c", &message("a"));
        bench.enqueue("c", &message("b"));
        let events = bench.enqueue("c", &message("c"));
        assert_eq!(outbox_of(&events), [format!("drop {dropped}")]);
        let OutboxEvent::Dropped(report) = &*last_outbox(&bench) else { panic!() };
        assert_eq!(report.receiver, Receiver::Client("c".into()));
        assert_eq!((report.reason, report.qos), (DropReason::ClientMessageQueueFull, QoS::AtLeastOnce));
        assert_eq!(bench.queued_seqs("c"), kept);
        assert_eq!(bench.state.queued_count(), 2);
    }
}

#[test]
fn what_may_be_in_flight_is_not_discarded() {
    // A connected client: the first 50 may be in flight.
    let mut bench = online(52, true);
    for _ in 0..53 {
        bench.enqueue("c", &message("t"));
    }
    let seqs = bench.queued_seqs("c");
    assert_eq!((seqs.len(), seqs[49], seqs[50]), (52, 50, 52));
    let mut bench = online(3, true);
    for topic in ["a", "b", "c"] {
        bench.enqueue("c", &message(topic));
    }
    assert_eq!(outbox_of(&bench.enqueue("c", &message("d"))), ["drop d"]);
    // Offline: what was sent before.
    bench.run(Command::Disconnect {
        client: "c".into(),
        connection: FIRST,
        initiator: crate::signal::Initiator::Unspecified,
        reason_code: None,
        will: false,
        session_expiry_interval_s: None,
        sent_seq: 1,
    });
    assert_eq!(outbox_of(&bench.enqueue("c", &message("e"))), ["drop b"]);
    assert_eq!(bench.queued_seqs("c"), [1, 3, 4]);
}

#[test]
fn of_a_client_that_takes_few_messages_at_a_time_only_those_may_be_in_flight() {
    let mut bench = Bench::new();
    let command = ConnectCommand { queue_limit: 5, discard_oldest: true, ..connect("c", FIRST) };
    bench.run(Command::connect(command.clone(), 2, 3));
    for topic in ["a", "b", "c", "d", "e"] {
        bench.enqueue("c", &message(topic));
    }
    assert_eq!(outbox_of(&bench.enqueue("c", &message("f"))), ["drop c"]);
    // Stored with the session, and with the snapshot.
    let mut copy = Bench::new();
    copy.resume(&bench);
    for bench in [&mut bench, &mut copy] {
        assert_eq!(bench.state.session("c").unwrap().window(), 2);
        assert_eq!(outbox_of(&bench.enqueue("c", &message("g"))), ["drop d"]);
    }
    // Its node dies: no more than two can have been sent.
    bench.run(Command::NodeDown { node: FIRST.node, incarnation: FIRST.incarnation });
    assert_eq!(bench.state.session("c").unwrap().queue_head.sent_seq, 2);
    // It comes again and takes as many as anybody.
    let second = ConnectionRef { incarnation: 2, connection: 2, ..FIRST };
    bench.run(Command::connect(ConnectCommand { connection: second, ..command }, 65_535, 3));
    assert_eq!(bench.state.session("c").unwrap().window(), IN_FLIGHT_MAX);
    assert_eq!(bench.reloaded().session("c").unwrap().window(), IN_FLIGHT_MAX);
}

#[test]
fn what_a_client_takes_is_told_to_those_only_who_can_read_it() {
    let since = |window, level| Command::connect(connect("c", FIRST), window, level).since();
    assert_eq!((since(2, 3), since(2, 2), since(IN_FLIGHT_MAX, 3), since(usize::MAX, 3)), (3, 2, 2, 2));
}

#[test]
fn messages_of_retained_origin_are_counted_apart() {
    let mut bench = offline(1, true);
    let retained = Target::Session {
        client: "c".into(),
        qos: QoS::AtLeastOnce,
        retain: true,
        subscription_ids: crate::mqtt::SubscriptionIds::new(),
        retained_origin: true,
    };
    let mut enqueue = |topic, target: &Target| {
        outbox_of(&bench.run(Command::Enqueue { message: message(topic), targets: vec![target.clone()] }).1)
    };
    assert_eq!(enqueue("r1", &retained), [""; 0]);
    assert_eq!(enqueue("r2", &retained), [""; 0]);
    assert_eq!(enqueue("a", &to_session("c")), [""; 0]);
    assert_eq!(enqueue("b", &to_session("c")), ["drop a"]);
    assert_eq!(bench.queued_seqs("c"), [1, 2, 4]);
    assert_eq!(bench.state.session("c").unwrap().queue.retained_count, 2);
}

#[test]
fn a_session_that_is_gone_takes_no_messages() {
    let mut bench = offline(10, false);
    assert_eq!(bench.enqueue("nobody", &message("t")), []);
    bench.now_ms += 100_000;
    assert_eq!(bench.enqueue("c", &message("t")), []);
    assert_eq!(bench.state.queued_count(), 0);
}

#[test]
fn a_queue_that_grew_is_told_once_for_each_entry_of_the_log() {
    let mut bench = online(10, false);
    let enqueue = Command::Enqueue { message: message("t"), targets: vec![to_session("c"), to_session("c")] };
    let applied = bench.apply_from(1, 1, vec![enqueue.clone(), enqueue]);
    assert_eq!(applied.events, [Event::Queued { client: "c".into() }]);
    assert_eq!(bench.state.queued_count(), 4);
}

#[test]
fn deliveries_walk_through_their_steps() {
    let mut bench = online(10, false);
    for topic in ["a", "b", "c", "d", "e"] {
        bench.enqueue("c", &message(topic));
    }
    assert_eq!(bench.acknowledge("c", FIRST, 2, QueueStep::Received), []);
    let second = &bench.state.queue_after("c", 1, 1)[0];
    assert_eq!((second.seq, &second.message), (2, &None));
    assert_eq!(bench.acknowledge("c", FIRST, 2, QueueStep::Completed), []);
    assert_eq!(bench.acknowledge("c", FIRST, 1, QueueStep::Completed), []);
    assert_eq!(bench.acknowledge("c", FIRST, 1, QueueStep::Completed), [], "known already");
    assert_eq!(outbox_of(&bench.acknowledge("c", FIRST, 3, QueueStep::Expired)), ["expire c"]);
    let dropped = QueueStep::Dropped(DropReason::MaximumPacketSizeExceeded);
    assert_eq!(outbox_of(&bench.acknowledge("c", FIRST, 4, dropped)), ["drop d"]);
    assert_eq!(bench.queued_seqs("c"), [5]);
    assert_eq!(bench.state.queued_count(), 1);
}

#[test]
fn an_expired_message_is_reported_instead_of_queued() {
    let mut bench = offline(10, false);
    let now_ms = bench.now_ms;
    assert_eq!(outbox_of(&bench.enqueue("c", &expiring("a", Some(0), now_ms))), ["expire a"]);
    assert_eq!(outbox_of(&bench.enqueue("c", &expiring("b", Some(3), now_ms - 3000))), ["expire b"]);
    assert_eq!(outbox_of(&bench.enqueue("c", &expiring("c", Some(3), now_ms - 2999))), [""; 0]);
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 1));
}

#[test]
fn queued_messages_expire_in_order_and_no_more_at_a_time_than_allowed() {
    let mut bench = offline(10, false);
    let now_ms = bench.now_ms;
    for (topic, interval_s) in [("never", None), ("late", Some(9)), ("b", Some(2)), ("a", Some(1)), ("c", Some(2))] {
        bench.enqueue("c", &expiring(topic, interval_s, now_ms));
    }
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 1000));
    bench.now_ms += 2000;
    assert_eq!(outbox_of(&bench.run(Command::Expire { limit: 2 }).1), ["expire a", "expire b"]);
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 2000));
    assert_eq!(outbox_of(&bench.run(Command::Expire { limit: 2 }).1), ["expire c"]);
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 9000));
    assert_eq!(bench.queued_seqs("c"), [1, 2]);
    assert_eq!(bench.state.queued_count(), 2);
}

#[test]
fn what_may_be_in_flight_expires_only_when_the_client_is_gone() {
    let mut bench = online(100, false);
    let now_ms = bench.now_ms;
    for n in 0..52 {
        bench.enqueue("c", &expiring("t", Some(10 - n / 10), now_ms));
    }
    // Entries 51 and 52 are behind what may be in flight.
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 5000));
    // The client acknowledges one: entry 51 moves up and out of the shard's hands.
    bench.acknowledge("c", FIRST, 7, QueueStep::Completed);
    assert_eq!(bench.pass(20_000).len(), 1);
    assert_eq!(bench.state.next_expiry_ms(), None, "no busy loop about what the node has to decide");
    bench.acknowledge("c", FIRST, 1, QueueStep::Received);
    bench.run(disconnect("c", FIRST, false));
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 5000));
    assert_eq!(bench.pass(0).len(), 49);
    assert_eq!(bench.queued_seqs("c"), [1], "after PUBREC nothing expires");
    // Back online the shield is up again.
    bench.connect(connect("c", FIRST));
    let fresh = expiring("t", Some(1), bench.now_ms);
    bench.enqueue("c", &fresh);
    assert_eq!(bench.state.next_expiry_ms(), None);
}

#[test]
fn a_removed_session_does_not_report_its_queue() {
    let mut bench = offline(10, false);
    let now_ms = bench.now_ms;
    bench.enqueue("c", &expiring("t", Some(200), now_ms));
    bench.enqueue("c", &message("u"));
    let events = bench.pass(100_000);
    assert!(matches!(&events[..], [Event::SessionRemoved { client, expired_at_ms: Some(_) }] if client == "c"), "{events:?}");
    assert_eq!(bench.pass(1_000_000), []);
    assert_eq!((bench.state.queued_count(), bench.state.next_expiry_ms()), (0, None));
}

#[test]
fn a_shared_subscription_has_one_queue() {
    let mut bench = Bench::new();
    let id = group("g", "t/+");
    let qos2 = Arc::new(Message { qos: QoS::ExactlyOnce, retain: true, ..Message::clone(&message("t/1")) });
    let mut enqueue = |message: &Arc<Message>, limit, oldest| {
        bench.run(Command::Enqueue { message: message.clone(), targets: vec![to_group(&id, limit, oldest)] }).1
    };
    assert_eq!(enqueue(&qos2, 1, false), [Event::GroupQueued { group: id.clone() }]);
    assert_eq!(outbox_of(&enqueue(&message("t/2"), 1, false)), ["drop t/2"]);
    assert_eq!(outbox_of(&enqueue(&message("t/3"), 1, true)), ["drop t/1"]);
    let OutboxEvent::Dropped(report) = &*last_outbox(&bench) else { panic!() };
    assert_eq!(report.receiver, Receiver::SharedSubscription("$share/g/t/+".into()));
    assert_eq!(report.qos, QoS::ExactlyOnce, "the most a member can have");
    let expired = expiring("t/4", Some(1), bench.now_ms);
    bench.run(Command::Enqueue { message: expired, targets: vec![to_group(&id, 5, true)] });
    assert_eq!(outbox_of(&bench.pass(1000)), ["expire t/4"]);

    let seqs: Vec<_> = bench.state.group_queue_after(&id, 0, 10).iter().map(|entry| entry.seq).collect();
    assert_eq!(seqs, [2]);
    bench.run(Command::AcknowledgeShared { group: id.clone(), steps: vec![(2, QueueStep::Completed)] });
    assert_eq!(bench.state.queued_count(), 0);
    bench.run(Command::Enqueue { message: message("t/5"), targets: vec![to_group(&id, 5, true)] });
    let next_seq = bench.state.group(&id).unwrap().queue_head.next_seq;
    let remove = |next_seq| Command::RemoveGroup { group: id.clone(), next_seq };
    assert_eq!(bench.run(remove(next_seq - 1)).1, [], "something was queued since");
    let (_, events) = bench.run(remove(next_seq));
    assert_eq!(events, [Event::GroupRemoved { group: id.clone() }]);
    assert_eq!(bench.run(remove(next_seq)).1, []);
    assert_eq!((bench.state.queued_count(), bench.state.group(&id)), (0, None));
}

fn lend(group: &GroupId, from: u64, through: u64) -> Command {
    Command::LendShared { group: group.clone(), from, through }
}

/// Of a group, with what its dispatcher needs to be lent: the bench also as it is after a restart.
fn lent(through: u64, fill: impl Fn(&mut Bench, &GroupId)) -> [Bench; 2] {
    let id = group("g", "t");
    let mut bench = Bench::new();
    fill(&mut bench, &id);
    bench.run(lend(&id, 0, through));
    assert_eq!(bench.state.group(&id).unwrap().queue_head.sent_seq, through);
    let mut copy = Bench::new();
    (copy.now_ms, copy.index) = (bench.now_ms, bench.index);
    copy.resume(&bench);
    assert_eq!(copy.state.digest(), bench.state.digest());
    [bench, copy]
}

#[test]
fn what_the_dispatcher_of_a_shared_subscription_was_lent_is_not_discarded() {
    let enqueue = |bench: &mut Bench, id: &GroupId, topic: &str| {
        outbox_of(&bench.run(Command::Enqueue { message: message(topic), targets: vec![to_group(id, 3, true)] }).1)
    };
    let full = |bench: &mut Bench, id: &GroupId| {
        for topic in ["a", "b", "c"] {
            assert_eq!(enqueue(bench, id, topic), [""; 0]);
        }
    };
    for mut bench in lent(1, full) {
        let id = group("g", "t");
        assert_eq!(enqueue(&mut bench, &id, "d"), ["drop b"]);
        // A former leader's word counts no more.
        bench.run(lend(&id, 0, 9));
        assert_eq!(enqueue(&mut bench, &id, "e"), ["drop c"]);
        // All of it, and what is still to come: as for a client of which all may be in flight, the new message goes.
        bench.run(lend(&id, 1, 6));
        assert_eq!(enqueue(&mut bench, &id, "f"), ["drop f"]);
        let taken = Command::AcknowledgeShared { group: id.clone(), steps: vec![(1, QueueStep::Completed)] };
        assert_eq!(outbox_of(&bench.run(taken).1), [""; 0], "what was in flight is acknowledged and told by nobody");
        assert_eq!(enqueue(&mut bench, &id, "g"), [""; 0]);
        assert_eq!(enqueue(&mut bench, &id, "h"), ["drop h"], "lent before it came");
        bench.run(lend(&id, 6, 0));
        assert_eq!(enqueue(&mut bench, &id, "i"), ["drop d"]);
    }
}

#[test]
fn what_the_dispatcher_of_a_shared_subscription_was_lent_expires_once_it_is_given_back() {
    let fill = |bench: &mut Bench, id: &GroupId| {
        for (topic, after_s) in [("a", Some(1)), ("b", None), ("c", Some(2)), ("d", Some(3))] {
            let message = expiring(topic, after_s, bench.now_ms);
            bench.run(Command::Enqueue { message, targets: vec![to_group(id, 9, false)] });
        }
    };
    for mut bench in lent(3, fill) {
        let id = group("g", "t");
        let now_ms = bench.now_ms;
        assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 3000), "no busy loop about what the dispatcher has to decide");
        assert_eq!(bench.state.lent_expiring(&id, 9), [(1, now_ms + 1000), (3, now_ms + 2000)]);
        assert_eq!(bench.state.lent_expiring(&id, 2), [(1, now_ms + 1000)]);
        assert_eq!(bench.state.missing_in_group(&id, [1, 4, 7].into_iter()), [7]);
        assert_eq!(outbox_of(&bench.pass(5000)), ["expire d"]);
        let late = expiring("e", Some(1), bench.now_ms);
        bench.run(Command::Enqueue { message: late, targets: vec![to_group(&id, 9, false)] });
        bench.run(lend(&id, 3, 99));
        assert_eq!(outbox_of(&bench.pass(5000)), [""; 0]);
        // One that a member acknowledged, one that no member has.
        let steps = vec![(1, QueueStep::Completed), (3, QueueStep::Expired)];
        assert_eq!(outbox_of(&bench.run(Command::AcknowledgeShared { group: id.clone(), steps }).1), ["expire c"]);
        bench.run(lend(&id, 99, 0));
        assert_eq!(outbox_of(&bench.pass(0)), ["expire e"]);
        assert_eq!(bench.state.group_queue_after(&id, 0, 9).len(), 1);
    }
}

#[test]
fn a_qos2_entry_of_a_shared_subscription_is_assigned_to_its_member_once() {
    let mut bench = Bench::new();
    let id = group("g", "t");
    let qos2 = Arc::new(Message { qos: QoS::ExactlyOnce, ..Message::clone(&message("t")) });
    bench.run(Command::Enqueue { message: qos2.clone(), targets: vec![to_group(&id, 10, false)] });
    let assignment = Assignment { seq: 1, client: "c".into(), retain: false, subscription_ids: [7].into_iter().collect() };
    let assign = Command::AssignSharedFrom { group: id, assignments: vec![assignment] };
    assert_eq!(outbox_of(&bench.run(assign.clone()).1), ["assign t to c"]);
    let OutboxEvent::AssignedFrom { message, subscription_ids, .. } = &*last_outbox(&bench) else { panic!() };
    assert_eq!((message, &subscription_ids[..]), (&qos2, &[7][..]));
    assert_eq!(bench.state.queued_count(), 0);
    assert_eq!(outbox_of(&bench.run(assign).1), [""; 0], "the entry is gone");
}

/// What stands in a state or a snapshot must be readable to a program of the release before while the cluster's level is its.
#[test]
fn the_command_of_version_2_writes_the_event_of_version_2() {
    let mut bench = Bench::new();
    let id = group("g", "t");
    let qos2 = Arc::new(Message { qos: QoS::ExactlyOnce, ..Message::clone(&message("t")) });
    bench.run(Command::Enqueue { message: qos2.clone(), targets: vec![to_group(&id, 10, false)] });
    let assignments = vec![Assignment { seq: 1, client: "c".into(), retain: false, subscription_ids: [7].into_iter().collect() }];
    let old = Command::AssignShared { group: id.clone(), assignments: assignments.clone() };
    assert_eq!((old.since(), Command::AssignSharedFrom { group: id, assignments }.since()), (2, 3));
    bench.run(old);
    let OutboxEvent::Assigned { message, .. } = &*last_outbox(&bench) else { panic!() };
    assert_eq!(message, &qos2);
}

#[test]
fn a_qos2_message_once_sent_does_not_expire() {
    let mut bench = online(10, false);
    let now_ms = bench.now_ms;
    for qos in [QoS::ExactlyOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let Target::Session { client, retain, subscription_ids, retained_origin, .. } = to_session("c") else { panic!() };
        let target = Target::Session { client, qos, retain, subscription_ids, retained_origin };
        bench.run(Command::Enqueue { message: expiring("t", Some(5), now_ms), targets: vec![target] });
    }
    let Command::Disconnect { client, connection, initiator, reason_code, will, session_expiry_interval_s, .. } =
        disconnect("c", FIRST, false)
    else {
        panic!()
    };
    let sent_seq = 2;
    bench.run(Command::Disconnect { client, connection, initiator, reason_code, will, session_expiry_interval_s, sent_seq });
    assert_eq!(bench.pass(6000).len(), 2);
    assert_eq!(bench.queued_seqs("c"), [1], "only what was begun with QoS 2 stays");
    assert_eq!(bench.reloaded().next_expiry_ms(), bench.state.next_expiry_ms());
}

#[test]
fn qos2_publish_with_a_known_packet_id_is_not_published_twice() {
    let mut bench = online(10, false);
    let packet_id = PacketId::new(9).unwrap();
    let receive = |connection| {
        let (client, message) = ("c".into(), message("t"));
        Command::Receive { client, connection, packet_id, message, dead: false }
    };
    let (outcome, events) = bench.run(receive(FIRST));
    assert_eq!((outcome, outbox_of(&events)), (Outcome::Received { duplicate: false }, vec!["publish t".to_owned()]));
    assert!(matches!(&*last_outbox(&bench), OutboxEvent::Publish { dead_known: true, .. }));
    assert!(!last_outbox(&bench).is_will());
    assert_eq!(bench.run(receive(FIRST)), (Outcome::Received { duplicate: true }, Vec::new()));
    bench.run(disconnect("c", FIRST, false));
    let again = on(2, 1, 1);
    bench.connect(connect("c", again));
    assert_eq!(bench.run(receive(again)).0, Outcome::Received { duplicate: true });
    let release = Command::Release { client: "c".into(), connection: again, packet_id };
    assert_eq!(bench.run(release.clone()), (Outcome::Done, Vec::new()));
    assert_eq!(bench.run(release), (Outcome::Done, Vec::new()));
    assert_eq!(bench.run(receive(again)).0, Outcome::Received { duplicate: false });
}

#[test]
fn a_part_of_an_outbox_is_taken_once() {
    let mut bench = offline(10, false);
    let source = ShardId(3);
    let at = |index| Position { index, ordinal: 1 };
    let take = |from, to| {
        Command::Take(Box::new(TakeCommand {
            source,
            from,
            to,
            enqueue: vec![(message("t"), vec![to_session("c")])],
            retain: vec![message("r")],
            republish: vec![message("$dead/x")],
        }))
    };
    let (_, events) = bench.run(take(Position::default(), at(5)));
    assert_eq!(outbox_of(&events), ["publish $dead/x"]);
    assert!(matches!(&*last_outbox(&bench), OutboxEvent::Publish { dead_known: false, .. }));
    assert_eq!(bench.state.taken(source), at(5));
    // Again, from elsewhere, and backwards.
    for (from, to) in [(Position::default(), at(5)), (at(4), at(9)), (at(6), at(9)), (at(5), at(4))] {
        assert_eq!(bench.run(take(from, to)), (Outcome::Done, Vec::new()));
    }
    assert_eq!((bench.state.queued_count(), bench.state.retained_count()), (1, 1));
    assert_eq!(bench.run(take(at(5), at(9))).1.len(), 2);
    assert_eq!(bench.state.taken(source), at(9));
    assert_eq!(bench.state.taken(ShardId(4)), Position::default());
}

#[test]
fn the_outbox_is_read_by_position_and_cut() {
    let mut bench = Bench::new();
    let clients = ["a", "b", "c"];
    let connects = clients.map(|client| Command::Connect(Arc::new(connect(client, on(1, 1, 1))))).to_vec();
    bench.apply_from(1, 1, connects);
    bench.run(Command::NodeDown { node: 1, incarnation: 1 });
    let at = |index, ordinal| Position { index, ordinal };
    let read = |bench: &Bench, after, max| -> Vec<Position> {
        assert_eq!(bench.state.outbox_len_after(after), bench.state.outbox_after(after, usize::MAX).len());
        bench.state.outbox_after(after, max).into_iter().map(|(position, _)| position).collect()
    };
    assert_eq!(read(&bench, at(1, 2), 3), [at(1, 3), at(2, 1), at(2, 2)]);
    assert_eq!(bench.state.outbox_bounds(), (at(2, 3), at(0, 0)));
    bench.run(Command::TrimOutbox { through: at(2, 1) });
    assert_eq!(read(&bench, at(0, 0), 9), [at(2, 2), at(2, 3)]);
    bench.run(Command::TrimOutbox { through: at(1, 1) });
    assert_eq!(bench.state.outbox_bounds(), (at(2, 3), at(2, 1)));
    bench.run(Command::TrimOutbox { through: at(9, 9) });
    assert_eq!(bench.state.outbox_bounds(), (at(2, 3), at(2, 3)));
}

#[test]
fn a_topic_has_one_retained_message() {
    let mut bench = Bench::new();
    let now_ms = bench.now_ms;
    let mut retain = |message: Arc<Message>| bench.run(Command::Retain { message });
    assert_eq!(retain(expiring("t", Some(5), now_ms)), (Outcome::Done, Vec::new()));
    retain(expiring("t", Some(8), now_ms));
    retain(message("u"));
    assert_eq!(bench.state.next_expiry_ms(), Some(now_ms + 8000));
    assert_eq!(bench.state.retained_matching("t", now_ms + 7999).len(), 1);
    assert_eq!(bench.state.retained_matching("t", now_ms + 8000).len(), 0);
    assert_eq!(bench.pass(8000), [], "an expired retained message is not reported");
    assert_eq!(bench.state.retained_count(), 1);
    assert!(bench.state.retained_bytes() > 0);
    let empty = Arc::new(Message { payload: Bytes::new(), ..Message::clone(&message("u")) });
    bench.run(Command::Retain { message: empty });
    assert_eq!((bench.state.retained_count(), bench.state.retained_bytes()), (0, 0));
    assert_eq!(bench.state.next_expiry_ms(), None);
}

#[test]
fn messages_of_retained_origin_have_a_limit_of_their_own() {
    use super::session::{Queue, QueueEntry, QueueHead};
    use super::stored_queue::{Pushed, RETAINED_ORIGIN_MAX};
    let entry = QueueEntry {
        seq: 0,
        qos: QoS::AtLeastOnce,
        retain: true,
        retained_origin: true,
        subscription_ids: crate::mqtt::SubscriptionIds::new(),
        message: Some(message("t")),
    };
    let (mut queue, mut head) = (Queue::default(), QueueHead::new(0, false));
    for _ in 0..RETAINED_ORIGIN_MAX {
        assert!(matches!(queue.push(&mut head, entry.clone()), Pushed::Queued { .. }));
    }
    assert_eq!(queue.push(&mut head, entry.clone()), Pushed::Refused);
    head.discard_oldest = true;
    let pushed = queue.push(&mut head, entry);
    assert!(matches!(pushed, Pushed::QueuedInstead { seq: 100_001, discarded } if discarded.seq() == 1));
    assert_eq!((queue.entries.len(), queue.retained_count), (100_000, 100_000));
}

#[test]
fn a_message_to_retain_is_found_in_the_outbox_until_it_is_cut_and_after_a_restart() {
    let mut bench = online(10, false);
    let mut receive = |id: u16, topic: &str, retain: bool, origin: Origin| {
        let message = Arc::new(Message { retain, origin, ..(*message(topic)).clone() });
        let packet_id = PacketId::new(id).unwrap();
        bench.run(Command::Receive { client: "c".into(), connection: FIRST, packet_id, message, dead: false });
        bench.state.outbox_bounds().0
    };
    let client = || Origin::Client("c".into());
    let first = receive(1, "a", true, client());
    receive(2, "not retained", false, client());
    receive(3, "not by a client", true, Origin::Extension);
    let last = receive(4, "b", true, client());
    let topics = |state: &State, after| {
        let waiting = state.to_retain_after(after).into_iter();
        waiting.map(|(position, message)| (position, message.topic.to_string())).collect::<Vec<_>>()
    };
    let both = [(first, "a".to_owned()), (last, "b".to_owned())];
    assert_eq!(topics(&bench.state, Position::default()), both);
    assert_eq!(topics(&bench.state, first), both[1..]);
    assert_eq!(topics(&bench.reloaded(), Position::default()), both);
    bench.run(Command::TrimOutbox { through: first });
    assert_eq!(topics(&bench.state, Position::default()), both[1..]);
    assert_eq!(topics(&bench.reloaded(), Position::default()), both[1..]);
    bench.run(Command::TrimOutbox { through: last });
    assert!(topics(&bench.state, Position::default()).is_empty());
}
