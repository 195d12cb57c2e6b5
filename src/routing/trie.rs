//! Filters with wildcards, a node for each level.
//!
//! Nodes live in one vector and name each other by number: a filter may have 65,535 levels, and neither matching, removing nor
//! dropping may recurse over them. Freed nodes are used again, and given up when they
//! are most of all.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use smallvec::SmallVec;

use super::collect::MatchedNodes;
use super::filter_node::FilterNode;
use super::small_set::SmallSet;

const ROOT: u32 = 0;
/// No node.
const NIL: u32 = u32::MAX;

/// All filters with wildcards.
#[derive(Debug)]
pub(super) struct Trie {
    nodes: Vec<Node>,
    free: Vec<u32>,
    filters: usize,
}

/// A filter that somebody subscribed to.
#[derive(Debug)]
pub(super) struct Terminal {
    pub(super) filter: Arc<str>,
    pub(super) node: FilterNode,
}

#[derive(Debug)]
struct Node {
    children: SmallSet<Edge>,
    /// The child for the level `+`.
    plus: u32,
    /// The filter that ends here.
    here: Option<Box<Terminal>>,
    /// The filter that ends here but for a `#`.
    hash: Option<Box<Terminal>>,
}

/// The way to a child, found by its level.
#[derive(Debug)]
struct Edge {
    level: Box<str>,
    child: u32,
}

impl PartialEq for Edge {
    fn eq(&self, other: &Self) -> bool {
        self.level == other.level
    }
}

impl Eq for Edge {}

impl Hash for Edge {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.level.hash(state);
    }
}

impl Borrow<str> for Edge {
    fn borrow(&self) -> &str {
        &self.level
    }
}

impl Default for Trie {
    fn default() -> Self {
        Self { nodes: vec![Node::default()], free: Vec::new(), filters: 0 }
    }
}

impl Trie {
    /// Free nodes that are kept whatever their share.
    const FREE_KEPT: usize = 1024;

    /// Number of filters.
    pub(super) fn len(&self) -> usize {
        self.filters
    }

    /// Adds to `found` every filter that matches `topic`.
    pub(super) fn matching<'a>(&'a self, topic: &str, found: &mut MatchedNodes<'a>) {
        let is_reserved = topic.starts_with('$');
        let end = topic.len() + 1;
        // A node to look at, and where in the topic the level below it begins. A node is looked at once, since its depth is fixed.
        let mut stack: SmallVec<[(u32, usize); 32]> = SmallVec::new();
        stack.push((ROOT, 0));
        while let Some((at, from)) = stack.pop() {
            let node = self.node(at);
            // [MQTT-4.7.2-1]
            let wildcards = !(at == ROOT && is_reserved);
            // `#` stands for the parent level too (MQTT 5 section 4.7.1.2).
            if wildcards && let Some(terminal) = &node.hash {
                found.push(&terminal.node);
            }
            let Some(rest) = topic.get(from..) else {
                found.extend(node.here.as_ref().map(|terminal| &terminal.node));
                continue;
            };
            if wildcards && node.plus == NIL && node.children.is_empty() {
                continue;
            }
            let (level, next) = match rest.find('/') {
                Some(slash) => (&rest[..slash], from + slash + 1),
                None => (rest, end),
            };
            if wildcards && node.plus != NIL {
                stack.push((node.plus, next));
            }
            if let Some(edge) = node.children.get(level) {
                stack.push((edge.child, next));
            }
        }
    }

    pub(super) fn get(&self, filter: &str) -> Option<&Terminal> {
        let (levels, is_hash) = levels(filter);
        let mut at = ROOT;
        for level in levels {
            at = self.child(at, level)?;
        }
        let node = self.node(at);
        if is_hash { node.hash.as_deref() } else { node.here.as_deref() }
    }

    /// The filter, made where it is not known.
    pub(super) fn entry(&mut self, filter: &str) -> &mut Terminal {
        let at = self.path_to(filter);
        let made = &mut self.filters;
        self.nodes[at as usize].slot(filter).get_or_insert_with(|| {
            *made += 1;
            Box::new(Terminal { filter: filter.into(), node: FilterNode::default() })
        })
    }

    /// Changes a filter, and takes it out with all nodes that served it alone if nothing is left of it.
    pub(super) fn change<R>(&mut self, filter: &str, change: impl FnOnce(&mut FilterNode) -> R) -> Option<R> {
        let mut path: SmallVec<[(u32, &str); 32]> = SmallVec::new();
        let mut at = ROOT;
        for level in levels(filter).0 {
            path.push((at, level));
            at = self.child(at, level)?;
        }
        let slot = self.nodes[at as usize].slot(filter);
        let terminal = slot.as_mut()?;
        let result = change(&mut terminal.node);
        if !terminal.node.is_empty() {
            return Some(result);
        }
        *slot = None;
        self.filters -= 1;
        while let Some((parent, level)) = path.pop()
            && self.node(at).is_bare()
        {
            self.unlink(parent, level);
            self.nodes[at as usize] = Node::default();
            self.free.push(at);
            at = parent;
        }
        let most_are_free = self.free.len() > Self::FREE_KEPT && self.free.len() / 4 * 5 > self.nodes.len();
        if most_are_free || self.filters == 0 {
            self.rebuild();
        }
        Some(result)
    }

    /// Nodes in use, the root not counted.
    #[cfg(test)]
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len() - 1 - self.free.len()
    }

    #[cfg(test)]
    pub(super) fn allocated(&self) -> usize {
        self.nodes.capacity()
    }

    /// Puts the filters into a new vector of nodes, since most nodes of this one are free.
    fn rebuild(&mut self) {
        let old = std::mem::take(self);
        self.filters = old.filters;
        for terminal in old.nodes.into_iter().flat_map(|node| [node.here, node.hash]).flatten() {
            let filter = Arc::clone(&terminal.filter);
            let at = self.path_to(&filter);
            *self.nodes[at as usize].slot(&filter) = Some(terminal);
        }
    }

    /// The node at which a filter is kept, made with those above it.
    fn path_to(&mut self, filter: &str) -> u32 {
        let mut at = ROOT;
        for level in levels(filter).0 {
            at = self.child_or_new(at, level);
        }
        at
    }

    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn child(&self, at: u32, level: &str) -> Option<u32> {
        let node = self.node(at);
        if level == "+" { (node.plus != NIL).then_some(node.plus) } else { node.children.get(level).map(|edge| edge.child) }
    }

    fn child_or_new(&mut self, at: u32, level: &str) -> u32 {
        if let Some(child) = self.child(at, level) {
            return child;
        }
        let child = self.allocate();
        let node = &mut self.nodes[at as usize];
        if level == "+" {
            node.plus = child;
        } else {
            node.children.insert(Edge { level: level.into(), child });
        }
        child
    }

    fn allocate(&mut self) -> u32 {
        if let Some(reused) = self.free.pop() {
            return reused;
        }
        #[expect(clippy::cast_possible_truncation, reason = "four billion nodes would be over 200 GB")]
        let at = self.nodes.len() as u32;
        self.nodes.push(Node::default());
        at
    }

    fn unlink(&mut self, parent: u32, level: &str) {
        let node = &mut self.nodes[parent as usize];
        if level == "+" {
            node.plus = NIL;
        } else {
            node.children.remove(level);
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Self { children: SmallSet::Empty, plus: NIL, here: None, hash: None }
    }
}

impl Node {
    /// Where a filter is kept whose levels (without a last `#`) lead to this node.
    fn slot(&mut self, filter: &str) -> &mut Option<Box<Terminal>> {
        if levels(filter).1 { &mut self.hash } else { &mut self.here }
    }

    fn is_bare(&self) -> bool {
        self.children.is_empty() && self.plus == NIL && self.here.is_none() && self.hash.is_none()
    }
}

/// The levels of a filter without a last `#`, and whether there is one.
fn levels(filter: &str) -> (impl Iterator<Item = &str>, bool) {
    let (path, is_hash) = match filter.strip_suffix('#') {
        Some("") => (None, true),
        Some(before) if before.ends_with('/') => (before.strip_suffix('/'), true),
        _ => (Some(filter), false),
    };
    (path.into_iter().flat_map(|path| path.split('/')), is_hash)
}
