//! The reference says something of everything that is accepted, and what it says of defaults and refusals is so.

use std::collections::HashSet;

use super::row::{Holds, Without};
use super::rows::{default_in_rule, has_something_to_say, remarked_above, rules_of};
use super::*;
use crate::config::check::notices::NOTICES;
use crate::config::check::rules::{self, Kind};
use crate::config::file_element::children_of;
use crate::config::settings::SHARDS;

#[test]
fn every_element_has_one_row_and_every_row_an_element() {
    let mut described = HashSet::new();
    for chapter in CHAPTERS {
        for row in chapter.rows {
            let found = rules_of(chapter, row);
            assert!(!found.is_empty(), "{}: the row {} is for no element", chapter.title, row.path);
            for rule in found {
                assert!(described.insert(rule.path), "{} is in two rows", rule.path);
                let remarked = remarked_above(rule).is_some() || NOTICES.iter().any(|notice| notice.path == rule.path);
                assert!(!row.meaning.is_empty() || remarked, "{}: the row {} says nothing", chapter.title, row.path);
            }
        }
    }
    let missing: Vec<_> = rules::all()
        .filter(|rule| has_something_to_say(rule))
        .map(|rule| rule.path)
        .filter(|path| !described.contains(path))
        .collect();
    assert!(
        missing.is_empty(),
        "elements without a row in src/config/reference: {missing:#?}; add what they mean to a chapter there"
    );
}

#[test]
fn what_holds_without_an_element_is_said() {
    for (chapter, row) in CHAPTERS.iter().flat_map(|chapter| chapter.rows.iter().map(move |row| (chapter, row))) {
        for rule in rules_of(chapter, row) {
            let value = !matches!(rule.kind, Kind::Section | Kind::Any | Kind::Mark);
            let said = !matches!(row.without, Without::Rule) || default_in_rule(rule).is_some();
            assert!(!value || said, "{}: say with .without(..) what holds without it", rule.path);
            let text = matches!(rule.kind, Kind::Text | Kind::Secret | Kind::Section);
            assert!(text || !matches!(row.holds, Holds::Word(_) | Holds::File(_) | Holds::Address), "{}: is no text", rule.path);
        }
    }
}

/// `<a><b>content</b></a>` for the path `a/b`.
fn nest(path: &str, content: &str) -> String {
    path.rsplit('/').filter(|name| !name.is_empty()).fold(content.to_owned(), |inside, name| format!("<{name}>{inside}</{name}>"))
}

#[test]
fn a_default_that_is_written_changes_nothing() {
    let outcome = |inside: &str| {
        let text = format!("<hivemq>{inside}</hivemq>");
        match from_bytes(text.as_bytes(), "c.xml", &|_| None) {
            Ok(loaded) => (Some(loaded.settings), Vec::new()),
            Err(refused) => (None, refused.errors),
        }
    };
    let mut compared = 0;
    for rule in rules::all() {
        let Some(default) = default_in_rule(rule) else { continue };
        let file = |with: bool| {
            let (parent, name) = (rules::parent(rule.path), rules::name(rule.path));
            let element = if with { format!("<{name}>{default}</{name}>") } else { String::new() };
            match rule.path.strip_prefix("listeners/").and_then(|rest| rest.split_once('/')) {
                // In the listener, which has what it cannot be without.
                Some((listener, rest)) => {
                    let inside = nest(rules::parent(rest), &element);
                    let needed = "<port>1883</port><bind-address>127.0.0.1</bind-address>";
                    format!("<listeners><{listener}>{needed}{inside}</{listener}></listeners>")
                }
                None => format!("{LISTENER}{}", nest(parent, &element)),
            }
        };
        let (with, without) = (outcome(&file(true)), outcome(&file(false)));
        if rule.path == "cluster/shards" {
            // Written, it is what data have to fit; left out, data decide.
            let shards = |settings: &Option<Settings>| settings.as_ref().map(|settings| settings.cluster.shards);
            assert_eq!((shards(&with.0), shards(&without.0)), (Some(Some(SHARDS)), Some(None)));
            continue;
        }
        assert_eq!(with, without, "{} = {default}", rule.path);
        compared += usize::from(with.0.is_some());
    }
    assert!(compared > 80, "{compared}");
}

#[test]
fn each_mistake_is_refused() {
    for (chapter, mistake) in CHAPTERS.iter().flat_map(|chapter| chapter.mistakes.iter().map(move |mistake| (chapter, mistake))) {
        assert!(!refusals(mistake).is_empty(), "{}: {mistake} is accepted", chapter.title);
    }
}

#[test]
fn the_settings_of_defaults_are_read_from_a_file_that_is_accepted() {
    assert!(from_bytes(BARE.as_bytes(), "config.xml", &|_| None).is_ok());
    let text = reference(&[]);
    assert!(text.contains("| `*/bind-address` | IP address, or `localhost` | `0.0.0.0` |"), "{text}");
    assert!(text.contains("| `keep-alive/multiplier` | a number from 1.5 to 10 | `1.5` |"), "{text}");
    assert!(!text.contains("Not described yet"));
}

#[test]
fn numbers_out_of_range_are_replaced_as_it_is_said() {
    let text = reference(&[]);
    for said in [
        "| `packets/max-packet-size` | 15 to 268,435,460 bytes; below 1: 268,435,460; 1 to 14: 15; above 268,435,460: 268,435,460 |",
        "| `quality-of-service/max-qos` | 0 to 2; else: 2 |",
        "| `receive-maximum/server-receive-maximum` | 1 to 65,535; below 1: 10; above 65,535: 65,535 |",
        "| `shards` | 1 to 64 |",
    ] {
        assert!(text.contains(said), "no {said} in\n{text}");
    }
}

#[test]
fn tables_of_other_files_name_each_element_once_with_its_section() {
    for file in files::FILES {
        for element in file.elements {
            let parent = rules::parent(element.path);
            assert_eq!(
                children_of(file.elements, parent).filter(|name| *name == rules::name(element.path)).count(),
                1,
                "{}",
                element.path
            );
            assert!(parent.is_empty() || file.elements.iter().any(|other| other.path == parent), "{}", element.path);
        }
    }
}

#[test]
fn every_variable_that_is_named_is_asked_for() {
    let text = reference(&[]);
    let named = text.split(|c: char| !c.is_ascii_uppercase() && c != '_').filter(|word| word.starts_with("HIVEMQ_"));
    let mut found = 0;
    for name in named {
        assert!(VARIABLES.iter().any(|variable| variable.name == name), "{name}");
        found += 1;
    }
    assert!(found > VARIABLES.len(), "{found}");
}
