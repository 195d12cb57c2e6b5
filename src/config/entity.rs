//! Second step: the shape of the XML. Only what a configuration needs: elements, text, attributes by name. No document type, so no
//! entity can be declared; sizes, depth and number of elements are bounded, and nothing recurses deeper than [`DEPTH_MAX`].

use quick_xml::Reader;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};

use super::diagnostic::{Level, Report, quote};
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
    /// Names only: no element of `config.xml` has an attribute that means something.
    pub(super) attributes: Vec<String>,
    pub(super) children: Vec<Self>,
}

impl Element {
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|c| c.name == name)
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
        if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{7f}'..))
        {
            return Err(Malformed { at, message: format!("control character U+{:04X}; remove it", u32::from(c)) });
        }
        let mut reader = Reader::from_str(text);
        reader.config_mut().expand_empty_elements = true;
        reader.config_mut().check_comments = true;
        loop {
            let at = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
            let event = reader.read_event().map_err(|error| Malformed {
                at: usize::try_from(reader.error_position()).unwrap_or(at),
                message: error.to_string(),
            })?;
            let fail = |message: String| Malformed { at, message };
            match event {
                Event::Start(start) => self.start(&start, at).map_err(fail)?,
                Event::End(_) => self.end(),
                // With `expand_empty_elements` the reader gives Start and End instead.
                Event::Empty(_) => {}
                Event::Text(t) => self.text(&t.decode().map_err(|e| fail(e.to_string()))?).map_err(fail)?,
                Event::CData(t) => self.text(&t.decode().map_err(|e| fail(e.to_string()))?).map_err(fail)?,
                Event::GeneralRef(reference) => self.text(&resolve(&reference).map_err(fail)?).map_err(fail)?,
                Event::DocType(_) => {
                    return Err(fail("<!DOCTYPE> and entity declarations are not allowed; remove the declaration".to_owned()));
                }
                Event::Decl(declaration) => self.declaration(&declaration, at),
                Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => return self.finish(at),
            }
        }
    }

    fn start(&mut self, start: &BytesStart<'_>, at: usize) -> Result<(), String> {
        self.elements += 1;
        if self.elements > self.elements_max {
            return Err(format!("more than {} elements", self.elements_max));
        }
        if self.open.len() >= DEPTH_MAX {
            return Err(format!("elements nested more than {DEPTH_MAX} deep"));
        }
        if self.open.is_empty() && self.root.is_some() {
            return Err("a second root element; everything belongs inside the first".to_owned());
        }
        let name = utf8(start.local_name().as_ref())?;
        let mut attributes = Vec::new();
        for attribute in start.attributes() {
            let attribute = attribute.map_err(|e| format!("in the attributes of <{name}>: {e}"))?;
            attribute.unescape_value().map_err(|e| format!("in the attributes of <{name}>: {e}"))?;
            attributes.push(utf8(attribute.key.as_ref())?);
        }
        self.counted = self.counted.advanced(&self.expanded.text, at);
        let (line, column) = (self.expanded.source_line(self.counted.line), self.counted.column);
        self.open.push(Element { name, line, column, text: String::new(), untrimmed: None, attributes, children: Vec::new() });
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

    fn text(&mut self, text: &str) -> Result<(), String> {
        match self.open.last_mut() {
            Some(element) => element.text.push_str(text),
            None if text.trim().is_empty() => {}
            None => return Err("text outside the root element".to_owned()),
        }
        Ok(())
    }

    fn declaration(&mut self, declaration: &BytesDecl<'_>, at: usize) {
        let Some(Ok(encoding)) = declaration.encoding() else { return };
        if !encoding.eq_ignore_ascii_case(b"utf-8") && !encoding.eq_ignore_ascii_case(b"us-ascii") {
            self.counted = self.counted.advanced(&self.expanded.text, at);
            let line = self.expanded.source_line(self.counted.line);
            let found = quote(&String::from_utf8_lossy(&encoding));
            self.report.add(Level::Warning, line, "", format!("encoding {found} is declared, but the file is read as UTF-8"));
        }
    }

    fn finish(&self, at: usize) -> Result<(), Malformed> {
        let message = match (self.open.last(), &self.root) {
            (Some(open), _) => {
                format!("the file ends inside <{}>, which line {} opens at column {}", open.name, open.line, open.column)
            }
            (None, None) => format!("no root element; the file holds one <{}>", self.root_name),
            (None, Some(_)) => return Ok(()),
        };
        Err(Malformed { at, message })
    }
}

/// Resolves `&lt;` and its four kin, and character references; nothing else exists without a document type.
fn resolve(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(c) = reference.resolve_char_ref().map_err(|e| e.to_string())? {
        return if c.is_control() && !matches!(c, '\t' | '\n' | '\r') {
            Err(format!("reference to the control character U+{:04X}", u32::from(c)))
        } else {
            Ok(c.to_string())
        };
    }
    let name = reference.decode().map_err(|e| e.to_string())?;
    quick_xml::escape::resolve_predefined_entity(&name).map(str::to_owned).ok_or_else(|| {
        format!("found entity {}; allowed: &lt; &gt; &amp; &quot; &apos; and character references", quote(&format!("&{name};")))
    })
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "a name that is not UTF-8".to_owned())
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
