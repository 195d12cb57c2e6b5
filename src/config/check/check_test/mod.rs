//! Tables over every element: default, bounds, replacement, wrong type, and what sections demand together.

use super::*;
use crate::config::diagnostic::Diagnostic;
use crate::config::placeholder::expand;
use crate::config::{entity, from_bytes};

mod addons;
mod authentication;
mod cluster;
mod elements;
mod jwt;
mod listeners;
mod protocol;
mod reports;
mod tls;

/// A file with one listener and, in line 3, what a test puts there.
fn file(extra: &str) -> String {
    format!(
        "<hivemq>\n<listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>\n{extra}\n</hivemq>"
    )
}

fn listeners(inside: &str) -> String {
    format!("<hivemq>\n<listeners>\n{inside}\n</listeners>\n</hivemq>")
}

fn cluster_file(extra: &str) -> String {
    file(&format!(
        "<cluster><enabled>true</enabled><node-name>n1</node-name><secret>0123456789abcdef</secret>\
         <transport><tcp><bind-address>127.0.0.1</bind-address><bind-port>7001</bind-port></tcp></transport>\
         <discovery><static><node><host>127.0.0.1</host><port>7001</port></node>\
         <node><host>fd00::2</host><port>7002</port></node></static></discovery>{extra}</cluster>"
    ))
}

struct Outcome {
    settings: Option<Settings>,
    errors: Vec<Diagnostic>,
    warnings: Vec<Diagnostic>,
}

fn check_text(xml: &str) -> Outcome {
    check_with(xml, &|_| None)
}

fn check_with(xml: &str, env: &dyn Fn(&str) -> Option<String>) -> Outcome {
    match from_bytes(xml.as_bytes(), "c.xml", env) {
        Ok(loaded) => Outcome { settings: Some(loaded.settings), errors: Vec::new(), warnings: loaded.warnings },
        Err(errors) => Outcome { settings: None, errors: errors.errors, warnings: errors.warnings },
    }
}

#[track_caller]
fn settings(extra: &str) -> Settings {
    let outcome = check_text(&file(extra));
    outcome.settings.unwrap_or_else(|| panic!("{extra}: {:?}", outcome.errors))
}

/// The one error of a file.
#[track_caller]
fn error(xml: &str) -> String {
    let outcome = check_text(xml);
    assert_eq!(outcome.errors.len(), 1, "{xml}: {:?}", outcome.errors);
    outcome.errors[0].to_string()
}

/// `<a><b>content</b></a>` for the path `a/b`.
fn nest(path: &str, content: &str) -> String {
    path.rsplit('/').fold(content.to_owned(), |inside, name| format!("<{name}>{inside}</{name}>"))
}

/// The findings of the shape check about one element, in a file of nothing else.
fn shape_findings(path: &str, content: &str) -> Vec<Diagnostic> {
    let report = Report::new("c.xml");
    let expanded = expand(&format!("<hivemq>\n{}</hivemq>", nest(path, content)), &|_| None, &report).unwrap();
    let root = entity::parse(&expanded, &report).unwrap();
    shape::check(&root, &report);
    let (mut found, warnings) = report.into_parts();
    // Replacements have a value in them, notices do not.
    found.extend(warnings.into_iter().filter(|w| w.message.contains("found")));
    found
}
