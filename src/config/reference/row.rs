//! What the reference says of an element beside what its rule says: the rule has type, range and default, a row the meaning.

use crate::config::Settings;

/// A chapter of the reference: elements that are read together.
pub(super) struct Chapter {
    pub(super) title: &'static str,
    /// Where its rows are, below `<hivemq>`; "" is the root itself. As a first part `**` stands for any place.
    pub(super) base: &'static str,
    /// Markdown.
    pub(super) intro: &'static str,
    pub(super) rows: &'static [Row],
    /// What to write into `<hivemq>`, or a whole file where it begins with `<hivemq>`.
    pub(super) example: &'static str,
    /// Each of them is refused; the reference shows with which words.
    pub(super) mistakes: &'static [&'static str],
}

/// What is to be said of the elements of a path.
pub(super) struct Row {
    /// Below the chapter's base; `*` stands for one name.
    pub(super) path: &'static str,
    pub(super) source: Source,
    /// Behind a number.
    pub(super) unit: &'static str,
    pub(super) holds: Holds,
    pub(super) without: Without,
    /// Markdown.
    pub(super) meaning: &'static str,
}

/// Whose element it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    HiveMq,
    Own,
}

/// What a text is.
pub(super) enum Holds {
    /// The rule says it all.
    Rule,
    Says(&'static str),
    /// See `View::word`.
    Word(&'static str),
    /// See `View::file`.
    File(&'static str),
    /// See `View::address`.
    Address,
    Computed(fn() -> String),
}

/// What holds where the element is absent.
pub(super) enum Without {
    /// The rule says it, or nothing is to be said.
    Rule,
    Says(&'static str),
    /// Read from the settings of a file that does without; see `bare`.
    Settings(fn(&Settings) -> String),
}

pub(super) const fn hive(path: &'static str, meaning: &'static str) -> Row {
    Row { path, source: Source::HiveMq, unit: "", holds: Holds::Rule, without: Without::Rule, meaning }
}

pub(super) const fn own(path: &'static str, meaning: &'static str) -> Row {
    Row { path, source: Source::Own, unit: "", holds: Holds::Rule, without: Without::Rule, meaning }
}

impl Row {
    pub(super) const fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    pub(super) const fn holds(mut self, holds: Holds) -> Self {
        self.holds = holds;
        self
    }

    pub(super) const fn without(mut self, words: &'static str) -> Self {
        self.without = Without::Says(words);
        self
    }

    pub(super) const fn without_it(mut self, read: fn(&Settings) -> String) -> Self {
        self.without = Without::Settings(read);
        self
    }
}

impl Holds {
    /// In words; "" where the rule says it.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Rule => String::new(),
            Self::Says(words) => (*words).to_owned(),
            Self::Word(what) => format!("{what}, *bounded*"),
            Self::File(what) => format!("path of {what}"),
            Self::Address => "IP address, or `localhost`".to_owned(),
            Self::Computed(words) => words(),
        }
    }
}

/// Whether a pattern of paths is met: `*` stands for one name, `**` in front for any number of names.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    if let Some(end) = pattern.strip_prefix("**/") {
        let (mut wanted, mut found) = (end.rsplit('/'), path.rsplit('/'));
        return wanted.by_ref().all(|name| found.next().is_some_and(|other| name == "*" || name == other))
            && found.next().is_some();
    }
    let (wanted, found) = (pattern.split('/'), path.split('/'));
    wanted.clone().count() == found.clone().count() && wanted.zip(found).all(|(name, other)| name == "*" || name == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_names() {
        let cases = [
            ("a/b", "a/b", true),
            ("a/b", "a/c", false),
            ("a/*", "a/b", true),
            ("a/*", "a", false),
            ("a/*", "a/b/c", false),
            ("*/c", "b/c", true),
            ("**/tls/x", "a/b/tls/x", true),
            ("**/tls/x", "tls/x", false),
            ("**/tls/x", "a/tls/y", false),
            ("**/tls/*/x", "a/tls/y/x", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
