//! How large a run is.
//!
//! Environment: `TROUPEMQ_BENCH_SCENES=overload,tls,growth,churn` some scenes only; `TROUPEMQ_BENCH_BROKER` the program under test;
//! `TROUPEMQ_BENCH_QUICK=1` small numbers; `TROUPEMQ_BENCH_KEEP=1` leaves the node's configuration, data and log in `target/bench`; and the
//! numbers `TROUPEMQ_BENCH_LIMIT` connects a second that the listener allows, `_STORM` clients that come at ten times that, `_TLS` clients of
//! the storm over TLS, `_CHURN_S` seconds of churn, `_CHURN` clients that come and go at a time, `_GROWTH` powers of ten of subscriptions and
//! queued messages (6: up to a million).

use std::time::Duration;

use crate::common::Failure;
use crate::common::environment::{self, Program, Scenes, number};

pub struct Settings {
    pub quick: bool,
    pub scenes: Scenes,
    pub program: Program,
    /// Connects a second that the listener allows.
    pub limit: u32,
    pub storm: usize,
    /// Publishers, and subscribers, that are there before the storm.
    pub pairs: usize,
    /// Clients with a Will and a short Keep Alive that are there before the storm.
    pub devices: usize,
    pub tls: usize,
    pub churn: Duration,
    pub churners: usize,
    pub growth: u32,
    /// The largest number of connections of the growth table.
    pub connections: usize,
    pub measure: Duration,
}

impl Settings {
    pub fn read() -> Result<Self, Failure> {
        let quick = environment::is_quick();
        let pick = |full: usize, small: usize| if quick { small } else { full };
        let settings = Self {
            quick,
            scenes: Scenes::read(),
            program: Program::under_test()?,
            limit: number("TROUPEMQ_BENCH_LIMIT", if quick { 200 } else { 1_000 })?,
            storm: number("TROUPEMQ_BENCH_STORM", pick(15_000, 1_000))?,
            pairs: pick(100, 20),
            devices: pick(500, 50),
            tls: number("TROUPEMQ_BENCH_TLS", pick(5_000, 200))?,
            churn: Duration::from_secs(number("TROUPEMQ_BENCH_CHURN_S", if quick { 5 } else { 1_800 })?),
            churners: number("TROUPEMQ_BENCH_CHURN", pick(200, 20))?,
            growth: number("TROUPEMQ_BENCH_GROWTH", if quick { 4 } else { 6 })?,
            connections: pick(19_000, 1_000),
            measure: Duration::from_secs(if quick { 1 } else { 3 }),
        };
        if !(3..=7).contains(&settings.growth) {
            return Err(format!("TROUPEMQ_BENCH_GROWTH is {}; allowed: 3 to 7", settings.growth).into());
        }
        if settings.limit == 0 {
            return Err("TROUPEMQ_BENCH_LIMIT is 0".into());
        }
        Ok(settings)
    }

    /// How this run can be repeated.
    pub fn command(&self) -> String {
        environment::variables(&[]).concat() + "make bench-storms"
    }
}
