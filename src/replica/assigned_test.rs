//! Shared subscriptions: what members were assigned and did not get, and declarations.

use std::sync::Arc;

use super::command::{Assignment, Command, DeclareCommand, QueueStep, SubscriptionRecord, TakeCommand, Target};
use super::event::{Event, OutboxEvent, Position};
use super::ids::ShardId;
use super::testing::{Bench, connect, disconnect, group, message, on, outbox_of, subscription};
use crate::mqtt::{Message, QoS, SubscriptionFilter, SubscriptionIds};
use crate::signal::{DropReason, Receiver};

const MEMBER: super::ConnectionRef = super::ConnectionRef { node: 1, incarnation: 1, connection: 1 };

fn qos2(topic: &str) -> Arc<Message> {
    Arc::new(Message { qos: QoS::ExactlyOnce, ..Message::clone(&message(topic)) })
}

fn join(bench: &mut Bench, client: &str, connection: super::ConnectionRef, session_expiry_interval_s: u32) {
    bench.connect(super::ConnectCommand { session_expiry_interval_s, lifecycle: false, ..connect(client, connection) });
    let filter = SubscriptionFilter { share: Some("g".into()), filter: "t/+".into() };
    let subscriptions = vec![SubscriptionRecord { filter, ..subscription("x", QoS::ExactlyOnce) }];
    bench.run(Command::Subscribe { client: client.into(), connection, subscriptions });
}

/// Gives a member a message of the group, as the taker of its shard does.
fn hand(bench: &mut Bench, client: &str, topic: &str) -> Vec<Event> {
    bench.run(Command::Enqueue { message: qos2(topic), targets: vec![to_member(client)] }).1
}

fn to_member(client: &str) -> Target {
    let (client, group) = (client.into(), group("g", "t/+"));
    Target::Member { client, group, retain: false, subscription_ids: SubscriptionIds::new() }
}

/// The end of a connection on which entries up to `sent_seq` were sent.
fn end_at(end: Command, sent_seq: u64) -> Command {
    let Command::Disconnect { client, connection, initiator, reason_code, will, session_expiry_interval_s, .. } = end else {
        panic!()
    };
    Command::Disconnect { client, connection, initiator, reason_code, will, session_expiry_interval_s, sent_seq }
}

/// The bench, also as it is after a restart.
fn both(bench: Bench, check: impl Fn(&mut Bench)) {
    let mut restarted = Bench::new();
    (restarted.now_ms, restarted.index) = (bench.now_ms, bench.index);
    restarted.resume(&bench);
    let mut bench = bench;
    check(&mut bench);
    check(&mut restarted);
    assert_eq!(bench.state.digest(), restarted.state.digest());
}

#[test]
fn what_was_assigned_and_not_sent_goes_back_in_order_when_the_member_leaves() {
    for session_expiry_s in [0, 100] {
        let mut bench = Bench::new();
        join(&mut bench, "c", MEMBER, session_expiry_s);
        for topic in ["t/1", "t/2", "t/3", "t/4"] {
            assert_eq!(outbox_of(&hand(&mut bench, "c", topic)), [""; 0]);
        }
        both(bench, |bench| {
            bench.acknowledge("c", MEMBER, 1, QueueStep::Completed);
            let (_, events) = bench.run(end_at(disconnect("c", MEMBER, false), 2));
            // [MQTT-4.8.2-5]: t/2 was begun with this member, and nobody else gets it.
            assert_eq!(outbox_of(&events), ["return t/3 to $share/g/t/+", "return t/4 to $share/g/t/+"]);
            let kept: &[u64] = if session_expiry_s > 0 { &[2] } else { &[] };
            assert_eq!(bench.queued_seqs("c"), kept);
            assert_eq!(bench.state.queued_count(), kept.len());
            let begun = bench.state.assigned.get("c").map(|assigned| assigned.keys().copied().collect::<Vec<_>>());
            assert_eq!(begun.unwrap_or_default(), kept);
            assert_eq!(outbox_of(&bench.pass(1_000_000)), [""; 0], "the end of the session gives nothing back");
        });
    }
}

#[test]
fn what_was_begun_with_a_member_stays_with_it_when_it_comes_again() {
    let mut bench = Bench::new();
    join(&mut bench, "c", MEMBER, 100);
    for topic in ["t/1", "t/2", "t/3"] {
        hand(&mut bench, "c", topic);
    }
    let end = |connection, sent_seq| end_at(disconnect("c", connection, false), sent_seq);
    assert_eq!(outbox_of(&bench.run(end(MEMBER, 2)).1), ["return t/3 to $share/g/t/+"]);
    both(bench, |bench| {
        let second = on(1, 1, 2);
        bench.connect(super::ConnectCommand { lifecycle: false, ..connect("c", second) });
        let of_group = |bench: &Bench| bench.state.assigned_after(&"c".into(), 0).count();
        assert_eq!((bench.queued_seqs("c"), of_group(bench)), (vec![1, 2], 0), "begun is begun");
        hand(bench, "c", "t/4");
        assert_eq!(of_group(bench), 1);
        bench.acknowledge("c", second, 1, QueueStep::Received);
        // Gone again before anything was sent again.
        assert_eq!(outbox_of(&bench.run(end(second, 0)).1), ["return t/4 to $share/g/t/+"]);
        assert_eq!(bench.queued_seqs("c"), [1, 2]);
        let third = on(1, 1, 3);
        bench.connect(super::ConnectCommand { lifecycle: false, ..connect("c", third) });
        for (seq, step) in [(1, QueueStep::Completed), (2, QueueStep::Received), (2, QueueStep::Completed)] {
            assert_eq!(outbox_of(&bench.acknowledge("c", third, seq, step)), [""; 0]);
        }
        assert!(bench.state.assigned.is_empty());
        assert_eq!(bench.state.queued_count(), 0);
    });
}

#[test]
fn what_a_members_own_queue_loses_of_a_group_is_the_groups_loss() {
    let of_group = Receiver::SharedSubscription("$share/g/t/+".into());
    let receivers = |events: &[Event]| -> Vec<(String, Receiver)> {
        let told = events.iter().filter_map(|event| {
            let Event::Outbox { event, .. } = event else { return None };
            if let OutboxEvent::Dropped(lost) = &**event {
                return Some((&lost.message, &lost.receiver));
            }
            if let OutboxEvent::Expired(lost) = &**event { Some((&lost.message, &lost.receiver)) } else { None }
        });
        told.map(|(message, receiver)| (message.topic.to_string(), receiver.clone())).collect()
    };
    let own = |bench: &mut Bench, topic: &str| {
        bench.run(Command::Enqueue { message: message(topic), targets: vec![super::testing::to_session("c")] }).1
    };
    let mut bench = Bench::new();
    join(&mut bench, "c", MEMBER, 100);
    for topic in ["t/1", "t/2", "t/3", "t/4"] {
        hand(&mut bench, "c", topic);
    }
    own(&mut bench, "own/5");
    let expiring = |topic: &str, bench: &Bench| {
        let message = Message { message_expiry_interval: Some(5), received_at_ms: bench.now_ms, ..Message::clone(&qos2(topic)) };
        Command::Enqueue { message: Arc::new(message), targets: vec![to_member("c")] }
    };
    let sixth = expiring("t/6", &bench);
    bench.run(sixth.clone());
    both(bench, |bench| {
        let too_large = QueueStep::Dropped(DropReason::MaximumPacketSizeExceeded);
        for (seq, step, lost) in [(1, too_large, "t/1"), (2, QueueStep::Expired, "t/2")] {
            let told = receivers(&bench.acknowledge("c", MEMBER, seq, step));
            assert_eq!(told, [(lost.to_owned(), of_group.clone())]);
        }
        let told = receivers(&bench.acknowledge("c", MEMBER, 5, too_large));
        assert_eq!(told, [("own/5".to_owned(), Receiver::Client("c".into()))]);
        bench.now_ms += 5000;
        assert_eq!(receivers(&bench.run(sixth.clone()).1), [("t/6".to_owned(), of_group.clone())], "expired on its way");
        // What was sent stays the group's loss while the member is away.
        bench.state.sessions.get_mut("c").unwrap().queue_head.discard_oldest = true;
        bench.state.sessions.get_mut("c").unwrap().queue_head.limit = 2;
        bench.run(end_at(disconnect("c", MEMBER, false), 3));
        assert_eq!(bench.queued_seqs("c"), [3]);
        bench.run(end_at(disconnect("c", MEMBER, false), 3));
        let head = &mut bench.state.sessions.get_mut("c").unwrap().queue_head;
        head.sent_seq = 0;
        own(bench, "own/7");
        assert_eq!(receivers(&own(bench, "own/8")), [("t/3".to_owned(), of_group.clone())]);
        assert!(bench.state.assigned.is_empty());
    });
}

#[test]
fn of_a_member_whose_node_died_only_what_cannot_have_been_sent_goes_back() {
    let mut bench = Bench::new();
    join(&mut bench, "c", MEMBER, 100);
    for number in 0..60 {
        // Room for more than may be in flight.
        bench.state.sessions.get_mut("c").unwrap().queue_head.limit = 100;
        hand(&mut bench, "c", &format!("t/{number}"));
    }
    let (_, events) = bench.run(Command::NodeDown { node: 1, incarnation: 1 });
    assert_eq!(outbox_of(&events).len(), 10);
    assert_eq!(outbox_of(&events)[0], "return t/50 to $share/g/t/+");
    assert_eq!(bench.queued_seqs("c").len(), 50);
}

#[test]
fn a_member_that_is_gone_or_full_or_no_member_gets_nothing() {
    let mut bench = Bench::new();
    let returned = ["return t/1 to $share/g/t/+"];
    assert_eq!(outbox_of(&hand(&mut bench, "c", "t/1")), returned, "no session");
    join(&mut bench, "c", MEMBER, 100);
    for _ in 0..10 {
        assert_eq!(outbox_of(&hand(&mut bench, "c", "t/1")), [""; 0]);
    }
    assert_eq!(outbox_of(&hand(&mut bench, "c", "t/1")), returned, "a full queue");
    (1..=10).for_each(|seq| drop(bench.acknowledge("c", MEMBER, seq, QueueStep::Completed)));
    let filters = vec![SubscriptionFilter { share: Some("g".into()), filter: "t/+".into() }];
    bench.run(Command::Unsubscribe { client: "c".into(), connection: MEMBER, filters });
    assert_eq!(outbox_of(&hand(&mut bench, "c", "t/1")), returned, "not subscribed");
    join(&mut bench, "c", on(1, 1, 2), 100);
    bench.run(disconnect("c", on(1, 1, 2), false));
    assert_eq!(outbox_of(&hand(&mut bench, "c", "t/1")), returned, "not connected");
}

#[test]
fn a_queue_takes_back_beyond_its_limit_and_keeps_it() {
    let mut bench = Bench::new();
    let id = group("g", "t/+");
    let queue = Target::Group { group: id.clone(), queue_limit: 1, discard_oldest: false };
    let back = || vec![Target::Returned { group: id.clone() }];
    bench.run(Command::Enqueue { message: qos2("t/1"), targets: back() });
    assert_eq!(bench.state.group(&id), None, "a queue that is gone with its members takes nothing back");
    bench.run(Command::Enqueue { message: qos2("t/1"), targets: vec![queue.clone()] });
    let (_, events) = bench.run(Command::Enqueue { message: qos2("t/2"), targets: back() });
    assert_eq!(events, [Event::GroupQueued { group: id.clone() }]);
    assert_eq!(bench.state.group_queue_after(&id, 0, 9).len(), 2);
    let (_, events) = bench.run(Command::Enqueue { message: qos2("t/3"), targets: vec![queue] });
    assert_eq!(outbox_of(&events), ["drop t/3"]);
}

#[test]
fn an_assigned_entry_comes_to_its_member_by_the_outbox() {
    let mut bench = Bench::new();
    join(&mut bench, "c", MEMBER, 100);
    let id = group("g", "t/+");
    let queue = Target::Group { group: id.clone(), queue_limit: 9, discard_oldest: false };
    bench.run(Command::Enqueue { message: qos2("t/1"), targets: vec![queue] });
    let assignment = Assignment { seq: 1, client: "c".into(), retain: false, subscription_ids: SubscriptionIds::new() };
    bench.run(Command::AssignSharedFrom { group: id.clone(), assignments: vec![assignment] });
    let outbox = bench.state.outbox_after(Position::default(), 9);
    let Some((to, OutboxEvent::AssignedFrom { client, group: of, message, .. })) =
        outbox.last().map(|(position, event)| (*position, (**event).clone()))
    else {
        panic!()
    };
    assert_eq!(of, id);
    let target = Target::Member { client, group: of, retain: false, subscription_ids: SubscriptionIds::new() };
    let take = |from| {
        let enqueue = vec![(message.clone(), vec![target.clone()])];
        let take = TakeCommand { source: ShardId(0), from, to, enqueue, retain: Vec::new(), republish: Vec::new() };
        Command::Take(Box::new(take))
    };
    bench.run(take(Position::default()));
    bench.run(take(Position::default()));
    assert_eq!(bench.queued_seqs("c"), [1]);
}

fn declare(node: u64, filters: &[&str]) -> Command {
    let groups = filters.iter().map(|filter| group("g", filter)).collect();
    Command::Declare(DeclareCommand { node, groups, queue_limit: 2, discard_oldest: false })
}

#[test]
fn a_group_is_declared_while_a_node_declares_it_and_its_queue_stays() {
    let mut bench = Bench::new();
    let id = group("g", "a");
    let told = |declared| Event::GroupDeclared { group: id.clone(), declared };
    assert_eq!(bench.run(declare(1, &["a"])).1, [told(true)]);
    assert_eq!(bench.state.group(&id).unwrap().queue_head.limit, 2);
    assert_eq!(bench.run(declare(2, &["a", "b"])).1.len(), 1);
    assert_eq!(bench.run(declare(2, &["b", "a"])).1, []);
    let next_seq = bench.state.group(&id).unwrap().queue_head.next_seq;
    let remove = Command::RemoveGroup { group: id.clone(), next_seq };
    both(bench, |bench| {
        bench.run(remove.clone());
        assert!(bench.state.group(&id).is_some(), "a declared one is not removed");
        assert_eq!(bench.run(declare(1, &[])).1, [], "another node still declares it");
        assert_eq!(bench.run(declare(2, &["b"])).1, [told(false)]);
        assert!(bench.state.group(&id).is_some(), "its dispatcher decides when it goes");
        assert_eq!(bench.run(remove.clone()).1, [Event::GroupRemoved { group: id.clone() }]);
        let declared: Vec<_> = bench.state.declared().map(|(group, nodes)| (group.filter.to_string(), nodes.len())).collect();
        assert_eq!(declared, [("b".to_owned(), 1)]);
    });
}
