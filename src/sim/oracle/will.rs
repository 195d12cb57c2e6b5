//! Every will is published once where its connection ended without DISCONNECT, never where it ended with one, never twice.

use super::super::client::Profile;
use super::Ending;

/// A DISCONNECT so shortly before a node's end may not have been read, ms.
const UNREAD_MS: u64 = 3_000;

struct Will {
    client: usize,
    delay_s: u32,
    /// CONNACK came: the broker has it.
    connected: bool,
    ended: Option<(Ending, u64)>,
    /// A node ended about when DISCONNECT was sent.
    doubtful: bool,
    /// Packet Identifier it came with.
    seen: Option<u16>,
}

#[derive(Default)]
pub(super) struct Wills {
    all: Vec<Will>,
    last_crash_ms: Option<u64>,
}

impl Wills {
    pub(super) fn made(&mut self, client: usize, delay_s: u32, _now_ms: u64) -> usize {
        self.all.push(Will { client, delay_s, connected: false, ended: None, doubtful: false, seen: None });
        self.all.len() - 1
    }

    pub(super) fn connected(&mut self, _client: usize, will: Option<usize>, _now_ms: u64) {
        if let Some(will) = will {
            self.all[will].connected = true;
        }
    }

    pub(super) fn ended(&mut self, will: Option<usize>, how: Ending, now_ms: u64) {
        if let Some(will) = will {
            self.all[will].ended = Some((how, now_ms));
            self.all[will].doubtful |= self.last_crash_ms.is_some_and(|at| now_ms < at + UNREAD_MS);
        }
    }

    pub(super) fn node_crashed(&mut self, now_ms: u64) {
        self.last_crash_ms = Some(now_ms);
        for will in &mut self.all {
            will.doubtful |= will.ended.is_some_and(|(_, at)| now_ms < at + UNREAD_MS);
        }
    }

    pub(super) fn delivered(&mut self, number: &str, packet_id: u16) -> Result<(), String> {
        let Some(will) = number.parse().ok().and_then(|number: usize| self.all.get_mut(number)) else {
            return Err(format!("will w{number} was never set"));
        };
        match will.seen {
            Some(first) if first != packet_id => {
                Err(format!("will w{number} was published twice (identifiers {first}, {packet_id})"))
            }
            _ => {
                will.seen = Some(packet_id);
                Ok(())
            }
        }
    }

    pub(super) fn at_rest(&self, profiles: &[Profile]) -> Result<(), String> {
        for (number, will) in self.all.iter().enumerate() {
            let Some((how, _)) = will.ended else { continue };
            let client = &profiles[will.client];
            // A later connection within the delay takes the will back [MQTT-3.1.3-9]; whether it was in time nobody here can tell.
            let certain = will.connected && (will.delay_s == 0 || !client.persistent);
            match (how, will.seen) {
                (Ending::Disconnect, Some(_)) if !will.doubtful => {
                    return Err(format!("will w{number} of {} was published in spite of DISCONNECT", client.id));
                }
                (Ending::Abort | Ending::Takeover | Ending::ByNode, None) if certain => {
                    return Err(format!("will w{number} of {} was never published ({how:?})", client.id));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
