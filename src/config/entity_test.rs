use super::*;
use crate::config::limits::FILE_SIZE_MAX;
use crate::config::placeholder::expand;

fn parse_text(text: &str) -> Result<Element, String> {
    let report = Report::new("c.xml");
    let expanded = expand(text, &|name| Some(format!("\n{name}\n")), &report).unwrap();
    parse(&expanded, &report).ok_or_else(|| report.into_errors().to_string())
}

#[test]
fn elements_know_their_lines_and_columns() {
    let root = parse_text(
        "<?xml version=\"1.0\"?>\n<!-- é -->\n<hivemq>\n  <a>1</a><b/>\n\té<c\n x='1'>\n ${V} <d/></c>\n<e/></hivemq>",
    )
    .unwrap();
    let places: Vec<_> = root.children.iter().map(|c| (c.name.as_str(), c.line, c.column)).collect();
    assert_eq!((root.line, root.column), (3, 1));
    assert_eq!(places, [("a", 4, 3), ("b", 4, 11), ("c", 5, 3), ("e", 8, 1)]);
    // The value of ${V} brought two line breaks; the element after it is still in line 7 of the file.
    assert_eq!((root.children[2].children[0].line, root.children[2].text.as_str()), (7, "V"));
    assert_eq!(root.children[2].attributes, ["x"]);
}

#[test]
fn text_is_trimmed_and_unescaped() {
    let cases = [
        ("<a> x </a>", "x"),
        ("<a>&lt;&amp;&gt;&quot;&apos;&#65;&#x42;</a>", "<&>\"'AB"),
        ("<a>1<!-- 2 -->3</a>", "13"),
        ("<a><![CDATA[<x>]]></a>", "<x>"),
        ("<a/>", ""),
        ("<x:a xmlns:x='u'>1</x:a>", "1"),
        ("<a>é</a>", "é"),
    ];
    for (xml, text) in cases {
        let root = parse_text(xml).unwrap();
        assert_eq!((root.name.as_str(), root.text.as_str()), ("a", text), "{xml}");
    }
}

#[test]
fn what_is_not_well_formed_is_refused_with_its_line() {
    let cases = [
        ("", "c.xml:1: not well-formed XML at column 1: no root element"),
        ("\n\n", "c.xml:3: "),
        ("text", "text outside the root element"),
        ("<a/>\ntext", "text outside the root element"),
        ("<a/>\n<b/>", "c.xml:2: not well-formed XML at column 1: a second root element"),
        ("<a>\n<b>\n</a>", "c.xml:3: "),
        ("<a>\n<b>\n", "c.xml:3: not well-formed XML at column 1: the file ends inside <b>, which line 2 opens at column 1"),
        ("<a>\n<b", "c.xml:2: "),
        ("<a></a></a>", "c.xml:1: "),
        ("<a b=1/>", "in the attributes of <a>"),
        ("<a b='1' b='2'/>", "in the attributes of <a>"),
        ("<a b='&x;'/>", "in the attributes of <a>"),
        ("<a>\n&x;</a>", "c.xml:2: not well-formed XML at column 1: found entity \"&x;\""),
        ("<a>&#0;</a>", "c.xml:1: "),
        ("<a>&#1;</a>", "control character U+0001"),
        ("<a>&#x110000;</a>", "c.xml:1: "),
        ("<a>\n\u{0}</a>", "c.xml:2: not well-formed XML at column 1: control character U+0000"),
        ("<a><!-- -- --></a>", "c.xml:1: "),
        ("<a><![CDATA[</a>", "c.xml:1: "),
        ("<!DOCTYPE a [\n<!ENTITY x \"y\">]><a>&x;</a>", "<!DOCTYPE> and entity declarations are not allowed"),
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", "<!DOCTYPE> and entity declarations are not allowed"),
    ];
    for (xml, message) in cases {
        let error = parse_text(xml).err().unwrap_or_else(|| panic!("{xml:?} was accepted"));
        assert!(error.contains(message), "{xml:?}: {error}");
    }
}

#[test]
fn depth_and_number_of_elements_are_bounded() {
    let nested = |n: usize| format!("{}{}", "<a>".repeat(n), "</a>".repeat(n));
    assert!(parse_text(&nested(DEPTH_MAX)).is_ok());
    assert!(parse_text(&nested(DEPTH_MAX + 1)).err().unwrap().contains("nested more than 32 deep"));
    assert!(parse_text(&"<a>".repeat(FILE_SIZE_MAX / 3)).err().unwrap().contains("nested more than 32 deep"));
    let wide = |n: usize| format!("<r>{}</r>", "<a/>".repeat(n));
    assert!(parse_text(&wide(ELEMENTS_MAX - 1)).is_ok());
    assert!(parse_text(&wide(ELEMENTS_MAX)).err().unwrap().contains("more than 20000 elements"));
}
