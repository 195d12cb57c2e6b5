//! The command line: arguments, and the commands that are not the broker itself.

pub mod bench;
pub mod cluster;
pub mod health;
pub mod node;
pub mod reference;
pub mod storage;

use std::fmt::Display;
use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use rustix::termios;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::auth::password;
use crate::auth::scram::Mechanism;
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
    /// Look at the data of a node that is stopped, or give it up for its peers to fill the node again
    #[command(subcommand)]
    Storage(storage::StorageCommand),
    /// Ask or tell a node that runs on this machine about its cluster
    Cluster(cluster::ClusterArgs),
    /// Show whom a node that runs on this machine keeps out, and let them in again
    Ban(node::BanArgs),
    /// Show the fullest queues
    Queues(node::QueuesArgs),
    /// Ask a node by HTTP whether it is ready for clients, or runs at all: for health checks of containers
    Health(health::HealthArgs),
    /// Work with configuration files
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Work with the passwords of clients
    #[command(subcommand)]
    Password(PasswordCommand),
    /// Put an MQTT server under load, any server, and judge what it makes of it
    Bench(Box<bench::BenchArgs>),
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
    /// Print a reference of all that can be configured, as Markdown
    ///
    /// Elements of config.xml and of the files beside it, variables of the environment and the command line, each with type, range, default and
    /// meaning: what docs/configuration.md says, of this version.
    Reference,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum PasswordCommand {
    /// Print what credentials.xml keeps of a password
    ///
    /// Reads the password from standard input up to the end of the line, and asks for it where that is a terminal. The password itself is
    /// neither printed nor stored.
    #[command(after_long_help = HASH_EXAMPLES)]
    Hash(HashArgs),
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HashArgs {
    /// Print what <scram-sha-256> holds, for clients that log in by the authentication method SCRAM-SHA-256
    #[arg(long)]
    pub scram_sha_256: bool,

    /// Print what <scram-sha-512> holds, for clients that log in by the authentication method SCRAM-SHA-512
    #[arg(long, conflicts_with = "scram_sha_256")]
    pub scram_sha_512: bool,

    /// How often the password is hashed: more keep longer against whom has stolen the file
    ///
    /// A <password> is hashed so often at each login, by the broker: 10,000 take some milliseconds of a core. SCRAM costs the client that time,
    /// not the broker; 4,096 is the least its specification allows.
    #[arg(long, value_name = "NUMBER", default_value_t = ITERATIONS, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub iterations: u32,
}

/// HiveMQ's tool has 100, which is no more than a nuisance to whom has stolen the file.
const ITERATIONS: u32 = 10_000;
/// RFC 7677 section 4.
const SCRAM_ITERATIONS_MIN: u32 = 4096;
/// Letters and digits of a salt (spec/hivemq.md 7.3), and bytes of SCRAM's.
const SALT_LEN: usize = 32;
const SCRAM_SALT_LEN: usize = 16;

const HASH_EXAMPLES: &str = "\
Examples:
  troupemq password hash
      Asks for a password and prints it for <password>
  troupemq password hash < password.txt
  printf %s \"$PASSWORD\" | troupemq password hash --scram-sha-256

What is printed goes into extensions/hivemq-file-rbac-extension/conf/credentials.xml:
  <user><name>ann</name><password>PRINTED</password><roles><id>devices</id></roles></user>
  <user><name>bob</name><scram-sha-256>PRINTED</scram-sha-256><roles><id>devices</id></roles></user>

Exit status: 0 done, 1 failed, 2 the command line is wrong.";

const EXAMPLES: &str = "\
Examples:
  troupemq start
      One node on this machine, data in ./data
  troupemq start --config config/cluster/node1.xml --data data-cluster/node1
      The first of three nodes
  troupemq config check config.xml
      Check a file before a start
  troupemq cluster status --data data-cluster/node1
      How the first node sees the cluster
  troupemq bench pubsub --pairs 100 --qos 1
      How many messages a second the server on this machine takes

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
    ExitCode::from(config_check(path, &config::process_env, &mut io::stdout(), &mut io::stderr()))
}

/// Gives the exit status.
fn config_check(path: &Path, env: &dyn Fn(&str) -> Option<String>, out: &mut impl Write, err: &mut impl Write) -> u8 {
    match config::load(path, env) {
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

/// Reads a password and prints what is kept of it.
pub fn run_password_hash(arguments: &HashArgs) -> ExitCode {
    let mut input = io::stdin().lock();
    let hidden = if input.is_terminal() {
        _ = write!(io::stderr(), "Password: ");
        hide_typing()
    } else {
        None
    };
    let outcome = password_hash(arguments, &mut input);
    if let Some(before) = hidden {
        _ = termios::tcsetattr(io::stdin(), termios::OptionalActions::Now, &before);
        write_line(&mut io::stderr(), "");
    }
    match outcome {
        Ok(text) => {
            write_line(&mut io::stdout(), text);
            ExitCode::SUCCESS
        }
        Err(message) => {
            write_line(&mut io::stderr(), format_args!("troupemq: {message}"));
            ExitCode::FAILURE
        }
    }
}

/// Has the terminal not show what is typed; gives what it was set to before.
fn hide_typing() -> Option<termios::Termios> {
    let before = termios::tcgetattr(io::stdin()).ok()?;
    let mut hidden = before.clone();
    hidden.local_modes.remove(termios::LocalModes::ECHO);
    termios::tcsetattr(io::stdin(), termios::OptionalActions::Now, &hidden).ok()?;
    Some(before)
}

fn password_hash(arguments: &HashArgs, input: &mut impl Read) -> Result<String, String> {
    let mut line = Vec::new();
    let limit = u64::try_from(password::PASSWORD_LEN_MAX).unwrap_or(u64::MAX).saturating_add(2);
    let mut input = io::BufReader::new(input.take(limit));
    io::BufRead::read_until(&mut input, b'\n', &mut line).map_err(|error| format!("cannot read the password: {error}"))?;
    let line = line.strip_suffix(b"\n").unwrap_or(&line);
    let password = line.strip_suffix(b"\r").unwrap_or(line);
    if password.is_empty() || password.len() > password::PASSWORD_LEN_MAX {
        return Err(format!("a password has 1 to {} bytes", password::PASSWORD_LEN_MAX));
    }
    let iterations = NonZeroU32::new(arguments.iterations).unwrap_or(NonZeroU32::MIN);
    if (arguments.scram_sha_256 || arguments.scram_sha_512) && arguments.iterations < SCRAM_ITERATIONS_MIN {
        return Err(format!(
            "SCRAM needs {SCRAM_ITERATIONS_MIN} iterations or more (RFC 7677); give --iterations a larger number"
        ));
    }
    let mechanism = match (arguments.scram_sha_256, arguments.scram_sha_512) {
        (true, _) => Mechanism::Sha256,
        (_, true) => Mechanism::Sha512,
        _ => {
            use rand::Rng;
            let salt: String = rand::rng().sample_iter(rand::distr::Alphanumeric).take(SALT_LEN).map(char::from).collect();
            return Ok(password::hash(password, &salt, iterations));
        }
    };
    if !password.iter().all(|byte| (0x20..0x7F).contains(byte)) {
        return Err(
            "for SCRAM a password of printable ASCII is needed: clients do not agree on how others are prepared".to_owned()
        );
    }
    let salt: [u8; SCRAM_SALT_LEN] = rand::random();
    Ok(password::scram_text(&password::scram_verifier(mechanism, password, &salt, iterations)))
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
        let cases: [&[&str]; 13] = [
            &["health", "--url", "127.0.0.1:8080"],
            &["health", "--timeout", "0"],
            &["password"],
            &["password", "hash", "--iterations", "0"],
            &["password", "hash", "--scram-sha-256", "--scram-sha-512"],
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
            (
                &["health", "--help"],
                &["--url <URL>", "--liveness", "[default: http://127.0.0.1:8080]", "Examples:", "Exit status"],
            ),
            (&["password", "--help"], &["hash"]),
            (
                &["password", "hash", "--help"],
                &["--scram-sha-256", "--scram-sha-512", "--iterations", "[default: 10000]", "Examples:"],
            ),
        ] {
            let text = help(args);
            for word in words {
                assert!(text.contains(word), "{args:?}: no {word} in {text}");
            }
        }
    }

    #[test]
    fn what_is_printed_of_a_password_fits_it_and_nothing_else() {
        let hash = |arguments: &[&str], input: &str| {
            let Command::Password(PasswordCommand::Hash(arguments)) =
                parse_args(&[&["password", "hash", "--iterations", "4096"], arguments].concat()).unwrap()
            else {
                panic!()
            };
            password_hash(&arguments, &mut input.as_bytes())
        };
        let directory = tempfile::tempdir().unwrap();
        for (option, element) in
            [(None, "password"), (Some("--scram-sha-256"), "scram-sha-256"), (Some("--scram-sha-512"), "scram-sha-512")]
        {
            for input in ["secret", "secret\n", "secret\r\nmore"] {
                let text = hash(option.as_slice(), input).unwrap();
                assert_ne!(hash(option.as_slice(), input).unwrap(), text, "another salt each time");
                let xml = format!(
                    "<file-rbac><users><user><name>u</name><{element}>{text}</{element}><roles><id>r</id></roles></user></users>\
                     <roles><role><id>r</id><permissions><permission><topic>#</topic></permission></permissions></role></roles></file-rbac>"
                );
                let folder = directory.path().join("hivemq-file-rbac-extension");
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join("credentials.xml"), xml).unwrap();
                let config = include_str!("../config/default.xml").replace(
                    "</hivemq>",
                    "<security><authentication><file-rbac><folder>hivemq-file-rbac-extension</folder></file-rbac></authentication></security></hivemq>",
                );
                let file = directory.path().join("config.xml");
                std::fs::write(&file, config).unwrap();
                let loaded = config::load(&file, |_| None).unwrap();
                assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
                let rbac = loaded.settings.security.authentication.file_rbac.unwrap();
                let credentials = config::rbac::load(&rbac).unwrap().credentials;
                let user = &credentials.users["u"];
                if let Some(kept) = &user.password {
                    assert!(password::verify(kept, b"secret") && !password::verify(kept, b"secret\n"));
                }
                let scram = user.scram_sha_256.as_ref().map(|keys| (Mechanism::Sha256, keys));
                if let Some((mechanism, kept)) = scram.or(user.scram_sha_512.as_ref().map(|keys| (Mechanism::Sha512, keys))) {
                    let again = password::scram_verifier(
                        mechanism,
                        b"secret",
                        &kept.salt,
                        NonZeroU32::new(SCRAM_ITERATIONS_MIN).unwrap(),
                    );
                    assert_eq!((&again.stored_key, &again.server_key), (&kept.stored_key, &kept.server_key));
                }
            }
        }
        assert!(hash(&[], "").is_err() && hash(&[], "\n").is_err());
        let few = parse_args(&["password", "hash", "--scram-sha-256", "--iterations", "4095"]).unwrap();
        let Command::Password(PasswordCommand::Hash(few)) = few else { panic!() };
        assert!(password_hash(&few, &mut &b"secret"[..]).is_err_and(|error| error.contains("4096")));
        assert!(hash(&[], &"x".repeat(5000)).is_err());
        assert!(hash(&["--scram-sha-256"], "pässword").is_err());
        assert!(hash(&[], "pässword").is_ok());
    }

    #[test]
    fn check_tells_by_its_status_whether_a_node_would_start() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.xml");
        let check = |file: &Path| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let status = config_check(file, &config::process_env, &mut out, &mut err);
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
