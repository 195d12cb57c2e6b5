//! Three nodes in namespaces of their own, and the network between them.

use std::fs;
use std::time::{Duration, Instant};

use super::net::{Net, permitted};
use crate::harness::config::{Config, Hosts};
use crate::harness::permit::Weight;
use crate::harness::repository;
use crate::harness::trio::{Trio, alive};

/// What was broken and is whole again serves within this; the stated times are seconds, the machine may be busy.
pub const WHOLE: Duration = Duration::from_secs(60);

pub struct Islands {
    /// Before the network, so that processes end before their namespaces.
    pub trio: Trio,
    pub net: Net,
}

impl Islands {
    /// All three ready. `None`, with the reason printed and written down for the summary, where namespaces are not permitted.
    pub fn ready(test: &str, seed: u64, shape: impl Fn(&mut Config)) -> Option<Self> {
        let mut islands = Self::new(test, seed, shape)?;
        islands.trio.start_all();
        Some(islands)
    }

    /// The same, not started.
    pub fn new(test: &str, seed: u64, shape: impl Fn(&mut Config)) -> Option<Self> {
        let permitted = permitted();
        let folder = repository().join("target/faults");
        fs::create_dir_all(&folder).expect("a folder for the summary");
        for kind in ["ran", "skipped"] {
            _ = fs::remove_file(folder.join(format!("{test}.{kind}")));
        }
        let outcome = match &permitted {
            Ok(()) => (folder.join(format!("{test}.ran")), String::new()),
            Err(reason) => (folder.join(format!("{test}.skipped")), format!("{test}: {reason}\n")),
        };
        fs::write(outcome.0, outcome.1).expect("a line for the summary");
        if let Err(reason) = permitted {
            println!("SKIPPED {test}: network namespaces are not permitted here: {reason}");
            eprintln!("SKIPPED {test}: network namespaces are not permitted here: {reason}");
            return None;
        }
        let mut trio = Trio::new(Weight::Whole, |config| {
            // Other machines could reach these addresses, if there were any.
            config.more = "<security><allow-anonymous><enabled>true</enabled></allow-anonymous></security>".to_owned();
            shape(config);
        });
        let net = Net::new(seed);
        for (index, node) in trio.nodes.iter_mut().enumerate() {
            node.within = vec!["nsenter".to_owned(), format!("--net=/run/netns/{}", net.namespace(index))];
            node.config.hosts = Some(Hosts { own: net.address(index), all: net.addresses() });
        }
        Some(Self { trio, net })
    }

    /// Waits until all three serve and see each other; tells what is missing where that does not happen in time.
    pub fn whole_again(&self) -> Result<Duration, String> {
        let began = Instant::now();
        loop {
            let states: Vec<(bool, u64)> = self.trio.nodes.iter().map(|node| (node.is_up(), alive(node))).collect();
            if states.iter().all(|state| *state == (true, 3)) {
                return Ok(began.elapsed());
            }
            if began.elapsed() > WHOLE {
                return Err(format!("after {WHOLE:?} the nodes are not whole again; (ready, nodes seen): {states:?}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
