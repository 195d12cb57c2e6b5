//! Plays a scene before a broker and reads the broker's processor time and memory at the marks of the scene.

use std::thread;
use std::time::Duration;

use troupemq::load::{self, Common, Mark, Observer, Outcome, Plan, TargetPlan};

use crate::Failure;
use crate::broker::{Broker, Kind, config};
use crate::common::nodes::{Shape, Trio};
use crate::scene::Scene;
use crate::settings::{Program, Settings};

/// Parts of the series that the plot is made of.
const SLICE: Duration = Duration::from_millis(25);
/// Longer than any scene, so that nobody has to ping; set, so that the broker does keep its timers.
const KEEP_ALIVE_S: u16 = 600;

/// What a scene plays before.
pub enum Subject {
    One(Broker),
    Three(Trio),
}

/// What was read.
#[derive(Debug, Default)]
pub struct Watched {
    cpu: [Duration; 2],
    bytes: [u64; 2],
}

impl Watched {
    /// Of all processes of the subject, while it was measured.
    pub fn cpu_s(&self) -> f64 {
        self.cpu[1].saturating_sub(self.cpu[0]).as_secs_f64()
    }

    /// User memory between the first mark and the last.
    pub fn grown_bytes(&self) -> f64 {
        self.bytes[1].saturating_sub(self.bytes[0]) as f64
    }
}

/// Starts the broker, plays the scene, ends the broker.
pub fn play(scene: &Scene, kind: Kind, settings: &Settings) -> Result<(Outcome, Watched), Failure> {
    let subject = match scene.nodes {
        1 => Subject::One(Broker::start(kind)?),
        nodes => {
            let program = Program { name: kind.name(), path: kind.program()? };
            let trio =
                Trio::start_as(&program, &Shape { nodes, queue_max: 1_000_000, more: config::ADDONS, ..Shape::default() })?;
            trio.wait_spread()?;
            Subject::Three(trio)
        }
    };
    let plan = Plan {
        target: TargetPlan {
            servers: subject.servers(),
            version: settings.version,
            keep_alive: KEEP_ALIVE_S,
            sources: settings.sources.clone(),
            ..TargetPlan::default()
        },
        common: Common { threads: settings.load_threads, handshakes: settings.handshakes, slice: SLICE, ..Common::default() },
        scene: (scene.plan)(settings),
    };
    let mut watch = Watch { subject, settle: settings.settle, kills: scene.kills, read: Watched::default() };
    let outcome = load::run(&plan, &mut watch)?;
    Ok((outcome, watch.read))
}

struct Watch {
    subject: Subject,
    settle: Duration,
    kills: bool,
    read: Watched,
}

impl Watch {
    fn look(&mut self, mark: Mark) -> Result<(), Failure> {
        match mark {
            Mark::Ready => {
                thread::sleep(self.settle);
                self.read.bytes[0] = self.subject.user_bytes()?;
            }
            Mark::Begin => self.read.cpu[0] = self.subject.cpu_time()?,
            Mark::End => self.read.cpu[1] = self.subject.cpu_time()?,
            Mark::Held => self.read.bytes[1] = self.subject.user_bytes()?,
            Mark::Filled if self.kills => {
                if let Subject::One(broker) = &mut self.subject {
                    broker.kill_and_start()?;
                }
            }
            Mark::Filled => {
                thread::sleep(self.settle);
                self.read.bytes[1] = self.subject.user_bytes()?;
            }
            Mark::Connected | Mark::Drained => {}
        }
        Ok(())
    }
}

impl Observer for Watch {
    fn at(&mut self, mark: Mark) -> Result<(), load::Failure> {
        self.look(mark).map_err(|error| load::Failure::Local { what: "look at the broker", reason: error.to_string() })
    }
}

impl Subject {
    fn servers(&self) -> Vec<String> {
        match self {
            Self::One(broker) => vec![broker.address.to_string()],
            Self::Three(trio) => trio.mqtt().iter().map(ToString::to_string).collect(),
        }
    }

    fn cpu_time(&self) -> Result<Duration, Failure> {
        match self {
            Self::One(broker) => broker.cpu_time(),
            Self::Three(trio) => Ok(trio.cpu_time()),
        }
    }

    fn user_bytes(&self) -> Result<u64, Failure> {
        match self {
            Self::One(broker) => broker.user_bytes(),
            // The table has no figure of it.
            Self::Three(_) => Ok(0),
        }
    }
}
