//! What reading a configuration has to say: errors, warnings and notes, each with the line it is about.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;

/// How much a [`Diagnostic`] weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The start is refused.
    Error,
    /// The configuration does something other than it says.
    Warning,
    /// Nothing to do; said so that no element is passed over in silence.
    Info,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        })
    }
}

/// One finding. Displayed as `FILE:LINE: <element/path>: message`, without the level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    pub level: Level,
    pub file: String,
    /// Counted from 1 in the file as written, before placeholders are replaced; 0 = about the file as a whole.
    pub line: u32,
    /// Below `<hivemq>`, for example `mqtt/queued-messages/strategy`; empty where no element is concerned.
    pub path: String,
    pub message: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.path.is_empty() {
            write!(f, ": <{}>", self.path)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Why a configuration was refused: all errors at once, and the warnings found on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors {
    /// At least one, in the order of lines.
    pub errors: Vec<Diagnostic>,
    pub warnings: Vec<Diagnostic>,
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, error) in self.errors.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Collects findings while the steps run.
pub(super) struct Report {
    file: String,
    found: RefCell<Vec<Diagnostic>>,
}

impl Report {
    pub(super) fn new(file: &str) -> Self {
        Self { file: file.to_owned(), found: RefCell::new(Vec::new()) }
    }

    pub(super) fn add(&self, level: Level, line: u32, path: &str, message: impl Into<String>) {
        let (file, path, message) = (self.file.clone(), path.to_owned(), one_line(&message.into()));
        self.found.borrow_mut().push(Diagnostic { level, file, line, path, message });
    }

    pub(super) fn error(&self, line: u32, path: &str, message: impl Into<String>) {
        self.add(Level::Error, line, path, message);
    }

    /// Takes over a finding about another file.
    pub(super) fn adopt(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Number of errors so far.
    pub(super) fn errors(&self) -> usize {
        self.found.borrow().iter().filter(|found| found.level == Level::Error).count()
    }

    /// Where the file is; what it names by a relative path is looked for there.
    pub(super) fn directory(&self) -> &Path {
        Path::new(&self.file).parent().unwrap_or(Path::new(""))
    }

    /// Splits into (errors, warnings and notes), each in the order of lines, those about other files last.
    pub(super) fn into_parts(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let mut all = self.found.into_inner();
        all.sort_by_key(|d| (d.file != self.file, d.line));
        all.into_iter().partition(|d| d.level == Level::Error)
    }

    /// Ends a step that cannot go on.
    pub(super) fn into_errors(self) -> ConfigErrors {
        let (errors, warnings) = self.into_parts();
        ConfigErrors { errors, warnings }
    }
}

/// Longest message, characters: what the XML reader says repeats a tag of any length.
const MESSAGE_LEN_MAX: usize = 2000;

/// A message without line ends and what else could steer a terminal, cut when long: some repeat text of the file as it is.
fn one_line(message: &str) -> String {
    let mut line = String::with_capacity(message.len().min(MESSAGE_LEN_MAX));
    for c in message.chars().take(MESSAGE_LEN_MAX) {
        if c.is_control() {
            line.extend(c.escape_debug());
        } else {
            line.push(c);
        }
    }
    if message.chars().nth(MESSAGE_LEN_MAX).is_some() {
        line.push_str("...");
    }
    line
}

/// Longest part of a value that a message repeats, characters.
const QUOTE_LEN_MAX: usize = 60;

/// Quotes a value of the file for a message: escaped, cut when long.
pub(super) fn quote(value: &str) -> String {
    let short: String = value.chars().take(QUOTE_LEN_MAX).collect();
    let more = if value.chars().nth(QUOTE_LEN_MAX).is_some() { "..." } else { "" };
    format!("\"{}{more}\"", short.escape_debug())
}
