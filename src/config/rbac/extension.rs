//! The extension's own `config.xml` (spec/hivemq.md 7.1). A mistake in it costs a warning and the default, as in HiveMQ.

use std::path::Path;

use super::elements::EXTENSION;
use super::reader::{self, Node};
use crate::config::diagnostic::{Diagnostic, Level, Report};
use crate::config::limits::FILE_SIZE_MAX;
use crate::config::read_bounded;

pub(super) const ROOT: &str = "extension-configuration";
pub(super) const RELOAD_INTERVAL_S: u32 = 60;
pub(super) const PASSWORD_TYPES: &[(&str, PasswordType)] = &[("HASHED", PasswordType::Hashed), ("PLAIN", PasswordType::Plain)];
pub(super) const NEXT_INSTEAD_OF_FAIL: &[(&str, bool)] = &[("false", false), ("true", true)];

/// How passwords stand in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PasswordType {
    Hashed,
    Plain,
}

pub(super) struct Extension {
    pub(super) reload_interval_s: u32,
    pub(super) password_type: PasswordType,
    pub(super) listener_names: Option<Vec<String>>,
    pub(super) next_instead_of_fail: bool,
}

impl Default for Extension {
    fn default() -> Self {
        Self {
            reload_interval_s: RELOAD_INTERVAL_S,
            password_type: PasswordType::Hashed,
            listener_names: None,
            next_instead_of_fail: false,
        }
    }
}

/// Reads the file; all is default where there is none.
pub(super) fn read(path: &Path, found: &mut Vec<Diagnostic>) -> Extension {
    if !path.exists() {
        return Extension::default();
    }
    let report = Report::new(&path.display().to_string());
    let extension = match read_bounded(path, FILE_SIZE_MAX) {
        Ok(raw) => reader::root(&raw, ROOT, &report).map(|root| parse(&Node::root(&root, EXTENSION, &report))),
        Err(error) => {
            report.error(0, "", format!("cannot be read: {error}"));
            None
        }
    };
    let (errors, warnings) = report.into_parts();
    let softened =
        |error: Diagnostic| Diagnostic { level: Level::Warning, message: error.message + "; the default is used", ..error };
    found.extend(errors.into_iter().map(softened));
    found.extend(warnings);
    extension.unwrap_or_default()
}

fn parse(root: &Node<'_>) -> Extension {
    root.know();
    let reload_interval_s = root.child("credentials-reload-interval").and_then(|interval| {
        let seconds = interval.text().parse::<u32>().ok().filter(|seconds| *seconds > 0);
        if seconds.is_none() {
            interval.error(format!("found {}; allowed: a number of seconds from 1", interval.quote(interval.text())));
        }
        seconds
    });
    let names: Vec<String> = root
        .list("listener-names", "listener-name")
        .iter()
        .map(|name| name.text().to_owned())
        .filter(|n| !n.is_empty())
        .collect();
    if let Some(list) = root.child("listener-names").filter(|_| names.is_empty()) {
        list.warning("found no <listener-name>; all listeners are meant");
    }
    Extension {
        reload_interval_s: reload_interval_s.unwrap_or(RELOAD_INTERVAL_S),
        password_type: root.word("password-type", PASSWORD_TYPES).unwrap_or(PasswordType::Hashed),
        listener_names: (!names.is_empty()).then_some(names),
        next_instead_of_fail: root.word("next-extension-instead-of-fail", NEXT_INSTEAD_OF_FAIL).unwrap_or(false),
    }
}
