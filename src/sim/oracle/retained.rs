//! What a new subscriber is given as retained is never older than what was acknowledged before it subscribed.

use std::collections::BTreeMap;

use super::Made;

/// After its links are whole again a node may serve what is old for so long, ms.
const KNOWS_AGAIN_MS: u64 = 15_000;

pub(super) struct Retained {
    /// By topic: the newest acknowledged message.
    acked: BTreeMap<String, usize>,
    visits: Vec<Option<Visit>>,
    cut_off_ms: Vec<Option<u64>>,
}

/// A subscriber, and by topic what it must be given at least, and was given.
struct Visit {
    excused: bool,
    expected: BTreeMap<String, usize>,
    given: BTreeMap<String, usize>,
}

impl Retained {
    pub(super) fn new(clients: usize, nodes: usize) -> Self {
        Self { acked: BTreeMap::new(), visits: (0..clients).map(|_| None).collect(), cut_off_ms: vec![None; nodes] }
    }

    pub(super) fn acknowledged(&mut self, messages: &[Made], message: usize) {
        let newest = self.acked.entry(messages[message].topic.clone()).or_default();
        *newest = (*newest).max(message);
    }

    pub(super) fn node_cut_off(&mut self, node: usize, now_ms: u64) {
        self.cut_off_ms[node] = Some(now_ms);
    }

    fn is_cut_off(&self, node: usize, now_ms: u64) -> bool {
        self.cut_off_ms[node].is_some_and(|at| now_ms < at + KNOWS_AGAIN_MS)
    }

    pub(super) fn subscribing(&mut self, client: usize, node: usize, now_ms: u64) {
        let excused = self.is_cut_off(node, now_ms);
        self.visits[client] = Some(Visit { excused, expected: self.acked.clone(), given: BTreeMap::new() });
    }

    pub(super) fn left(&mut self, client: usize) {
        self.visits[client] = None;
    }

    pub(super) fn delivered(
        &mut self,
        messages: &[Made],
        client: usize,
        node: usize,
        message: usize,
        retain: bool,
        now_ms: u64,
    ) -> Result<(), String> {
        let cut_off = self.is_cut_off(node, now_ms);
        let Some(visit) = &mut self.visits[client] else { return Ok(()) };
        visit.excused |= cut_off;
        let topic = &messages[message].topic;
        let given = visit.given.entry(topic.clone()).or_default();
        *given = (*given).max(message);
        match visit.expected.get(topic) {
            Some(expected) if retain && !visit.excused && message < *expected => {
                Err(format!("m{message} is retained on {topic} though m{expected} was acknowledged before"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn visited(&mut self, client: usize, node: usize, now_ms: u64) -> Result<(), String> {
        let cut_off = self.is_cut_off(node, now_ms);
        let Some(visit) = self.visits[client].take().filter(|visit| !visit.excused && !cut_off) else { return Ok(()) };
        for (topic, expected) in &visit.expected {
            if visit.given.get(topic).is_none_or(|given| given < expected) {
                return Err(format!("nothing is retained on {topic} though m{expected} was acknowledged before"));
            }
        }
        Ok(())
    }
}
