//! Commands of this node on their way to one shard: numbered in the order they were submitted, kept until their outcome is applied here.
//!
//! A command gets its number when it is first sent, together with others in a batch that never changes again: so it can be sent to
//! another leader as often as needed (the replica takes each number once), and a command that was never sent can be withdrawn without
//! leaving a gap. With a message that is withdrawn goes all that its connection sent behind it (`Lane`): it will be sent again behind the first.
//!
//! A large payload is on its way for a while. It waits in a line of its own (`bulk`), of which each batch takes one part, so that the other
//! commands of the node go on. What the same publisher sends meanwhile waits behind it, for its messages keep their order [MQTT-4.6.0-6].

use std::collections::VecDeque;
use std::sync::Arc;

use ahash::AHashMap;
use bytes::Bytes;
use bytestring::ByteString;
use tokio::sync::oneshot;

use crate::cluster::SubmitError;
use crate::replica::body::{Cut, PART_BYTES};
use crate::replica::command::PartCommand;
use crate::replica::event::{Answer, Outcome};
use crate::replica::{Batch, Command, ConnectionRef, Incarnation, NodeId};

use super::Lane;
use super::estimate::{BYTES_MAX, COMMANDS_MAX, command_bytes};

/// Commands waiting for one shard.
pub const PENDING_COMMANDS_MAX: usize = 64 * 1024;
/// Bytes of commands waiting for one shard, about.
pub const PENDING_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of large payloads waiting for one shard; the last may pass it. They are shared with whoever sent them, not copies.
pub const PENDING_BULK_BYTES_MAX: usize = 1024 * 1024 * 1024;
/// Batches on their way at a time; what is submitted meanwhile goes together in the next.
pub const WINDOW_BATCHES: usize = 4;
/// A waiter is answered after so long without an outcome, if nothing moves.
pub const GIVE_UP_MS: u64 = 10_000;

/// The outcome of a command and the index of the entry it was applied with (0 where it was refused without one).
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub outcome: Outcome,
    pub index: u64,
}

/// Who waits for an outcome.
pub struct Waiter {
    answer: oneshot::Sender<Result<Settled, SubmitError>>,
    /// What of the same connection must not be stored where this is not.
    lane: Option<Arc<Lane>>,
}

impl Waiter {
    pub fn new(answer: oneshot::Sender<Result<Settled, SubmitError>>, lane: Option<Arc<Lane>>) -> Self {
        Self { answer, lane }
    }

    fn is_behind_a_gap(&self) -> bool {
        self.lane.as_ref().is_some_and(|lane| lane.is_broken())
    }

    /// What it is to be told. Its lane breaks at once, under the lock under which commands are taken in.
    fn failed(self, error: SubmitError) -> (Self, Result<Settled, SubmitError>) {
        if let Some(lane) = &self.lane {
            lane.break_off();
        }
        (self, Err(error))
    }
}

/// Waiters and what to tell them, to be told outside of any lock.
pub type Told = Vec<(Waiter, Result<Settled, SubmitError>)>;

/// The queue of one shard.
pub struct Pending {
    node: NodeId,
    incarnation: Incarnation,
    next_seq: u64,
    sent: VecDeque<Sent>,
    /// The first of `sent` that the present leader has not been sent.
    resend: usize,
    unsent: VecDeque<Unsent>,
    bulk: VecDeque<Bulk>,
    /// Commands in `bulk` of each publisher.
    bulk_publishers: AHashMap<ByteString, usize>,
    commands: usize,
    bytes: usize,
    bulk_bytes: usize,
    progress_ms: u64,
}

struct Sent {
    batch: Batch,
    waiters: Vec<Option<Waiter>>,
    bytes: usize,
    bulk_bytes: usize,
    submitted_ms: u64,
}

struct Unsent {
    command: Command,
    waiter: Option<Waiter>,
    bytes: usize,
    submitted_ms: u64,
}

/// A command that waits for its large payload to be sent, or for one before it.
struct Bulk {
    last: Unsent,
    publisher: Option<ByteString>,
    /// Empty where there is none, or all of it is in batches.
    body: Bytes,
    /// How much of `body` is in batches.
    sent: usize,
    begun: bool,
}

impl Bulk {
    /// The next part. A copy: entries of the log that are kept for a while must not keep the whole payload.
    fn next_part(&mut self) -> Option<PartCommand> {
        let end = (self.sent + PART_BYTES).min(self.body.len());
        let part = self.body.get(self.sent..end).filter(|part| !part.is_empty())?;
        let (bytes_total, offset) = (self.body.len() as u64, self.sent as u64);
        let part = PartCommand { bytes_total, offset, bytes: Bytes::copy_from_slice(part) };
        self.sent = end;
        self.begun = true;
        if self.sent == self.body.len() {
            self.body = Bytes::new();
            self.sent = 0;
        }
        Some(part)
    }
}

impl Pending {
    pub fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self {
            node,
            incarnation,
            next_seq: 1,
            sent: VecDeque::new(),
            resend: 0,
            unsent: VecDeque::new(),
            bulk: VecDeque::new(),
            bulk_publishers: AHashMap::new(),
            commands: 0,
            bytes: 0,
            bulk_bytes: 0,
            progress_ms: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    pub fn len(&self) -> usize {
        self.commands
    }

    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// When a command was last completed, or the queue was empty.
    pub fn progress_ms(&self) -> u64 {
        self.progress_ms
    }

    /// Takes a command in. The end of a connection is taken in over the bound too: there are only as many as connections, and a lost
    /// one would leave a session connected.
    ///
    /// Nothing is taken in behind a message of the same lane that was not stored.
    pub fn push(&mut self, command: Cut, waiter: Option<Waiter>, now_ms: u64) -> Result<(), SubmitError> {
        if waiter.as_ref().is_some_and(Waiter::is_behind_a_gap) {
            return Err(SubmitError::Unavailable);
        }
        let lane = waiter.as_ref().and_then(|waiter| waiter.lane.clone());
        self.take_in(command, waiter, now_ms).inspect_err(|_| lane.iter().for_each(|lane| lane.break_off()))
    }

    /// How much of what may wait does, by the resource that is nearest to its limit.
    #[expect(clippy::cast_precision_loss, reason = "a share of at most 2^30 bytes")]
    pub fn fullness(&self) -> f64 {
        let share = |used: usize, max: usize| used as f64 / max as f64;
        share(self.commands, PENDING_COMMANDS_MAX)
            .max(share(self.bytes, PENDING_BYTES_MAX))
            .max(share(self.bulk_bytes, PENDING_BULK_BYTES_MAX))
    }

    fn take_in(&mut self, command: Cut, waiter: Option<Waiter>, now_ms: u64) -> Result<(), SubmitError> {
        let (command, body) = match command {
            Cut::Small(command) => (command, Bytes::new()),
            Cut::Large { command, body } => (command, body),
        };
        let full = self.commands >= PENDING_COMMANDS_MAX
            || self.bytes >= PENDING_BYTES_MAX
            || (!body.is_empty() && self.bulk_bytes >= PENDING_BULK_BYTES_MAX);
        if full && !matches!(command, Command::Disconnect { .. }) {
            return Err(SubmitError::Overloaded);
        }
        if let Some(connect) = command.connecting()
            && connect.connection.incarnation != self.incarnation
        {
            return Err(SubmitError::Unavailable);
        }
        if self.is_empty() {
            self.progress_ms = now_ms;
        }
        let bytes = command_bytes(&command);
        let publisher = publisher(&command);
        self.commands += 1;
        self.bytes += bytes;
        let unsent = Unsent { command, waiter, bytes, submitted_ms: now_ms };
        if body.is_empty() && publisher.as_ref().is_none_or(|publisher| !self.bulk_publishers.contains_key(publisher)) {
            self.unsent.push_back(unsent);
            return Ok(());
        }
        self.bulk_bytes += body.len();
        if let Some(publisher) = &publisher {
            *self.bulk_publishers.entry(publisher.clone()).or_default() += 1;
        }
        self.bulk.push_back(Bulk { last: unsent, publisher, body, sent: 0, begun: false });
        Ok(())
    }

    /// Whether there is a batch to be sent: otherwise an answer has to come first.
    pub fn has_next(&self) -> bool {
        let has_room = self.sent.len() < WINDOW_BATCHES;
        self.resend < self.sent.len() || (has_room && !(self.unsent.is_empty() && self.bulk.is_empty()))
    }

    /// The batch to be sent next, the same again until `batch_sent`.
    pub fn next_batch(&mut self) -> Option<Batch> {
        if let Some(sent) = self.sent.get(self.resend) {
            return Some(sent.batch.clone());
        }
        if !self.has_next() {
            return None;
        }
        let sent = self.number_batch();
        let batch = sent.batch.clone();
        self.sent.push_back(sent);
        Some(batch)
    }

    fn number_batch(&mut self) -> Sent {
        let mut commands = Vec::new();
        let mut waiters = Vec::new();
        let mut bytes = 0;
        let mut submitted_ms = u64::MAX;
        while let Some(next) = self.unsent.front() {
            if commands.len() >= COMMANDS_MAX || (!commands.is_empty() && bytes + next.bytes > BYTES_MAX) {
                break;
            }
            let Some(next) = self.unsent.pop_front() else { break };
            bytes += next.bytes;
            submitted_ms = submitted_ms.min(next.submitted_ms);
            commands.push(next.command);
            waiters.push(next.waiter);
        }
        let mut bulk_bytes = 0;
        let mut is_first = true;
        while std::mem::take(&mut is_first) || (commands.len() < COMMANDS_MAX && bytes <= BYTES_MAX) {
            let Some(front) = self.bulk.front_mut() else { break };
            if !front.body.is_empty() && bulk_bytes > 0 {
                break;
            }
            if let Some(part) = front.next_part() {
                bulk_bytes += part.bytes.len();
                self.commands += 1;
                commands.push(Command::Part(part));
                waiters.push(None);
                continue;
            }
            let Some(done) = self.bulk.pop_front() else { break };
            self.forget_publisher(done.publisher.as_ref());
            bytes += done.last.bytes;
            // It may have waited long for what was before it, while everything moved.
            submitted_ms = submitted_ms.min(done.last.submitted_ms.max(self.progress_ms));
            commands.push(done.last.command);
            waiters.push(done.last.waiter);
        }
        let first_seq = self.next_seq;
        self.next_seq += commands.len() as u64;
        let batch = Batch { node: self.node, incarnation: self.incarnation, first_seq, commands: Arc::new(commands) };
        Sent { batch, waiters, bytes, bulk_bytes, submitted_ms }
    }

    fn forget_publisher(&mut self, publisher: Option<&ByteString>) {
        let Some(publisher) = publisher else { return };
        if let Some(count) = self.bulk_publishers.get_mut(publisher) {
            *count -= 1;
            if *count == 0 {
                self.bulk_publishers.remove(publisher);
            }
        }
    }

    /// The batch that begins with this number is on its way (unless everything was rewound or completed meanwhile).
    pub fn batch_sent(&mut self, first_seq: u64) {
        if self.sent.get(self.resend).is_some_and(|sent| sent.batch.first_seq == first_seq) {
            self.resend += 1;
        }
    }

    /// Everything not completed is to be sent again, from the oldest on.
    pub fn rewind(&mut self) {
        self.resend = 0;
    }

    /// Outcomes applied here. What is applied by `applied_seq` but has none among `answers` was skipped by a snapshot.
    pub fn complete(&mut self, answers: Vec<Answer>, applied_seq: u64, now_ms: u64) -> Told {
        let mut told = Told::new();
        let mut applied_seq = applied_seq;
        for answer in answers {
            if answer.node != self.node || answer.incarnation != self.incarnation {
                continue;
            }
            applied_seq = applied_seq.max(answer.seq);
            if let Some(waiter) = self.waiter(answer.seq) {
                told.push((waiter, Ok(Settled { outcome: answer.outcome, index: answer.index })));
            }
        }
        while let Some(front) = self.sent.front() {
            if front.last_seq() > applied_seq {
                break;
            }
            let Some(done) = self.sent.pop_front() else { break };
            self.resend = self.resend.saturating_sub(1);
            self.commands -= done.waiters.len();
            self.bytes -= done.bytes;
            self.bulk_bytes -= done.bulk_bytes;
            self.progress_ms = now_ms;
            told.extend(done.waiters.into_iter().flatten().map(|waiter| waiter.failed(SubmitError::Unknown)));
        }
        told
    }

    fn waiter(&mut self, seq: u64) -> Option<Waiter> {
        let sent = self.sent.iter_mut().find(|sent| sent.batch.first_seq <= seq && seq <= sent.last_seq())?;
        let at = usize::try_from(seq - sent.batch.first_seq).ok()?;
        sent.waiters.get_mut(at)?.take()
    }

    /// Answers who has waited too long: withdrawn if never sent, of unknown outcome otherwise (the command stays and may yet apply).
    /// Commands nobody waits for stay.
    pub fn give_up(&mut self, now_ms: u64) -> Told {
        let late = |submitted_ms: u64| now_ms.saturating_sub(submitted_ms) >= GIVE_UP_MS;
        let mut told = Told::new();
        for sent in self.sent.iter_mut().filter(|sent| late(sent.submitted_ms)) {
            let waiters = sent.waiters.iter_mut().filter_map(Option::take);
            told.extend(waiters.map(|waiter| waiter.failed(SubmitError::Unknown)));
        }
        let unsent_late = self.unsent.front().is_some_and(|oldest| late(oldest.submitted_ms));
        if unsent_late {
            self.give_up_unsent(late, &mut told);
        }
        // Behind a large payload a command waits for as long as that moves.
        let stalled = late(self.progress_ms);
        if stalled || unsent_late {
            self.give_up_bulk(|submitted_ms| stalled && late(submitted_ms), &mut told);
        }
        told
    }

    fn give_up_unsent(&mut self, late: impl Fn(u64) -> bool, told: &mut Told) {
        for mut unsent in std::mem::take(&mut self.unsent) {
            match unsent.waiter.take() {
                Some(waiter) if late(unsent.submitted_ms) || waiter.is_behind_a_gap() => {
                    self.commands -= 1;
                    self.bytes -= unsent.bytes;
                    told.push(waiter.failed(SubmitError::Unavailable));
                }
                waiter => self.unsent.push_back(Unsent { waiter, ..unsent }),
            }
        }
    }

    fn give_up_bulk(&mut self, late: impl Fn(u64) -> bool, told: &mut Told) {
        for mut bulk in std::mem::take(&mut self.bulk) {
            match bulk.last.waiter.take() {
                Some(waiter) if late(bulk.last.submitted_ms) || waiter.is_behind_a_gap() => {
                    self.commands -= 1;
                    self.bytes -= bulk.last.bytes;
                    self.bulk_bytes -= bulk.body.len() - bulk.sent;
                    self.forget_publisher(bulk.publisher.as_ref());
                    told.push(waiter.failed(SubmitError::Unavailable));
                    if bulk.begun {
                        // What was sent of it is of no use.
                        let command = Command::Part(PartCommand { bytes_total: 0, offset: 0, bytes: Bytes::new() });
                        let bytes = command_bytes(&command);
                        self.commands += 1;
                        self.bytes += bytes;
                        let last = Unsent { command, waiter: None, bytes, submitted_ms: bulk.last.submitted_ms };
                        self.bulk.push_back(Bulk { last, publisher: None, body: Bytes::new(), sent: 0, begun: false });
                    }
                }
                waiter => self.bulk.push_back(Bulk { last: Unsent { waiter, ..bulk.last }, ..bulk }),
            }
        }
    }

    /// Takes a connection's registration back; false where it was sent, or is not there.
    pub fn withdraw_connect(&mut self, connection: ConnectionRef) -> bool {
        let is_it = |unsent: &Unsent| unsent.command.connecting().is_some_and(|connect| connect.connection == connection);
        let Some(withdrawn) = self.unsent.iter().position(is_it).and_then(|at| self.unsent.remove(at)) else { return false };
        self.commands -= 1;
        self.bytes -= withdrawn.bytes;
        true
    }

    /// A new incarnation: everything of the old one is void.
    pub fn renew(&mut self, incarnation: Incarnation) -> Told {
        let sent = self.sent.drain(..).flat_map(|sent| sent.waiters).flatten();
        let unsent = self.unsent.drain(..).filter_map(|unsent| unsent.waiter);
        let bulk = self.bulk.drain(..).filter_map(|bulk| bulk.last.waiter);
        let told = sent.chain(unsent).chain(bulk).map(|waiter| waiter.failed(SubmitError::Unknown)).collect();
        *self = Self::new(self.node, incarnation);
        told
    }
}

impl Sent {
    fn last_seq(&self) -> u64 {
        self.batch.first_seq + self.waiters.len() as u64 - 1
    }
}

/// Whose messages a command carries, where their order counts.
fn publisher(command: &Command) -> Option<ByteString> {
    match command {
        Command::Enqueue { message, .. } | Command::Retain { message } => message.publisher().cloned(),
        Command::Receive { client, .. } => Some(client.clone()),
        Command::Whole { command, .. } => publisher(command),
        _ => None,
    }
}

/// Tells waiters; one that is gone is no matter.
pub fn tell(told: Told) {
    for (waiter, result) in told {
        let _ = waiter.answer.send(result);
    }
}

#[cfg(test)]
#[path = "pending_test.rs"]
mod pending_test;
