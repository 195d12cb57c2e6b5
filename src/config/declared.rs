//! `declared-shared-subscriptions.xml` beside `config.xml` (spec/hivemq.md 1.9): shared subscriptions that have a queue before anybody
//! subscribes. A mistake in it is a refused start, since messages would be lost that the file asks to keep.

use std::collections::HashMap;
use std::path::Path;

use bytestring::ByteString;

use super::diagnostic::{ConfigErrors, Report, quote};
use super::entity::{self, Element};
use super::file_element::{FileElement, Words, children_of, element, section};
use super::limits::{DECLARED_ELEMENTS_MAX, DECLARED_MAX, FILE_SIZE_MAX};
use super::placeholder::Expanded;
use super::{Loaded, read_bounded};
use crate::mqtt::GroupId;
use crate::mqtt::topic_filter::SubscriptionFilter;

pub(super) const FILE: &str = "declared-shared-subscriptions.xml";
pub(super) const ROOT: &str = "declared-shared-subscriptions";
const SUBSCRIPTION: &str = "subscription";
const SHARE_NAME: &str = "share-name";
const TOPIC_FILTER: &str = "topic-filter";

/// What stands in the file.
pub(super) const ELEMENTS: &[FileElement] = &[
    section(SUBSCRIPTION, "A shared subscription.").many(),
    element(
        "subscription/share-name",
        Words::Say("text without `/`, `+`, `#`"),
        Words::Say("required"),
        "What stands between `$share/` and the filter.",
    ),
    element("subscription/topic-filter", Words::Say("a topic filter"), Words::Say("required"), "What stands behind it."),
];

/// Reads the file beside a `config.xml`, if there is one, into what was loaded from that.
pub(super) fn read(config: &Path, loaded: &mut Loaded) -> Result<(), ConfigErrors> {
    let path = config.with_file_name(FILE);
    if !path.exists() {
        return Ok(());
    }
    let report = Report::new(&path.display().to_string());
    match read_bounded(&path, FILE_SIZE_MAX) {
        Ok(raw) if raw.len() > FILE_SIZE_MAX => report.error(0, "", format!("larger than {FILE_SIZE_MAX} bytes")),
        Ok(raw) => loaded.settings.declared_shared_subscriptions = parse(&raw, &report),
        Err(error) => report.error(0, "", format!("cannot be read: {error}")),
    }
    if !loaded.settings.mqtt.shared_subscriptions && !loaded.settings.declared_shared_subscriptions.is_empty() {
        report.error(
            0,
            "",
            "declares shared subscriptions, which <mqtt><shared-subscriptions><enabled> of config.xml switches off; \
             switch them on, or remove this file",
        );
    }
    let (errors, warnings) = report.into_parts();
    loaded.warnings.extend(warnings);
    if errors.is_empty() { Ok(()) } else { Err(ConfigErrors { errors, warnings: std::mem::take(&mut loaded.warnings) }) }
}

fn parse(raw: &[u8], report: &Report) -> Vec<GroupId> {
    let raw = raw.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(raw);
    let Ok(text) = str::from_utf8(raw) else {
        report.error(0, "", "not UTF-8 text; save the file in that encoding");
        return Vec::new();
    };
    let Some(root) = entity::parse_up_to(DECLARED_ELEMENTS_MAX, ROOT, &Expanded::verbatim(text), report) else {
        return Vec::new();
    };
    if root.name != ROOT {
        report.error(root.line, "", format!("found root element <{}>; allowed: <{ROOT}>", root.shown_name()));
        return Vec::new();
    }
    only(&root, "", report);
    let mut known = HashMap::new();
    let mut groups = Vec::new();
    for element in root.children.iter().filter(|child| child.name == SUBSCRIPTION) {
        let Some(group) = subscription(element, report) else { continue };
        if let Some(line) = known.insert(group.clone(), element.line) {
            let text = format!("declares {} a second time, first in line {line}; allowed: once", quote(&group.full()));
            report.error(element.line, &below(SUBSCRIPTION), text);
        }
        groups.push(group);
    }
    if groups.len() > DECLARED_MAX {
        report.error(root.line, ROOT, format!("found {} subscriptions; allowed: up to {DECLARED_MAX}", groups.len()));
    }
    groups
}

fn subscription(element: &Element, report: &Report) -> Option<GroupId> {
    only(element, SUBSCRIPTION, report);
    let (name, filter) = (required(element, SHARE_NAME, report)?, required(element, TOPIC_FILTER, report)?);
    let fault = |child: &Element, allowed: &str| {
        let path = below(&format!("{SUBSCRIPTION}/{}", child.name));
        report.error(child.line, &path, format!("found {}; allowed: {allowed}; correct the value", child.quote(&child.text)));
        None
    };
    // [MQTT-4.8.2-1] [MQTT-4.8.2-2]
    if name.text.contains(['/', '+', '#']) {
        return fault(name, "a share name, without `/`, `+` and `#`");
    }
    if SubscriptionFilter::parse(&format!("$share/{}/#", name.text).into()).is_err() {
        return fault(name, "a share name, short enough for a topic filter behind it, without U+0000");
    }
    let whole: ByteString = format!("$share/{}/{}", name.text, filter.text).into();
    let Ok(SubscriptionFilter { share: Some(share), filter: text }) = SubscriptionFilter::parse(&whole) else {
        return fault(filter, "a topic filter, `#` alone in the last level, `+` alone in its level");
    };
    Some(GroupId { share, filter: text })
}

/// The one child of that name, with text.
fn required<'a>(element: &'a Element, name: &str, report: &Report) -> Option<&'a Element> {
    let mut found = element.children.iter().filter(|child| child.name == name);
    let first = found.next().filter(|child| !child.text.is_empty() && child.children.is_empty());
    if let Some(second) = found.next() {
        let path = below(&format!("{SUBSCRIPTION}/{name}"));
        report.error(
            second.line,
            &path,
            format!("found a second time in the <{SUBSCRIPTION}> of line {}; allowed: once", element.line),
        );
        return None;
    }
    if first.is_none() {
        report.error(element.line, &below(SUBSCRIPTION), format!("<{name}> is missing or empty; add <{name}>..</{name}>"));
    }
    first
}

/// Anything else is an error: what is misspelt would not be kept.
fn only(element: &Element, inside: &str, report: &Report) {
    let names: Vec<_> = children_of(ELEMENTS, inside).collect();
    let path = &if inside.is_empty() { ROOT.to_owned() } else { below(inside) };
    for child in element.children.iter().filter(|child| !names.contains(&child.name.as_str())) {
        let allowed = names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" and ");
        report.error(child.line, path, format!("found <{}>; allowed: {allowed}; remove it", child.shown_name()));
    }
    if !element.text.is_empty() {
        report.error(element.line, path, format!("found {}; allowed: elements only", element.quote(&element.text)));
    }
}

fn below(path: &str) -> String {
    format!("{ROOT}/{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (Vec<String>, Vec<String>) {
        let report = Report::new("d.xml");
        let groups = parse(text.as_bytes(), &report);
        let (errors, warnings) = report.into_parts();
        assert!(warnings.is_empty(), "{warnings:?}");
        (groups.iter().map(|group| group.full().to_string()).collect(), errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_file_declares_groups_in_its_order() {
        let text = "<?xml version=\"1.0\"?>\n<declared-shared-subscriptions>\n<!-- none -->\n<subscription>\n<share-name>g</share-name>\
                    <topic-filter>a/+/#</topic-filter></subscription><subscription><topic-filter>/</topic-filter>\
                    <share-name>h i</share-name></subscription></declared-shared-subscriptions>";
        assert_eq!(found(text), (vec!["$share/g/a/+/#".to_owned(), "$share/h i//".to_owned()], vec![]));
        assert_eq!(found("<declared-shared-subscriptions/>"), (vec![], vec![]));
    }

    #[test]
    fn mistakes_are_told_with_their_lines() {
        let one = |inner: &str| found(&format!("<declared-shared-subscriptions>\n{inner}\n</declared-shared-subscriptions>")).1;
        let cases = [
            (
                "<subscription>\n<share-name>g</share-name></subscription>",
                "d.xml:2: <declared-shared-subscriptions/subscription>: <topic-filter> is missing or empty",
            ),
            (
                "<subscription>\n<share-name/>\n<topic-filter>t</topic-filter></subscription>",
                "d.xml:2: <declared-shared-subscriptions/subscription>: <share-name> is missing or empty",
            ),
            (
                "<subscription>\n<share-name>g/h</share-name><topic-filter>t</topic-filter></subscription>",
                "d.xml:3: <declared-shared-subscriptions/subscription/share-name>: found \"g/h\"; allowed: a share name",
            ),
            (
                "<subscription><share-name>g</share-name>\n\n<topic-filter>a/#/b</topic-filter></subscription>",
                "d.xml:4: <declared-shared-subscriptions/subscription/topic-filter>: found \"a/#/b\"; allowed: a topic filter",
            ),
            (
                "<subscription><share-name>g</share-name><topic-filter>t</topic-filter></subscription>\n<subscription><share-name>g</share-name><topic-filter>t</topic-filter></subscription>",
                "d.xml:3: <declared-shared-subscriptions/subscription>: declares \"$share/g/t\" a second time, first in line 2",
            ),
            (
                "<subscription><share-name>g</share-name>\n<share-name>g</share-name><topic-filter>t</topic-filter></subscription>",
                "d.xml:3: <declared-shared-subscriptions/subscription/share-name>: found a second time",
            ),
            ("<subscripton/>", "d.xml:2: <declared-shared-subscriptions>: found <subscripton>; allowed: <subscription>"),
            ("<subscription>", "d.xml:3: not well-formed XML"),
        ];
        for (inner, expected) in cases {
            let errors = one(inner);
            assert_eq!(errors.len(), 1, "{inner}: {errors:?}");
            assert!(errors[0].starts_with(expected), "{errors:?}\n{expected}");
        }
        assert!(found("<x/>").1[0].starts_with("d.xml:1: found root element <x>; allowed: <declared-shared-subscriptions>"));
    }
}
