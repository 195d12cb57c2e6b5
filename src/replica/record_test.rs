use super::body::BodyId;
use super::command::{Command, ConnectCommand, Target};
use super::event::Position;
use super::record::RecordError;
use super::record_key::{QueueOwner, RecordKey};
use super::testing::{Bench, connect, expiring, filter, group, message, on, subscription, to_session, will};
use super::{ShardId, State};
use crate::mqtt::packet::PacketId;
use crate::mqtt::{QoS, SubscriptionFilter};

/// A state that has a record of each kind.
fn full() -> Bench {
    let mut bench = Bench::new();
    let (client, connection) = (bytestring::ByteString::from("c"), on(1, 1, 1));
    bench.connect(ConnectCommand { will: Some(will("w", 5)), ..connect("c", connection) });
    bench.run(Command::connect(connect("b", on(1, 1, 2)), 3, 3));
    let subscriptions = vec![subscription("t", QoS::ExactlyOnce)];
    bench.run(Command::Subscribe { client: client.clone(), connection, subscriptions });
    let packet_id = PacketId::new(7).unwrap();
    bench.run(Command::Receive { client, connection, packet_id, message: message("q"), dead: false });
    let targets =
        vec![to_session("c"), to_session("c"), Target::Group { group: group("g", "t"), queue_limit: 5, discard_oldest: true }];
    let queued = expiring("t", Some(60), bench.now_ms);
    bench.run(Command::Enqueue { message: queued, targets });
    bench.run(Command::Retain { message: expiring("r", Some(30), bench.now_ms) });
    bench.run(Command::NodeDown { node: 1, incarnation: 1 });
    bench
}

#[test]
fn keys_are_read_back_as_they_were_written() {
    let shared = SubscriptionFilter { share: Some("g".into()), filter: "t".into() };
    let odd_share = SubscriptionFilter { share: Some("".into()), filter: "".into() };
    let keys = [
        RecordKey::Head,
        RecordKey::BodyPart(BodyId { node: u64::MAX, incarnation: 2, seq: 0x6162 }, 7),
        RecordKey::Session("".into()),
        RecordKey::Session("ä\u{1}".into()),
        RecordKey::QueueHead("c".into()),
        RecordKey::Subscription("c".into(), filter("t/#")),
        RecordKey::Subscription("c".into(), shared),
        RecordKey::Subscription("".into(), odd_share),
        RecordKey::Received("c".into(), 0x6162),
        RecordKey::Group(group("g", "t")),
        RecordKey::Entry(QueueOwner::Session("c".into()), u64::MAX),
        RecordKey::Entry(QueueOwner::Group(group("g", "t")), 0x6162),
        RecordKey::Assigned("c".into(), 0x6162),
        RecordKey::Window("c".into()),
        RecordKey::Declared(group("g", "t")),
        RecordKey::Retained("t".into()),
        RecordKey::Outbox(Position { index: 1, ordinal: 2 }),
    ];
    for key in keys {
        assert_eq!(RecordKey::decode(&key.encode()), Ok(key.clone()));
    }
}

#[test]
fn names_that_look_alike_when_joined_have_different_keys() {
    let pairs = [
        (RecordKey::Group(group("ab", "c")), RecordKey::Group(group("a", "bc"))),
        (RecordKey::Subscription("ab".into(), filter("c")), RecordKey::Subscription("a".into(), filter("bc"))),
    ];
    for (one, other) in pairs {
        assert_ne!(one.encode(), other.encode());
    }
}

#[test]
fn damaged_keys_are_refused() {
    let keys: [&[u8]; 9] = [
        b"",
        b"\x01x",
        b"\x10\xff",
        b"\x12\0\0",
        b"\x12\0\0\0\x09abc",
        b"\x13c",
        b"\x14seq",
        b"\x40\0\0\0\0\0\0\0\x01\0",
        b"\x7fwhat",
    ];
    for key in keys {
        let error = State::new(ShardId(0)).load(key, b"\x01").unwrap_err();
        assert!(matches!(error, RecordError::Damaged { .. }), "{key:?}");
    }
}

#[test]
fn damaged_and_newer_values_are_refused_and_named() {
    let bench = full();
    type Damage = fn(&mut Vec<u8>);
    let damage: [(&str, Damage); 4] = [
        ("is empty", Vec::clear),
        ("version 0", |value| value[0] = 0),
        ("format version 3", |value| value[0] = 3),
        ("left over", |value| value.push(0)),
    ];
    for (what, spoil) in damage {
        let mut state = State::new(ShardId(0));
        for (key, value) in bench.state.records() {
            let mut spoiled = value.clone();
            spoil(&mut spoiled);
            let error = state.load(&key, &spoiled).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
            assert!(error.contains(&key.escape_ascii().to_string()), "{error}");
            state.load(&key, &value).unwrap();
        }
    }
}

#[test]
fn a_cut_value_is_refused() {
    let bench = full();
    let mut state = State::new(ShardId(0));
    for (key, value) in bench.state.records() {
        for length in 0..value.len() {
            assert!(state.load(&key, &value[..length]).is_err());
        }
        state.load(&key, &value).unwrap();
    }
}

#[test]
fn a_record_without_its_owner_is_refused() {
    let bench = full();
    let belongings = bench.state.records().filter(|(key, _)| matches!(key[0], 0x11..=0x14 | 0x21));
    for (key, value) in belongings.collect::<Vec<_>>() {
        let error = State::new(ShardId(0)).load(&key, &value).unwrap_err();
        assert!(error.to_string().contains("missing"), "{error}");
    }
}

#[test]
fn a_record_twice_or_out_of_order_is_refused() {
    let bench = full();
    let mut state = bench.reloaded();
    for (key, value) in bench.state.records().filter(|(key, _)| matches!(key[0], 0x14 | 0x21 | 0x40)) {
        assert!(state.load(&key, &value).unwrap_err().to_string().contains("out of order"));
    }
}

#[test]
fn each_kind_of_record_comes_back() {
    let bench = full();
    let kinds: std::collections::BTreeSet<u8> = bench.state.records().map(|(key, _)| key[0]).collect();
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [0x01, 0x10, 0x11, 0x12, 0x13, 0x14, 0x16, 0x20, 0x21, 0x30, 0x40]);
    let loaded = bench.reloaded();
    assert_eq!(loaded.digest(), bench.state.digest());
    assert_eq!(loaded.sessions, bench.state.sessions);
    assert_eq!(loaded.groups, bench.state.groups);
    assert_eq!(loaded.head, bench.state.head);
    assert_eq!(loaded.due, bench.state.due);
    assert_eq!(loaded.connected, bench.state.connected);
    assert_eq!(loaded.outbox, bench.state.outbox);
    assert_eq!((loaded.queued_count, loaded.subscription_count), (3, 1));
}

#[test]
fn an_entry_writes_only_what_it_changed() {
    let mut bench = full();
    bench.state.take_changes();
    let kinds = |bench: &mut Bench| -> Vec<u8> { bench.state.take_changes().iter().map(|(key, _)| key[0]).collect() };
    bench.enqueue("c", &message("t"));
    assert_eq!(kinds(&mut bench), [0x01, 0x11, 0x14]);
    assert_eq!(kinds(&mut bench), [0; 0]);
    bench.connect(connect("c", on(2, 1, 1)));
    kinds(&mut bench);
    bench.acknowledge("c", on(2, 1, 1), 1, super::command::QueueStep::Completed);
    let changes = bench.state.take_changes();
    assert_eq!(changes.len(), 2);
    assert_eq!(changes[1], (RecordKey::Entry(QueueOwner::Session("c".into()), 1).encode(), None));
}

#[test]
fn keys_keep_the_order_of_a_queue() {
    let key = |seq| RecordKey::Entry(QueueOwner::Session("c".into()), seq).encode();
    assert!(key(255) < key(256));
    let at = |index, ordinal| RecordKey::Outbox(Position { index, ordinal }).encode();
    assert!(at(255, 9) < at(256, 1));
    assert!(at(1, 255) < at(1, 256));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    /// Whatever the bytes are, they are a record or an error.
    #[test]
    fn damaged_bytes_never_panic(
        which in 0..1000_usize,
        at in 0..10_000_usize,
        byte: u8,
        junk in proptest::collection::vec(0..=255_u8, 0..40),
    ) {
        let bench = full();
        let records: Vec<_> = bench.state.records().collect();
        let mut state = bench.reloaded();
        let (mut key, mut value) = records[which % records.len()].clone();
        let _ = state.load(&junk, &value);
        let _ = state.load(&key, &junk);
        let position = at % (key.len() + value.len());
        match position.checked_sub(key.len()) {
            None => key[position] = byte,
            Some(position) => value[position] = byte,
        }
        let _ = state.load(&key, &value);
        state.finish_load();
    }
}
