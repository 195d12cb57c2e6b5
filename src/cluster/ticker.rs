//! What the leader of a shard submits by itself: expiry, the trimming of its outbox, the end of dead incarnations. And snapshots by
//! the size of the log, on every node.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::plant::{Plant, is_planted};
use crate::replica::{Command, Incarnation, NodeId, Position, ShardId};

use super::blocking::beside;
use super::group::{Group, META_GROUP, SNAPSHOT_LOG_BYTES};
use super::node::Node;
use super::shard::Shard;

const TICK: Duration = Duration::from_millis(100);
const TRIM_INTERVAL: Duration = Duration::from_secs(1);
/// A flush of the state holds up whoever writes to it for as long as it lasts: often, each of them is short. (What the log has must not wait
/// for it, but is acknowledged when it is applied.)
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// Things that are due done in one command; more follow at once.
const EXPIRE_LIMIT: u32 = 1_000;
/// Entries of queues of sessions that end by one: they are deleted in one write, which takes memory.
const EXPIRE_ENTRIES: usize = 10_000;

/// What is submitted for one shard and has no outcome yet.
#[derive(Default)]
struct InHand {
    expire: bool,
    trim: bool,
    dead: HashSet<(NodeId, Incarnation)>,
}

pub async fn run(node: Arc<Node>) {
    let in_hand: Vec<Arc<Mutex<InHand>>> = node.shards.iter().map(|_| Arc::default()).collect();
    let (mut trimmed, mut flushed) = (Instant::now(), Instant::now());
    let flushing = Arc::new(AtomicBool::new(false));
    let mut logged: Vec<Logged> = node.groups.iter().map(|_| Logged::default()).collect();
    let mut meta_changed = node.meta.watch();
    loop {
        tokio::select! {
            biased;
            () = tokio::time::sleep(TICK) => {}
            changed = meta_changed.changed() => if changed.is_err() { return },
        }
        node.waiting();
        let trim = trimmed.elapsed() >= TRIM_INTERVAL;
        if trim {
            trimmed = Instant::now();
        }
        if flushed.elapsed() >= FLUSH_INTERVAL {
            flushed = Instant::now();
            flush_state(&node, &flushing);
        }
        node.untaken.store(untaken(&node), Ordering::Relaxed);
        for (shard, in_hand) in node.shards.iter().zip(&in_hand) {
            if shard.leads() {
                expire(&node, shard, in_hand);
                end_dead(&node, shard, in_hand);
                if trim {
                    trim_outbox(&node, shard, in_hand);
                }
            }
        }
        for (group, logged) in node.groups.iter().zip(&mut logged) {
            snapshot_by_bytes(group, logged).await;
        }
    }
}

fn expire(node: &Arc<Node>, shard: &Arc<Shard>, in_hand: &Arc<Mutex<InHand>>) {
    let Some(first) = due(shard) else { return };
    if std::mem::replace(&mut in_hand.lock().expire, true) {
        return;
    }
    let (node, shard, in_hand) = (Arc::clone(node), Arc::clone(shard), Arc::clone(in_hand));
    // One after the other without waiting for the tick: many messages may expire in one moment.
    tokio::spawn(async move {
        let mut next = Some(first);
        while let Some(command) = next {
            let Some(group) = node.group_of(shard.id) else { break };
            let Ok(submitted) = shard.submitter.submit(command, &group.view(), None) else { break };
            if submitted.await.is_err() || !shard.leads() {
                break;
            }
            next = due(&shard);
        }
        in_hand.lock().expire = false;
    });
}

/// The command for what is due by the time that it will be stamped with.
fn due(shard: &Shard) -> Option<Command> {
    let now_ms = shard.clock.now_ms();
    let state = shard.state.read();
    state.next_expiry_ms().filter(|at_ms| *at_ms <= now_ms)?;
    Some(Command::Expire { limit: state.due_in_one_go(now_ms, EXPIRE_LIMIT, EXPIRE_ENTRIES) })
}

/// Submits the end of incarnations with connections here that `meta` knows to be dead.
fn end_dead(node: &Arc<Node>, shard: &Arc<Shard>, in_hand: &Arc<Mutex<InHand>>) {
    if is_planted(Plant::NodeDownNotProposed) {
        return;
    }
    let known = shard.state.read().incarnations();
    for (of, incarnation) in known {
        if node.meta.is_dead(of, incarnation) && in_hand.lock().dead.insert((of, incarnation)) {
            let command = Command::NodeDown { node: of, incarnation };
            submit(node, shard, command, in_hand, move |in_hand| {
                in_hand.dead.remove(&(of, incarnation));
            });
        }
    }
}

fn trim_outbox(node: &Arc<Node>, shard: &Arc<Shard>, in_hand: &Arc<Mutex<InHand>>) {
    let through = taken_by_all(node, shard.id);
    let (last, trimmed) = shard.state.read().outbox_bounds();
    let through = through.min(last);
    if through > trimmed && !std::mem::replace(&mut in_hand.lock().trim, true) {
        submit(node, shard, Command::TrimOutbox { through }, in_hand, |in_hand| in_hand.trim = false);
    }
}

/// Events in all outboxes that some shard has not taken.
fn untaken(node: &Node) -> usize {
    let of = |shard: &Arc<Shard>| {
        // Before the lock: it asks every shard's state, and no lock is taken twice.
        let through = taken_by_all(node, shard.id);
        shard.state.read().outbox_len_after(through)
    };
    node.shards.iter().map(of).sum()
}

/// How far every shard has taken a shard's outbox. A replica here may be behind: then it says less, never more.
fn taken_by_all(node: &Node, source: ShardId) -> Position {
    node.shards.iter().map(|shard| shard.state.read().taken(source)).min().unwrap_or_default()
}

fn submit(
    node: &Arc<Node>,
    shard: &Arc<Shard>,
    command: Command,
    in_hand: &Arc<Mutex<InHand>>,
    done: impl FnOnce(&mut InHand) + Send + 'static,
) {
    let Some(group) = node.group_of(shard.id) else { return };
    let submitted = shard.submitter.submit(command, &group.view(), None);
    let in_hand = Arc::clone(in_hand);
    tokio::spawn(async move {
        if let Ok(outcome) = submitted {
            let _ = outcome.await;
        }
        done(&mut in_hand.lock());
    });
}

/// Writes what all groups have applied to their states and flushes it, unless that is under way. A failure stops the storage, which everybody
/// notices.
fn flush_state(node: &Arc<Node>, flushing: &Arc<AtomicBool>) {
    let Ok(state) = node.storage.state(META_GROUP) else { return };
    if flushing.swap(true, Ordering::AcqRel) {
        return;
    }
    let (node, flushing) = (Arc::clone(node), Arc::clone(flushing));
    beside(move || {
        let written = node.groups.iter().try_for_each(|group| group.write_state());
        if let Err(error) = written.and_then(|()| state.flush().map_err(std::io::Error::other)) {
            tracing::debug!(%error, "the state was not flushed");
        }
        if let Err(error) = node.storage.rest() {
            tracing::debug!(%error, "what is in memory was not written out");
        }
        flushing.store(false, Ordering::Release);
    });
}

/// How far a group's log was looked at.
#[derive(Debug, Clone, Copy, Default)]
struct Logged {
    /// `Group::appended_bytes` at the last snapshot by size.
    bytes: u64,
    /// Index of the last entry then.
    index: u64,
}

/// openraft's own limits count entries; a few thousand of them may hold gigabytes.
async fn snapshot_by_bytes(group: &Group, logged: &mut Logged) {
    let appended = group.appended_bytes();
    if appended.saturating_sub(logged.bytes) < SNAPSHOT_LOG_BYTES {
        return;
    }
    let purge_through = logged.index;
    *logged = Logged { bytes: appended, index: group.metrics().last_applied.map_or(0, |id| id.index()) };
    let trigger = group.raft.trigger();
    let snapshot = trigger.snapshot().await;
    // Not beyond what an earlier snapshot holds: followers a moment behind still find their entries.
    let purge = if purge_through > 0 { trigger.purge_log(purge_through).await } else { Ok(()) };
    if let Err(error) = snapshot.and(purge) {
        tracing::debug!(group = group.name(), %error, "the log was not cut by its size");
    }
}
