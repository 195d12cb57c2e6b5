//! A load tool for MQTT servers: many clients on few threads, against any server, and a judge of what the server makes of it. It stands on its
//! own; of the broker it uses the codec only.
//!
//! Each thread has a runtime of its own and its clients for life; a client is never touched by two threads. `scene` has what is
//! played, one file for each kind; a *conductor* (`crew`) gives orders to the threads, and reads what they count. A client under load is a
//! *machine* (`publisher`, `subscriber`) over a `connection`, run by `drive`: packets are read in place out of a buffer that the thread lends,
//! and written gathered.
//!
//! Latencies are measured from the moment a message was *to be* sent, and of all messages that were to be sent while it was measured,
//! however late they come (no coordinated omission).

mod client;
mod clock;
mod connection;
mod counters;
mod crew;
mod drive;
mod failure;
mod gate;
mod inbox;
mod judge;
mod latency;
mod limits;
mod numbering;
mod pace;
mod plan;
mod progress;
mod publisher;
mod report;
mod scene;
mod silence;
mod source;
mod stamp;
mod stream;
mod subscriber;
mod target;
mod thread;
mod tickets;
mod tls;
mod units;
mod websocket;
mod window;

pub use client::{Client, Session, encode, publish};
pub use failure::Failure;
pub use inbox::Inbox;
pub use latency::Times;
pub use limits::make_room;
pub use plan::{Common, ConnectPace, ConnectPlan, FlowPlan, OfflinePlan, Plan, RetainedPlan, Scene, Shape};
pub use report::{BUSY_MAX, Figure, LAG_P99_MS_MAX, Outcome, Slice, ToolUse};
pub use source::parse as parse_sources;
pub use stamp::STAMP_BYTES;
pub use target::{Target, TargetPlan};
pub use tls::TlsPlan;
pub use units::show;

/// A moment of a scene that somebody may want to look at the server in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Everybody who is to be there before the load is there.
    Ready,
    /// Measuring begins.
    Begin,
    /// Measuring has ended.
    End,
    /// All retained or queued messages are with the server, and no client of ours is (in `offline`).
    Filled,
    /// All clients of `connect` are there.
    Connected,
    /// They have stayed as long as they were to.
    Held,
    /// All that was queued has come.
    Drained,
}

/// Is told when a scene comes to a mark; the load waits until it is done.
pub trait Observer {
    /// # Errors
    /// End the scene.
    fn at(&mut self, mark: Mark) -> Result<(), Failure>;
}

/// Looks away.
pub struct Nobody;

impl Observer for Nobody {
    fn at(&mut self, _: Mark) -> Result<(), Failure> {
        Ok(())
    }
}

/// Plays the scene; Ctrl-C ends it with what there is so far.
///
/// # Errors
/// Where it cannot begin: `Plan`, `Files`, `Local`. What goes wrong later is in the outcome.
pub fn run(plan: &Plan, observer: &mut dyn Observer) -> Result<Outcome, Failure> {
    plan.check()?;
    make_room(plan.clients())?;
    let target = Target::find(&plan.target)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Failure::local("start a runtime"))?;
    runtime.block_on(scene::play(plan, target, observer))
}
