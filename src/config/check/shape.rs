//! Goes through the whole document once and holds each element against its rule: unknown, out of place, twice, wrong type, out of
//! range, without effect. What needs more than one element is left to the readers of the sections.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::notices::NOTICES;
use super::rules::{self, Kind, Rule};
use super::value::{self, Reading};
use super::view::View;
use crate::config::diagnostic::{Level, Report, quote};
use crate::config::entity::{self, Element};
use crate::config::hidden;

/// Name of the root element.
const ROOT: &str = "hivemq";

/// Returns whether the document is a configuration at all.
pub(super) fn check(root: &Element, report: &Report) -> bool {
    attributes(root, "", report);
    if root.name != ROOT {
        report.error(root.line, "", format!("found root element <{}>; allowed: <{ROOT}>", root.shown_name()));
        return false;
    }
    section(root, "", report);
    let mut waiting: Vec<(&Element, &'static Rule)> = known_children(root, "");
    while let Some((element, rule)) = waiting.pop() {
        attributes(element, rule.path, report);
        notices(element, rule, &View::root(root, report));
        match &rule.kind {
            Kind::Section => {
                section(element, rule.path, report);
                waiting.extend(known_children(element, rule.path));
            }
            Kind::Any => {}
            kind => leaf(element, rule.path, kind, report),
        }
    }
    true
}

fn known_children<'a>(element: &'a Element, path: &str) -> Vec<(&'a Element, &'static Rule)> {
    element.children.iter().filter_map(|child| Some((child, rules::find(&join(path, &child.name))?))).collect()
}

/// The path of a child.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

fn section(element: &Element, path: &str, report: &Report) {
    if !element.text.is_empty() {
        // Not quoted: it may be a secret gone astray.
        let known = known_here(path);
        report.error(element.line, path, format!("found text between its elements; allowed: {known}; remove the text"));
    }
    let mut first_lines = HashMap::new();
    for child in &element.children {
        let child_path = join(path, &child.name);
        let Some(rule) = rules::find(&child_path) else {
            unknown(child, path, report);
            continue;
        };
        match first_lines.entry(child.name.as_str()) {
            Entry::Occupied(first) if !rule.many => {
                let first = first.get();
                report.error(
                    child.line,
                    rule.path,
                    format!("found a second time, first in line {first}; allowed: once; remove one of them"),
                );
            }
            entry => _ = entry.or_insert(child.line),
        }
    }
}

/// An element that is known in one other place is an error, because what it sets would be lost; any other one a warning, because newer
/// versions of HiveMQ may know it.
fn unknown(element: &Element, parent: &str, report: &Report) {
    let path: String = join(parent, &element.shown_name()).chars().take(120).collect();
    let known = known_here(parent);
    let mut homes = rules::all().filter(|rule| rules::name(rule.path) == element.name);
    match (homes.next(), homes.next()) {
        (Some(home), None) => {
            let home = match rules::parent(home.path) {
                "" => ROOT,
                path => path,
            };
            report.error(element.line, &path, format!("out of place; allowed: inside <{home}>; move it there"));
        }
        _ => {
            report.add(
                Level::Warning,
                element.line,
                &path,
                format!("unknown element, ignored; allowed: {known}; remove it or check its name"),
            );
        }
    }
}

fn known_here(path: &str) -> String {
    rules::children_of(path).iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" ")
}

fn attributes(element: &Element, path: &str, report: &Report) {
    for attribute in &element.attributes {
        if !entity::is_of_schema(attribute) {
            let attribute = quote(attribute);
            report.add(
                Level::Warning,
                element.line,
                path,
                format!("unknown attribute {attribute}, ignored; values stand in elements"),
            );
        }
    }
}

fn leaf(element: &Element, path: &'static str, kind: &Kind, report: &Report) {
    let text = element.text.as_str();
    if let Some(child) = element.children.first() {
        let message = match kind {
            Kind::Mark => {
                format!("found element <{}>; allowed: nothing inside, write <{}/>", child.shown_name(), element.name)
            }
            _ => format!("found element <{}>; allowed: {}", child.shown_name(), value::allowed(kind)),
        };
        report.error(child.line, path, message);
        return;
    }
    // Not quoted in the neighbourhood of a secret, unless it is a number: it may be the secret.
    let hidden = rules::is_beside_secret(path) && !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let found = || if hidden { hidden::VALUE.to_owned() } else { element.quote(text) };
    let fits = match kind {
        Kind::Mark if text.is_empty() => true,
        Kind::Mark => {
            let found = element.quote(text);
            report.error(
                element.line,
                path,
                format!("found {found}; allowed: nothing inside, write <{}/> or leave it out", element.name),
            );
            return;
        }
        Kind::Flag { .. } => value::flag(text).ok().is_some(),
        Kind::Number(rule) => match value::number(rule, text) {
            Reading::Fits(_) => true,
            Reading::Replaced(instead) => {
                let (found, allowed) = (element.quote(text), value::allowed(kind));
                report.add(Level::Warning, element.line, path, format!("found {found}; allowed: {allowed}; {instead} is used"));
                true
            }
            Reading::Wrong => false,
        },
        Kind::Rate => text.parse().is_ok_and(value::is_rate),
        Kind::Multiplier => value::multiplier_milli(text).is_some(),
        Kind::Choice(words) => value::choice(words, text).ok().is_some(),
        Kind::Text => !text.is_empty(),
        // The reader of a secret says what it must be.
        Kind::Section | Kind::Any | Kind::Secret => true,
    };
    if !fits {
        let (found, allowed) = (found(), value::allowed(kind));
        report.error(element.line, path, format!("found {found}; allowed: {allowed}; correct the value or remove the element"));
    }
}

fn notices(element: &Element, rule: &Rule, root: &View<'_>) {
    for notice in NOTICES.iter().filter(|notice| notice.path == rule.path) {
        let off = notice.when.is_some_and(|flag| !root.flag(flag));
        let value = if let (Kind::Section, Some(enabled)) = (&rule.kind, element.child("enabled")) {
            &enabled.text
        } else {
            &element.text
        };
        if !off && notice.unless_value != Some(value.as_str()) {
            root.report().add(notice.level, element.line, rule.path, notice.text);
        }
    }
}
