use super::command::{Command, ConnectCommand, TakeOver};
use super::event::{Event, Outcome};
use super::testing::{Bench, connect, disconnect, filter, message, on, outbox_of, subscription, to_session, will};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{QoS, ReasonCode};
use crate::signal::Initiator;

const FIRST: super::ConnectionRef = super::ConnectionRef { node: 1, incarnation: 1, connection: 1 };
const SECOND: super::ConnectionRef = super::ConnectionRef { node: 2, incarnation: 1, connection: 1 };

fn session_present(outcome: &Outcome) -> bool {
    let Outcome::Connected(connected) = outcome else { panic!("{outcome:?}") };
    connected.session_present
}

fn volatile(client: &str, connection: super::ConnectionRef) -> ConnectCommand {
    ConnectCommand { session_expiry_interval_s: 0, ..connect(client, connection) }
}

/// The events without those of the outbox, by their names.
fn names(events: &[Event]) -> Vec<&'static str> {
    let name = |event: &Event| match event {
        Event::Connected { .. } => Some("Connected"),
        Event::Disconnected { .. } => Some("Disconnected"),
        Event::Close { .. } => Some("Close"),
        Event::SessionRemoved { .. } => Some("SessionRemoved"),
        Event::Subscribed { .. } => Some("Subscribed"),
        Event::Unsubscribed { .. } => Some("Unsubscribed"),
        Event::Queued { .. } => Some("Queued"),
        Event::GroupQueued { .. } => Some("GroupQueued"),
        Event::GroupRemoved { .. } => Some("GroupRemoved"),
        Event::GroupDeclared { .. } => Some("GroupDeclared"),
        Event::Outbox { .. } => None,
    };
    events.iter().filter_map(name).collect()
}

#[test]
fn a_new_session_is_connected_without_session_present() {
    let mut bench = Bench::new();
    let (outcome, events) = bench.connect(connect("c", FIRST));
    assert!(!session_present(&outcome));
    assert_eq!(names(&events), ["Connected"]);
    assert_eq!(outbox_of(&events), ["+c"]);
    assert_eq!(bench.state.incarnations(), [(1, 1)]);
}

#[test]
fn lifecycle_events_are_raised_only_where_wanted() {
    let mut bench = Bench::new();
    let silent = ConnectCommand { lifecycle: false, ..connect("c", FIRST) };
    assert_eq!(outbox_of(&bench.connect(silent).1), [""; 0]);
    // The connection that ends does not want them, the one that begins does.
    assert_eq!(outbox_of(&bench.connect(connect("c", SECOND)).1), ["+c"]);
}

#[test]
fn a_takeover_closes_the_old_connection_before_the_new_one_is_connected() {
    let mut bench = Bench::new();
    bench.connect(connect("c", FIRST));
    bench.run(Command::Subscribe {
        client: "c".into(),
        connection: FIRST,
        subscriptions: vec![subscription("t", QoS::AtLeastOnce)],
    });
    let (outcome, events) = bench.connect(connect("c", SECOND));
    assert!(session_present(&outcome));
    assert_eq!(names(&events), ["Close", "Disconnected", "Connected"]);
    let close = Event::Close { client: "c".into(), connection: FIRST, reason_code: ReasonCode::SessionTakenOver };
    assert_eq!(events[0], close);
    assert_eq!(outbox_of(&events), ["-c SESSION_TAKEN_OVER 142", "+c"]);
    assert_eq!(bench.state.subscription_count(), 1);
    assert_eq!(bench.state.incarnations(), [(2, 1)]);
    // The old connection's own report comes too late.
    assert_eq!(bench.run(disconnect("c", FIRST, true)), (Outcome::Done, Vec::new()));
}

#[test]
fn a_session_with_expiry_0_ends_at_takeover() {
    let mut bench = Bench::new();
    bench.connect(volatile("c", FIRST));
    bench.run(Command::Subscribe {
        client: "c".into(),
        connection: FIRST,
        subscriptions: vec![subscription("t", QoS::AtLeastOnce)],
    });
    let (outcome, events) = bench.connect(connect("c", SECOND));
    assert!(!session_present(&outcome));
    assert_eq!(names(&events), ["Close", "SessionRemoved", "Connected"]);
    assert_eq!(bench.state.subscription_count(), 0);
}

#[test]
fn wills_at_takeover() {
    // (delay, expiry of the old session, clean start of the new connection, published): spec/hivemq.md 9.6
    let cases = [
        (0, 100, false, true),
        (0, 100, true, true),
        (0, 0, false, true),
        (5, 100, false, false),
        (5, 100, true, true),
        (5, 0, false, true),
        (5, 0, true, true),
    ];
    for (delay_s, expiry_s, clean_start, published) in cases {
        let mut bench = Bench::new();
        let old = connect("c", FIRST);
        bench.connect(ConnectCommand { will: Some(will("w", delay_s)), session_expiry_interval_s: expiry_s, ..old });
        let (_, events) = bench.connect(ConnectCommand { clean_start, ..connect("c", SECOND) });
        let mut expected = vec!["-c SESSION_TAKEN_OVER 142"];
        expected.extend(published.then_some("publish w"));
        expected.push("+c");
        assert_eq!(outbox_of(&events), expected, "{delay_s} {expiry_s} {clean_start}");
        assert_eq!(outbox_of(&bench.pass(1_000_000)), [""; 0]);
    }
}

#[test]
fn wills_after_the_end_of_a_connection() {
    // (delay, session expiry, wanted, seconds until it is published)
    let cases = [
        (0, 100, true, Some(0)),
        (0, 0, true, Some(0)),
        (5, 0, true, Some(0)),
        (5, 100, true, Some(5)),
        (500, 100, true, Some(100)),
        (5, u32::MAX, true, Some(5)),
        (0, 100, false, None),
        (5, 100, false, None),
    ];
    for (delay_s, expiry_s, wanted, published_after_s) in cases {
        let mut bench = Bench::new();
        let old = connect("c", FIRST);
        bench.connect(ConnectCommand { will: Some(will("w", delay_s)), session_expiry_interval_s: expiry_s, ..old });
        let (_, mut events) = bench.run(disconnect("c", FIRST, wanted));
        let mut published = None;
        for second in 0..=600 {
            if outbox_of(&events).contains(&"publish w".to_owned()) {
                assert_eq!(published.replace(second), None, "published twice");
            }
            events = bench.pass(1000);
        }
        assert_eq!(published, published_after_s, "{delay_s} {expiry_s} {wanted}");
    }
}

#[test]
fn a_will_is_stamped_when_it_is_published() {
    let mut bench = Bench::new();
    bench.connect(ConnectCommand { will: Some(will("w", 5)), ..connect("c", FIRST) });
    bench.run(disconnect("c", FIRST, true));
    bench.pass(7000);
    let outbox = bench.state.outbox_after(super::Position::default(), 100);
    let super::OutboxEvent::Publish { message, dead_known: false } = &*outbox.last().unwrap().1 else { panic!("{outbox:?}") };
    assert_eq!(message.received_at_ms, bench.now_ms);
    assert!(outbox.last().unwrap().1.is_will());
}

#[test]
fn a_pending_will_is_cancelled_by_resuming_in_time() {
    for (waited_s, published) in [(4, false), (5, true)] {
        let mut bench = Bench::new();
        bench.connect(ConnectCommand { will: Some(will("w", 5)), ..connect("c", FIRST) });
        bench.run(disconnect("c", FIRST, true));
        bench.now_ms += waited_s * 1000;
        let (outcome, events) = bench.connect(connect("c", SECOND));
        assert!(session_present(&outcome));
        assert_eq!(outbox_of(&events).contains(&"publish w".to_owned()), published);
        assert_eq!(outbox_of(&bench.pass(1_000_000)), [""; 0]);
        assert_eq!(bench.state.next_expiry_ms(), None);
    }
}

#[test]
fn clean_start_ends_the_stored_session_and_sends_its_will() {
    let mut bench = Bench::new();
    bench.connect(ConnectCommand { will: Some(will("w", 5)), ..connect("c", FIRST) });
    bench.run(disconnect("c", FIRST, true));
    bench.enqueue("c", &message("t"));
    let (outcome, events) = bench.connect(ConnectCommand { clean_start: true, ..connect("c", SECOND) });
    assert!(!session_present(&outcome));
    assert_eq!(names(&events), ["SessionRemoved", "Connected"]);
    assert_eq!(outbox_of(&events), ["publish w", "+c"]);
    assert_eq!(bench.state.queued_count(), 0);
}

#[test]
fn a_session_is_gone_when_its_expiry_interval_has_passed() {
    for (waited_ms, present) in [(99_999, true), (100_000, false)] {
        let mut bench = Bench::new();
        bench.connect(ConnectCommand { will: Some(will("w", 500)), ..connect("c", FIRST) });
        bench.run(disconnect("c", FIRST, true));
        bench.now_ms += waited_ms;
        let (outcome, events) = bench.connect(connect("c", SECOND));
        assert_eq!(session_present(&outcome), present);
        assert_eq!(outbox_of(&events).contains(&"publish w".to_owned()), !present);
    }
    let mut bench = Bench::new();
    bench.connect(connect("c", FIRST));
    bench.run(disconnect("c", FIRST, true));
    assert_eq!(bench.state.next_expiry_ms(), Some(1_100_000));
    assert_eq!(names(&bench.pass(99_999)), [""; 0]);
    assert_eq!(names(&bench.pass(1)), ["SessionRemoved"]);
}

#[test]
fn a_session_with_the_largest_expiry_never_ends() {
    let mut bench = Bench::new();
    bench.connect(ConnectCommand { session_expiry_interval_s: u32::MAX, ..connect("c", FIRST) });
    bench.run(disconnect("c", FIRST, true));
    assert_eq!(bench.state.next_expiry_ms(), None);
    bench.now_ms += u64::from(u32::MAX) * 2000;
    assert!(session_present(&bench.connect(connect("c", SECOND)).0));
}

#[test]
fn disconnect_may_change_the_expiry_but_not_prolong_a_volatile_session() {
    // (expiry of CONNECT, of DISCONNECT, when the session ends)
    let cases = [(100, Some(5), Some(1_005_000)), (100, None, Some(1_100_000)), (100, Some(0), None), (0, Some(5), None)];
    for (before_s, after_s, expires_at_ms) in cases {
        let mut bench = Bench::new();
        bench.connect(ConnectCommand { session_expiry_interval_s: before_s, ..connect("c", FIRST) });
        let (_, events) = bench.run(Command::Disconnect {
            client: "c".into(),
            connection: FIRST,
            initiator: Initiator::Client,
            reason_code: None,
            will: false,
            session_expiry_interval_s: after_s,
            sent_seq: 0,
        });
        assert_eq!(names(&events), [if expires_at_ms.is_some() { "Disconnected" } else { "SessionRemoved" }]);
        assert_eq!(bench.state.session("c").and_then(|session| session.expires_at_ms), expires_at_ms);
    }
}

#[test]
fn a_lost_node_ends_its_connections_once_in_client_order() {
    let mut bench = Bench::new();
    bench.connect(connect("d", on(1, 4, 1)));
    bench.connect(volatile("b", on(1, 5, 1)));
    bench.connect(connect("a", on(1, 5, 2)));
    bench.connect(connect("c", on(1, 6, 1)));
    bench.connect(connect("e", on(2, 1, 1)));
    let down = Command::NodeDown { node: 1, incarnation: 5 };
    let (_, events) = bench.run(down.clone());
    assert_eq!(outbox_of(&events), ["-a UNSPECIFIED none", "-b UNSPECIFIED none", "-d UNSPECIFIED none"]);
    assert_eq!(names(&events), ["Disconnected", "SessionRemoved", "Disconnected"]);
    assert_eq!(bench.state.incarnations(), [(1, 6), (2, 1)]);
    assert_eq!(bench.run(down), (Outcome::Done, Vec::new()));
}

#[test]
fn what_may_have_been_sent_counts_as_sent_where_the_end_was_not_reported() {
    let mut bench = Bench::new();
    bench.connect(ConnectCommand { queue_limit: 1000, ..connect("c", FIRST) });
    for _ in 0..60 {
        bench.enqueue("c", &message("t"));
    }
    bench.run(Command::NodeDown { node: 1, incarnation: 1 });
    assert_eq!(bench.state.session("c").unwrap().queue_head.sent_seq, 50);
    // A reported end says it exactly, and never more than there is.
    bench.connect(connect("c", SECOND));
    let report = |sent_seq| Command::Disconnect {
        client: "c".into(),
        connection: SECOND,
        initiator: Initiator::Unspecified,
        reason_code: None,
        will: false,
        session_expiry_interval_s: None,
        sent_seq,
    };
    bench.run(report(55));
    assert_eq!(bench.state.session("c").unwrap().queue_head.sent_seq, 55);
    bench.connect(connect("c", SECOND));
    bench.run(report(1000));
    assert_eq!(bench.state.session("c").unwrap().queue_head.sent_seq, 60);
}

#[test]
fn an_operator_ends_connections_and_sessions() {
    // (remove, connected, will wanted, events, outbox)
    type Names = &'static [&'static str];
    let cases: [(bool, bool, bool, Names, Names); 6] = [
        (false, true, true, &["Close", "Disconnected"], &["-c SERVER 152", "publish w"]),
        (false, true, false, &["Close", "Disconnected"], &["-c SERVER 152"]),
        (false, false, true, &[], &[]),
        (true, true, true, &["Close", "SessionRemoved"], &["-c SERVER 152", "publish w"]),
        (true, false, true, &["SessionRemoved"], &["publish w"]),
        (true, false, false, &["SessionRemoved"], &[]),
    ];
    for (remove, connected, wanted, expected_events, expected_outbox) in cases {
        let mut bench = Bench::new();
        // The end of the session cuts the delay short, the end of the connection does not.
        let delay_s = if remove { 50 } else { 0 };
        bench.connect(ConnectCommand { will: Some(will("w", delay_s)), ..connect("c", FIRST) });
        if !connected {
            bench.run(disconnect("c", FIRST, delay_s > 0));
        }
        let (client, reason_code) = ("c".into(), 0x98);
        let (_, events) = bench.run(if remove {
            Command::RemoveSession { client, reason_code, will: wanted }
        } else {
            Command::Kick { client, reason_code, will: wanted }
        });
        assert_eq!(names(&events), expected_events);
        assert_eq!(outbox_of(&events), expected_outbox);
        assert_eq!(bench.state.session("c").is_some(), !remove);
    }
    assert_eq!(
        Bench::new().run(Command::Kick { client: "nobody".into(), reason_code: 0x98, will: true }),
        (Outcome::Done, vec![])
    );
}

#[test]
fn commands_of_a_superseded_connection_do_nothing() {
    let mut bench = Bench::new();
    bench.connect(connect("c", FIRST));
    bench.connect(connect("c", SECOND));
    bench.enqueue("c", &message("t"));
    let digest = |bench: &Bench| (bench.state.queued_count(), bench.state.subscription_count());
    let before = digest(&bench);
    let (client, connection) = (bytestring::ByteString::from("c"), FIRST);
    let packet_id = PacketId::new(1).unwrap();
    let refused = Outcome::Refused(ReasonCode::SessionTakenOver);
    let subscriptions = vec![subscription("t", QoS::AtLeastOnce)];
    let cases = [
        (Command::Subscribe { client: client.clone(), connection, subscriptions }, refused.clone()),
        (Command::Unsubscribe { client: client.clone(), connection, filters: vec![filter("t")] }, refused.clone()),
        (Command::Receive { client: client.clone(), connection, packet_id, message: message("t"), dead: false }, refused),
        (Command::Release { client: client.clone(), connection, packet_id }, Outcome::Done),
        (Command::Acknowledge { client, connection, steps: vec![(1, super::command::QueueStep::Completed)] }, Outcome::Done),
    ];
    for (command, expected) in cases {
        assert_eq!(bench.run(command), (expected, Vec::new()));
    }
    assert_eq!(digest(&bench), before);
}

#[test]
fn subscriptions_are_kept_with_their_options() {
    let mut bench = Bench::new();
    bench.connect(connect("c", FIRST));
    let subscribe = |records| Command::Subscribe { client: "c".into(), connection: FIRST, subscriptions: records };
    let one = subscription("t", QoS::AtLeastOnce);
    let (outcome, events) = bench.run(subscribe(vec![one.clone(), subscription("u", QoS::AtMostOnce)]));
    assert_eq!(outcome, Outcome::Subscribed(vec![false, false]));
    assert_eq!(names(&events), ["Subscribed", "Subscribed"]);
    // The same again changes nothing that others mirror; other options do.
    assert_eq!(bench.run(subscribe(vec![one])), (Outcome::Subscribed(vec![true]), Vec::new()));
    let (outcome, events) = bench.run(subscribe(vec![subscription("t", QoS::ExactlyOnce)]));
    assert_eq!((outcome, names(&events)), (Outcome::Subscribed(vec![true]), vec!["Subscribed"]));
    assert_eq!(bench.state.subscription_count(), 2);

    let filters = vec![filter("t"), filter("x")];
    let (outcome, events) = bench.run(Command::Unsubscribe { client: "c".into(), connection: FIRST, filters });
    assert_eq!((outcome, names(&events)), (Outcome::Unsubscribed(vec![true, false]), vec!["Unsubscribed"]));
    assert_eq!(bench.state.subscription_count(), 1);
}

#[test]
fn a_resumed_session_keeps_queue_and_identifiers_and_takes_new_limits() {
    let mut bench = Bench::new();
    bench.connect(connect("c", FIRST));
    for id in [3, 1] {
        let packet_id = PacketId::new(id).unwrap();
        bench.run(Command::Receive { client: "c".into(), connection: FIRST, packet_id, message: message("t"), dead: false });
    }
    bench.run(Command::Enqueue { message: message("t"), targets: vec![to_session("c")] });
    bench.run(disconnect("c", FIRST, false));
    let new = ConnectCommand { queue_limit: 1, discard_oldest: true, ..connect("c", SECOND) };
    let (outcome, _) = bench.connect(new);
    let Outcome::Connected(connected) = outcome else { panic!("{outcome:?}") };
    assert_eq!(connected.received_packet_ids, [1, 3].map(|id| PacketId::new(id).unwrap()));
    let session = bench.state.session("c").unwrap();
    assert_eq!((session.queue_head.limit, session.queue_head.discard_oldest), (1, true));
    assert_eq!(bench.queued_seqs("c"), [1]);
}

#[test]
fn a_connection_that_did_not_settle_is_not_taken_over() {
    let settled = |connection, settled| ConnectCommand { take_over: TakeOver::Settled(settled), ..connect("c", connection) };
    let mut bench = Bench::new();
    assert!(matches!(bench.connect(settled(FIRST, None)).0, Outcome::Connected(_)), "nothing to take over");
    for other in [None, Some(SECOND), Some(on(1, 1, 2))] {
        assert_eq!(bench.connect(settled(SECOND, other)), (Outcome::Occupied(FIRST), Vec::new()));
    }
    assert_eq!(bench.state.session("c").unwrap().connection, Some(FIRST));
    assert!(matches!(bench.connect(settled(SECOND, Some(FIRST))).0, Outcome::Connected(_)));
    bench.run(disconnect("c", SECOND, false));
    assert!(matches!(bench.connect(settled(FIRST, Some(SECOND))).0, Outcome::Connected(_)), "it went meanwhile");
    assert!(matches!(bench.connect(connect("c", SECOND)).0, Outcome::Connected(_)), "any");
}

#[test]
fn a_connection_whose_node_did_not_answer_is_told_as_lost_and_not_as_taken_over() {
    let lost = |connection, lost| ConnectCommand { take_over: TakeOver::Lost(lost), ..connect("c", connection) };
    for clean_start in [false, true] {
        let mut bench = Bench::new();
        let delayed = ConnectCommand { will: Some(will("w", 60)), ..connect("c", FIRST) };
        bench.connect(delayed);
        assert_eq!(bench.connect(lost(SECOND, on(1, 1, 2))), (Outcome::Occupied(FIRST), Vec::new()), "another is not lost");
        let (outcome, events) = bench.connect(ConnectCommand { clean_start, ..lost(SECOND, FIRST) });
        assert_eq!(session_present(&outcome), !clean_start);
        // Should its node live after all, it closes the connection.
        assert!(matches!(&events[0], Event::Close { connection, .. } if *connection == FIRST), "{:?}", events[0]);
        let took_over = |event: &Event| matches!(event, Event::Connected { took_over: true, .. });
        assert!(!events.iter().any(took_over), "nobody fights over the client id");
        // A Will with a delay goes with the session, or not at all, as at a takeover.
        let expected: &[&str] =
            if clean_start { &["-c UNSPECIFIED none", "publish w", "+c"] } else { &["-c UNSPECIFIED none", "+c"] };
        assert_eq!(outbox_of(&events), expected);
        // The node's death, when it is known, tells nothing again.
        let (_, events) = bench.run(Command::NodeDown { node: 1, incarnation: 1 });
        assert_eq!(outbox_of(&events), [""; 0]);
        assert_eq!(bench.state.session("c").unwrap().connection, Some(SECOND));
    }
    let mut bench = Bench::new();
    bench.connect(connect("c", FIRST));
    bench.run(Command::NodeDown { node: 1, incarnation: 1 });
    assert_eq!(outbox_of(&bench.connect(lost(SECOND, FIRST)).1), ["+c"], "its end was told meanwhile");
}

#[test]
fn a_lost_connection_is_one_taken_over_to_members_of_a_release_that_knows_no_other() {
    for (level, take_over, since) in [(2, TakeOver::Settled(Some(FIRST)), 2), (3, TakeOver::Lost(FIRST), 3)] {
        for window in [1, 1000] {
            let lost = ConnectCommand { take_over: TakeOver::Lost(FIRST), ..connect("c", SECOND) };
            let command = Command::connect(lost, window, level);
            assert_eq!(
                (command.connecting().unwrap().take_over, command.since()),
                (take_over, since.max(command_kind_since(&command)))
            );
        }
    }
}

fn command_kind_since(command: &Command) -> u16 {
    if matches!(command, Command::ConnectWithin { .. }) { 3 } else { 2 }
}
