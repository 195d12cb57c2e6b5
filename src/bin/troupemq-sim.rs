//! `troupemq-sim`: simulates seeds until one fails, or the time is over.

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use troupemq::plant::Plant;
use troupemq::sim::{self, Coverage, Options, Report};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Simulates clusters of the broker under faults; a seed gives the same run every time.
#[derive(Debug, Parser)]
struct Arguments {
    /// Seeds to simulate, FIRST..END.
    #[arg(long, default_value = "1..11")]
    seeds: String,
    /// Nodes of a cluster.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Simulated hours after which no further seed is begun.
    #[arg(long)]
    hours: Option<f64>,
    /// For so many simulated seconds of each seed things go wrong.
    #[arg(long, default_value_t = 120)]
    chaos_s: u64,
    /// Plants a fault that must be found.
    #[arg(long, value_parser = plant)]
    plant: Option<Plant>,
    /// Simulates this seed alone and prints all events.
    #[arg(long)]
    replay: Option<u64>,
    /// Goes on after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Events printed with a failure.
    #[arg(long, default_value_t = 40)]
    lines: usize,
}

fn plant(name: &str) -> Result<Plant, String> {
    let known = || Plant::ALL.map(|plant| format!("{plant:?}")).join(", ");
    Plant::ALL.into_iter().find(|plant| format!("{plant:?}") == name).ok_or_else(|| format!("there are: {}", known()))
}

fn seeds(text: &str) -> Option<std::ops::Range<u64>> {
    let (first, end) = text.split_once("..")?;
    Some(first.parse().ok()?..end.parse().ok()?)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = match (arguments.replay, seeds(&arguments.seeds)) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(seeds)) => seeds,
        (None, None) => {
            eprintln!("troupemq-sim: --seeds {} is not of the form FIRST..END", arguments.seeds);
            return ExitCode::from(2);
        }
    };
    if std::env::var_os("RUST_LOG").is_some() {
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).without_time().init();
    }
    let options = Options {
        nodes: arguments.nodes,
        chaos_ms: arguments.chaos_s * 1000,
        plant: arguments.plant,
        aloud: arguments.replay.is_some(),
    };
    let begun = Instant::now();
    let mut coverage = Coverage::default();
    let (mut simulated_ms, mut run, mut failed) = (0, 0_u64, 0_u64);
    for seed in seeds {
        if arguments.hours.is_some_and(|hours| simulated_ms as f64 / 3_600_000.0 >= hours) {
            break;
        }
        let outcome = sim::run(seed, &options);
        simulated_ms += outcome.simulated_ms;
        run += 1;
        coverage.merge(&outcome.coverage);
        if outcome.failure.is_some() {
            failed += 1;
            let lines = if options.aloud { 0 } else { arguments.lines };
            print!("{}", Report { outcome: &outcome, options: &options, lines });
            if !arguments.keep_going {
                break;
            }
        }
        if run.is_multiple_of(10) || options.aloud || outcome.failure.is_some() {
            let hours = simulated_ms as f64 / 3_600_000.0;
            println!("seed {seed}: {run} run, {hours:.2} simulated hours, {failed} failed, hash {:016x}", outcome.hash);
        }
    }
    let hours = simulated_ms as f64 / 3_600_000.0;
    println!("{run} seeds, {hours:.2} simulated hours in {:.0} s, {failed} failed", begun.elapsed().as_secs_f64());
    print!("{coverage}");
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
