//! The `troupemq` program: arguments, configuration, start, signal, stop.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use troupemq::broker::{Broker, reachable};
use troupemq::cli::{self, Command, ConfigCommand, EXIT_CONFIG, PasswordCommand, StartArgs};
use troupemq::config::{self, Loaded, Settings};
use troupemq::edge::Surface;
use troupemq::telemetry::logging;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    match cli::parse().command {
        Command::Start(arguments) => start(&arguments),
        Command::Storage(command) => cli::storage::run(&command),
        Command::Cluster(arguments) => cli::cluster::run(arguments),
        Command::Ban(arguments) => cli::node::run_ban(arguments),
        Command::Queues(arguments) => cli::node::run_queues(&arguments),
        Command::Health(arguments) => cli::health::run(&arguments),
        Command::Config(ConfigCommand::Check { file }) => cli::run_config_check(&file),
        Command::Config(ConfigCommand::Reference) => cli::reference::run(),
        Command::Password(PasswordCommand::Hash(arguments)) => cli::run_password_hash(&arguments),
        Command::Bench(arguments) => cli::bench::run(&arguments),
        Command::Version => cli::run_version(),
    }
}

fn start(arguments: &StartArgs) -> ExitCode {
    let loaded = match &arguments.config {
        Some(file) => config::load(file, config::process_env),
        None => config::embedded_default(),
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(errors) => return cli::report_config_errors(&errors),
    };
    if let Err(error) = logging::init(&arguments.log) {
        return fail(&error.to_string());
    }
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    actix_rt::System::new().block_on(run(&loaded, &arguments.data))
}

async fn run(loaded: &Loaded, data: &Path) -> ExitCode {
    let began = Instant::now();
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return fail("cannot listen for signals");
    };
    let broker = match Broker::start(&loaded.settings, data).await {
        Ok(broker) => broker,
        Err(error) => return fail(&error.to_string()),
    };
    let mut watch = actix_rt::time::interval(Duration::from_millis(500));
    let mut ready = false;
    loop {
        tokio::select! {
            () = broker.ready(), if !ready => {
                ready = true;
                announce(&broker, &loaded.settings, began);
            }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = broker.left() => {
                tracing::info!("left the cluster");
                break;
            }
            _ = watch.tick() => {
                if let Some(failure) = broker.failure() {
                    tracing::error!("stopping: {failure}");
                    return ExitCode::FAILURE;
                }
                if let Some(misplaced) = broker.cluster().misplaced() {
                    broker.stop(CancellationToken::new()).await;
                    return fail(&misplaced);
                }
            }
        }
    }
    tracing::info!("stopping");
    let haste = CancellationToken::new();
    let stopping = broker.stop(haste.clone());
    tokio::pin!(stopping);
    loop {
        tokio::select! {
            () = &mut stopping => break,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::warn!("told again to stop: in haste");
        haste.cancel();
    }
    tracing::info!("stopped");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stdout, reason = "what a person who starts the program wants to see")]
fn announce(broker: &Broker, settings: &Settings, began: Instant) {
    let status = broker.cluster().status();
    let ms = began.elapsed().as_millis();
    println!("TroupeMQ {} · node {} · started in {ms}ms", env!("CARGO_PKG_VERSION"), status.node_name);
    for listener in broker.listeners() {
        println!("  {:<20} {}", listener.kind, listener.address);
    }
    for http in broker.http() {
        let (what, path) = match &http.surface {
            Surface::All => ("Status and metrics", "/"),
            Surface::Health => ("Health", "/api/v1/health/"),
            Surface::Metrics { path } => ("Metrics", path.as_str()),
        };
        println!("  {what:<20} http://{}{path}", reachable(http.local_addr));
    }
    if let Some(listener) = broker.listeners().iter().find(|listener| listener.kind == "TCP Listener") {
        let address = reachable(listener.address);
        let user = if settings.security.authentication.is_off() { "" } else { " -u NAME -P PASSWORD" };
        let topic = if settings.addons.lifecycle.enabled { "$client-events/#" } else { "#" };
        println!("Try: mosquitto_sub -h {} -p {}{user} -V 5 -t '{topic}' -v", address.ip(), address.port());
    }
}

#[expect(clippy::print_stderr, reason = "before or without a log")]
fn fail(message: &str) -> ExitCode {
    eprintln!("troupemq: {message}");
    ExitCode::from(EXIT_CONFIG)
}
