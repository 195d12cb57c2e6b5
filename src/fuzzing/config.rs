//! Bytes for `config.xml`.

use crate::config::{Diagnostic, Level, from_bytes, render};

const FILE: &str = "c.xml";

pub fn config(data: &[u8]) {
    let lines = u32::try_from(data.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(u32::MAX).saturating_add(1);
    let outcome = from_bytes(data, FILE, &env);
    assert_eq!(outcome, from_bytes(data, FILE, &env), "one file, one answer");
    let warnings = match &outcome {
        Ok(loaded) => {
            let text = render(&loaded.settings);
            let secret = &loaded.settings.cluster.secret;
            assert!(secret.len() < 16 || !text.contains(secret), "the secret is printed");
            &loaded.warnings
        }
        Err(refused) => {
            assert!(!refused.errors.is_empty(), "refused without a reason");
            in_order_and_in_the_file(&refused.errors, lines);
            assert!(refused.errors.iter().all(|error| error.level == Level::Error));
            &refused.warnings
        }
    };
    in_order_and_in_the_file(warnings, lines);
    assert!(warnings.iter().all(|warning| warning.level != Level::Error));
}

/// The environment of the process: plain values, markup, and what must not be expanded again.
fn env(name: &str) -> Option<String> {
    let value = match name {
        "PORT" => "1884",
        "NODE_ADDR" => "10.0.0.1",
        "HOSTNAME" => "n1",
        "EMPTY" => "",
        "LINES" => "\n<!--\n-->\n",
        "AGAIN" => "${PORT}",
        "OPEN" => "<mqtt>",
        "LONG" => return Some("x".repeat(70_000)),
        _ => return None,
    };
    Some(value.to_owned())
}

fn in_order_and_in_the_file(found: &[Diagnostic], lines: u32) {
    assert!(found.iter().zip(found.iter().skip(1)).all(|(one, next)| one.line <= next.line));
    for one in found {
        assert!(one.line <= lines, "{one} of {lines} lines");
        assert!(!one.message.is_empty() && one.file == FILE);
        // What a value of the environment or of the file brings cannot end the line of a message, or steer a terminal.
        assert!(!one.to_string().contains(|c: char| c.is_control()), "{one:?}");
    }
}
