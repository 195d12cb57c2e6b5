//! `docs/addons.md` says of each sentence of HiveMQ's page on its add-ons what is done, and which tests prove it: they must be there and run.

use std::collections::HashMap;
use std::fs;

use super::counters::NAMES;
use crate::conformance::manifest::is_test;
use crate::harness::repository;

/// What stands in the place of tests where there can be none yet.
const LATER: [&str; 2] = ["issue of the Kafka bridge", "issue of the REST API"];

struct Row<'a> {
    sentence: &'a str,
    done: &'a str,
    proof: &'a str,
}

/// The rows of all tables below the heading.
fn rows(page: &str) -> Vec<Row<'_>> {
    let (_, tables) = page.split_once("\n## Sentence by sentence\n").expect("the heading");
    let is_row = |line: &&str| line.starts_with('|') && !line.starts_with("| ---") && !line.starts_with("| The page says");
    tables
        .lines()
        .filter(is_row)
        .map(|line| match line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>()[..] {
            [sentence, done, proof] => Row { sentence, done, proof },
            _ => panic!("not three cells: {line}"),
        })
        .collect()
}

/// `path::function` of each test that a cell names.
fn tests(proof: &str) -> Vec<(&str, &str)> {
    proof.split('`').skip(1).step_by(2).map(|name| name.split_once("::").unwrap_or((name, ""))).collect()
}

#[test]
fn every_sentence_has_a_test_that_runs_or_says_when_it_will() {
    let page = fs::read_to_string(repository().join("docs/addons.md")).expect("the page");
    let mut sources = HashMap::new();
    let rows = rows(&page);
    assert!(rows.len() > 90, "{} rows", rows.len());
    for Row { sentence, done, proof } in rows {
        assert!(!sentence.is_empty() && !done.is_empty(), "{sentence}");
        let tests = tests(proof);
        if tests.is_empty() {
            assert!(LATER.contains(&proof), "{sentence}: {proof}");
        }
        for (path, function) in tests {
            let source = sources.entry(path).or_insert_with(|| fs::read_to_string(repository().join(path)));
            let source = source.as_ref().unwrap_or_else(|error| panic!("{sentence}: {path}: {error}"));
            assert!(is_test(source, function), "{sentence}: there is no test {path}::{function}");
        }
    }
}

#[test]
fn every_counter_is_in_the_page() {
    let page = fs::read_to_string(repository().join("docs/addons.md")).expect("the page");
    for name in NAMES {
        assert!(page.contains(&format!("`com.hivemq.messages.{name}`")), "{name}");
    }
}

/// The tests above can fail.
#[test]
fn a_row_without_proof_is_found_out() {
    let page = "x\n## Sentence by sentence\n| The page says | We do | Proof |\n| --- | --- | --- |\n| A. | B. | `a/b.rs::c`, `d.rs::e` |\n";
    let rows = rows(page);
    assert_eq!((rows.len(), rows[0].sentence, rows[0].done), (1, "A.", "B."));
    assert_eq!(tests(rows[0].proof), [("a/b.rs", "c"), ("d.rs", "e")]);
    assert!(tests("we believe so").is_empty());
}
