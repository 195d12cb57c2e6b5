//! What a node makes of storms: clients that come at ten times the rate that is allowed, handshakes of TLS, clients that come and go for half an
//! hour; and what connections, subscriptions and queued messages cost as they grow by ten.
//!
//! Builds nothing but itself and `target/release/troupemq`, which cargo builds with it. `settings.rs` lists the environment variables.

// A program for people, like a test: it prints, and a broken assumption may end it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// What is measured lasts a stated time, and a foreign process is ready when it answers: it gives no condition to wait on.
#![allow(clippy::disallowed_methods)]

mod churn;
#[path = "../common/mod.rs"]
mod common;
mod device;
mod growth;
mod load;
mod overload;
mod settings;
mod tls;

use std::process::ExitCode;
use std::time::Instant;

use common::Failure;
use common::report::Report;
use settings::Settings;

type Scene = fn(&Settings, &mut Report) -> Result<(), Failure>;

fn main() -> ExitCode {
    common::exit("storms", || run(&Settings::read()?))
}

/// False where a goal was missed.
fn run(settings: &Settings) -> Result<bool, Failure> {
    let began = Instant::now();
    let mut report = Report::new(&settings.command(), settings.quick);
    let scenes: [(&str, Scene); 4] =
        [("overload", overload::run), ("tls", tls::run), ("growth", growth::run), ("churn", churn::run)];
    for (name, scene) in scenes.into_iter().filter(|(name, _)| settings.scenes.wants(name)) {
        eprintln!("{name} ({} s)", began.elapsed().as_secs());
        scene(settings, &mut report).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(report.finish(began.elapsed()))
}
