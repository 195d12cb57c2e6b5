//! First step: `${NAME}` and `${ENV:NAME}` are replaced in the raw text, as HiveMQ does (spec/hivemq.md 1.2): values go in as they
//! are, also in comments and attributes, and are not searched again. There is no syntax for a default value.

use std::ops::Range;

use super::diagnostic::{Report, quote};
use super::hidden;
use super::limits::FILE_SIZE_MAX;

const OPEN: &str = "${";
const PREFIX: &str = "ENV:";

/// The text to parse, and where its lines came from.
pub(super) struct Expanded {
    pub(super) text: String,
    /// Line in the file for each line of `text`: a value may bring line breaks of its own.
    source_lines: Vec<u32>,
    /// Bytes of `text` that placeholders put there, in their order.
    placed: Vec<Range<usize>>,
}

impl Expanded {
    /// A text without placeholders.
    pub(super) fn verbatim(text: &str) -> Self {
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX).saturating_add(1);
        Self { text: text.to_owned(), source_lines: (1..=lines).collect(), placed: Vec::new() }
    }

    /// Whether any of these bytes of `text` was put there by a placeholder.
    pub(super) fn is_placed(&self, span: &Range<usize>) -> bool {
        let next = self.placed.partition_point(|placed| placed.end <= span.start);
        self.placed.get(next).is_some_and(|placed| placed.start < span.end)
    }

    /// Tells the line in the file for a line of `text`, both counted from 1.
    pub(super) fn source_line(&self, line: u32) -> u32 {
        let index = usize::try_from(line.saturating_sub(1)).unwrap_or(usize::MAX);
        self.source_lines.get(index).or(self.source_lines.last()).copied().unwrap_or(1)
    }
}

/// Replaces the placeholders. Each one that cannot be replaced is an error in the report; the text is then of no use.
pub(super) fn expand(raw: &str, env: &dyn Fn(&str) -> Option<String>, report: &Report) -> Option<Expanded> {
    let mut out = Builder { text: String::with_capacity(raw.len()), source_lines: vec![1], line: 1, placed: Vec::new() };
    let mut tail = Tail::default();
    let mut complete = true;
    let mut rest = raw;
    while let Some((before, name, after)) = next_placeholder(rest) {
        out.push_source(before);
        tail.push(before);
        let value = resolve(name, out.line, tail.place(after), env, report);
        tail.fill();
        complete &= value.is_some();
        out.push_value(&value.unwrap_or_default());
        rest = after;
        if out.text.len() > FILE_SIZE_MAX {
            report.error(out.line, "", format!("larger than {FILE_SIZE_MAX} bytes once placeholders are replaced"));
            return None;
        }
    }
    out.push_source(rest);
    complete.then_some(Expanded { text: out.text, source_lines: out.source_lines, placed: out.placed })
}

/// Splits at the first `${...}` that closes on its own line: (before, inside, after). `${{...}}` stays: it is filled in for each client.
fn next_placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let mut from = 0;
    while let Some(found) = text.get(from..)?.find(OPEN) {
        let start = from + found;
        let inside = text.get(start + OPEN.len()..)?;
        match inside.find(['}', '\n']) {
            Some(end) if inside.as_bytes().get(end) == Some(&b'}') && !inside.starts_with('{') => {
                return Some((text.get(..start)?, inside.get(..end)?, inside.get(end + 1..)?));
            }
            _ => from = start + OPEN.len(),
        }
    }
    None
}

fn resolve(inside: &str, line: u32, place: Place, env: &dyn Fn(&str) -> Option<String>, report: &Report) -> Option<String> {
    let mut name = inside;
    while let Some(rest) = name.strip_prefix(PREFIX) {
        name = rest;
    }
    if name.is_empty() || name.contains(['=', '\0']) {
        let inside = if place == Place::Elsewhere { quote(&format!("${{{inside}}}")) } else { hidden::VALUE.to_owned() };
        report.error(
            line,
            "",
            format!("found {inside}; allowed: ${{NAME}} or ${{ENV:NAME}} with the name of an environment variable"),
        );
        return None;
    }
    let value = env(name);
    if value.is_none() {
        let name = if place == Place::InSecret { quote(hidden::NAME) } else { quote(name) };
        report.error(
            line,
            "",
            format!(
                "environment variable {} is not set; set it, or write the value in place of the placeholder \
                 (there is no syntax for a default, and placeholders in comments count too)",
                name.trim_matches('"')
            ),
        );
    }
    value
}

/// Where a placeholder stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Elsewhere,
    /// It is the whole content of an element that holds a secret: its name says where the secret is, and nothing of it.
    AsSecret,
    /// Beside other content of such an element: it may be a part of the secret that only looks like a placeholder.
    InSecret,
}

/// What the text says since the last end tag.
#[derive(Default)]
struct Tail {
    /// Whether an element that holds a secret is open.
    secret: bool,
    /// Whether anything but white space came in it.
    filled: bool,
}

impl Tail {
    fn push(&mut self, text: &str) {
        let mut text = text;
        if let Some(end) = text.rfind("</") {
            *self = Self::default();
            text = text.get(end + 2..).unwrap_or_default();
        }
        let mut pieces = text.split('<');
        let content = pieces.next().unwrap_or_default();
        self.filled |= self.secret && !content.trim().is_empty();
        for piece in pieces {
            // `<` in a secret begins no element.
            self.filled |= self.secret;
            let (tag, content) = piece.split_once('>').unwrap_or((piece, ""));
            let name = tag.split(char::is_whitespace).next().unwrap_or_default();
            if !self.secret && hidden::is_secret(name.rsplit(':').next().unwrap_or_default()) {
                (self.secret, self.filled) = (true, !content.trim().is_empty());
            }
        }
    }

    /// Notes a placeholder.
    fn fill(&mut self) {
        self.filled |= self.secret;
    }

    /// Where a placeholder behind it stands, when that text follows.
    fn place(&self, after: &str) -> Place {
        let alone = || !self.filled && after.split('<').next().unwrap_or_default().trim().is_empty();
        if !self.secret {
            Place::Elsewhere
        } else if alone() {
            Place::AsSecret
        } else {
            Place::InSecret
        }
    }
}

struct Builder {
    text: String,
    source_lines: Vec<u32>,
    line: u32,
    placed: Vec<Range<usize>>,
}

impl Builder {
    fn push_source(&mut self, text: &str) {
        for _ in text.matches('\n') {
            self.line = self.line.saturating_add(1);
            self.source_lines.push(self.line);
        }
        self.text.push_str(text);
    }

    fn push_value(&mut self, value: &str) {
        self.source_lines.extend(value.matches('\n').map(|_| self.line));
        let start = self.text.len();
        self.text.push_str(value);
        if !value.is_empty() {
            self.placed.push(start..self.text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "A" => Some("one".to_owned()),
            "AGAIN" => Some("${A}".to_owned()),
            "LINES" => Some("x\ny\nz".to_owned()),
            "EMPTY" => Some(String::new()),
            "BIG" => Some("b".repeat(FILE_SIZE_MAX / 2)),
            _ => None,
        }
    }

    fn expand_with_errors(raw: &str) -> (Option<Expanded>, Vec<String>) {
        let report = Report::new("c.xml");
        let expanded = expand(raw, &env, &report);
        (expanded, report.into_parts().0.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn placeholders_are_replaced_in_the_raw_text() {
        let cases = [
            ("plain", "plain"),
            ("${A}", "one"),
            ("${ENV:A}", "one"),
            ("${ENV:ENV:A}", "one"),
            ("<a b='${A}'/><!-- ${A} -->${A}${A}", "<a b='one'/><!-- one -->oneone"),
            ("${AGAIN}", "${A}"),
            ("[${EMPTY}]", "[]"),
            ("$A $ {A} $${A}", "$A $ {A} $one"),
            ("${A", "${A"),
            ("${A\n}", "${A\n}"),
            ("${\n${A}", "${\none"),
            ("é${A}é", "éoneé"),
            ("${{A}}${A}", "${{A}}one"),
        ];
        for (raw, text) in cases {
            let (expanded, errors) = expand_with_errors(raw);
            assert_eq!(expanded.map(|e| e.text).as_deref(), Some(text), "{raw}");
            assert!(errors.is_empty(), "{raw}: {errors:?}");
        }
    }

    #[test]
    fn every_unset_variable_is_named_with_its_line() {
        let (expanded, errors) = expand_with_errors("<a>\n${NO}\n<!-- ${ENV:NEITHER} -->\n${A}${}\n");
        assert!(expanded.is_none());
        assert_eq!(errors.len(), 3);
        assert!(errors[0].starts_with("c.xml:2: environment variable NO is not set"), "{}", errors[0]);
        assert!(errors[1].starts_with("c.xml:3: environment variable NEITHER is not set"), "{}", errors[1]);
        assert!(errors[2].starts_with("c.xml:4: found \"${}\""), "{}", errors[2]);
    }

    #[test]
    fn lines_count_in_the_file_as_written() {
        let (expanded, _) = expand_with_errors("1\n2 ${LINES}\n3");
        let expanded = expanded.unwrap();
        let lines: Vec<u32> = (1..=6).map(|line| expanded.source_line(line)).collect();
        assert_eq!(lines, [1, 2, 2, 2, 3, 3]);
    }

    #[test]
    fn values_cannot_grow_the_text_without_bound() {
        let (expanded, errors) = expand_with_errors(&"${BIG}".repeat(1000));
        assert!(expanded.is_none());
        assert!(errors[0].contains("larger than 1048576 bytes"), "{errors:?}");
    }
}
