//! `config.xml` in three steps: entity (the XML's shape) -> check (defaults, bounds, says what it clamped) -> settings. Before the first,
//! placeholders are replaced in the raw text. All errors of a step are collected; values of the environment come through a closure.

mod check;
mod declared;
mod diagnostic;
mod entity;
mod file_element;
mod hidden;
pub mod jwt;
mod limits;
mod placeholder;
pub mod rbac;
mod reference;
mod render;
pub mod settings;
pub mod tls;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use diagnostic::Report;
pub use diagnostic::{ConfigErrors, Diagnostic, Level};
use limits::FILE_SIZE_MAX;
pub use reference::{AddedChapter, COMMAND as REFERENCE_COMMAND, reference};
pub use render::{must_agree, render};
pub use settings::Settings;

/// Stands for the file name in messages about the built-in configuration.
const EMBEDDED_NAME: &str = "built-in configuration";
const EMBEDDED: &str = include_str!("../../config/default.xml");

/// A configuration the broker can start with.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub settings: Settings,
    /// Warnings and notes, in the order of lines.
    pub warnings: Vec<Diagnostic>,
}

/// Looks up a variable in the environment of the process; one that is not UTF-8 counts as not set.
pub fn process_env(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reads and checks a file. `env` gives the values of placeholders, and the node name where the file has none.
pub fn load(path: &Path, env: impl Fn(&str) -> Option<String>) -> Result<Loaded, ConfigErrors> {
    let file = path.display().to_string();
    let raw = match read_bounded(path, FILE_SIZE_MAX) {
        Ok(raw) => raw,
        Err(error) => return Err(refuse(&file, format!("cannot be read: {error}"))),
    };
    let mut loaded = from_bytes(&raw, &file, &env)?;
    declared::read(path, &mut loaded)?;
    Ok(loaded)
}

/// Gives the configuration of `troupemq start` without a file: one node on 127.0.0.1.
pub fn embedded_default() -> Result<Loaded, ConfigErrors> {
    from_bytes(EMBEDDED.as_bytes(), EMBEDDED_NAME, &|_| None)
}

/// Reads no more than is allowed, whatever the size the file system tells.
fn read_bounded(path: &Path, size_max: usize) -> io::Result<Vec<u8>> {
    let mut raw = Vec::new();
    let limit = u64::try_from(size_max).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path)?.take(limit).read_to_end(&mut raw)?;
    Ok(raw)
}

/// Reads and checks the content of a file; `file` is what messages call it.
pub(crate) fn from_bytes(raw: &[u8], file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, ConfigErrors> {
    if raw.len() > FILE_SIZE_MAX {
        return Err(refuse(file, format!("larger than {FILE_SIZE_MAX} bytes; this is no configuration")));
    }
    let report = Report::new(file);
    let raw = raw.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(raw);
    let text = match str::from_utf8(raw) {
        Ok(text) => text,
        Err(error) => {
            let before = raw.get(..error.valid_up_to()).unwrap_or_default();
            let line = before.iter().fold(1_u32, |line, byte| line.saturating_add(u32::from(*byte == b'\n')));
            report.error(line, "", "not UTF-8 text; save the file in that encoding");
            return Err(report.into_errors());
        }
    };
    let Some(expanded) = placeholder::expand(text, env, &report) else { return Err(report.into_errors()) };
    let Some(root) = entity::parse(&expanded, &report) else { return Err(report.into_errors()) };
    let settings = check::check(&root, env, &report);
    let (errors, warnings) = report.into_parts();
    match settings {
        Some(settings) if errors.is_empty() => Ok(Loaded { settings, warnings }),
        _ => Err(ConfigErrors { errors, warnings }),
    }
}

/// An error about a file as a whole.
fn refuse(file: &str, message: String) -> ConfigErrors {
    let error = Diagnostic { level: Level::Error, file: file.to_owned(), line: 0, path: String::new(), message };
    ConfigErrors { errors: vec![error], warnings: Vec::new() }
}

#[cfg(test)]
mod documentation_test;

#[cfg(test)]
#[path = "config_test.rs"]
mod tests;
