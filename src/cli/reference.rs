//! `troupemq config reference`: all that can be configured, as `docs/configuration.md` has it. `config` knows the files and the environment, this
//! file the command line.

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};

use super::{Cli, write_line};
use crate::config::{AddedChapter, reference};

/// Prints the reference of this version.
pub fn run() -> ExitCode {
    write_line(&mut io::stdout(), document().trim_end());
    ExitCode::SUCCESS
}

fn document() -> String {
    reference(&[command_line()])
}

fn command_line() -> AddedChapter {
    let mut text = "`--help` behind each command says the same, with examples. `--help` and `--version` are options of every command and of the program.\n".to_owned();
    let program = Cli::command();
    commands(&mut text, &program, program.get_name(), &[]);
    AddedChapter { title: "Command line".to_owned(), text }
}

/// A table for each command that does something. `known` are options that a command above has told of.
fn commands(text: &mut String, command: &Command, name: &str, known: &[&str]) {
    let children: Vec<_> = command.get_subcommands().collect();
    let arguments: Vec<&Arg> = command.get_arguments().collect();
    let everywhere = |argument: &&&Arg| children.iter().all(|child| child.get_arguments().any(|other| other == **argument));
    // What all commands below have is told once, above them.
    let shared: Vec<&Arg> = match children.split_first() {
        Some((first, rest)) if !rest.is_empty() => {
            let of_first: Vec<&Arg> = first.get_arguments().collect();
            of_first.iter().filter(everywhere).copied().collect()
        }
        _ => Vec::new(),
    };
    let shown: Vec<&Arg> =
        arguments.into_iter().chain(shared).filter(|argument| !known.contains(&argument.get_id().as_str())).collect();
    if children.is_empty() || !shown.is_empty() {
        let behind = if children.is_empty() { "" } else { " COMMAND" };
        // Writing to a string cannot fail.
        _ = writeln!(text, "\n### `{name}{behind}`\n\n{}", help(command.get_about().or(command.get_long_about())));
        if !shown.is_empty() {
            _ = writeln!(text, "\n| Option | Default | What it does |\n| --- | --- | --- |");
        }
        for argument in &shown {
            _ = writeln!(
                text,
                "| {} | {} | {} |",
                option(argument),
                default(argument),
                help(argument.get_long_help().or(argument.get_help()))
            );
        }
    }
    let known: Vec<_> = known.iter().copied().chain(shown.iter().map(|argument| argument.get_id().as_str())).collect();
    for child in children {
        commands(text, child, &format!("{name} {}", child.get_name()), &known);
    }
}

/// `` `--data DIR` ``, or the name of what stands without an option.
fn option(argument: &Arg) -> String {
    let names: Vec<_> = argument.get_value_names().unwrap_or_default().iter().map(ToString::to_string).collect();
    let values = if argument.get_action().takes_values() { names.join(" ") } else { String::new() };
    let text = match (argument.get_long(), argument.get_short()) {
        (Some(long), Some(short)) => format!("-{short}, --{long} {values}"),
        (Some(long), None) => format!("--{long} {values}"),
        (None, Some(short)) => format!("-{short} {values}"),
        (None, None) => values,
    };
    format!("`{}`", text.trim())
}

fn default(argument: &Arg) -> String {
    let values: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !argument.get_action().takes_values() {
        if argument.is_required_set() { "required".to_owned() } else { "off".to_owned() }
    } else if values.is_empty() {
        if argument.is_required_set() { "required".to_owned() } else { "none".to_owned() }
    } else {
        format!("`{}`", values.join(","))
    }
}

/// One paragraph of Markdown, with a full stop.
fn help(text: Option<&clap::builder::StyledStr>) -> String {
    let text = text.map(ToString::to_string).unwrap_or_default();
    let sentences = text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let sentences = sentences.map(|part| if part.is_empty() || part.ends_with('.') { part } else { part + "." });
    sentences.collect::<Vec<_>>().join(" ").replace('<', "\\<").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::config::tls::fixture::{Ca, put};

    fn page() -> String {
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/configuration.md")).unwrap()
    }

    #[test]
    fn the_documentation_is_what_the_program_accepts() {
        let (written, made) = (page(), document());
        let (written, made): (Vec<_>, Vec<_>) = (written.trim_end().lines().collect(), made.trim_end().lines().collect());
        let differs = (0..written.len().max(made.len())).find(|line| written.get(*line) != made.get(*line));
        assert!(
            differs.is_none(),
            "docs/configuration.md is not what this version accepts, from line {} on:\n  it says   {}\n  should be {}\nwrite it anew: {}",
            differs.unwrap_or_default() + 1,
            differs.and_then(|line| written.get(line)).unwrap_or(&"(nothing)"),
            differs.and_then(|line| made.get(line)).unwrap_or(&"(nothing)"),
            crate::config::REFERENCE_COMMAND,
        );
    }

    #[test]
    fn every_option_of_every_command_is_in_it() {
        fn walk(command: &Command, text: &str) -> usize {
            let arguments = command.get_arguments().inspect(|argument| {
                assert!(text.contains(&option(argument)), "{} {}", command.get_name(), option(argument));
            });
            arguments.count() + command.get_subcommands().map(|child| walk(child, text)).sum::<usize>()
        }
        assert!(walk(&Cli::command(), &command_line().text) > 30);
    }

    /// Each example passes `troupemq config check` without a word; relative paths lead to files as `docs/authentication.md` has them.
    #[test]
    fn every_example_passes_the_check_without_a_word() {
        let home = tempfile::tempdir().unwrap();
        let conf = home.path().join("conf");
        let rbac = conf.join("file-rbac/conf");
        fs::create_dir_all(&rbac).unwrap();
        let text = document();
        let examples: Vec<&str> = text.split("```xml\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect();
        let (ca, keys) = (Ca::new("ca"), Path::new(env!("CARGO_MANIFEST_DIR")).join("src/auth/jwt/fixtures"));
        let server = ca.server();
        put(&conf, "server.pem", server.certificate.pem() + &server.key.serialize_pem());
        put(&conf, "ca.pem", ca.certificate.pem());
        fs::copy(keys.join("jwks.json"), conf.join("jwks.json")).unwrap();
        for example in &examples {
            match example.lines().next() {
                Some("<file-rbac>") => _ = put(&rbac, "credentials.xml", example),
                Some("<extension-configuration>") => _ = put(&rbac, "config.xml", example),
                Some("<declared-shared-subscriptions>") => _ = put(&conf, "declared-shared-subscriptions.xml", example),
                _ => {}
            }
        }
        let env = |name: &str| (name == "TROUPEMQ_CLUSTER_SECRET").then(|| "a secret of the tests".to_owned());
        let listener =
            "<listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>";
        let mut checked = 0;
        for example in
            examples.iter().filter(|example| !example.contains("<declared-shared") && !example.contains("-configuration>"))
        {
            let whole = match example.lines().next() {
                Some("<hivemq>") => (*example).to_owned(),
                Some("<listeners>") => format!("<hivemq>{example}</hivemq>"),
                Some("<file-rbac>") => continue,
                _ => format!("<hivemq>{listener}{example}</hivemq>"),
            };
            let file = put(&conf, "config.xml", whole);
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let status = super::super::config_check(&file, &env, &mut out, &mut err);
            let said = String::from_utf8(err).unwrap();
            let harmless =
                said.is_empty() || said.lines().all(|line| line.starts_with("info: ")) || example.contains("<allow-anonymous>");
            assert!(status == 0 && harmless, "{example}\n{said}");
            assert!(!out.is_empty());
            checked += 1;
        }
        assert!(checked >= 14, "{checked}");
    }
}
