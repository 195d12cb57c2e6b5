//! Reads elements of the extension's files by their tables: what is not known is passed over with a warning, as HiveMQ passes over it in
//! silence.

use crate::config::diagnostic::{Level, Report};
use crate::config::entity::{self, Element};
use crate::config::file_element::{FileElement, children_of};
use crate::config::limits::CREDENTIALS_ELEMENTS_MAX;
use crate::config::placeholder::Expanded;

/// Parses a file whose root has that name; `None` after an error, which is in the report.
pub(super) fn root(raw: &[u8], name: &'static str, report: &Report) -> Option<Element> {
    let raw = raw.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(raw);
    let Ok(text) = str::from_utf8(raw) else {
        report.error(0, "", "not UTF-8 text; save the file in that encoding");
        return None;
    };
    let root = entity::parse_up_to(CREDENTIALS_ELEMENTS_MAX, name, &Expanded::verbatim(text), report)?;
    if root.name == name {
        return Some(root);
    }
    report.error(root.line, "", format!("found root element <{}>; allowed: <{name}>", root.shown_name()));
    None
}

/// An element and where it stands.
pub(super) struct Node<'a> {
    pub(super) element: &'a Element,
    path: String,
    report: &'a Report,
    /// What may stand in the file.
    table: &'static [FileElement],
}

impl<'a> Node<'a> {
    pub(super) fn root(element: &'a Element, table: &'static [FileElement], report: &'a Report) -> Self {
        Self { element, path: String::new(), report, table }
    }

    fn below(&self, element: &'a Element) -> Self {
        let path = if self.path.is_empty() {
            element.shown_name().into_owned()
        } else {
            format!("{}/{}", self.path, element.shown_name())
        };
        Self { element, path, report: self.report, table: self.table }
    }

    pub(super) fn error(&self, message: impl Into<String>) {
        self.report.error(self.element.line, &self.path, message);
    }

    pub(super) fn warning(&self, message: impl Into<String>) {
        self.report.add(Level::Warning, self.element.line, &self.path, message);
    }

    /// Says of elements that are not known here.
    pub(super) fn know(&self) {
        for child in self.element.children.iter().filter(|child| !self.knows(&child.name)) {
            self.below(child).warning("unknown element, ignored");
        }
    }

    fn knows(&self, name: &str) -> bool {
        children_of(self.table, &self.path).any(|known| known == name)
    }

    /// The one element of that name; a second one is an error.
    pub(super) fn child(&self, name: &str) -> Option<Self> {
        debug_assert!(self.knows(name), "{}/{name} is in no table", self.path);
        let mut found = self.element.children.iter().filter(|child| child.name == name);
        let first = found.next()?;
        if let Some(second) = found.next() {
            self.below(second).error(format!("found a second time, first in line {}; allowed: once", first.line));
        }
        Some(self.below(first))
    }

    /// All elements `inner` in the one element `outer`, where there is one.
    pub(super) fn list(&self, outer: &str, inner: &str) -> Vec<Self> {
        let Some(outer) = self.child(outer) else { return Vec::new() };
        outer.know();
        debug_assert!(outer.knows(inner), "{}/{inner} is in no table", outer.path);
        outer.element.children.iter().filter(|child| child.name == inner).map(|child| outer.below(child)).collect()
    }

    /// Quotes what the element says for a message: not where it may be a secret.
    pub(super) fn quote(&self, text: &str) -> String {
        self.element.quote(text)
    }

    pub(super) fn text(&self) -> &'a str {
        &self.element.text
    }

    /// The text with the white space around it, where there is some.
    pub(super) fn untrimmed(&self) -> Option<&'a str> {
        self.element.untrimmed.as_deref()
    }

    /// The text of a child that must be there and not be empty.
    pub(super) fn required(&self, name: &str) -> Option<&'a str> {
        let text = self.child(name).map(|child| child.text()).filter(|text| !text.is_empty());
        if text.is_none() {
            self.error(format!("<{name}> is missing or empty; add <{name}>..</{name}>"));
        }
        text
    }

    /// One of the words, in any case; the first where the element is absent.
    pub(super) fn word<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let Some(child) = self.child(name) else { return words.first().map(|(_, value)| *value) };
        let found = words.iter().find(|(word, _)| word.eq_ignore_ascii_case(child.text()));
        if found.is_none() {
            let allowed = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(" or ");
            child.error(format!("found {}; allowed: {allowed}; correct the value", child.quote(child.text())));
        }
        found.map(|(_, value)| *value)
    }
}
