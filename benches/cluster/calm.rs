//! Leadership is calm: no election while the machine has more to do than it can.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use tokio::runtime;
use tokio::task::{LocalSet, spawn_local};
use troupemq::mqtt::QoS;

use crate::Failure;
use crate::client;
use crate::common::nodes::Trio;
use crate::common::report::Report;
use crate::replicated::{Load, Plan};
use crate::settings::Settings;

/// Clients that connect and go, over and over.
const STORM: usize = 64;
const LONGER: u32 = 2;

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    for program in &settings.programs {
        let trio = Trio::start(program, 10_000_000)?;
        // A leadership that is handed over to spread it is no election for want of a leader.
        trio.wait_spread()?;
        let addresses = trio.mqtt();
        let before = trio.terms();
        let (connects, messages) = LocalSet::new().block_on(&runtime, async {
            let plan = Plan {
                publishers: settings.publishers,
                window: settings.window,
                payload_bytes: settings.payload_bytes,
                qos: QoS::AtLeastOnce,
                online: true,
                offered: None,
            };
            let load = Load::start(&plan, &addresses, settings.measure * LONGER).await?;
            let connects = Rc::new(Cell::new(0_u64));
            let until = Instant::now() + settings.measure * LONGER;
            let storm: Vec<_> = (0..STORM)
                .map(|number| spawn_local(storm(addresses[number % addresses.len()], number, until, Rc::clone(&connects))))
                .collect();
            let outcome = load.finish().await?;
            for client in storm {
                client.await?;
            }
            Ok::<_, Failure>((connects.get(), outcome.acknowledged))
        })?;
        let elections = trio.terms() - before;
        let seconds = (settings.measure * LONGER).as_secs_f64();
        let value = format!(
            "{elections:.0} elections in {seconds:.0} s with {:.0} connects/s and {:.0} QoS 1 messages/s",
            connects as f64 / seconds,
            messages as f64 / seconds
        );
        report.add(
            "Connect storm and publishing at full load",
            program.name,
            value,
            Some(("0 elections".to_owned(), elections == 0.0)),
        );
    }
    Ok(())
}

async fn storm(address: SocketAddr, number: usize, until: Instant, connects: Rc<Cell<u64>>) {
    while Instant::now() < until {
        if client::connect(address, &format!("storm-{number}"), true, 0).await.is_ok() {
            connects.set(connects.get() + 1);
        }
    }
}
