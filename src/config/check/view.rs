//! Reads elements by path, with the defaults of their rules. What `shape` has reported is not reported again: a value that does not fit
//! reads like one that is absent.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::rules::{self, Kind};
use super::shape::join;
use super::value;
use crate::config::diagnostic::{Level, Report, quote};
use crate::config::entity::Element;
use crate::config::hidden;
use crate::config::limits::{FILE_PATH_LEN_MAX, NAME_LEN_MAX};

/// An element that is there or not, where its rule says.
pub(super) struct View<'a> {
    element: Option<&'a Element>,
    /// Line of the element, or of the nearest one around it that is there.
    line: u32,
    path: String,
    report: &'a Report,
}

impl<'a> View<'a> {
    pub(super) fn root(root: &'a Element, report: &'a Report) -> Self {
        Self { element: Some(root), line: root.line, path: String::new(), report }
    }

    /// Goes down to an element below this one, the first where there are several.
    pub(super) fn at(&self, relative: &str) -> Self {
        let mut view = Self { element: self.element, line: self.line, path: join(&self.path, relative), report: self.report };
        for name in relative.split('/') {
            view.element = view.element.and_then(|element| element.child(name));
            view.line = view.element.map_or(view.line, |element| element.line);
        }
        debug_assert!(rules::find(&view.path).is_some(), "no rule for {}", view.path);
        view
    }

    /// All elements `name` below this one, in their order.
    pub(super) fn all(&self, name: &str) -> Vec<Self> {
        let found = self.element.into_iter().flat_map(|element| &element.children).filter(|child| child.name == name);
        found
            .map(|child| Self { element: Some(child), line: child.line, path: join(&self.path, name), report: self.report })
            .collect()
    }

    pub(super) fn exists(&self) -> bool {
        self.element.is_some()
    }

    /// Whether there is any element inside, known or not.
    pub(super) fn has_children(&self) -> bool {
        self.element.is_some_and(|element| !element.children.is_empty())
    }

    pub(super) fn line(&self) -> u32 {
        self.line
    }

    pub(super) fn report(&self) -> &'a Report {
        self.report
    }

    pub(super) fn error(&self, message: impl Into<String>) {
        self.report.error(self.line, &self.path, message);
    }

    pub(super) fn warning(&self, message: impl Into<String>) {
        self.report.add(Level::Warning, self.line, &self.path, message);
    }

    /// Quotes what the element says for a message: not where it may be a secret.
    pub(super) fn quote(&self, text: &str) -> String {
        self.element.map_or_else(|| quote(text), |element| element.quote(text))
    }

    /// Whether a placeholder put any of the text there.
    pub(super) fn is_placed(&self) -> bool {
        self.element.is_some_and(Element::is_placed)
    }

    /// Whether a placeholder put anything into the elements right below this one.
    pub(super) fn holds_placed(&self) -> bool {
        self.element.is_some_and(|element| element.children.iter().any(Element::is_placed))
    }

    /// A message about the file whose path this element is, without the path where a placeholder put it there.
    pub(super) fn without_path(&self, message: &str) -> String {
        match self.own_text().filter(|_| self.is_placed()) {
            Some(path) => message.replace(&*self.report.directory().join(path).to_string_lossy(), hidden::NAME),
            None => message.to_owned(),
        }
    }

    pub(super) fn flag(&self, relative: &str) -> bool {
        let view = self.at(relative);
        let default = matches!(rules::find(&view.path), Some(rules::Rule { kind: Kind::Flag { default: true }, .. }));
        view.element.and_then(|element| value::flag(&element.text).ok()).unwrap_or(default)
    }

    /// `None`: absent or wrong, and there is no default.
    pub(super) fn number(&self, relative: &str) -> Option<i64> {
        let view = self.at(relative);
        let Some(rules::Rule { kind: Kind::Number(rule), .. }) = rules::find(&view.path) else { return None };
        view.element.and_then(|element| value::number(rule, &element.text).ok()).or(rule.default)
    }

    /// A number above 0, with a fraction or not; `None`: absent or wrong.
    pub(super) fn rate(&self, relative: &str) -> Option<f64> {
        self.at(relative).element.and_then(|element| element.text.parse().ok()).filter(|rate| value::is_rate(*rate))
    }

    /// A number of bytes; `None`: absent or wrong.
    pub(super) fn bytes(&self, relative: &str) -> Option<usize> {
        self.number(relative).and_then(|n| usize::try_from(n).ok())
    }

    pub(super) fn u16(&self, relative: &str) -> Option<u16> {
        self.number(relative).and_then(|n| u16::try_from(n).ok())
    }

    /// A number that has a default; its rule keeps it in range.
    pub(super) fn u16_or_max(&self, relative: &str) -> u16 {
        self.u16(relative).unwrap_or(u16::MAX)
    }

    /// See [`Self::u16_or_max`].
    pub(super) fn u32_or_max(&self, relative: &str) -> u32 {
        self.number(relative).and_then(|n| u32::try_from(n).ok()).unwrap_or(u32::MAX)
    }

    /// See [`Self::u16_or_max`].
    pub(super) fn u64_or_max(&self, relative: &str) -> u64 {
        self.number(relative).and_then(|n| u64::try_from(n).ok()).unwrap_or(u64::MAX)
    }

    /// The word found, or the first of the allowed ones.
    pub(super) fn choice(&self, relative: &str) -> &'static str {
        let view = self.at(relative);
        let Some(rules::Rule { kind: Kind::Choice(words), .. }) = rules::find(&view.path) else { return "" };
        let found = view.element.and_then(|element| value::choice(words, &element.text).ok());
        found.or(words.first().copied()).unwrap_or("")
    }

    /// A multiplier in thousandths; `None` where it is absent or wrong.
    pub(super) fn multiplier_milli(&self, relative: &str) -> Option<u32> {
        self.at(relative).element.and_then(|element| value::multiplier_milli(&element.text))
    }

    /// The element's text; `None` where it is absent or empty.
    pub(super) fn own_text(&self) -> Option<&'a str> {
        self.element.map(|element| element.text.as_str()).filter(|text| !text.is_empty())
    }

    /// The path of a file; a relative one starts where the configuration is. `None` where it is absent, empty or refused.
    pub(super) fn file(&self) -> Option<PathBuf> {
        let text = self.own_text()?;
        if text.len() <= FILE_PATH_LEN_MAX && !text.contains(char::is_control) {
            return Some(self.report.directory().join(text));
        }
        // A key that was pasted into the place of its file's path has line ends.
        let found = if rules::is_beside_secret(&self.path) { hidden::VALUE.to_owned() } else { self.quote(text) };
        self.error(format!("found {found}; allowed: the path of a file of up to {FILE_PATH_LEN_MAX} bytes; correct the value"));
        None
    }

    /// A name, host or path of bounded length without white space inside; `None` where it is absent, empty or refused.
    pub(super) fn word(&self, relative: &str) -> Option<&'a str> {
        let view = self.at(relative);
        let text = view.own_text()?;
        if text.len() <= NAME_LEN_MAX && !text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Some(text);
        }
        let found = view.quote(text);
        view.error(format!("found {found}; allowed: up to {NAME_LEN_MAX} bytes without white space; correct the value"));
        None
    }

    /// A bind address, or `default` where there is none.
    pub(super) fn address(&self, relative: &str, default: Ipv4Addr) -> IpAddr {
        let view = self.at(relative);
        let Some(text) = view.own_text() else { return default.into() };
        if text == "localhost" {
            return Ipv4Addr::LOCALHOST.into();
        }
        text.trim_start_matches('[').trim_end_matches(']').parse().unwrap_or_else(|_| {
            let found = view.quote(text);
            view.error(format!(
                "found {found}; allowed: an IP address of this machine, 0.0.0.0 for all of them; correct the value"
            ));
            // The one address that nothing else is said about.
            Ipv4Addr::LOCALHOST.into()
        })
    }
}
