//! The reference of all that can be configured, as Markdown: `docs/configuration.md`. Types, ranges, defaults and remarks come from the tables
//! that the check reads, what is refused from the check itself; the chapters here add what an element means. An element that has no row
//! is shown all the same, in a chapter of its own, and fails a test.

mod files;
mod listeners;
mod mqtt;
mod node;
mod row;
mod rows;
mod security;

#[cfg(test)]
mod reference_test;

use std::fmt::Write;

use super::check::variable_without_effect;
use super::check::variables::VARIABLES;
use super::limits::{
    CREDENTIALS_ELEMENTS_MAX, CREDENTIALS_SIZE_MAX, DECLARED_MAX, DEPTH_MAX, ELEMENTS_MAX, FILE_PATH_LEN_MAX, FILE_SIZE_MAX,
    JWT_KEYS_MAX, NAME_LEN_MAX,
};
use super::{Level, Settings, from_bytes};
use row::Chapter;
use rows::{Line, lines, undescribed};

/// The command that writes the file anew.
pub const COMMAND: &str = "cargo run --quiet -- config reference > docs/configuration.md";

/// A chapter that another room adds, since only that knows it.
pub struct AddedChapter {
    pub title: String,
    /// Markdown, behind the title.
    pub text: String,
}

const CHAPTERS: &[Chapter] = &[
    listeners::LISTENERS,
    listeners::TLS,
    security::SECURITY,
    security::JWT,
    security::UNSTABLE_CLIENTS,
    mqtt::MQTT,
    mqtt::RESTRICTIONS,
    mqtt::PERSISTENCE,
    node::CLUSTER,
    node::SHUTDOWN,
    node::EVENT_LOG,
    node::HTTP,
    mqtt::ADDONS,
    node::IGNORED,
];

/// All elements but those of files that must exist, none of them said: settings read from it are defaults.
const BARE: &str = "<hivemq><listeners><tcp-listener><port>1883</port></tcp-listener><websocket-listener><port>8000</port></websocket-listener>\
                    </listeners><http/><security><authentication><jwt><secret>0123456789abcdef0123456789abcdef</secret></jwt></authentication>\
                    </security></hivemq>";

/// In front of what an example or a mistake leaves out.
const LISTENER: &str =
    "<listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>";

const HEAD: &str = "\
# Configuration

All that can be configured: `config.xml`, the files beside it, variables of the environment, and the command line. Written by `troupemq config reference`, of the version that
it is asked of; do not edit it by hand (";

/// `{path_len}` and `{name_len}` are filled in.
const INTRODUCTION: &str = "\
A node is started with a file, `troupemq start --config config.xml`, or without one: then it is one node that this machine alone can reach
([config/default.xml](../config/default.xml)). This is all that a file needs:

```xml
<hivemq>
  <listeners>
    <tcp-listener>
      <port>1883</port>
      <bind-address>127.0.0.1</bind-address>
    </tcp-listener>
  </listeners>
</hivemq>
```

`troupemq config check config.xml` says whether a node would start with a file: it prints the settings in force and names file, line and element of everything wrong,
replaced, without effect or unknown. Its exit status is 0, or 2 where a node would not start. A file is read once, at the start; TLS stores, credentials and keys are read again when they change.

* **Elements** stand in any order, each once unless the table says *several times*; their names are those of HiveMQ 4, and files of HiveMQ load as they are. An element that is not known is
  passed over with a warning, as newer versions of HiveMQ may know it; one that is known in one other place only is refused, since what it sets would be lost.
* **Numbers** are whole and without separators. Out of its range a number is refused, or replaced with a warning where the table says by what. `true` and `false` may be `1` and `0`; words
  may be in any case. An empty element is refused where a value is wanted.
* **Placeholders**, `${NAME}` or `${ENV:NAME}`, take their value from the environment before anything else is read, also in comments. There is no syntax for a default: a variable
  that is not set ends the start. `${{clientid}}` with two braces is none; it is filled in for each client.
* **Paths** of files start, where they are relative, in the folder of `config.xml`; they have up to {path_len} bytes. What is *bounded* has up to {name_len} bytes and no white space.
* **Secrets** are in no message.

In the tables, *Default* is what holds without the element, and *Whose* tells HiveMQ's elements from TroupeMQ's own; HiveMQ passes over the latter.";

/// The whole document. `added` goes to its end.
pub fn reference(added: &[AddedChapter]) -> String {
    // What is built in is a configuration; a test sees to it.
    let Ok(bare) = from_bytes(BARE.as_bytes(), "config.xml", &|_| None) else { return String::new() };
    let mut out = format!("{HEAD}`{COMMAND}`).\n\n");
    let titles = CHAPTERS.iter().map(|chapter| chapter.title).chain(files::FILES.iter().map(|file| file.title));
    let titles = titles
        .chain(["Variables of the environment", "Limits of files"])
        .chain(added.iter().map(|chapter| chapter.title.as_str()));
    let links: Vec<_> = titles.map(|title| format!("[{title}](#{})", anchor(title))).collect();
    // Writing to a string cannot fail.
    let number = |limit: usize| rows::separated(i64::try_from(limit).unwrap_or(i64::MAX));
    let introduction =
        INTRODUCTION.replace("{path_len}", &number(FILE_PATH_LEN_MAX)).replace("{name_len}", &number(NAME_LEN_MAX));
    _ = writeln!(out, "{}\n\n{introduction}", links.join(" · "));
    for chapter in CHAPTERS {
        elements(&mut out, chapter, &bare.settings);
    }
    let left = undescribed(CHAPTERS, &bare.settings);
    if !left.is_empty() {
        _ = writeln!(out, "\n## Not described yet\n");
        table(&mut out, left);
    }
    for file in files::FILES {
        files::write(&mut out, file);
    }
    variables(&mut out);
    limits(&mut out);
    for AddedChapter { title, text } in added {
        _ = writeln!(out, "\n## {title}\n\n{}", text.trim_end());
    }
    out
}

/// The fragment of an address that a title has on GitHub.
fn anchor(title: &str) -> String {
    let kept = title.chars().filter(|c| c.is_alphanumeric() || [' ', '-'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

fn elements(out: &mut String, chapter: &Chapter, bare: &Settings) {
    _ = writeln!(out, "\n## {}\n", chapter.title);
    let place = place(chapter);
    for text in [chapter.intro, &place] {
        if !text.is_empty() {
            _ = writeln!(out, "{text}\n");
        }
    }
    table(out, chapter.rows.iter().flat_map(|row| lines(chapter, row, bare)));
    _ = writeln!(out, "\n```xml\n{}\n```", chapter.example);
    if !chapter.mistakes.is_empty() {
        _ = writeln!(out, "\nRefused, and what is said:\n\n```text");
        for (index, mistake) in chapter.mistakes.iter().enumerate() {
            if index > 0 {
                out.push('\n');
            }
            _ = writeln!(
                out,
                "{}",
                mistake.strip_prefix("<hivemq>").and_then(|m| m.strip_suffix("</hivemq>")).unwrap_or(mistake)
            );
            for message in refusals(mistake) {
                _ = writeln!(out, "  {message}");
            }
        }
        _ = writeln!(out, "```");
    }
}

fn table(out: &mut String, lines: impl IntoIterator<Item = Line>) {
    _ = writeln!(out, "| Element | Value | Default | Whose | What it does |\n| --- | --- | --- | --- | --- |");
    for Line { path, value, default, whose, meaning } in lines {
        _ = writeln!(out, "| `{path}` | {value} | {default} | {whose} | {meaning} |");
    }
}

/// Says below what the paths of a table begin.
fn place(chapter: &Chapter) -> String {
    let below = |path: &str| path.split('/').map(|name| format!("<{name}>")).collect::<String>();
    let star = if chapter.rows.iter().any(|row| row.path.starts_with("*/")) {
        " `*` stands for each element that has what follows."
    } else {
        ""
    };
    match chapter.base.strip_prefix("**/") {
        None if chapter.base.is_empty() => format!("Paths begin in `<hivemq>`.{star}"),
        None => format!("Paths begin in `<hivemq>{}`.{star}", below(chapter.base)),
        Some(name) => {
            let homes: Vec<_> = rows::homes(chapter).iter().map(|path| format!("`{path}`")).collect();
            format!("Paths begin in `<{name}>`, which stands in {}.", homes.join(", "))
        }
    }
}

/// What the check says of a mistake: its errors.
fn refusals(mistake: &str) -> Vec<String> {
    let whole = whole(mistake);
    let errors = from_bytes(whole.as_bytes(), "config.xml", &|_| None).err().map(|refused| refused.errors).unwrap_or_default();
    let messages = errors.into_iter().filter(|error| error.level == Level::Error);
    messages
        .map(|error| {
            if error.path.is_empty() {
                format!("error: {}", error.message)
            } else {
                format!("error: <{}>: {}", error.path, error.message)
            }
        })
        .collect()
}

/// A file of which only a part is written.
fn whole(part: &str) -> String {
    if part.starts_with("<hivemq") {
        part.to_owned()
    } else if part.contains("<listeners>") && !part.contains("<http>") {
        format!("<hivemq>\n{part}\n</hivemq>\n")
    } else {
        format!("<hivemq>\n{LISTENER}\n{part}\n</hivemq>\n")
    }
}

fn variables(out: &mut String) {
    _ = writeln!(
        out,
        "\n## Variables of the environment\n\nThose of HiveMQ's images, which the program reads itself, in a container or not. What stands in `config.xml` goes before a variable, with a warning where the two differ; \
         one of a cluster is looked at only where `cluster/enabled` is on. An empty one counts as not set. Any other name has a meaning only as a placeholder in a file.\n"
    );
    _ = writeln!(out, "| Variable | Stands in for | What it does |\n| --- | --- | --- |");
    for variable in VARIABLES {
        let element = if variable.element.is_empty() { String::new() } else { format!("`{}`", variable.element) };
        let reason = variable_without_effect(variable.name).map(rows::sentence).unwrap_or_default();
        let meaning = format!("{} {reason}", variable.meaning);
        _ = writeln!(out, "| `{}` | {element} | {} |", variable.name, meaning.trim());
    }
}

fn limits(out: &mut String) {
    _ = writeln!(out, "\n## Limits of files\n\nWhat exceeds one of them is refused.\n\n| Limit | |\n| --- | ---: |");
    let count = |number: usize| rows::separated(i64::try_from(number).unwrap_or(i64::MAX));
    for (what, limit) in [
        ("Bytes of `config.xml`, also once placeholders are replaced, and of the other files in XML", FILE_SIZE_MAX),
        ("Elements of `config.xml`", ELEMENTS_MAX),
        ("Elements inside each other", DEPTH_MAX),
        ("Bytes of `credentials.xml`", CREDENTIALS_SIZE_MAX),
        ("Elements of `credentials.xml`", CREDENTIALS_ELEMENTS_MAX),
        ("Declared shared subscriptions", DECLARED_MAX),
        ("Keys of a JSON Web Key Set", JWT_KEYS_MAX),
    ] {
        _ = writeln!(out, "| {what} | {} |", count(limit));
    }
}
