use std::sync::Arc;

use super::command::{Assignment, Command, ConnectCommand, QueueStep, Target};
use super::event::Event;
use super::ids::ShardId;
use super::look::Look;
use super::state::State;
use super::testing::{Bench, Disk, connect, disconnect, expiring, group, message, on, outbox_of, subscription, to_session};
use crate::mqtt::{Message, QoS, SubscriptionIds};
use crate::signal::DropReason;

const ROOM: usize = 1 << 20;

/// A bench over a disk, with the session `c`, connected, that queues up to `limit`.
fn bench(resident_bytes_max: usize, limit: u32, discard_oldest: bool) -> (Bench, Disk) {
    let disk = Disk::default();
    let mut bench = Bench::new();
    bench.state = State::over(ShardId(0), Arc::new(disk.clone()), resident_bytes_max);
    bench.connect(ConnectCommand { queue_limit: limit, discard_oldest, lifecycle: false, ..connect("c", on(1, 1, 1)) });
    let subscriptions = vec![subscription("#", QoS::ExactlyOnce)];
    bench.run(Command::Subscribe { client: "c".into(), connection: on(1, 1, 1), subscriptions });
    (bench, disk)
}

fn offline(bench: &mut Bench) {
    bench.run(disconnect("c", on(1, 1, 1), false));
}

fn enqueue(bench: &mut Bench, topics: impl IntoIterator<Item = usize>) -> Vec<Event> {
    topics.into_iter().flat_map(|number| bench.enqueue("c", &message(&format!("t{number}")))).collect()
}

/// Which entries are in memory.
fn in_memory(look: &Look) -> Vec<u64> {
    look.found.iter().filter(|found| found.entry.is_some()).map(|found| found.seq).collect()
}

fn topics(entries: Vec<super::session::QueueEntry>) -> Vec<String> {
    entries.into_iter().filter_map(|entry| entry.message).map(|message| message.topic.to_string()).collect()
}

#[test]
fn a_message_leaves_memory_only_once_its_record_is_written() {
    let (mut bench, disk) = bench(ROOM, 100, false);
    offline(&mut bench);
    enqueue(&mut bench, 0..3);
    assert_eq!(in_memory(&bench.state.look("c", 0, 10)), [1, 2, 3]);
    bench.state.take_changes();
    assert_eq!(in_memory(&bench.state.look("c", 0, 10)), [1, 2, 3], "they are on their way to the disk");
    bench.state.written();
    let look = bench.state.look("c", 0, 10);
    assert_eq!((in_memory(&look), look.found.len(), bench.state.resident_bytes()), (vec![], 3, 0));
    assert_eq!(disk.reads(), (0, 0));
}

#[test]
fn the_first_of_a_connected_sessions_queue_stay_while_there_is_room() {
    let (mut bench, disk) = bench(ROOM, 1000, false);
    enqueue(&mut bench, 100..300);
    disk.write(&mut bench.state);
    let first = super::cold::RESIDENT_FIRST;
    assert_eq!(in_memory(&bench.state.look("c", 0, 1000)), (1..=first as u64).collect::<Vec<_>>());
    assert_eq!(bench.state.resident_bytes(), message("t100").size_bytes() * first);
    offline(&mut bench);
    disk.write(&mut bench.state);
    assert_eq!((in_memory(&bench.state.look("c", 0, 1000)), bench.state.resident_bytes()), (vec![], 0));

    let size = message("t0").size_bytes();
    let (mut bench, disk) = self::bench(size * 2, 1000, false);
    enqueue(&mut bench, 0..5);
    disk.write(&mut bench.state);
    assert_eq!(in_memory(&bench.state.look("c", 0, 1000)).len(), 2);
    // What is delivered makes room.
    bench.acknowledge("c", on(1, 1, 1), in_memory(&bench.state.look("c", 0, 1000))[0], QueueStep::Completed);
    assert_eq!(bench.state.resident_bytes(), size);
}

#[test]
fn a_session_that_is_taken_over_keeps_what_is_in_memory() {
    let (mut bench, disk) = bench(ROOM, 100, false);
    enqueue(&mut bench, 0..3);
    disk.write(&mut bench.state);
    bench.connect(ConnectCommand { queue_limit: 100, ..connect("c", on(1, 1, 2)) });
    disk.write(&mut bench.state);
    assert_eq!(in_memory(&bench.state.look("c", 0, 10)), [1, 2, 3]);
}

#[test]
fn a_fetch_reads_a_run_at_once_and_leaves_out_what_is_gone() {
    let (mut bench, disk) = bench(ROOM, 1000, false);
    offline(&mut bench);
    enqueue(&mut bench, 0..200);
    disk.write(&mut bench.state);
    let look = bench.state.look("c", 10, 50);
    let fetch = look.fetch.unwrap();
    let read = fetch.run().unwrap();
    assert_eq!(disk.reads(), (0, 1));
    assert_eq!(read.iter().map(|entry| entry.seq).collect::<Vec<_>>(), (11..=60).collect::<Vec<_>>());
    assert_eq!(read[0].subscription_ids, SubscriptionIds::from_iter([7]));
    assert_eq!(fetch.clone().of(100, 199).run().unwrap().len(), super::cold::READ_ENTRIES_MAX);
    bench.connect(connect("c", on(1, 1, 2)));
    bench.acknowledge("c", on(1, 1, 2), 12, QueueStep::Completed);
    disk.write(&mut bench.state);
    assert_eq!(fetch.run().unwrap().iter().map(|entry| entry.seq).take(2).collect::<Vec<_>>(), [11, 13]);
}

/// Names are prefixes of each other's keys.
#[test]
fn a_fetch_reads_no_entries_of_others() {
    let (mut bench, disk) = bench(ROOM, 1000, false);
    offline(&mut bench);
    let others = ["c\0", "c\0\0\0\0\0\0\0\0", "c\0\0\0\0\0\0\0\u{1}", "d"];
    for other in others {
        bench.connect(connect(other, on(1, 1, 7)));
        bench.run(disconnect(other, on(1, 1, 7), false));
    }
    for number in 0..3 {
        enqueue(&mut bench, [number]);
        others.iter().for_each(|other| drop(bench.enqueue(other, &message("of another"))));
    }
    disk.write(&mut bench.state);
    let read = bench.state.look("c", 0, 10).fetch.unwrap().run().unwrap();
    assert_eq!(topics(read), ["t0", "t1", "t2"]);
}

#[test]
fn an_answered_entry_is_stored_the_same_wherever_its_message_was() {
    let stored = |resident: usize| {
        let (mut bench, disk) = bench(resident, 10, false);
        enqueue(&mut bench, 0..2);
        disk.write(&mut bench.state);
        assert_eq!(bench.state.look("c", 0, 1).found[0].entry.is_some(), resident > 0);
        bench.acknowledge("c", on(1, 1, 1), 1, QueueStep::Received);
        disk.write(&mut bench.state);
        let first = bench.state.look("c", 0, 1).found.remove(0).entry.unwrap();
        assert_eq!((first.seq, first.message), (1, None));
        assert_eq!(disk.reads(), (0, 0));
        (bench.state.digest(), disk.records())
    };
    assert_eq!(stored(0), stored(ROOM));
}

#[test]
fn reports_carry_the_whole_message_of_entries_that_are_on_disk() {
    let whole = |events: &[Event]| {
        let messages = events.iter().filter_map(|event| {
            let Event::Outbox { event, .. } = event else { return None };
            super::body::message_of_event(event)
        });
        assert!(messages.into_iter().all(|message| &message.payload[..] == b"payload"));
        outbox_of(events)
    };
    let (mut bench, disk) = bench(0, 2, true);
    offline(&mut bench);
    enqueue(&mut bench, 0..2);
    disk.write(&mut bench.state);
    assert_eq!(whole(&enqueue(&mut bench, [2])), ["drop t0"]);
    disk.write(&mut bench.state);

    bench.connect(ConnectCommand { queue_limit: 10, ..connect("c", on(1, 1, 3)) });
    let dropped = QueueStep::Dropped(DropReason::MaximumPacketSizeExceeded);
    assert_eq!(whole(&bench.acknowledge("c", on(1, 1, 3), 2, dropped)), ["drop t1"]);
    assert_eq!(whole(&bench.acknowledge("c", on(1, 1, 3), 3, QueueStep::Expired)), ["expire t2"]);
    bench.run(disconnect("c", on(1, 1, 3), false));
    bench.enqueue("c", &expiring("late", Some(1), bench.now_ms));
    disk.write(&mut bench.state);
    assert!(bench.state.look("c", 0, 1).found[0].entry.is_none());
    assert_eq!(whole(&bench.pass(1000)), ["expire late"]);

    let id = group("g", "#");
    let target = Target::Group { group: id.clone(), queue_limit: 10, discard_oldest: false };
    bench.run(Command::Enqueue { message: message("shared"), targets: vec![target] });
    disk.write(&mut bench.state);
    assert!(bench.state.look_at_group(&id, 0, 1).found[0].entry.is_none());
    let assignments = vec![Assignment { seq: 1, client: "m".into(), retain: false, subscription_ids: SubscriptionIds::new() }];
    assert_eq!(whole(&bench.run(Command::AssignShared { group: id, assignments }).1), ["assign shared to m"]);
    assert_eq!(bench.state.failure(), None);
}

#[test]
fn many_of_a_queue_in_one_entry_of_the_log_are_read_in_ranges() {
    let (mut bench, disk) = bench(0, 500, true);
    offline(&mut bench);
    enqueue(&mut bench, 0..500);
    disk.write(&mut bench.state);
    disk.reads();
    let commands = (0..500).map(|_| Command::Enqueue { message: message("new"), targets: vec![to_session("c")] }).collect();
    let dropped = outbox_of(&bench.apply_from(5, 1, commands).events);
    assert_eq!(dropped, (0..500).map(|number| format!("drop t{number}")).collect::<Vec<_>>());
    assert_eq!(disk.reads(), (1, 8));

    for topic in 0..300 {
        bench.enqueue("c", &expiring(&format!("e{topic}"), Some(1), bench.now_ms));
    }
    disk.write(&mut bench.state);
    disk.reads();
    let expired = outbox_of(&bench.pass(1000));
    assert_eq!(expired, (0..300).map(|number| format!("expire e{number}")).collect::<Vec<_>>());
    assert_eq!(disk.reads(), (1, 5));
}

/// The numbers of a queue begin anew, and an earlier one's entries may still be on disk.
#[test]
fn what_was_read_ahead_is_not_taken_for_that_of_a_later_queue() {
    let (mut bench, disk) = bench(0, 2, true);
    offline(&mut bench);
    enqueue(&mut bench, 0..2);
    disk.write(&mut bench.state);
    let clean =
        ConnectCommand { clean_start: true, queue_limit: 1, discard_oldest: true, lifecycle: false, ..connect("c", on(1, 1, 5)) };
    let enqueue = |topic: &str| Command::Enqueue { message: message(topic), targets: vec![to_session("c")] };
    let commands = vec![
        enqueue("x"),
        enqueue("y"),
        Command::Connect(Arc::new(clean)),
        disconnect("c", on(1, 1, 5), false),
        enqueue("new1"),
        enqueue("new2"),
    ];
    assert_eq!(outbox_of(&bench.apply_from(5, 1, commands).events), ["drop t0", "drop t1", "drop new1"]);
    disk.write(&mut bench.state);
    assert_eq!(topics(bench.state.queue_after("c", 0, 10)), ["new2"]);
    assert_eq!(disk.records(), bench.state.records().collect());
}

#[test]
fn a_queue_made_anew_under_the_same_name_is_another() {
    let (mut bench, disk) = bench(0, 2, true);
    enqueue(&mut bench, 0..2);
    disk.write(&mut bench.state);
    let before = bench.state.look("c", 0, 1).queue;
    bench.connect(ConnectCommand { clean_start: true, ..connect("c", on(1, 1, 5)) });
    assert_ne!(bench.state.look("c", 0, 1).queue, before);
}

#[test]
fn a_read_that_fails_is_noted_and_a_missing_record_too() {
    let (mut bench, disk) = bench(0, 2, true);
    offline(&mut bench);
    enqueue(&mut bench, 0..2);
    disk.write(&mut bench.state);
    let look = bench.state.look("c", 0, 10);
    disk.set_broken(true);
    assert!(look.fetch.unwrap().run().is_err());
    assert_eq!(bench.state.failure(), None, "others may try again");
    assert_eq!(outbox_of(&enqueue(&mut bench, [2])), [""; 0], "there is nothing to report");
    assert_eq!(bench.state.failure().unwrap().to_string(), "broken");
    // The first reason stays, though the disk is well again.
    disk.set_broken(false);
    enqueue(&mut bench, [3]);
    assert_eq!(bench.state.failure().unwrap().to_string(), "broken");

    let (mut bench, _) = self::bench(0, 1, true);
    offline(&mut bench);
    enqueue(&mut bench, [0]);
    bench.state.take_changes();
    bench.state.written();
    enqueue(&mut bench, [1]);
    assert!(bench.state.failure().unwrap().to_string().contains("is missing"));
}

#[test]
fn a_state_is_loaded_without_its_messages() {
    let (mut bench, disk) = bench(ROOM, 10, false);
    enqueue(&mut bench, 0..3);
    bench.enqueue("c", &expiring("late", Some(100), bench.now_ms));
    disk.write(&mut bench.state);
    let loaded = disk.load(ROOM);
    assert_eq!(disk.reads(), (0, 0));
    assert_eq!((in_memory(&loaded.look("c", 0, 10)), loaded.queued_count(), loaded.resident_bytes()), (vec![], 4, 0));
    assert_eq!(loaded.digest(), bench.state.digest());
    let after: Vec<_> = loaded.queue_after("c", 0, 10).into_iter().filter_map(|entry| entry.message).collect();
    assert_eq!((after.len(), after[3].topic.to_string()), (4, "late".to_owned()));
}

/// One of 3 MiB, in parts, for `c` and a shared subscription.
#[test]
fn the_bytes_of_a_large_message_leave_memory_with_the_last_message_and_are_shared_while_somebody_has_them() {
    use super::body::{Cut, PART_BYTES, cut};
    use super::command::PartCommand;
    use bytes::Bytes;
    let (mut bench, disk) = bench(0, 10, false);
    offline(&mut bench);
    let payload = Bytes::from((0..3 << 20).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
    let large = Arc::new(Message { payload: payload.clone(), ..Message::clone(&message("large")) });
    let id = group("g", "#");
    let target = Target::Group { group: id.clone(), queue_limit: 10, discard_oldest: false };
    let command = Command::Enqueue { message: large, targets: vec![to_session("c"), target] };
    let Cut::Large { command, body } = cut(command) else { panic!("it is large") };
    for (at, bytes) in body.chunks(PART_BYTES).enumerate() {
        let part = PartCommand {
            bytes_total: body.len() as u64,
            offset: (at * PART_BYTES) as u64,
            bytes: Bytes::copy_from_slice(bytes),
        };
        bench.run(Command::Part(part));
        disk.write(&mut bench.state);
    }
    bench.run(command);
    let waiting = bench.state.look("c", 0, 1).found.remove(0).entry.unwrap().message.unwrap();
    disk.write(&mut bench.state);
    disk.reads();

    let read = |look: Look| look.fetch.unwrap().run().unwrap().remove(0).message.unwrap();
    let held = read(bench.state.look("c", 0, 1));
    assert_eq!((held.payload.as_ptr(), disk.reads()), (waiting.payload.as_ptr(), (1, 0)), "somebody has it");
    drop((held, waiting));
    let one = read(bench.state.look("c", 0, 1));
    assert_eq!((&one.payload, disk.reads()), (&payload, (1, 1)), "it is read again");
    let other = read(bench.state.look_at_group(&id, 0, 1));
    assert_eq!((one.payload.as_ptr(), disk.reads()), (other.payload.as_ptr(), (1, 0)));

    // The report takes the body over from the entry: it is stored once, and goes with the report.
    bench.connect(connect("c", on(1, 1, 9)));
    drop((one, other));
    bench.acknowledge("c", on(1, 1, 9), 1, QueueStep::Dropped(DropReason::MaximumPacketSizeExceeded));
    bench.run(Command::AcknowledgeShared { group: id, steps: vec![(1, QueueStep::Completed)] });
    disk.write(&mut bench.state);
    assert_eq!(disk.records(), bench.state.records().collect());
    let bytes = || disk.records().values().map(Vec::len).sum::<usize>();
    assert!((payload.len()..payload.len() + 10_000).contains(&bytes()));
    let restarted = disk.load(0);
    assert_eq!(restarted.digest(), bench.state.digest());
    let through = bench.state.outbox_bounds().0;
    bench.run(Command::TrimOutbox { through });
    disk.write(&mut bench.state);
    assert!(bytes() < 10_000);
    assert_eq!(bench.state.failure(), None);
}

#[test]
fn sessions_that_end_are_taken_out_in_parts() {
    let (mut bench, _) = bench(ROOM, 100, false);
    for client in ["c", "d", "e"] {
        bench.connect(ConnectCommand { queue_limit: 100, lifecycle: false, ..connect(client, on(1, 1, 1)) });
        (0..10).for_each(|_| drop(bench.enqueue(client, &message("t"))));
        bench.run(disconnect(client, on(1, 1, 1), false));
    }
    let due_ms = bench.now_ms + 100_000;
    let of = |limit, entries| bench.state.due_in_one_go(due_ms, limit, entries);
    assert_eq!([of(100, 1000), of(2, 1000), of(100, 15), of(100, 1)], [100, 2, 2, 1]);
}

/// A queue has one due time, however many of its messages have expired.
#[test]
fn all_messages_of_a_queue_expire_in_one_go() {
    let (mut bench, _) = bench(ROOM, 100, false);
    bench.connect(ConnectCommand { queue_limit: 100, lifecycle: false, ..connect("c", on(1, 1, 1)) });
    let now_ms = bench.now_ms;
    (0..50).for_each(|_| drop(bench.enqueue("c", &expiring("t", Some(1), now_ms))));
    bench.run(disconnect("c", on(1, 1, 1), false));
    bench.now_ms += 2_000;
    let limit = bench.state.due_in_one_go(bench.now_ms, 1_000, 10_000);
    let (_, events) = bench.run(Command::Expire { limit });
    assert_eq!(outbox_of(&events), ["expire t"; 50]);
}
