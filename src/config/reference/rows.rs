//! From rules and rows to the cells of a table.

use std::collections::HashSet;

use super::row::{Chapter, Row, Source, Without, matches};
use crate::config::check::notices::{NOTICES, Notice};
use crate::config::check::rules::{self, Kind, Number, Rule};
use crate::config::check::value;
use crate::config::{Level, Settings};

/// A line of a table.
#[derive(PartialEq)]
pub(super) struct Line {
    pub(super) path: String,
    pub(super) value: String,
    pub(super) default: String,
    pub(super) whose: &'static str,
    pub(super) meaning: String,
}

/// The rules that a row speaks of.
pub(super) fn rules_of(chapter: &Chapter, row: &Row) -> Vec<&'static Rule> {
    let pattern = if chapter.base.is_empty() { row.path.to_owned() } else { format!("{}/{}", chapter.base, row.path) };
    rules::all().filter(|rule| matches(&pattern, rule.path)).collect()
}

/// Lines of a row: one where all its elements are alike, else one for each way to be different, with whole paths.
pub(super) fn lines(chapter: &Chapter, row: &Row, bare: &Settings) -> Vec<Line> {
    let whose = match row.source {
        Source::HiveMq => "HiveMQ",
        Source::Own => "own",
    };
    let mut groups: Vec<(Vec<&str>, Line)> = Vec::new();
    for rule in rules_of(chapter, row) {
        let (value, default, meaning) =
            (value_of(rule, Some(row)), default_of(rule, Some(row), bare), meaning(chapter, row, rule));
        let line = Line { path: row.path.to_owned(), value, default, whose, meaning };
        match groups.iter_mut().find(|(_, known)| *known == line) {
            Some((paths, _)) => paths.push(rule.path),
            None => groups.push((vec![rule.path], line)),
        }
    }
    let alike = groups.len() == 1;
    groups.into_iter().map(|(paths, line)| if alike { line } else { Line { path: paths.join("`, `"), ..line } }).collect()
}

/// Rules that no row speaks of, though there is something to say: lines without a meaning.
pub(super) fn undescribed(chapters: &[Chapter], bare: &Settings) -> Vec<Line> {
    let rows = chapters.iter().flat_map(|chapter| chapter.rows.iter().map(move |row| (chapter, row)));
    let described: HashSet<&str> = rows.flat_map(|(chapter, row)| rules_of(chapter, row)).map(|rule| rule.path).collect();
    let line = |rule: &Rule| Line {
        path: rule.path.to_owned(),
        value: value_of(rule, None),
        default: default_of(rule, None, bare),
        whose: "",
        meaning: remarks(rule).join(" "),
    };
    rules::all().filter(|rule| !described.contains(rule.path) && has_something_to_say(rule)).map(line).collect()
}

/// A section that is there once, and of which nothing is remarked, shows in the paths of what is in it.
pub(super) fn has_something_to_say(rule: &Rule) -> bool {
    rule.many
        || !matches!(rule.kind, Kind::Section)
        || NOTICES.iter().any(|notice| notice.path == rule.path)
        || rules::children_of(rule.path).is_empty()
}

/// Where the base of a chapter is that begins with `**`.
pub(super) fn homes(chapter: &Chapter) -> Vec<&'static str> {
    rules::all().map(|rule| rule.path).filter(|path| matches(chapter.base, path)).collect()
}

fn value_of(rule: &Rule, row: Option<&Row>) -> String {
    let (unit, words) = row.map(|row| (row.unit, row.holds.words())).unwrap_or_default();
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let (from_rule, replaces) = match &rule.kind {
        Kind::Section => ("elements".to_owned(), true),
        Kind::Mark => (format!("empty: `<{}/>`", rules::name(rule.path)), true),
        Kind::Any => ("not looked into".to_owned(), true),
        Kind::Flag { .. } => ("`true`, `false`".to_owned(), false),
        Kind::Number(number) => (range(number, &unit), false),
        Kind::Choice(words) => (words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "), false),
        Kind::Rate | Kind::Multiplier => (format!("{}{unit}", value::allowed(&rule.kind)), false),
        Kind::Text | Kind::Secret => ("text".to_owned(), true),
    };
    let mut text = match (words.is_empty(), replaces) {
        (true, _) => from_rule,
        (false, true) => words,
        (false, false) => format!("{from_rule}; {words}"),
    };
    if matches!(rule.kind, Kind::Secret) {
        text.push_str(", secret");
    }
    if rule.many {
        text.push_str("; *several times*");
    }
    text
}

fn range(number: &Number, unit: &str) -> String {
    let allowed = match number.max {
        i64::MAX => format!("{} or more{unit}", separated(number.min)),
        max => format!("{} to {}{unit}", separated(number.min), separated(max)),
    };
    let Some(replace) = number.replace else { return allowed };
    let mut text = allowed;
    for (what, number) in replacements(number, replace) {
        text.push_str("; ");
        text.push_str(&format!("{what}: {}", separated(number)));
    }
    text
}

/// What takes the place of numbers below and above the range.
fn replacements(number: &Number, replace: fn(i64) -> i64) -> Vec<(String, i64)> {
    let mut found = Vec::new();
    if let Some(last) = number.min.checked_sub(1) {
        let lowest = replace(i64::MIN);
        // Below the range there may be two answers; where the second begins is found by halves.
        let (mut low, mut high) = (i64::MIN, last);
        while low < high {
            let middle = low.midpoint(high);
            if replace(middle) == lowest { low = middle + 1 } else { high = middle }
        }
        if replace(last) == lowest {
            found.push((format!("below {}", separated(number.min)), lowest));
        } else {
            found.push((format!("below {}", separated(high)), lowest));
            found.push((format!("{} to {}", separated(high), separated(last)), replace(last)));
        }
    }
    if let Some(next) = number.max.checked_add(1) {
        found.push((format!("above {}", separated(number.max)), replace(next)));
    }
    if let [(_, below), (_, above)] = found[..]
        && below == above
    {
        return vec![("else".to_owned(), below)];
    }
    found
}

fn default_of(rule: &Rule, row: Option<&Row>, bare: &Settings) -> String {
    match row.map(|row| &row.without) {
        Some(Without::Says(words)) => (*words).to_owned(),
        Some(Without::Settings(read)) => read(bare),
        Some(Without::Rule) | None => default_in_rule(rule).map(|text| format!("`{text}`")).unwrap_or_default(),
    }
}

/// What may be written with the same effect as nothing.
pub(super) fn default_in_rule(rule: &Rule) -> Option<String> {
    match &rule.kind {
        Kind::Flag { default } => Some(default.to_string()),
        Kind::Number(number) => number.default.map(|default| default.to_string()),
        Kind::Choice(words) => words.first().map(|word| (*word).to_owned()),
        _ => None,
    }
}

fn meaning(chapter: &Chapter, row: &Row, rule: &Rule) -> String {
    let mut sentences = vec![row.meaning.to_owned()];
    sentences.extend(remarks(rule));
    sentences.retain(|sentence| !sentence.is_empty());
    if sentences.is_empty()
        && let Some(above) = remarked_above(rule)
    {
        let shown = above.strip_prefix(chapter.base).map_or(above, |path| path.trim_start_matches('/'));
        sentences.push(format!("See `{shown}`."));
    }
    sentences.join(" ")
}

/// The nearest section around an element that a notice speaks of.
pub(super) fn remarked_above(rule: &Rule) -> Option<&'static str> {
    let mut above = rules::parent(rule.path);
    while !above.is_empty() {
        if let Some(notice) = NOTICES.iter().find(|notice| notice.path == above) {
            return Some(notice.path);
        }
        above = rules::parent(above);
    }
    None
}

/// What the check says when it finds the element.
fn remarks(rule: &Rule) -> Vec<String> {
    NOTICES.iter().filter(|notice| notice.path == rule.path).map(remark).collect()
}

fn remark(notice: &Notice) -> String {
    let mut when = String::new();
    if let Some(flag) = notice.when {
        when = format!(" where `{flag}` is on");
    }
    if let Some(value) = notice.unless_value {
        when = format!("{when} unless `{value}`");
    }
    match notice.level {
        Level::Error => format!("**Refused**{when}: {}", escaped(notice.text)),
        Level::Warning => format!("Warned of{when}: {}", escaped(notice.text)),
        Level::Info if when.is_empty() => sentence(notice.text),
        Level::Info => format!("Noted{when}: {}", escaped(notice.text)),
    }
}

/// A message of the check as Markdown, with a full stop.
fn escaped(message: &str) -> String {
    let text = message.replace('<', "\\<").replace('*', "\\*");
    if text.ends_with('.') { text } else { text + "." }
}

/// The same with a capital letter.
pub(super) fn sentence(message: &str) -> String {
    let text = escaped(message);
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// With a comma between thousands.
pub(super) fn separated(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}
