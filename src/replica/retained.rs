//! Retained messages by topic: placeholder with the interface of the tree.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytestring::ByteString;

use crate::mqtt::{Message, topic_filter};

/// Retained messages by topic.
#[derive(Debug, Default)]
pub struct RetainedTree {
    messages: BTreeMap<ByteString, Arc<Message>>,
    bytes: usize,
}

impl RetainedTree {
    /// Stores a message, returns the one it replaces.
    pub fn insert(&mut self, message: Arc<Message>) -> Option<Arc<Message>> {
        self.bytes += message.size_bytes();
        let former = self.messages.insert(message.topic.clone(), message);
        self.bytes -= former.as_ref().map_or(0, |m| m.size_bytes());
        former
    }

    pub fn remove(&mut self, topic: &str) -> Option<Arc<Message>> {
        let former = self.messages.remove(topic);
        self.bytes -= former.as_ref().map_or(0, |m| m.size_bytes());
        former
    }

    pub fn get(&self, topic: &str) -> Option<Arc<Message>> {
        self.messages.get(topic).cloned()
    }

    pub fn matching(&self, filter: &str) -> Vec<Arc<Message>> {
        let matches = |m: &&Arc<Message>| &*m.topic == filter || topic_filter::matches(filter, &m.topic);
        self.messages.values().filter(matches).cloned().collect()
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
