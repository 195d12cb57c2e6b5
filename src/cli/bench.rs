//! `troupemq bench ..`: a load tool for any MQTT server.

mod help;
mod scenes;
mod values;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{EXIT_CONFIG, write_line};
use crate::load::{self, Common, Failure, Nobody, Outcome, Plan, Scene, TargetPlan, TlsPlan};
use crate::mqtt::ProtocolVersion;
use scenes::{ConnectArgs, FailoverArgs, FanInArgs, FanOutArgs, OfflineArgs, PubsubArgs, RetainedArgs, SharedArgs};
use values::{Milliseconds, duration, version};

/// Exit status where the server lost, doubled or disordered what it must not, or the scene failed.
const EXIT_FAULT: u8 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = help::BENCH, subcommand_required = true, arg_required_else_help = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub scene: BenchCommand,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum BenchCommand {
    /// Clients connect and stay: connects per second, and the time from SYN to CONNACK
    #[command(after_long_help = help::CONNECT)]
    Connect(ConnectArgs),
    /// Pairs of a publisher and a subscriber: messages per second and latency
    #[command(after_long_help = help::PUBSUB)]
    Pubsub(PubsubArgs),
    /// Few publishers, many subscribers that get every message
    #[command(after_long_help = help::FANOUT)]
    Fanout(FanOutArgs),
    /// Many publishers, few subscribers that get every message
    #[command(after_long_help = help::FANIN)]
    Fanin(FanInArgs),
    /// Members of a shared subscription that share what is published
    #[command(after_long_help = help::SHARED)]
    Shared(SharedArgs),
    /// Retained messages, and new subscribers that get all of them
    #[command(after_long_help = help::RETAINED)]
    Retained(RetainedArgs),
    /// Sessions that are away while messages are queued for them: how fast they are queued and drained
    #[command(after_long_help = help::OFFLINE)]
    Offline(OfflineArgs),
    /// Pairs over several servers, one of which somebody ends meanwhile: how long clients are not served
    #[command(after_long_help = help::FAILOVER)]
    Failover(FailoverArgs),
}

/// What all scenes have.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ServerArgs {
    /// Servers, which clients take in turn; the port is 1883 if none is given, 8883 with --tls, 8000 with --ws, 8443 with both
    #[arg(value_name = "HOST[:PORT]", default_value = "127.0.0.1", value_delimiter = ',')]
    pub servers: Vec<String>,

    /// Version of MQTT: 5 or 3.1.1
    #[arg(long, value_name = "VERSION", default_value = "5", value_parser = version, help_heading = "Connection")]
    pub mqtt: ProtocolVersion,

    /// User name of all clients
    #[arg(long, value_name = "NAME", help_heading = "Connection")]
    pub user: Option<String>,

    /// Password of all clients
    #[arg(long, value_name = "PASSWORD", help_heading = "Connection")]
    pub password: Option<String>,

    /// What client identifiers begin with; without it each run has its own
    #[arg(long, value_name = "PREFIX", help_heading = "Connection")]
    pub client_id: Option<String>,

    /// Keep Alive, seconds; clients that send nothing ping at half of it; 0: none
    #[arg(long, value_name = "SECONDS", help_heading = "Connection")]
    pub keep_alive: Option<u16>,

    /// From the first SYN to the CONNACK at most, seconds (or 500ms, 2m); 20 if not given, for clients of failover that come back 2
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Connection")]
    pub connect_timeout: Option<Duration>,

    /// Local addresses that clients connect from, in turn: 127.0.0.1..127.0.0.4, or a list with commas
    ///
    /// One address has some 28,000 ports for each server. Without it the system chooses.
    #[arg(long, value_name = "ADDRESSES", help_heading = "Connection")]
    pub source: Option<String>,

    /// WebSocket, with this path
    #[arg(long, value_name = "PATH", help_heading = "Connection")]
    pub ws: Option<String>,

    /// TLS
    #[arg(long, help_heading = "TLS")]
    pub tls: bool,

    /// PEM file of the authorities whose certificates are believed; without it those of the system
    #[arg(long, value_name = "FILE", requires = "tls", help_heading = "TLS")]
    pub ca_file: Option<PathBuf>,

    /// Believe any certificate
    #[arg(long, requires = "tls", conflicts_with = "ca_file", help_heading = "TLS")]
    pub insecure: bool,

    /// PEM file of the certificate that all clients show
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"], help_heading = "TLS")]
    pub cert: Option<PathBuf>,

    /// PEM file of its private key
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"], help_heading = "TLS")]
    pub key: Option<PathBuf>,

    /// The name the server's certificate must have, if not HOST
    #[arg(long, value_name = "NAME", requires = "tls", help_heading = "TLS")]
    pub server_name: Option<String>,

    /// Clients share session tickets, as those that come back do (for connect each is there once before); otherwise each makes a full handshake
    #[arg(long, requires = "tls", help_heading = "TLS")]
    pub tls_resume: bool,

    /// Threads of this tool; without it one for each processor, up to 4
    #[arg(long, value_name = "NUMBER", help_heading = "Tool")]
    pub threads: Option<usize>,

    /// Write the result as JSON to a file, or with - to standard output (the table goes to standard error then)
    #[arg(long, value_name = "FILE", help_heading = "Tool")]
    pub json: Option<PathBuf>,

    /// Length of a part of the series in the JSON, milliseconds
    #[arg(long, value_name = "MS", default_value = "1000", help_heading = "Tool")]
    pub interval: Milliseconds,

    /// No progress on standard error
    #[arg(long, short, help_heading = "Tool")]
    pub quiet: bool,
}

/// Plays the scene; gives the exit status.
pub fn run(arguments: &BenchArgs) -> ExitCode {
    ExitCode::from(bench(&arguments.scene, &mut io::stdout(), &mut io::stderr()))
}

fn bench(command: &BenchCommand, out: &mut impl Write, err: &mut impl Write) -> u8 {
    let (servers, prepared) = prepare(command);
    let played = prepared.and_then(|plan| {
        // Before the load: it would be a pity afterwards.
        let json = servers.json.as_deref().map(Json::open).transpose()?;
        Ok((load::run(&plan, &mut Nobody)?, json))
    });
    match played {
        Ok((outcome, json)) => tell(&outcome, json, out, err),
        Err(failure) => {
            write_line(err, format_args!("troupemq: {failure}"));
            if matches!(failure, Failure::Plan(_)) { EXIT_CONFIG } else { EXIT_FAULT }
        }
    }
}

fn tell(outcome: &Outcome, json: Option<Json>, out: &mut impl Write, err: &mut impl Write) -> u8 {
    let table = outcome.table();
    let written = match json {
        None => {
            _ = write!(out, "{table}");
            Ok(())
        }
        Some(Json::Output) => {
            _ = write!(err, "{table}");
            write_line(out, format_args!("{:#}", outcome.json()));
            Ok(())
        }
        Some(Json::File(mut file)) => {
            _ = write!(out, "{table}");
            writeln!(file, "{:#}", outcome.json())
        }
    };
    if let Err(error) = written {
        write_line(err, format_args!("troupemq: cannot write the JSON: {error}"));
        return EXIT_FAULT;
    }
    if outcome.is_fine() { 0 } else { EXIT_FAULT }
}

/// Where JSON goes.
enum Json {
    Output,
    File(File),
}

impl Json {
    fn open(path: &Path) -> Result<Self, Failure> {
        if path == Path::new("-") {
            return Ok(Self::Output);
        }
        let failed = |error: io::Error| Failure::Plan(format!("cannot write {}: {error}", path.display()));
        Ok(Self::File(File::create(path).map_err(failed)?))
    }
}

/// The servers, and the plan that the command line asks for.
fn prepare(command: &BenchCommand) -> (&ServerArgs, Result<Plan, Failure>) {
    let (servers, topic, handshakes, scene) = match command {
        BenchCommand::Connect(arguments) => (&arguments.server, None, None, Scene::Connect(arguments.plan())),
        BenchCommand::Pubsub(PubsubArgs { server, flow, .. })
        | BenchCommand::Fanout(FanOutArgs { server, flow, .. })
        | BenchCommand::Fanin(FanInArgs { server, flow, .. })
        | BenchCommand::Shared(SharedArgs { server, flow, .. })
        | BenchCommand::Failover(FailoverArgs { server, flow, .. }) => {
            (server, flow.topic.clone(), Some(flow.handshakes), Scene::Flow(flow.plan(command)))
        }
        BenchCommand::Retained(arguments) => {
            (&arguments.server, arguments.topic.clone(), None, Scene::Retained(arguments.plan()))
        }
        BenchCommand::Offline(arguments) => {
            (&arguments.server, arguments.topic.clone(), Some(arguments.handshakes), Scene::Offline(arguments.plan()))
        }
    };
    let is_failover = matches!(command, BenchCommand::Failover(_));
    let target = servers.target(is_failover);
    let plan = target.map(|target| {
        let common = Common {
            threads: servers.threads.unwrap_or(Common::default().threads),
            handshakes: handshakes.unwrap_or(Common::default().handshakes),
            progress: !servers.quiet,
            slice: Duration::from_millis(servers.interval.0),
            client_id: servers.client_id.clone(),
            topic,
        };
        Plan { target, common, scene }
    });
    (servers, plan)
}

impl ServerArgs {
    /// `is_failover`: a server that says nothing is to be noticed soon.
    fn target(&self, is_failover: bool) -> Result<TargetPlan, Failure> {
        let default = TargetPlan::default();
        let tls = self.tls.then(|| TlsPlan {
            ca_file: self.ca_file.clone(),
            insecure: self.insecure,
            identity: self.cert.clone().zip(self.key.clone()),
            server_name: self.server_name.clone(),
            resume: self.tls_resume,
        });
        let sources = self.source.as_deref().map(load::parse_sources).transpose()?;
        let path = self.ws.as_deref().map(|path| if path.starts_with('/') { path.to_owned() } else { format!("/{path}") });
        if path.as_deref().is_some_and(|path| path.contains(|c: char| c.is_whitespace() || c.is_control())) {
            return Err(Failure::Plan("the path of --ws has no spaces".into()));
        }
        Ok(TargetPlan {
            servers: self.servers.clone(),
            version: self.mqtt,
            tls,
            websocket: path,
            username: self.user.clone(),
            password: self.password.clone(),
            keep_alive: self.keep_alive.unwrap_or(if is_failover { 10 } else { default.keep_alive }),
            sources: sources.unwrap_or_default(),
            connect_timeout: self.connect_timeout.unwrap_or(if is_failover {
                Duration::from_secs(2)
            } else {
                default.connect_timeout
            }),
        })
    }
}

#[cfg(test)]
#[path = "bench/bench_test.rs"]
mod tests;
