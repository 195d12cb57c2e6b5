//! What goes wrong, and when: drawn from the seed.

use rand::Rng;

use super::client::SimClient;
use super::node::SimNode;
use super::oracle::Ending;
use super::world::World;

/// Faults begin so far apart on average, ms.
const PAUSE_MS: u64 = 2_500;
/// No wall clock is farther off than this, ms: sessions must not expire by it.
const WALL_AHEAD_MAX_MS: i64 = 600_000;

/// Something that ends by itself.
pub enum Healing {
    Way { from: usize, to: usize, at_ms: u64 },
}

#[derive(Default)]
pub struct Faults {
    next_ms: u64,
    pub healing: Vec<Healing>,
    /// Nodes that are cut off and lose power then.
    pub doomed: Vec<(usize, u64)>,
    /// A node that came with an empty disk or was removed has to be filled again before the next such thing: of what is lost with the disks of
    /// a majority nothing can be promised.
    pub refilling: Option<usize>,
    /// Removed members: (removed, from when on it may come back).
    pub removed: Option<(usize, u64)>,
}

impl World {
    pub(super) fn faults(&mut self) {
        let now_ms = self.now_ms;
        self.heal_due();
        self.doom_due();
        self.go_on_with_members();
        if now_ms < self.faults.next_ms {
            return;
        }
        self.faults.next_ms = now_ms + self.rng.random_range(1..PAUSE_MS * 2);
        match self.rng.random_range(0..100) {
            0..10 => self.kill(false),
            10..18 => self.kill(true),
            18..20 => self.all_lose_power(),
            20..26 => self.stop_in_order(),
            26..36 => self.pause(),
            36..43 => self.isolate(),
            43..50 => self.cut_pair(),
            50..57 => self.cut_one_way(),
            57..65 => self.blip(),
            65..71 => self.slow_link(),
            71..77 => self.reset_links(),
            77..82 => self.clock_jump(),
            82..87 => self.slow_disk(),
            87..90 => self.lose_disk(),
            90..92 => self.remove_a_member(),
            92..96 => self.cut_off_and_lose_power(),
            _ => self.disturb_clients(),
        }
    }

    fn fault(&mut self, kind: &'static str, what: std::fmt::Arguments<'_>) {
        self.oracle.coverage.hit(kind);
        self.oracle.coverage.hit("faults");
        self.oracle.trace.say(self.now_ms, format_args!("FAULT {kind}: {what}"));
    }

    fn random_running(&mut self) -> Option<usize> {
        let running: Vec<usize> = self.nodes.iter().filter(|node| node.is_running()).map(|node| node.index).collect();
        (!running.is_empty()).then(|| running[self.rng.random_range(0..running.len())])
    }

    fn random_pair(&mut self) -> (usize, usize) {
        let from = self.rng.random_range(0..self.nodes.len());
        let to = (from + self.rng.random_range(1..self.nodes.len())) % self.nodes.len();
        (from, to)
    }

    /// Kills a process, or takes its machine's power away, and has it start again.
    fn kill(&mut self, power_lost: bool) {
        let Some(node) = self.random_running() else { return };
        self.fault(if power_lost { "power losses" } else { "crashes" }, format_args!("node {node}"));
        self.crash(node, power_lost);
    }

    pub(super) fn crash(&mut self, node: usize, power_lost: bool) {
        let net = std::rc::Rc::clone(&self.net);
        self.nodes[node].crash(&net, &mut self.rng, power_lost);
        let longest = if self.rng.random_ratio(1, 3) { 20_000 } else { 3_000 };
        self.nodes[node].restart_at_ms = Some(self.now_ms + self.rng.random_range(50..longest));
        self.oracle.node_crashed(self.now_ms);
    }

    fn all_lose_power(&mut self) {
        self.fault("power losses of all nodes", format_args!("all"));
        for node in 0..self.nodes.len() {
            if self.nodes[node].is_running() {
                self.crash(node, true);
            }
        }
    }

    fn stop_in_order(&mut self) {
        let Some(node) = self.random_running() else { return };
        self.fault("restarts in order", format_args!("node {node}"));
        let net = std::rc::Rc::clone(&self.net);
        self.nodes[node].begin_stop(&net);
        self.oracle.node_crashed(self.now_ms);
    }

    fn pause(&mut self) {
        let Some(node) = self.random_running() else { return };
        let longest = if self.rng.random_ratio(1, 3) { 15_000 } else { 2_500 };
        let for_ms = self.rng.random_range(100..longest);
        self.fault("pauses", format_args!("node {node} for {for_ms} ms"));
        let since_ms = self.now_ms;
        self.nodes[node].pause(since_ms, for_ms);
    }

    fn cut(&mut self, from: usize, to: usize, for_ms: u64) {
        self.net.change_way(from, to, |way| way.cut = true);
        self.faults.healing.push(Healing::Way { from, to, at_ms: self.now_ms + for_ms });
    }

    fn cut_ms(&mut self) -> u64 {
        let longest = if self.rng.random_ratio(1, 3) { 25_000 } else { 5_000 };
        self.rng.random_range(300..longest)
    }

    fn isolate(&mut self) {
        let node = self.rng.random_range(0..self.nodes.len());
        let for_ms = self.cut_ms();
        self.fault("nodes isolated", format_args!("node {node} for {for_ms} ms"));
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cut(node, other, for_ms);
            self.cut(other, node, for_ms);
        }
    }

    fn cut_pair(&mut self) {
        let ((from, to), for_ms) = (self.random_pair(), self.cut_ms());
        self.fault("pairs cut", format_args!("{from} and {to} for {for_ms} ms"));
        self.cut(from, to, for_ms);
        self.cut(to, from, for_ms);
    }

    fn cut_one_way(&mut self) {
        let ((from, to), for_ms) = (self.random_pair(), self.cut_ms());
        self.fault("ways cut in one direction", format_args!("{from} to {to} for {for_ms} ms"));
        self.cut(from, to, for_ms);
        if self.rng.random_ratio(1, 2) {
            for other in (0..self.nodes.len()).filter(|other| *other != from && *other != to) {
                self.cut(from, other, for_ms);
            }
        }
    }

    fn blip(&mut self) {
        let ((from, to), for_ms) = (self.random_pair(), self.rng.random_range(5..400));
        self.fault("blips", format_args!("{from} and {to} for {for_ms} ms"));
        self.cut(from, to, for_ms);
        self.cut(to, from, for_ms);
    }

    fn slow_link(&mut self) {
        let ((from, to), for_ms) = (self.random_pair(), self.cut_ms());
        let delay_ms = self.rng.random_range(20..200);
        let loss = self.rng.random_range(0..200);
        self.fault("slow and lossy links", format_args!("{from} to {to} {delay_ms} ms, loss {loss}/1000, for {for_ms} ms"));
        self.net.change_way(from, to, |way| {
            way.delay_ms = (delay_ms / 2, delay_ms);
            way.loss = loss;
        });
        self.faults.healing.push(Healing::Way { from, to, at_ms: self.now_ms + for_ms });
    }

    fn reset_links(&mut self) {
        let (from, to) = self.random_pair();
        self.fault("connections of a pair reset", format_args!("{from} and {to}"));
        self.net.reset(from, to);
    }

    fn clock_jump(&mut self) {
        let node = self.rng.random_range(0..self.nodes.len());
        let by_ms = self.rng.random_range(-120_000..=120_000);
        let ahead_ms = (self.nodes[node].wall_ahead_ms + by_ms).clamp(-WALL_AHEAD_MAX_MS, WALL_AHEAD_MAX_MS);
        let by_ms = ahead_ms - self.nodes[node].wall_ahead_ms;
        self.fault("jumps of a wall clock", format_args!("node {node} by {by_ms} ms"));
        self.nodes[node].jump(by_ms);
    }

    fn slow_disk(&mut self) {
        let node = self.rng.random_range(0..self.nodes.len());
        let for_ms = self.rng.random_range(50..4_000);
        self.fault("disks that hang", format_args!("node {node} for {for_ms} ms"));
        self.nodes[node].disk_busy_until_ms = self.now_ms + for_ms;
    }

    /// Nothing is wrong at the moment.
    fn is_whole(&self) -> bool {
        let is_well =
            |node: &SimNode| !node.is_paused(self.now_ms) && self.now_ms >= node.disk_busy_until_ms && !node.is_stopping();
        self.faults.refilling.is_none()
            && self.all_are_ready()
            && self.faults.healing.is_empty()
            && self.nodes.iter().all(is_well)
            && self.have_equal_logs()
    }

    /// A node's machine is replaced: it comes back under its name with an empty disk, whatever else is wrong then or goes wrong until it is
    /// filled again. One at a time.
    fn lose_disk(&mut self) {
        if self.faults.refilling.is_some() {
            return;
        }
        let Some(node) = self.random_running() else { return };
        self.fault("disks lost", format_args!("node {node}"));
        self.crash(node, true);
        self.nodes[node].lose_disk();
        self.faults.refilling = Some(node);
    }

    /// A node is stopped, removed from the cluster, and joins anew with an empty disk later.
    fn remove_a_member(&mut self) {
        if self.nodes.len() < 3 || !self.is_whole() {
            return;
        }
        let Some(node) = self.random_running() else { return };
        self.fault("members removed", format_args!("node {node}"));
        self.crash(node, false);
        self.nodes[node].lose_disk();
        self.nodes[node].is_out = true;
        self.faults.refilling = Some(node);
        self.faults.removed = Some((node, self.now_ms + self.rng.random_range(5_000..30_000)));
    }

    pub(super) fn go_on_with_members(&mut self) {
        if let Some((removed, back_ms)) = self.faults.removed {
            if self.now_ms >= back_ms {
                self.faults.removed = None;
                self.nodes[removed].is_out = false;
                self.nodes[removed].restart_at_ms = Some(self.now_ms);
                self.oracle.trace.say(self.now_ms, format_args!("node {removed} may join again"));
            } else if self.now_ms.is_multiple_of(5_000)
                && let Some(asked) = self.random_running()
            {
                let (net, id) = (std::rc::Rc::clone(&self.net), self.nodes[removed].id());
                if !self.nodes[asked].is_paused(self.now_ms) {
                    self.nodes[asked].remove_member(&net, id);
                }
            }
        }
        if self.faults.refilling.is_some_and(|node| self.nodes[node].is_filled(self.nodes.len())) {
            self.faults.refilling = None;
        }
    }

    /// A node, rather one with a publisher, that nobody hears any more, and that loses power soon after: what it acknowledged meanwhile it had
    /// to itself.
    fn cut_off_and_lose_power(&mut self) {
        let busy: Vec<usize> = self.clients.iter().filter(|client| client.is_publisher()).filter_map(SimClient::node).collect();
        let node = if busy.is_empty() { 0 } else { busy[self.rng.random_range(0..busy.len())] };
        if !self.nodes[node].is_running() {
            return;
        }
        let (until_ms, for_ms) = (self.rng.random_range(150..2_500), self.rng.random_range(2_500..8_000));
        self.fault("nodes cut off that lose power", format_args!("node {node} after {until_ms} ms, cut for {for_ms} ms"));
        for other in (0..self.nodes.len()).filter(|other| *other != node) {
            self.cut(node, other, for_ms);
            self.cut(other, node, for_ms);
        }
        self.faults.doomed.push((node, self.now_ms + until_ms));
    }

    fn doom_due(&mut self) {
        let now_ms = self.now_ms;
        let due: Vec<usize> = self.faults.doomed.extract_if(.., |(_, at_ms)| *at_ms <= now_ms).map(|(node, _)| node).collect();
        for node in due {
            if self.nodes[node].is_running() {
                self.oracle.trace.say(now_ms, format_args!("node {node}, cut off, loses power"));
                self.crash(node, true);
            }
        }
    }

    /// Clients that go, come elsewhere, or are silent.
    fn disturb_clients(&mut self) {
        self.oracle.coverage.hit("disturbances of clients");
        for _ in 0..self.rng.random_range(1..4) {
            let client = self.rng.random_range(0..self.clients.len());
            if !self.clients[client].is_online() {
                continue;
            }
            let how = [Ending::Disconnect, Ending::Abort, Ending::Takeover, Ending::Takeover][self.rng.random_range(0..4)];
            self.clients[client].leave(how, self.now_ms, &mut self.oracle);
            let longest = if how == Ending::Takeover { 20 } else { 10_000 };
            self.clients[client].next_connect_ms = self.now_ms + self.rng.random_range(1..longest);
        }
    }

    fn heal_due(&mut self) {
        let now_ms = self.now_ms;
        for Healing::Way { from, to, .. } in self.faults.healing.extract_if(.., |Healing::Way { at_ms, .. }| *at_ms <= now_ms) {
            self.net.change_way(from, to, |way| *way = super::network::Way::default());
        }
    }
}
