//! What this room asks of the node; `broker` hands in what does it.

use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::protocol::{Answer, Command, TEXT_BYTES_MAX};
use super::report::StatusReport;

/// What a command came to: what to tell the operator, or why not and what to do.
pub type Outcome = Result<String, String>;

/// Carries the commands out. Each method may be called again, and while an earlier call is under way.
pub trait Handler: Send + Sync + 'static {
    /// Must be quick and must not wait.
    fn status(&self) -> StatusReport;
    /// Resolves when the node has no clients and leads nothing that another could lead.
    fn drain(&self, progress: Progress) -> BoxFuture<'_, Outcome>;
    fn undrain(&self) -> Outcome;
    /// Asks all nodes; they go on by themselves.
    fn rebalance(&self) -> Outcome;
    /// Resolves when the node is no member any more; the process ends soon after.
    fn leave(&self, progress: Progress) -> BoxFuture<'_, Outcome>;
    fn forget(&self, node: String, progress: Progress) -> BoxFuture<'_, Outcome>;
    fn transfer_leadership(&self, to: Option<String>, group: Option<String>, progress: Progress) -> BoxFuture<'_, Outcome>;
    fn accept_loss(&self) -> Outcome;
    fn bans(&self) -> Outcome;
    fn pardon(&self, client_id: Option<String>, address: Option<String>) -> Outcome;
    fn queues(&self, top: usize) -> Outcome;
}

/// Carries one command out.
pub async fn run(handler: &dyn Handler, command: Command, progress: Progress) -> Result<Answer, String> {
    let outcome = match command {
        Command::Status => return Ok(Answer::Status(Box::new(handler.status()))),
        Command::Drain => handler.drain(progress).await,
        Command::Undrain => handler.undrain(),
        Command::Rebalance => handler.rebalance(),
        Command::Leave => handler.leave(progress).await,
        Command::Forget { node } => handler.forget(node, progress).await,
        Command::AcceptLoss => handler.accept_loss(),
        Command::Bans => handler.bans(),
        Command::Pardon { client_id, address } => handler.pardon(client_id, address),
        Command::Queues { top } => handler.queues(top),
        Command::TransferLeadership { to, group } => handler.transfer_leadership(to, group, progress).await,
    };
    outcome.map(Answer::Text)
}

/// Tells whoever asked how far the command is.
#[derive(Debug, Clone)]
pub struct Progress(mpsc::Sender<String>);

/// Lines that wait for a client that does not read; more are left out.
const WAITING_MAX: usize = 256;

impl Progress {
    pub(super) fn new() -> (Self, mpsc::Receiver<String>) {
        let (sender, receiver) = mpsc::channel(WAITING_MAX);
        (Self(sender), receiver)
    }

    /// Never waits: a line is left out where the client reads none, or has gone. A long text is cut.
    pub fn tell(&self, text: impl Into<String>) {
        let mut text = text.into();
        if text.len() > TEXT_BYTES_MAX {
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
        }
        tracing::info!(progress = text, "command");
        let _ = self.0.try_send(text);
    }

    /// For loops that look again and again: gives what tells a text when it differs from the one told last, or that one is some seconds old.
    pub fn changes(self) -> impl Fn(String) + Send + Sync {
        let told: Mutex<Option<(String, Instant)>> = Mutex::default();
        move |text| {
            let mut told = told.lock();
            if told.as_ref().is_none_or(|(last, at)| *last != text || at.elapsed() >= REMIND) {
                self.tell(text.clone());
                *told = Some((text, Instant::now()));
            }
        }
    }
}

/// The same is told again after so long.
const REMIND: Duration = Duration::from_secs(5);
