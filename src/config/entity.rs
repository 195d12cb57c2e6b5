//! Second step: the shape of the XML. Only what a configuration needs: elements, text, attributes by name. No document type, so no
//! entity can be declared; sizes, depth and number of elements are bounded, and nothing recurses deeper than [`DEPTH_MAX`].

use std::borrow::Cow;
use std::ops::Range;

use quick_xml::Reader;
use quick_xml::errors::{Error, IllFormedError};
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};

use super::diagnostic::{Level, Report, quote};
use super::hidden;
use super::limits::{DEPTH_MAX, ELEMENTS_MAX};
use super::placeholder::Expanded;

pub(super) struct Element {
    /// Without namespace prefix.
    pub(super) name: String,
    /// In the file as written, from 1.
    pub(super) line: u32,
    /// In the line once placeholders are replaced, characters from 1.
    pub(super) column: u32,
    /// Character data without the white space around it.
    pub(super) text: String,
    /// The text with the white space around it, where there is some.
    pub(super) untrimmed: Option<String>,
    /// Names only: no element of `config.xml` has an attribute that means something. One that is not to be shown has another name.
    pub(super) attributes: Vec<String>,
    /// Whether it holds a secret, or stands in what does.
    secret: bool,
    /// Whether a placeholder put any of the text there.
    placed: bool,
    name_hidden: bool,
    pub(super) children: Vec<Self>,
}

impl Element {
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|c| c.name == name)
    }

    /// Quotes the text, or what was made of it, for a message: not where it may be a secret.
    pub(super) fn quote(&self, text: &str) -> String {
        if self.secret || self.placed { hidden::VALUE.to_owned() } else { quote(text) }
    }

    /// Whether a placeholder put any of the text there.
    pub(super) fn is_placed(&self) -> bool {
        self.placed
    }

    /// The name for a message.
    pub(super) fn shown_name(&self) -> Cow<'_, str> {
        if self.name_hidden { hidden::NAME.into() } else { self.name.escape_debug().to_string().into() }
    }
}

/// Parses the document; `None` after an error, which is in the report.
pub(super) fn parse(expanded: &Expanded, report: &Report) -> Option<Element> {
    parse_up_to(ELEMENTS_MAX, "hivemq", expanded, report)
}

/// Parses a document that may have another number of elements than a configuration, and whose root has another name, which is not checked.
pub(super) fn parse_up_to(elements_max: usize, root_name: &'static str, expanded: &Expanded, report: &Report) -> Option<Element> {
    let counted = Position::START;
    let mut parser = Parser { expanded, report, root_name, open: Vec::new(), root: None, elements: 0, elements_max, counted };
    match parser.run() {
        Ok(()) => parser.root,
        Err(Malformed { at, message }) => {
            let position = Position::START.advanced(&expanded.text, at);
            let line = expanded.source_line(position.line);
            report.error(line, "", format!("not well-formed XML at column {}: {message}", position.column));
            None
        }
    }
}

/// Where and why the text is no XML we take.
struct Malformed {
    /// Byte in the expanded text.
    at: usize,
    message: String,
}

/// What is wrong with a piece of the text.
struct Fault {
    /// Without a word of the text.
    what: String,
    /// The same with what the text says there.
    quoted: Option<String>,
}

impl<T: Into<String>> From<T> for Fault {
    fn from(what: T) -> Self {
        Self { what: what.into(), quoted: None }
    }
}

fn fault(what: impl Into<String>, quoted: String) -> Fault {
    Fault { what: what.into(), quoted: Some(quoted) }
}

struct Parser<'a> {
    expanded: &'a Expanded,
    report: &'a Report,
    /// Of the root element that is expected.
    root_name: &'static str,
    /// Elements whose end tag has not come.
    open: Vec<Element>,
    root: Option<Element>,
    elements: usize,
    elements_max: usize,
    counted: Position,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), Malformed> {
        let text = self.expanded.text.as_str();
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        reader.config_mut().check_comments = true;
        loop {
            let at = position(reader.buffer_position());
            let event = reader.read_event();
            let span = at..position(reader.buffer_position()).max(at);
            self.no_control(&span)?;
            let event = event.map_err(|error| {
                let at = position(reader.error_position());
                let close = text.get(at..).and_then(|rest| rest.find('>')).map_or(text.len(), |close| at + close + 1);
                let hidden = self.hides(&(span.start.min(at)..span.end.max(close)))
                    || self.open.last().is_some_and(|open| open.name_hidden);
                Malformed { at, message: self.tell(not_read(&error), hidden) }
            })?;
            let done = match event {
                Event::Start(start) => self.start(&start, &span),
                Event::End(_) => {
                    self.end();
                    Ok(())
                }
                Event::Text(t) => t.decode().map_err(encoding).and_then(|text| self.text(&text, &span)),
                Event::CData(t) => t.decode().map_err(encoding).and_then(|text| self.text(&text, &span)),
                Event::GeneralRef(reference) => resolve(&reference).and_then(|text| self.text(&text, &span)),
                Event::DocType(_) => Err("<!DOCTYPE> and entity declarations are not allowed; remove the declaration".into()),
                Event::Decl(declaration) => {
                    self.declaration(&declaration, &span);
                    Ok(())
                }
                // With `expand_empty_elements` the reader gives Start and End instead of Empty.
                Event::Empty(_) | Event::Comment(_) | Event::PI(_) => Ok(()),
                Event::Eof => return self.finish(at),
            };
            done.map_err(|fault| Malformed { at, message: self.tell(fault, self.hides(&span)) })?;
        }
    }

    fn no_control(&self, span: &Range<usize>) -> Result<(), Malformed> {
        let bytes = self.expanded.text.as_bytes().get(span.clone()).unwrap_or_default();
        let is_control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r');
        let Some((n, byte)) = bytes.iter().enumerate().find(|(_, byte)| is_control(byte)) else { return Ok(()) };
        let fault = fault("control character; remove it", format!("control character U+{byte:04X}; remove it"));
        Err(Malformed { at: span.start + n, message: self.tell(fault, self.hides(span)) })
    }

    /// Whether nothing of this piece of the text may be repeated, which follows on what was read.
    fn hides(&self, span: &Range<usize>) -> bool {
        self.open.last().is_some_and(|open| open.secret) || self.expanded.is_placed(span)
    }

    /// The one way from the text into a message of this step.
    fn tell(&self, fault: Fault, hidden: bool) -> String {
        if !hidden {
            return fault.quoted.unwrap_or(fault.what);
        }
        let secret = self.open.iter().find(|open| hidden::is_secret(&open.name));
        match secret.or(self.open.last()) {
            Some(open) => format!("in <{}>: {}", open.shown_name(), fault.what),
            None => fault.what,
        }
    }

    fn start(&mut self, start: &BytesStart<'_>, span: &Range<usize>) -> Result<(), Fault> {
        self.elements += 1;
        if self.elements > self.elements_max {
            return Err(format!("more than {} elements", self.elements_max).into());
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(format!("elements nested more than {DEPTH_MAX} deep").into());
        }
        if self.open.is_empty() && self.root.is_some() {
            return Err("a second root element; everything belongs inside the first".into());
        }
        let name = utf8(start.local_name().as_ref())?;
        let inside = self.open.last().is_some_and(|open| open.secret);
        let secret = inside || hidden::is_secret(&name);
        let name_span = span.start..span.start + 1 + start.name().as_ref().len();
        let name_hidden = inside || !hidden::is_name(&name) || self.expanded.is_placed(&name_span);
        let hide_attributes = secret || name_hidden || self.expanded.is_placed(span);
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let wrong = |error: &dyn std::fmt::Display| {
                let shown = if name_hidden { hidden::NAME } else { &name };
                let what = format!("in the attributes of <{shown}>: not as XML wants them");
                if hide_attributes { what.into() } else { fault(what, format!("in the attributes of <{name}>: {error}")) }
            };
            let attribute = attribute.map_err(|error| wrong(&error))?;
            attribute.unescape_value().map_err(|error| wrong(&error))?;
            let key = utf8(attribute.key.as_ref())?;
            attributes.push(if hide_attributes && !is_of_schema(&key) { hidden::NAME.to_owned() } else { key });
        }
        self.counted = self.counted.advanced(&self.expanded.text, span.start);
        let (line, column) = (self.expanded.source_line(self.counted.line), self.counted.column);
        self.open.push(Element {
            name,
            line,
            column,
            text: String::new(),
            untrimmed: None,
            attributes,
            secret,
            placed: false,
            name_hidden,
            children: Vec::new(),
        });
        Ok(())
    }

    fn end(&mut self) {
        let Some(mut element) = self.open.pop() else { return };
        let trimmed = element.text.trim();
        if trimmed.len() < element.text.len() {
            let trimmed = trimmed.to_owned();
            // Between elements it is for the eye alone.
            element.untrimmed = Some(std::mem::replace(&mut element.text, trimmed)).filter(|_| element.children.is_empty());
        }
        match self.open.last_mut() {
            Some(parent) => parent.children.push(element),
            None => self.root = Some(element),
        }
    }

    fn text(&mut self, text: &str, span: &Range<usize>) -> Result<(), Fault> {
        let placed = self.expanded.is_placed(span);
        match self.open.last_mut() {
            Some(element) => {
                element.text.push_str(text);
                element.placed |= placed;
            }
            None if text.trim().is_empty() => {}
            None => return Err("text outside the root element".into()),
        }
        Ok(())
    }

    fn declaration(&mut self, declaration: &BytesDecl<'_>, span: &Range<usize>) {
        let Some(Ok(encoding)) = declaration.encoding() else { return };
        if !encoding.eq_ignore_ascii_case(b"utf-8") && !encoding.eq_ignore_ascii_case(b"us-ascii") {
            self.counted = self.counted.advanced(&self.expanded.text, span.start);
            let line = self.expanded.source_line(self.counted.line);
            let found = if self.hides(span) { hidden::NAME.to_owned() } else { quote(&String::from_utf8_lossy(&encoding)) };
            self.report.add(Level::Warning, line, "", format!("encoding {found} is declared, but the file is read as UTF-8"));
        }
    }

    fn finish(&self, at: usize) -> Result<(), Malformed> {
        let message = match (self.open.last(), &self.root) {
            (Some(open), _) => {
                format!("the file ends inside <{}>, which line {} opens at column {}", open.shown_name(), open.line, open.column)
            }
            (None, None) => format!("no root element; the file holds one <{}>", self.root_name),
            (None, Some(_)) => return Ok(()),
        };
        Err(Malformed { at, message })
    }
}

/// Resolves `&lt;` and its four kin, and character references; nothing else exists without a document type.
fn resolve(reference: &BytesRef<'_>) -> Result<String, Fault> {
    const CHARACTER: &str = "a character reference that is none";
    if let Some(c) = reference.resolve_char_ref().map_err(|error| fault(CHARACTER, error.to_string()))? {
        return if c.is_control() && !matches!(c, '\t' | '\n' | '\r') {
            let quoted = format!("reference to the control character U+{:04X}", u32::from(c));
            Err(fault("reference to a control character", quoted))
        } else {
            Ok(c.to_string())
        };
    }
    let name = reference.decode().map_err(encoding)?;
    quick_xml::escape::resolve_predefined_entity(&name).map(str::to_owned).ok_or_else(|| {
        const ALLOWED: &str = "allowed: &lt; &gt; &amp; &quot; &apos; and character references";
        fault(
            format!("found an entity; {ALLOWED}; write &amp; for &"),
            format!("found entity {}; {ALLOWED}", quote(&format!("&{name};"))),
        )
    })
}

/// What the reader did not take.
fn not_read(error: &Error) -> Fault {
    let said = error.to_string();
    match error {
        Error::IllFormed(IllFormedError::MismatchedEndTag { .. }) => {
            fault("an end tag of another element than the one that is open", said)
        }
        Error::IllFormed(IllFormedError::UnmatchedEndTag(_)) => fault("an end tag without its start tag", said),
        // These do not repeat anything.
        Error::Syntax(_) | Error::IllFormed(IllFormedError::DoubleHyphenInComment | IllFormedError::UnclosedReference) => {
            said.into()
        }
        _ => fault("something that XML does not know", said),
    }
}

fn encoding(_: quick_xml::encoding::EncodingError) -> Fault {
    "text that is not UTF-8".into()
}

fn utf8(bytes: &[u8]) -> Result<String, Fault> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a name that is not UTF-8".into())
}

/// Whether an attribute names a schema; it has no effect, and nothing is said about it.
pub(super) fn is_of_schema(attribute: &str) -> bool {
    attribute == "xmlns" || attribute.starts_with("xmlns:") || attribute.starts_with("xsi:")
}

fn position(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// A place in a text; lines and columns from 1, columns in characters.
#[derive(Clone, Copy)]
pub(super) struct Position {
    offset: usize,
    pub(super) line: u32,
    pub(super) column: u32,
}

impl Position {
    pub(super) const START: Self = Self { offset: 0, line: 1, column: 1 };

    /// Moves on to byte `offset`; stays where `offset` is not further on.
    pub(super) fn advanced(mut self, text: &str, offset: usize) -> Self {
        let bytes = text.as_bytes();
        while self.offset < offset.min(bytes.len()) {
            match bytes.get(self.offset) {
                Some(b'\n') => (self.line, self.column) = (self.line.saturating_add(1), 1),
                // Bytes that continue a character are not counted.
                Some(byte) if byte & 0xC0 != 0x80 => self.column = self.column.saturating_add(1),
                _ => {}
            }
            self.offset += 1;
        }
        self
    }
}

#[cfg(test)]
#[path = "entity_test.rs"]
mod tests;
