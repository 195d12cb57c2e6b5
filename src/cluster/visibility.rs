//! Acknowledged means effective on every node: a SUBACK, an UNSUBACK or the acknowledgement of a retained message is held back until the
//! replica of each node that serves clients has applied the command.
//!
//! A node that applies an entry in which another node submitted such a command tells that node, once for each batch it applies
//! (`Progress::Applied`), so a storm of SUBSCRIBEs costs a few frames, and a wait about as much as a follower is behind. What is lost is
//! asked for again (`Progress::Ask`).
//!
//! Nodes that count are those that `meta` holds alive. One that is silent is waited for until `meta` says that it is dead; by then it serves
//! nobody (see `lease`). One that answers and is behind for `LEAVE_OUT_MS` is told to hold its clients, and does not count once it
//! says that it does (what it was told while it counted is void for both from then on); it counts again when it has caught up with where the others were when it was left out. An acknowledgement that
//! cannot be given within `EVERYWHERE_MAX` is not given.
//!
//! What is acknowledged while a node does not count, that node must learn before it serves: it is *level* once every other node has said
//! how far it is (after having counted it, so nothing is acknowledged without it from then on) and its own replicas are as far. It has to
//! become level after its start, after its incarnation was declared dead, after it was told to hold its clients, and after a pause longer
//! than `STALE_MS`, when it was stopped as a whole.

pub mod lease;
mod ledger;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::replica::{Incarnation, NodeId, ShardId};

use super::clock::monotonic_ms;
use super::control::FEATURES;
use super::node::Node;
use super::rate_limit::RateLimit;
use super::succession;
use super::transport::Transport;

use ledger::Ledger;

/// A peer that keeps an acknowledgement waiting for so long is to hold its clients until it has caught up.
const LEAVE_OUT_MS: u64 = 2_000;
/// So old a word of a peer that it holds its clients is of no use.
const HELD_MS_MAX: u64 = 500;
/// What is not effective everywhere by then is not acknowledged.
pub const EVERYWHERE_MAX: Duration = Duration::from_secs(10);
/// A peer that keeps an acknowledgement waiting for so long is asked how far it is.
const ASK_MS: u64 = 100;
/// Not to have run for so long is to have been stopped.
const STALE_MS: u64 = 1_000;
/// A node becomes level without the word of peers that do not answer for so long.
const LEVEL_MS_MAX: u64 = 5_000;
const LOOK: Duration = Duration::from_millis(100);
const LOOK_UNTIL_LEVEL: Duration = Duration::from_millis(20);

/// What nodes tell each other of their replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Progress {
    /// The sender has applied the shard's log up to the index.
    Applied { shard: ShardId, index: u64 },
    /// How far are you? Answered by `Positions`.
    Ask,
    /// How far the sender has applied each shard, read after it counted that incarnation of the receiver (0 where it counts none).
    Positions { counts: Incarnation, applied: Vec<u64> },
    /// For the leader of `meta`: may the sender go on serving? The time is the sender's own, for it to know the answer by.
    Renew { sent_ms: u64 },
    /// This incarnation may.
    Renewed { sent_ms: u64, incarnation: Incarnation },
    /// The receiver keeps acknowledgements waiting: it is to read from no client until it has caught up.
    Hold,
    /// The sender, that incarnation of it, does not read from its clients.
    Held { incarnation: Incarnation },
}

impl Progress {
    /// The protocol version that brought it.
    pub fn since(&self) -> u16 {
        match self {
            Self::Applied { .. } | Self::Ask | Self::Positions { .. } => 2,
            Self::Renew { .. } | Self::Renewed { .. } | Self::Hold | Self::Held { .. } => FEATURES,
        }
    }
}

/// The waits of this node.
pub struct Visibility {
    own: NodeId,
    transport: Option<Arc<Transport>>,
    /// How far this node has applied each shard, and told.
    applied: Vec<AtomicU64>,
    ledgers: Vec<Mutex<Ledger<oneshot::Sender<()>>>>,
    /// Peers that count.
    counted: RwLock<Arc<[NodeId]>>,
    /// Peers by what `meta` says.
    alive: RwLock<BTreeMap<NodeId, Incarnation>>,
    /// Alive, but left out until they are as far as this in each shard.
    left_out: Mutex<BTreeMap<NodeId, Vec<u64>>>,
    left_out_total: AtomicU64,
    /// Peers that hold their clients, and when they said so.
    holding: Mutex<Holding>,
    /// The right to serve that this node has, and what it gave to others.
    pub lease: lease::Held,
    pub leases: lease::Given,
    /// The incarnation that is level, 0 = none.
    level: AtomicU64,
    becoming: Mutex<Becoming>,
    /// When `run` looked last.
    looked_ms: AtomicU64,
    warned: RateLimit,
}

type Holding = BTreeMap<NodeId, (Incarnation, u64)>;

/// On the way to being level.
#[derive(Default)]
struct Becoming {
    since_ms: u64,
    /// How far the peers said they are.
    positions: BTreeMap<NodeId, Vec<u64>>,
    /// Peers that were told that this node holds its clients, as often as they have not said that they know: what they say may be from before.
    unaware: BTreeMap<NodeId, u32>,
}

impl Becoming {
    /// A peer may leave this node out from now on: where it was when it counted this node is no measure any more.
    fn held(&mut self, by: NodeId) {
        self.positions.remove(&by);
        *self.unaware.entry(by).or_default() += 1;
    }

    /// A peer said how far it is, and whether it counted this node then.
    fn told(&mut self, by: NodeId, counts: bool, applied: Vec<u64>) {
        let unaware = self.unaware.get(&by).copied().unwrap_or(0);
        if counts && unaware == 0 {
            self.positions.insert(by, applied);
        } else if !counts && unaware > 1 {
            self.unaware.insert(by, unaware - 1);
        } else if !counts {
            self.unaware.remove(&by);
        }
    }
}

impl Visibility {
    pub fn new(own: NodeId, shards: u16, transport: Option<Arc<Transport>>) -> Self {
        Self {
            own,
            transport,
            applied: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            ledgers: (0..shards).map(|_| Mutex::default()).collect(),
            counted: RwLock::new(Arc::new([])),
            alive: RwLock::default(),
            left_out: Mutex::default(),
            left_out_total: AtomicU64::new(0),
            holding: Mutex::default(),
            lease: lease::Held::default(),
            leases: lease::Given::default(),
            level: AtomicU64::new(0),
            becoming: Mutex::default(),
            looked_ms: AtomicU64::new(monotonic_ms()),
            warned: RateLimit::default(),
        }
    }

    /// Resolves when all nodes that count have applied the entry; `None` where they have already. This node must have applied it.
    pub fn everywhere(&self, shard: ShardId, index: u64) -> Option<oneshot::Receiver<()>> {
        let mut ledger = self.ledgers.get(usize::from(shard.0))?.lock();
        let counted = Arc::clone(&self.counted.read());
        let mut applied = None;
        let waiter = || {
            let (sender, receiver) = oneshot::channel();
            applied = Some(receiver);
            sender
        };
        ledger.wait(index, &counted, monotonic_ms(), waiter);
        applied
    }

    /// This node's replica has applied entries up to `index`, and told them; `origins` wait to hear of it.
    pub fn applied_here(&self, shard: ShardId, index: u64, origins: &[NodeId]) {
        if let Some(applied) = self.applied.get(usize::from(shard.0)) {
            applied.fetch_max(index, Ordering::AcqRel);
        }
        // Not sent: the origin asks.
        origins.iter().for_each(|origin| self.tell_applied(*origin, Progress::Applied { shard, index }));
    }

    /// Whether an incarnation of this node knows all that was acknowledged before it counted.
    pub fn is_level(&self, incarnation: Incarnation) -> bool {
        self.transport.is_none() || self.level.load(Ordering::Acquire) == incarnation
    }

    /// Whether this node may have missed what was acknowledged, though it serves clients: it was stopped for a moment, is cut off, or behind.
    pub fn is_stale(&self) -> bool {
        if self.transport.is_none() {
            return false;
        }
        let now_ms = monotonic_ms();
        // In this order: `look` says first that the node is not level, then that it looked.
        let stopped = now_ms.saturating_sub(self.looked_ms.load(Ordering::Acquire)) > STALE_MS;
        stopped || self.level.load(Ordering::Acquire) == 0 || !self.lease.runs(now_ms)
    }

    /// How often a peer was left out.
    pub fn left_out_total(&self) -> u64 {
        self.left_out_total.load(Ordering::Relaxed)
    }

    fn send(&self, to: NodeId, progress: Progress) {
        if let Some(transport) = &self.transport {
            transport.send_progress(to, progress);
        }
    }

    /// Says how far this node is, unless messages to the peer may be lost now: what it acknowledges by that, publishes here must reach. It asks
    /// again.
    fn tell_applied(&self, to: NodeId, progress: Progress) {
        if !self.transport.as_ref().is_some_and(|transport| transport.messages_are_behind(to)) {
            self.send(to, progress);
        }
    }

    /// Takes over who counts, and releases what waited for others.
    fn count(&self) {
        let alive = self.alive.read().clone();
        let mut left_out = self.left_out.lock();
        left_out.retain(|peer, _| alive.contains_key(peer));
        let counted: Arc<[NodeId]> = alive.into_keys().filter(|peer| !left_out.contains_key(peer)).collect();
        drop(left_out);
        *self.counted.write() = Arc::clone(&counted);
        for ledger in &self.ledgers {
            let released = ledger.lock().release(&counted);
            tell(released);
        }
    }

    /// The incarnations that are alive. One that is new begins anew.
    fn members_are(&self, alive: BTreeMap<NodeId, Incarnation>) {
        let before = std::mem::replace(&mut *self.alive.write(), alive.clone());
        for (peer, incarnation) in alive {
            if before.get(&peer) != Some(&incarnation) {
                self.ledgers.iter().for_each(|ledger| ledger.lock().forget(peer));
                self.send(peer, Progress::Ask);
            }
        }
        self.count();
    }

    fn name(&self, peer: NodeId) -> String {
        let known = self.transport.as_ref().and_then(|transport| transport.name_of(peer));
        known.unwrap_or_else(|| format!("{peer:016x}"))
    }

    fn peer_applied(&self, peer: NodeId, shard: ShardId, index: u64) {
        let Some(ledger) = self.ledgers.get(usize::from(shard.0)) else { return };
        let released = {
            let mut ledger = ledger.lock();
            ledger.applied(peer, index);
            let counted = Arc::clone(&self.counted.read());
            ledger.release(&counted)
        };
        tell(released);
    }

    /// Whether a peer, by what it said last, is of a release that knows leases.
    fn knows_leases(&self, peer: NodeId) -> bool {
        self.transport.as_ref().is_some_and(|transport| !(1..FEATURES).contains(&transport.version(peer)))
    }

    /// The incarnation of a peer that counts, 0 where none does. A peer that hears so may become level by it: its word that it holds its clients
    /// is used up.
    fn counts_for(&self, peer: NodeId) -> Incarnation {
        let mut holding = self.holding.lock();
        if !self.counted.read().contains(&peer) {
            return 0;
        }
        holding.remove(&peer);
        self.alive.read().get(&peer).copied().unwrap_or(0)
    }

    /// Whether the incarnation of a peer that counts said lately that it reads from no client.
    fn holds(&self, holding: &Holding, peer: NodeId, now_ms: u64) -> bool {
        let alive = self.alive.read().get(&peer).copied();
        let held = holding.get(&peer).copied();
        held.is_some_and(|(incarnation, at_ms)| Some(incarnation) == alive && now_ms.saturating_sub(at_ms) < HELD_MS_MAX)
    }

    /// A peer that is as far as it was to come counts again.
    fn readmit(&self, peer: NodeId, applied: &[u64]) {
        let caught_up = |target: &Vec<u64>| target.iter().zip(applied).all(|(target, applied)| applied >= target);
        let readmitted = {
            let mut left_out = self.left_out.lock();
            let caught_up = left_out.get(&peer).is_some_and(caught_up);
            caught_up && left_out.remove(&peer).is_some()
        };
        if readmitted {
            self.count();
        }
    }

    /// Asks peers that keep acknowledgements waiting, and leaves out those that do so for too long.
    fn look_at_late(&self, now_ms: u64, is_gone: impl Fn(NodeId) -> bool, positions: impl FnOnce() -> Vec<u64>) {
        let counted = Arc::clone(&self.counted.read());
        let (mut late, mut too_late): (Vec<NodeId>, Vec<NodeId>) = (self.left_out.lock().keys().copied().collect(), Vec::new());
        for ledger in &self.ledgers {
            let ledger = ledger.lock();
            late.extend(ledger.late(&counted, now_ms.saturating_sub(ASK_MS)));
            too_late.extend(ledger.late(&counted, now_ms.saturating_sub(LEAVE_OUT_MS)));
        }
        late.sort_unstable();
        late.dedup();
        for peer in &late {
            self.send(*peer, Progress::Ask);
            // Its process is gone: it serves nobody, whatever `meta` says yet.
            if counted.contains(peer) && is_gone(*peer) {
                too_late.push(*peer);
            }
        }
        if too_late.is_empty() {
            return;
        }
        too_late.sort_unstable();
        too_late.dedup();
        too_late.iter().filter(|peer| self.knows_leases(**peer)).for_each(|peer| self.send(*peer, Progress::Hold));
        // Until they do not count, so that none is told meanwhile that it does.
        let holding = self.holding.lock();
        too_late.retain(|peer| is_gone(*peer) || !self.knows_leases(*peer) || self.holds(&holding, *peer, now_ms));
        if too_late.is_empty() {
            return;
        }
        let positions = positions();
        for peer in too_late {
            self.left_out.lock().insert(peer, positions.clone());
            self.left_out_total.fetch_add(1, Ordering::Relaxed);
            if self.warned.due(&format!("late {peer}")) {
                tracing::warn!(
                    peer = self.name(peer),
                    "a node is behind: acknowledgements do not wait for it, and its clients wait until it has caught up"
                );
            }
        }
        self.count();
    }
}

/// Looks after waits and peers until the node stops.
pub async fn run(node: Arc<Node>) {
    let mut meta_changed = node.meta.watch();
    loop {
        meta_changed.borrow_and_update();
        look(&node);
        let level = node.visibility.is_level(node.incarnation());
        let pause = if level { LOOK } else { LOOK_UNTIL_LEVEL };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause) => {}
            changed = meta_changed.changed() => if changed.is_err() { return },
        }
    }
}

/// A peer's word.
pub fn heard(node: &Node, from: NodeId, progress: Progress) {
    let visibility = &node.visibility;
    match progress {
        Progress::Applied { shard, index } => visibility.peer_applied(from, shard, index),
        Progress::Ask => {
            // In this order: what is acknowledged without the peer is among the positions.
            let counts = visibility.counts_for(from);
            visibility.tell_applied(from, Progress::Positions { counts, applied: positions(node) });
        }
        Progress::Positions { counts, applied } => {
            for (shard, index) in (0..).zip(&applied) {
                visibility.peer_applied(from, ShardId(shard), *index);
            }
            visibility.readmit(from, &applied);
            visibility.becoming.lock().told(from, counts == node.incarnation(), applied);
        }
        Progress::Renew { sent_ms } => {
            let alive = node.meta.member(from).filter(|member| member.alive);
            // Its log holds what earlier leaders declared.
            let leads = node.meta_group().led_until_ms() > monotonic_ms() && node.meta_group().view().leads;
            if let Some(member) = alive.filter(|_| leads)
                && visibility.leases.give(from, member.incarnation, monotonic_ms())
            {
                visibility.send(from, Progress::Renewed { sent_ms, incarnation: member.incarnation });
            }
        }
        Progress::Renewed { sent_ms, incarnation } => {
            if incarnation == node.incarnation() {
                visibility.lease.renew(sent_ms);
            }
        }
        Progress::Hold => {
            let incarnation = node.incarnation();
            // Said when it was told before: what was being read then is done with.
            let mut becoming = visibility.becoming.lock();
            if visibility.level.swap(0, Ordering::AcqRel) == 0 {
                becoming.held(from);
                visibility.send(from, Progress::Held { incarnation });
            } else {
                tracing::warn!(from = node.name_of(from), "this node is behind: its clients wait until it has caught up");
                *becoming = Becoming::default();
            }
        }
        Progress::Held { incarnation } => {
            visibility.holding.lock().insert(from, (incarnation, monotonic_ms()));
            // Everything said to it before is void: it waits for this.
            visibility.send(from, Progress::Positions { counts: 0, applied: positions(node) });
        }
    }
}

fn look(node: &Node) {
    let visibility = &node.visibility;
    if visibility.transport.is_none() {
        return;
    }
    let now_ms = monotonic_ms();
    let stopped_ms = now_ms.saturating_sub(visibility.looked_ms.load(Ordering::Acquire));
    if stopped_ms > STALE_MS {
        tracing::warn!(stopped_ms, "this node was stopped: its clients wait until it knows what was acknowledged meanwhile");
        visibility.level.store(0, Ordering::Release);
    }
    visibility.looked_ms.store(now_ms, Ordering::Release);
    let meta = node.meta_group();
    visibility.lease.lead(if meta.view().leads { meta.led_until_ms() } else { 0 });
    if visibility.lease.is_due(now_ms)
        && let Some(leader) = meta.view().leader.filter(|leader| *leader != visibility.own)
    {
        if visibility.knows_leases(leader) {
            visibility.send(leader, Progress::Renew { sent_ms: now_ms });
        } else if meta.view().reachable {
            // One of the release before gives none, and declares dead as it always did.
            visibility.lease.renew(now_ms);
        }
    }
    let members = node.meta.members().into_iter();
    let alive: BTreeMap<NodeId, Incarnation> = members
        .filter(|(id, member)| *id != visibility.own && member.alive)
        .map(|(id, member)| (id, member.incarnation))
        .collect();
    if *visibility.alive.read() != alive {
        visibility.members_are(alive);
    }
    visibility.look_at_late(now_ms, |peer| succession::is_gone(node, peer), || positions(node));
    if !visibility.is_level(node.incarnation()) {
        become_level(node, now_ms);
    }
}

fn become_level(node: &Node, now_ms: u64) {
    let visibility = &node.visibility;
    let incarnation = node.incarnation();
    let mut becoming = visibility.becoming.lock();
    if becoming.since_ms == 0 || !node.is_established() {
        let unaware = std::mem::take(&mut becoming.unaware);
        *becoming = Becoming { since_ms: now_ms, unaware, ..Becoming::default() };
        if !node.is_established() {
            return;
        }
    }
    let mut late = now_ms.saturating_sub(becoming.since_ms) > LEVEL_MS_MAX;
    if late && !becoming.unaware.is_empty() {
        // Their answer was lost with a link; by now they go by no word of before.
        becoming.unaware.clear();
        becoming.since_ms = now_ms;
        late = false;
    }
    let own = positions(node);
    let mut level = true;
    for peer in visibility.alive.read().keys() {
        match becoming.positions.get(peer) {
            Some(applied) => level &= own.iter().zip(applied).all(|(own, applied)| own >= applied),
            None => {
                level &= late;
                visibility.send(*peer, Progress::Ask);
                if late && visibility.warned.due(&format!("level {peer}")) {
                    tracing::warn!(
                        peer = node.name_of(*peer),
                        "a node does not say what it has applied: this node serves without its word"
                    );
                }
            }
        }
    }
    if level {
        *becoming = Becoming::default();
        visibility.level.store(incarnation, Ordering::Release);
    }
}

/// How far this node has applied each shard: by its own count, or by openraft's where a snapshot or a restart told nothing.
fn positions(node: &Node) -> Vec<u64> {
    let of = |(shard, counted): (u16, &AtomicU64)| {
        let counted = counted.load(Ordering::Acquire);
        let group = node.group_of(ShardId(shard));
        group.and_then(|group| group.metrics().last_applied).map_or(0, |id| id.index()).max(counted)
    };
    (0..).zip(&node.visibility.applied).map(of).collect()
}

fn tell(released: Vec<oneshot::Sender<()>>) {
    for waiter in released {
        let _ = waiter.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_peer_said_before_it_knew_that_this_node_holds_its_clients_makes_nobody_level() {
        let mut becoming = Becoming::default();
        becoming.told(2, true, vec![5]);
        becoming.told(3, true, vec![6]);
        becoming.held(2);
        assert_eq!(becoming.positions.keys().copied().collect::<Vec<_>>(), [3]);
        becoming.held(2);
        // Under way since before.
        becoming.told(2, true, vec![5]);
        assert!(!becoming.positions.contains_key(&2));
        becoming.told(2, false, vec![7]);
        becoming.told(2, true, vec![7]);
        assert!(!becoming.positions.contains_key(&2), "it was said twice");
        becoming.told(2, false, vec![7]);
        assert!(!becoming.positions.contains_key(&2));
        becoming.told(2, true, vec![8]);
        assert_eq!(becoming.positions.get(&2), Some(&vec![8]));
    }

    #[test]
    fn a_peer_that_is_told_that_it_counts_is_not_left_out_by_what_it_said_before() {
        let visibility = Visibility::new(1, 1, None);
        visibility.alive.write().insert(2, 7);
        visibility.count();
        visibility.holding.lock().insert(2, (7, 100));
        let holds = |visibility: &Visibility| visibility.holds(&visibility.holding.lock(), 2, 200);
        assert!(holds(&visibility));
        assert_eq!(visibility.counts_for(2), 7);
        assert!(!holds(&visibility));
        // One that does not count keeps it.
        visibility.holding.lock().insert(2, (7, 100));
        visibility.left_out.lock().insert(2, vec![1]);
        visibility.count();
        assert_eq!(visibility.counts_for(2), 0);
        assert!(holds(&visibility));
    }
}
