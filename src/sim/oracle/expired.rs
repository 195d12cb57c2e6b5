//! What expires in a queue is told once for each receiver, on `$expired`; an acknowledged message is delivered, or told as expired.

use std::collections::BTreeMap;

use crate::mqtt::QoS;

use super::Made;

#[derive(Default)]
pub(super) struct Expiries {
    /// By message and receiver (a client id, or a full shared subscription): the Packet Identifier it was told with first.
    told: BTreeMap<(usize, String), u16>,
}

impl Expiries {
    /// True where it was not told before.
    pub(super) fn told(
        &mut self,
        messages: &[Made],
        (message, receiver): (usize, &str),
        topic: &str,
        packet_id: u16,
    ) -> Result<bool, String> {
        let made = &messages[message];
        if made.expiry_s.is_none() {
            return Err(format!("m{message} is told as expired for {receiver}, and has no expiry"));
        }
        if topic.strip_prefix("$expired/") != Some(&made.topic) {
            return Err(format!("m{message} was published to {} and is told as expired on {topic}", made.topic));
        }
        let first = *self.told.entry((message, receiver.to_owned())).or_insert(packet_id);
        // What its publisher sent again was queued again, unless it is of QoS 2.
        if first != packet_id && (made.sends == 1 || made.qos == QoS::ExactlyOnce) {
            return Err(format!("m{message} is told as expired for {receiver} twice, with identifiers {first} and {packet_id}"));
        }
        Ok(first == packet_id)
    }

    pub(super) fn is_told(&self, message: usize, receiver: &str) -> bool {
        self.told.contains_key(&(message, receiver.to_owned()))
    }
}
