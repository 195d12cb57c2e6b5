//! The command line: arguments, and the commands that need no running broker.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{self, ConfigErrors, Diagnostic};

/// Exit status when the configuration or the command line is refused.
pub const EXIT_CONFIG: u8 = 2;

/// A clustered MQTT broker.
///
/// Speaks MQTT 3.1, 3.1.1 and 5.0 and reads HiveMQ's config.xml. One program for one node and for a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "troupemq", version, after_long_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum Command {
    /// Start a node; it runs until SIGINT (Ctrl-C) or SIGTERM
    #[command(after_long_help = START_EXAMPLES)]
    Start(StartArgs),
    /// Work with configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the version
    Version,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StartArgs {
    /// The config.xml to run with
    ///
    /// Without it, one node starts that this machine alone can reach: MQTT on 127.0.0.1:1883, WebSocket on 127.0.0.1:8000/mqtt, metrics
    /// and health on 127.0.0.1:8080, all add-on topics on.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Where sessions, queued messages and the replication log are kept
    ///
    /// Made if it does not exist. Each node needs a directory of its own.
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,

    /// What to log: a level, or a filter by module
    ///
    /// A level is one of error, warn, info, debug, trace and off. A filter names modules with levels, separated by commas, such as
    /// info,troupemq::cluster=debug.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = log_filter)]
    pub log: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ConfigCommand {
    /// Check a config.xml and print the settings it gives
    ///
    /// Errors and warnings go to standard error, each with file, line and element. The exit status is 0 when a node would start with the
    /// file, warnings or not, and 2 when it would not. Placeholders such as ${NAME} take their values from the environment, as in a start.
    #[command(after_long_help = CHECK_EXAMPLES)]
    Check {
        /// The config.xml to check
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

const EXAMPLES: &str = "\
Examples:
  troupemq start
      One node on this machine, data in ./data
  troupemq start --config config/cluster/node1.xml --data data-cluster/node1
      The first of three nodes
  troupemq config check config.xml
      Check a file before a start

Exit status: 0 done, 1 failed, 2 the configuration or the command line is wrong.";

const START_EXAMPLES: &str = "\
Examples:
  troupemq start
  troupemq start --config /etc/troupemq/config.xml --data /var/lib/troupemq
  troupemq start --log debug
  troupemq start --log warn,troupemq::cluster=debug

Three nodes on this machine, each in a terminal of its own:
  troupemq start --config config/cluster/node1.xml --data data-cluster/node1
  troupemq start --config config/cluster/node2.xml --data data-cluster/node2
  troupemq start --config config/cluster/node3.xml --data data-cluster/node3";

const CHECK_EXAMPLES: &str = "\
Examples:
  troupemq config check config.xml
  NODE_ADDR=10.0.0.1 troupemq config check config.xml";

/// Reads the arguments of the process. After `--help`, `--version` or an error it prints and exits, an error with status 2.
pub fn parse() -> Cli {
    Cli::parse()
}

/// Checks a configuration file: prints the effective settings to standard output, errors and warnings to standard error.
pub fn run_config_check(path: &Path) -> ExitCode {
    ExitCode::from(config_check(path, &mut io::stdout(), &mut io::stderr()))
}

/// Gives the exit status.
fn config_check(path: &Path, out: &mut impl Write, err: &mut impl Write) -> u8 {
    match config::load(path, config::process_env) {
        Ok(loaded) => {
            write_diagnostics(err, &loaded.warnings);
            write_line(out, config::render(&loaded.settings).trim_end());
            0
        }
        Err(errors) => {
            write_diagnostics(err, &errors.warnings);
            write_diagnostics(err, &errors.errors);
            EXIT_CONFIG
        }
    }
}

/// Prints to standard error why a configuration is refused, and gives the exit status for it.
pub fn report_config_errors(errors: &ConfigErrors) -> ExitCode {
    print_diagnostics(&errors.warnings);
    print_diagnostics(&errors.errors);
    ExitCode::from(EXIT_CONFIG)
}

/// Prints findings to standard error, a line each: `warning: FILE:LINE: <element/path>: message`.
pub fn print_diagnostics(diagnostics: &[Diagnostic]) {
    write_diagnostics(&mut io::stderr(), diagnostics);
}

fn write_diagnostics(to: &mut impl Write, diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        write_line(to, format_args!("{}: {diagnostic}", diagnostic.level));
    }
}

/// Prints the version.
pub fn run_version() -> ExitCode {
    write_line(&mut io::stdout(), concat!("troupemq ", env!("CARGO_PKG_VERSION")));
    ExitCode::SUCCESS
}

/// Writes a line. A reader that has gone, such as `head`, is no reason to fail.
fn write_line(to: &mut impl Write, line: impl Display) {
    _ = writeln!(to, "{line}");
}

/// Accepts what the log takes as a filter, so that a mistake shows before anything starts.
fn log_filter(text: &str) -> Result<String, String> {
    const HINT: &str = "write a level such as info, or a filter such as info,troupemq::cluster=debug";
    // To the filter, a word alone is a module of any name: `inof` would silence the log.
    let unknown = text
        .split(',')
        .find(|part| !part.contains('=') && (part.trim().is_empty() || part.trim().parse::<LevelFilter>().is_err()));
    if let Some(word) = unknown.filter(|_| !text.contains('[')) {
        return Err(format!("{:?} is no level; {HINT}", word.trim()));
    }
    EnvFilter::builder().parse(text).map_err(|error| format!("{error}; {HINT}"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;

    fn parse_args(args: &[&str]) -> Result<Command, clap::Error> {
        Cli::try_parse_from(["troupemq"].iter().chain(args)).map(|cli| cli.command)
    }

    #[test]
    fn definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn start_has_defaults_and_takes_options() {
        let start = |config: Option<&str>, data: &str, log: &str| {
            Command::Start(StartArgs { config: config.map(PathBuf::from), data: data.into(), log: log.to_owned() })
        };
        assert_eq!(parse_args(&["start"]).unwrap(), start(None, "./data", "info"));
        let args = ["start", "--config", "c.xml", "--data", "d", "--log", "info,troupemq::cluster=debug"];
        assert_eq!(parse_args(&args).unwrap(), start(Some("c.xml"), "d", "info,troupemq::cluster=debug"));
        assert_eq!(parse_args(&["version"]).unwrap(), Command::Version);
        let check = Command::Config(ConfigCommand::Check { file: "c.xml".into() });
        assert_eq!(parse_args(&["config", "check", "c.xml"]).unwrap(), check);
    }

    #[test]
    fn mistakes_end_with_status_2() {
        let cases: [&[&str]; 8] = [
            &["begin"],
            &["start", "--config"],
            &["start", "c.xml"],
            &["start", "--log", "loud"],
            &["start", "--log", ""],
            &["start", "--log", "troupemq=louder"],
            &["config"],
            &["config", "check"],
        ];
        for args in cases {
            assert_eq!(parse_args(args).unwrap_err().exit_code(), i32::from(EXIT_CONFIG), "{args:?}");
        }
    }

    #[test]
    fn help_is_complete_and_has_examples() {
        let help = |args: &[&str]| {
            let error = parse_args(args).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{args:?}");
            error.to_string()
        };
        for (args, words) in [
            (&["--help"][..], &["start", "config", "version", "Examples:", "Exit status"][..]),
            (
                &["start", "--help"],
                &["--config <FILE>", "--data <DIR>", "--log <LEVEL>", "[default: ./data]", "[default: info]", "Examples:"],
            ),
            (&["config", "--help"], &["check"]),
            (&["config", "check", "--help"], &["<FILE>", "exit status", "Examples:"]),
        ] {
            let text = help(args);
            for word in words {
                assert!(text.contains(word), "{args:?}: no {word} in {text}");
            }
        }
    }

    #[test]
    fn check_tells_by_its_status_whether_a_node_would_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.xml");
        let check = |file: &Path| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let status = config_check(file, &mut out, &mut err);
            (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
        };
        let (status, out, err) = check(&file);
        assert_eq!((status, out.as_str()), (2, ""));
        assert!(err.starts_with("error: ") && err.contains("config.xml: cannot be read: "), "{err}");

        std::fs::write(&file, "<hivemq>\n<x/></hivemq>").unwrap();
        let (status, out, err) = check(&file);
        assert_eq!((status, out.as_str()), (2, ""));
        assert!(err.starts_with("warning: ") && err.contains("config.xml:2: <x>: ") && err.contains("\nerror: "), "{err}");

        std::fs::write(&file, include_str!("../config/default.xml")).unwrap();
        let (status, out, err) = check(&file);
        assert_eq!((status, err.as_str()), (0, ""));
        assert!(out.contains("MQTT over TCP on 127.0.0.1:1883"), "{out}");
    }
}
