//! Knows what clients were told, and says at once when what they are told next does not fit.
//!
//! One file an invariant: `delivery` (at least once, exactly once, order), `expired`, `retained`, `will`, `lifecycle`. What can only be judged when
//! everything has come to rest (nothing acknowledged is missing) is in each file's `at_rest`.

mod delivery;
mod expired;
mod lifecycle;
mod retained;
mod will;

use crate::mqtt::packet::Publish;
use crate::mqtt::{QoS, ReasonCode};

use super::client::Profile;
use super::coverage::Coverage;
use super::trace::Trace;

use delivery::Deliveries;
use expired::Expiries;
use lifecycle::Lifecycles;
use retained::Retained;
use will::Wills;

/// How a connection ended, as its client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Disconnect,
    /// Closed without DISCONNECT.
    Abort,
    /// Left open; the client connects elsewhere.
    Takeover,
    /// Closed by the node, or the node is gone.
    ByNode,
}

/// A message that was published, or is about to be.
#[derive(Debug, Clone)]
pub struct Made {
    pub publisher: usize,
    pub topic: String,
    pub qos: QoS,
    pub expiry_s: Option<u32>,
    pub retain: bool,
    /// How often PUBLISH was sent, and first when.
    pub sends: u32,
    pub first_sent_ms: u64,
    pub acked_ms: Option<u64>,
}

pub struct Oracle {
    pub trace: Trace,
    pub coverage: Coverage,
    /// What was found first.
    pub failure: Option<String>,
    pub profiles: Vec<Profile>,
    pub messages: Vec<Made>,
    deliveries: Deliveries,
    expiries: Expiries,
    retained: Retained,
    wills: Wills,
    lifecycles: Lifecycles,
}

impl Oracle {
    pub fn new(trace: Trace, profiles: Vec<Profile>, nodes: usize) -> Self {
        Self {
            trace,
            coverage: Coverage::default(),
            failure: None,
            messages: Vec::new(),
            deliveries: Deliveries::new(&profiles),
            expiries: Expiries::default(),
            retained: Retained::new(profiles.len(), nodes),
            wills: Wills::default(),
            lifecycles: Lifecycles::new(&profiles),
            profiles,
        }
    }

    pub fn fail(&mut self, what: String) {
        if self.failure.is_none() {
            self.failure = Some(what);
        }
    }

    pub fn name(&self, client: usize) -> &str {
        &self.profiles[client].id
    }

    pub fn message_made(&mut self, publisher: usize, topic: String, qos: QoS, expiry_s: Option<u32>, retain: bool) -> usize {
        self.messages.push(Made { publisher, topic, qos, expiry_s, retain, sends: 0, first_sent_ms: 0, acked_ms: None });
        self.messages.len() - 1
    }

    pub fn message_sent(&mut self, message: usize, now_ms: u64) -> Made {
        let made = &mut self.messages[message];
        made.sends += 1;
        if made.sends == 1 {
            made.first_sent_ms = now_ms;
        } else {
            self.coverage.hit("messages sent again by their publisher");
        }
        made.clone()
    }

    /// PUBACK or PUBREC.
    pub fn acknowledged(&mut self, message: usize, code: ReasonCode, now_ms: u64) {
        if code.is_error() {
            self.coverage.hit("messages refused");
            return;
        }
        self.coverage.hit("messages acknowledged");
        self.messages[message].acked_ms.get_or_insert(now_ms);
        if self.messages[message].retain {
            self.retained.acknowledged(&self.messages, message);
        }
    }

    pub fn connect_sent(&mut self, client: usize) {
        self.lifecycles.connect_sent(client);
    }

    pub fn connected(&mut self, client: usize, will: Option<usize>, present: bool, expected: bool, now_ms: u64) {
        self.coverage.hit("connections accepted");
        if expected && !present {
            self.fail(format!("the session of {} is lost", self.name(client)));
        }
        if !self.profiles[client].persistent {
            if present {
                self.fail(format!("{} asked for a new session and was given another", self.name(client)));
            }
            self.deliveries.session_ended(client);
        }
        self.lifecycles.connected(client);
        self.wills.connected(client, will, now_ms);
    }

    pub fn ended(&mut self, client: usize, will: Option<usize>, how: Ending, now_ms: u64) {
        if how == Ending::Takeover {
            self.coverage.hit("takeovers");
        }
        self.wills.ended(will, how, now_ms);
        self.retained.left(client);
    }

    pub fn subscribing(&mut self, client: usize, node: usize, now_ms: u64) {
        self.retained.subscribing(client, node, now_ms);
    }

    pub fn subscribed(&mut self, client: usize, now_ms: u64) {
        self.lifecycles.subscribed(&self.profiles[client]);
        self.deliveries.subscribed(client, now_ms);
    }

    /// A visitor stayed for as long as retained messages may take.
    pub fn visited(&mut self, client: usize, node: usize, now_ms: u64) {
        self.coverage.hit("retained messages looked at");
        if let Err(what) = self.retained.visited(client, node, now_ms) {
            self.fail(format!("{}: {what}", self.name(client)));
        }
    }

    /// Links of a node are cut: what it serves may be old until it knows (ARCHITECTURE, known limits).
    pub fn node_cut_off(&mut self, node: usize, now_ms: u64) {
        self.retained.node_cut_off(node, now_ms);
    }

    /// A node's process is gone.
    pub fn node_crashed(&mut self, now_ms: u64) {
        self.wills.node_crashed(now_ms);
    }

    pub fn will_made(&mut self, client: usize, delay_s: u32, now_ms: u64) -> usize {
        self.wills.made(client, delay_s, now_ms)
    }

    /// The application of a client is given a message.
    pub fn delivered(&mut self, client: usize, node: usize, publish: &Publish, packet_id: u16, now_ms: u64) {
        self.coverage.hit("messages delivered");
        let text = String::from_utf8_lossy(&publish.payload).into_owned();
        let checked = match text.split_at_checked(1) {
            Some(("m", number)) => {
                let Some(message) = number.parse().ok().filter(|number| *number < self.messages.len()) else {
                    return self.fail(format!("{} was given {text}, which nobody published", self.name(client)));
                };
                if publish.topic.starts_with("$expired/") {
                    return self.expired(publish, message, packet_id);
                }
                self.message_delivered(client, node, publish, message, packet_id, now_ms)
            }
            Some(("w", number)) => self.wills.delivered(number, packet_id),
            Some(("{", _)) => self.lifecycles.delivered(&self.profiles, &publish.topic, &text, packet_id),
            _ => Err(format!("{text} on {} is nothing anybody published", publish.topic)),
        };
        if let Err(what) = checked {
            self.fail(format!("{}: {what}", self.name(client)));
        }
    }

    fn expired(&mut self, publish: &Publish, message: usize, packet_id: u16) {
        let receiver = ["hmq-exp-client", "hmq-exp-shared-subscription"]
            .iter()
            .find_map(|wanted| publish.properties.user_properties.iter().find(|(name, _)| name == wanted))
            .map_or("", |(_, value)| value.as_ref());
        match self.expiries.told(&self.messages, (message, receiver), &publish.topic, packet_id) {
            Ok(true) => self.coverage.hit("messages told as expired"),
            Ok(false) => {}
            Err(what) => self.fail(what),
        }
    }

    fn message_delivered(
        &mut self,
        client: usize,
        node: usize,
        publish: &Publish,
        message: usize,
        packet_id: u16,
        now_ms: u64,
    ) -> Result<(), String> {
        let made = &self.messages[message];
        if *publish.topic != *made.topic {
            return Err(format!("m{message} was published to {} and came on {}", made.topic, publish.topic));
        }
        if made.sends == 0 {
            return Err(format!("m{message} came before it was published"));
        }
        if made.retain {
            return self.retained.delivered(&self.messages, client, node, message, publish.retain, now_ms);
        }
        let again = self.deliveries.delivered(&self.messages, client, message, publish.qos, packet_id)?;
        if again {
            self.coverage.hit("messages delivered again");
        }
        Ok(())
    }

    /// Everything is healed, all clients are online and nothing is under way: nothing may be missing.
    pub fn at_rest(&mut self, online: &[usize]) {
        let missing = self
            .deliveries
            .at_rest(&self.messages, &self.profiles, &self.expiries)
            .and_then(|()| self.wills.at_rest(&self.profiles))
            .and_then(|()| self.lifecycles.at_rest(&self.profiles, online));
        if let Err(what) = missing {
            self.fail(what);
        }
    }
}

/// Whether a filter without share name matches a topic.
fn matches(filter: &str, topic: &str) -> bool {
    let mut levels = topic.split('/');
    for part in filter.split('/') {
        match (part, levels.next()) {
            ("#", _) => return true,
            (_, None) => return false,
            ("+", Some(_)) => {}
            (part, Some(level)) if part != level => return false,
            _ => {}
        }
    }
    levels.next().is_none()
}
