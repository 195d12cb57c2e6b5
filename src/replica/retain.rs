//! Retained messages: one for each topic of this shard.

use std::sync::Arc;

use bytestring::ByteString;

use super::expiry::DueKey;
use super::record_key::RecordKey;
use super::state::State;
use crate::mqtt::Message;

impl State {
    /// Stores a message in place of the one its topic has [MQTT-3.3.1-5]; one without payload, or expired already, only removes
    /// that [MQTT-3.3.1-6] [MQTT-3.3.1-7].
    pub(super) fn retain(&mut self, now_ms: u64, message: &Arc<Message>) {
        let topic = &message.topic;
        if message.payload.is_empty() || message.is_expired(now_ms) {
            self.remove_retained(topic);
            return;
        }
        let former = self.retained.insert(message.clone());
        let former_due_ms = former.and_then(|former| former.expires_at_ms());
        self.due.change(former_due_ms, message.expires_at_ms(), || DueKey::Retained(topic.clone()));
        self.dirty.mark(RecordKey::Retained(topic.clone()));
    }

    pub(super) fn remove_retained(&mut self, topic: &ByteString) {
        let Some(former) = self.retained.remove(topic) else { return };
        self.due.change(former.expires_at_ms(), None, || DueKey::Retained(topic.clone()));
        self.dirty.mark(RecordKey::Retained(topic.clone()));
    }
}
