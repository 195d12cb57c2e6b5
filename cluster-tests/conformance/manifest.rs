//! The list of all normative statements with their proofs: its reader, and the tests that hold it to the truth.
//!
//! That a named check of `normative.py` passed, and was not skipped, is asserted by the run itself (`super::normative_statements_hold`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;

use super::checks;
use super::passages::scenarios;
use crate::harness::repository;

/// A version of the standard with as many statements as its Appendix B numbers.
pub struct Version {
    pub name: &'static str,
    /// How `normative.py` names it.
    pub prefix: &'static str,
    file: &'static str,
    statements: usize,
    /// Sections whose numbers do not begin with 1.
    late: &'static [(&'static str, u32)],
}

pub const VERSIONS: [Version; 2] = [
    Version { name: "MQTT 3.1.1", prefix: "311", file: "statements_3_1_1.txt", statements: 141, late: &[] },
    Version { name: "MQTT 5.0", prefix: "5", file: "statements_5_0.txt", statements: 251, late: &[("MQTT-2.2.1", 2)] },
];

/// Whom a statement binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Server,
    Client,
    Both,
}

#[derive(Debug)]
pub struct Statement {
    pub id: String,
    pub side: Side,
    text: String,
    /// Checks by their whole name, such as `5/MQTT-3.1.2-24/message-too-large-not-sent`.
    pub normative: Vec<String>,
    passages: Vec<String>,
    /// `path::function` in `cluster-tests` or `src`.
    tests: Vec<String>,
    unprovable: Option<String>,
}

/// How many statements of a version are what.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    pub total: usize,
    pub proved: usize,
    pub unprovable: usize,
    /// Those that bind clients only.
    pub clients: usize,
}

impl Statement {
    fn is_proved(&self) -> bool {
        !(self.normative.is_empty() && self.passages.is_empty() && self.tests.is_empty())
    }
}

impl Version {
    pub fn statements(&self) -> Vec<Statement> {
        let text = fs::read_to_string(directory().join(self.file)).expect("the list is in the repository");
        parse(&text, self.prefix).unwrap_or_else(|error| panic!("{}:{error}", self.file))
    }

    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for statement in self.statements() {
            counts.total += 1;
            match (statement.side, statement.unprovable) {
                (Side::Client, _) => counts.clients += 1,
                (_, Some(_)) => counts.unprovable += 1,
                (_, None) => counts.proved += 1,
            }
        }
        counts
    }
}

fn directory() -> std::path::PathBuf {
    repository().join("cluster-tests/conformance")
}

/// Reads a list; an error names its line.
fn parse(text: &str, prefix: &str) -> Result<Vec<Statement>, String> {
    let mut statements: Vec<Statement> = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
        let wrong = |what: &str| format!("{}: {what}: {line}", number + 1);
        let Some(detail) = line.strip_prefix("    ") else {
            let (id, side) = line.split_once(' ').ok_or_else(|| wrong("no side"))?;
            let side = match side {
                "server" => Side::Server,
                "client" => Side::Client,
                "both" => Side::Both,
                _ => return Err(wrong("an unknown side")),
            };
            statements.push(Statement {
                id: id.to_owned(),
                side,
                text: String::new(),
                normative: Vec::new(),
                passages: Vec::new(),
                tests: Vec::new(),
                unprovable: None,
            });
            continue;
        };
        let statement = statements.last_mut().ok_or_else(|| wrong("no statement before"))?;
        let of_check = |name: &str| match name.split_once('/') {
            Some(_) => format!("{prefix}/{name}"),
            None => format!("{prefix}/{}/{name}", statement.id),
        };
        match detail.split_once(": ") {
            _ if statement.text.is_empty() => detail.clone_into(&mut statement.text),
            Some(("normative", names)) => statement.normative.extend(names.split(' ').map(of_check)),
            Some(("passage", names)) => statement.passages.extend(names.split(' ').map(str::to_owned)),
            Some(("test" | "unit", name)) => statement.tests.push(name.to_owned()),
            Some(("unprovable", reason)) => statement.unprovable = Some(reason.to_owned()),
            None if detail == "observed" => statement.normative.push(of_check("observed")),
            _ => return Err(wrong("neither a proof nor a reason")),
        }
    }
    Ok(statements)
}

#[test]
fn every_statement_is_listed_once() {
    for version in &VERSIONS {
        let mut sections: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for statement in version.statements() {
            let (section, number) = statement.id.rsplit_once('-').expect("a numbered statement");
            let fresh = sections.entry(section.to_owned()).or_default().insert(number.parse().expect("a number"));
            assert!(fresh, "{} has {} twice", version.file, statement.id);
        }
        let total: usize = sections.values().map(BTreeSet::len).sum();
        assert_eq!(total, version.statements, "{}", version.file);
        for (section, numbers) in sections {
            let first = version.late.iter().find(|(late, _)| *late == section).map_or(1, |(_, first)| *first);
            let last = *numbers.last().expect("not empty");
            let missing: Vec<u32> = (first..=last).filter(|number| !numbers.contains(number)).collect();
            assert!(missing.is_empty(), "{} lacks {section} {missing:?}", version.file);
        }
    }
}

#[test]
fn every_statement_of_the_server_has_a_proof_or_a_reason() {
    for version in &VERSIONS {
        for statement in version.statements() {
            let id = format!("{} {}", version.name, statement.id);
            assert!(statement.text.ends_with('.'), "{id} has no text");
            match (&statement.unprovable, statement.is_proved()) {
                (Some(reason), false) => assert!(!reason.is_empty() && statement.side != Side::Client, "{id}"),
                (Some(_), true) => panic!("{id} has both a proof and a reason why there is none"),
                (None, false) => assert_eq!(statement.side, Side::Client, "{id} has neither a proof nor a reason"),
                (None, true) => {}
            }
        }
    }
}

#[test]
fn every_proof_exists() {
    let checks: HashSet<String> = checks::listed().into_iter().collect();
    let observer = fs::read_to_string(directory().join("normative/mqttraw.py")).expect("its codec");
    let mut sources = HashMap::new();
    for version in &VERSIONS {
        for statement in version.statements() {
            let id = format!("{} {}", version.name, statement.id);
            for check in &statement.normative {
                let known = match check.strip_suffix("/observed") {
                    Some(_) => observer.contains(&format!("'{}'", statement.id)),
                    None => checks.contains(check),
                };
                assert!(known, "{id}: there is no check {check}");
            }
            for scenario in &statement.passages {
                assert!(scenarios::ALL.iter().any(|known| known.name == *scenario), "{id}: there is no scenario {scenario}");
            }
            for test in &statement.tests {
                let (path, function) = test.split_once("::").unwrap_or_else(|| panic!("{id}: {test} names no function"));
                let source = sources.entry(path.to_owned()).or_insert_with(|| fs::read_to_string(repository().join(path)));
                let source = source.as_ref().unwrap_or_else(|error| panic!("{id}: {path}: {error}"));
                assert!(is_test(source, function), "{id}: there is no test {test}");
            }
        }
    }
}

/// A check that was filed under a statement, and names in the sources' comments, belong to statements that are listed.
#[test]
fn every_statement_named_elsewhere_is_listed() {
    // As comments name them: with the version where both have the number and mean different things.
    let mut all = HashSet::new();
    for version in &VERSIONS {
        let listed: HashSet<String> = version.statements().into_iter().map(|statement| statement.id).collect();
        for check in checks::listed() {
            let mut parts = check.split('/');
            if parts.next() == Some(version.prefix) {
                let id = parts.next().expect("a statement");
                // Checks of sections that number nothing are filed under the section.
                let is_section = id.matches('-').count() == 1;
                assert!(listed.contains(id) || is_section, "{check}");
            }
        }
        let number = version.name.trim_start_matches("MQTT ");
        all.extend(listed.iter().map(|id| format!("{id} of {number}")));
        all.extend(listed);
    }
    let mut wrong = Vec::new();
    cited(&repository().join("src"), &mut |path, id| {
        if !all.contains(id) {
            wrong.push(format!("{}: {id}", path.display()));
        }
    });
    assert!(wrong.is_empty(), "statements that neither standard has: {wrong:#?}");
}

/// Calls `found` for each `MQTT-x.y.z-n` in the Rust files below a directory.
fn cited(directory: &Path, found: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(directory).expect("the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            cited(&path, found);
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source file");
        for (start, _) in source.match_indices("[MQTT-") {
            let rest = &source[start + 1..];
            let id = &rest[..rest.find(']').expect("the bracket is closed")];
            found(&path, id);
        }
    }
}

/// Whether a source has that function as a test that runs.
pub fn is_test(source: &str, function: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let declared = format!("fn {function}(");
    lines.iter().enumerate().any(|(at, line)| {
        let declares = line.starts_with(&declared) || line.strip_prefix("async ").is_some_and(|line| line.starts_with(&declared));
        let attributes: Vec<&&str> = lines[..at].iter().rev().take_while(|line| line.starts_with('#')).collect();
        let tests = attributes.iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
        declares && tests && !attributes.iter().any(|line| line.starts_with("#[ignore"))
    })
}

/// The tests above can fail.
#[test]
fn a_list_with_a_gap_is_found_out() {
    let good = "# c\nMQTT-1.2.3-1 both\n    It is so.\n    normative: a MQTT-1.2.3-2/b\n    observed\nMQTT-1.2.3-2 client\n    Theirs.\n";
    let statements = parse(good, "5").expect("well-formed");
    assert_eq!(statements[0].normative, ["5/MQTT-1.2.3-1/a", "5/MQTT-1.2.3-2/b", "5/MQTT-1.2.3-1/observed"]);
    assert!(statements[0].is_proved() && !statements[1].is_proved());
    assert!(parse("MQTT-1.2.3-1 nobody\n", "5").is_err());
    assert!(parse("    first\n", "5").is_err());
    assert!(parse("MQTT-1.2.3-1 both\n    It is so.\n    believed\n", "5").is_err());
    let source =
        "#[test]\nfn one() {}\n#[test]\n#[ignore = \"x\"]\nfn two() {}\nfn three() {}\n#[tokio::test]\nasync fn four() {}";
    let found: Vec<&str> = ["one", "two", "three", "four", "on"].into_iter().filter(|name| is_test(source, name)).collect();
    assert_eq!(found, ["one", "four"]);
}
