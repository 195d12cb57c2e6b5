use std::sync::Arc;

use super::command::{Batch, Command, Proposal};
use super::event::Outcome;
use super::testing::{Bench, LEADER, connect, message, on};

fn retain(topic: &str) -> Command {
    Command::Retain { message: message(topic) }
}

fn batch(incarnation: u64, first_seq: u64, topics: &[&str]) -> Batch {
    let commands = Arc::new(topics.iter().map(|topic| retain(topic)).collect());
    Batch { node: 1, incarnation, first_seq, commands }
}

#[test]
fn each_command_of_an_incarnation_is_applied_once_and_in_order() {
    // (batch, sequence numbers answered)
    let cases: [(Batch, &[u64]); 8] = [
        (batch(5, 2, &["gap at the start"]), &[]),
        (batch(5, 1, &["a", "b"]), &[1, 2]),
        (batch(5, 1, &["a again", "b again"]), &[]),
        (batch(5, 2, &["b again", "c", "d"]), &[3, 4]),
        (batch(5, 6, &["gap"]), &[]),
        (batch(4, 1, &["older incarnation"]), &[]),
        (batch(6, 1, &["e"]), &[1]),
        (batch(5, 5, &["superseded incarnation"]), &[]),
    ];
    let mut bench = Bench::new();
    for (batch, answered) in cases {
        let shown = format!("{batch:?}");
        let incarnation = batch.incarnation;
        let answers = bench.apply_batches(vec![batch]).answers;
        assert_eq!(answers.iter().map(|answer| answer.seq).collect::<Vec<_>>(), answered, "{shown}");
        assert!(answers.iter().all(|a| a.node == 1 && a.incarnation == incarnation && a.outcome == Outcome::Done));
    }
    let stored: Vec<_> = bench.state.retained.iter().map(|message| message.topic.to_string()).collect();
    assert_eq!(stored, ["a", "b", "c", "d", "e"]);
    assert_eq!(bench.state.applied_seq(1, 6), 1);
    assert_eq!(bench.state.applied_seq(1, 5), 0);
    assert_eq!(bench.state.applied_seq(2, 1), 0);
}

#[test]
fn two_batches_of_one_node_in_one_entry_follow_each_other() {
    let mut bench = Bench::new();
    let applied = bench.apply_batches(vec![batch(1, 1, &["a"]), batch(1, 2, &["b"]), batch(1, 1, &["a", "b", "c"])]);
    assert_eq!(applied.answers.iter().map(|a| a.seq).collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn commands_of_a_dead_incarnation_are_ignored_without_answer() {
    let mut bench = Bench::new();
    bench.run_from(1, 5, retain("before"));
    bench.run(Command::NodeDown { node: 1, incarnation: 5 });
    assert_eq!(bench.run_from(1, 5, retain("after")), (None, Vec::new()));
    assert_eq!(bench.run_from(1, 4, retain("older")), (None, Vec::new()));
    assert_eq!(bench.run_from(1, 6, retain("newer")).0, Some(Outcome::Done));
    assert_eq!(bench.state.retained_count(), 2);
}

#[test]
fn the_newest_incarnation_of_a_node_is_known_alive_or_over() {
    let mut bench = Bench::new();
    assert_eq!(bench.state.newest_incarnation(1), 0);
    bench.run_from(1, 5, Command::Expire { limit: 1 });
    assert_eq!(bench.state.newest_incarnation(1), 5);
    bench.run(Command::NodeDown { node: 1, incarnation: 8 });
    assert_eq!(bench.state.newest_incarnation(1), 8);
}

#[test]
fn a_command_behind_the_death_of_its_own_incarnation_is_ignored() {
    let mut bench = Bench::new();
    let down = Command::NodeDown { node: LEADER, incarnation: 1 };
    let applied = bench.apply_from(LEADER, 1, vec![retain("a"), down, retain("b")]);
    assert_eq!(applied.answers.len(), 2);
    assert_eq!(bench.state.retained_count(), 1);
}

#[test]
fn a_connection_of_a_dead_incarnation_is_refused() {
    let mut bench = Bench::new();
    bench.run(Command::NodeDown { node: 1, incarnation: 5 });
    let (outcome, events) = bench.connect(connect("c", on(1, 5, 1)));
    assert_eq!(outcome, Outcome::Refused(crate::mqtt::ReasonCode::ServerUnavailable));
    assert!(events.is_empty());
    assert!(bench.state.session("c").is_none());
}

#[test]
fn time_never_runs_back() {
    let mut bench = Bench::new();
    bench.connect(connect("c", on(1, 1, 1)));
    bench.run(super::testing::disconnect("c", on(1, 1, 1), false));
    bench.index += 1;
    bench.state.apply(bench.index, &Proposal { at_ms: 5, batches: Vec::new() });
    assert_eq!(bench.state.head.last_at_ms, bench.now_ms);
    // An entry stamped by a slow clock counts from the last time.
    bench.now_ms = 10;
    bench.connect(connect("d", on(1, 1, 2)));
    bench.run(super::testing::disconnect("d", on(1, 1, 2), false));
    assert_eq!(bench.state.session("d").unwrap().expires_at_ms, Some(1_100_000));
}
